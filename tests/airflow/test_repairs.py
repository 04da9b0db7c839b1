"""The task that repairs: what it shows where it may change nothing, and what it does where it
may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    TaskAwaitingInput,
)

from rewindow.launcher import loop
from rewindow.launcher.verbs import publish, record, replay
from rewindow.ledger import Ledger
from rewindow.quality import check
from rewindow.repairs.find import find_repairs
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow_airflow import repairs
from rewindow_airflow.repairs import RepairOperator
from rewindow_airflow.spark_process import SparkProcess
from tests.airflow.conftest import ROOT, assert_success, in_force
from tests.airflow.small_project import FIRST_DAY, make_project
from tests.airflow.small_project import record as record_without_spark
from tests.airflow.test_assets import events
from tests.airflow.test_operators import Store
from tests.airflow.test_runs import dag_of
from tests.recovery.here import jobs_here
from tests.recovery.project import make_stream
from tests.repairs.test_find import EVENTS, FIRST, LAST, published, seal_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOTALS = "clicks_by_page.totals"
MENDING = """
from rewindow_airflow import repair, scheduled_dag

with scheduled_dag("mend"):
    repair()
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Settings in force, with a stream of which something is published."""
    (tmp_path / "rewindow.toml").write_text('state = "state"\n')
    found = Config.load(tmp_path / "rewindow.toml")
    make_stream(
        found,
        "flights",
        EVENTS.empty_table(),
        dict.fromkeys(range(FIRST, LAST + 1), 0),
        width_ms=3_600_000,
    )
    published(found, "one", outputs=("delays",))
    with in_force(found):
        yield found


def task() -> tuple[RepairOperator, dict[str, Any]]:
    operator = RepairOperator(task_id="repair_windows")
    instance = SimpleNamespace(id="1")
    return operator, {
        "task": operator,
        "task_instance": instance,
        "task_state_store": Store(),
    }


def test_repair_dry_run_logs_the_command_and_changes_nothing(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    log = SimpleNamespace(
        **dict.fromkeys(("info", "warning"), lambda text, *values: told.append(text % values))
    )
    monkeypatch.setattr(RepairOperator, "log", log)
    operator, context = task()
    assert operator.execute(context) == {
        "late": [],
        "replays": [],
        "unknown": [],
        "repaired": False,
    }
    assert told[-1] == "Nothing to repair"
    told.clear()
    seal_again(config, 105)
    before = Ledger.open(config.ledger_url).replays.newest()
    assert [one["first"] for one in operator.execute(context)["replays"]] == [105]
    assert told[-5:-1] == [
        "to be replayed: app, windows [105, 105] (1970-01-05T09:00:00Z to 1970-01-05T10:00:00Z)",
        "    windows of flights that have changed since replay one read it: 1",
        "    in a shell: rewindow replay app --first 105 --last 105",
        "Nothing was changed\n"
        "  In Airflow: start the DAG act_on_stream with action repair.\n"
        "  Hint: In a shell: rewindow repair --run",
    ]
    assert Ledger.open(config.ledger_url).replays.newest() == before


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (("repair", "--nosuch"), AirflowFailException, "bad input"),
        (("repair", "--run"), AirflowFailException, 'application "app" is unknown'),
    ],
)
def test_failed_repair_reports_the_last_lines_of_its_command(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    kind: type[Exception],
    words: str,
) -> None:
    monkeypatch.setenv("REWINDOW_AIRFLOW__REPAIRS", "true")
    monkeypatch.setattr(repairs, "_COMMAND", command)
    seal_again(config, 105)
    operator, context = task()
    with pytest.raises(kind, match=words):
        operator.execute(context)


@pytest.mark.parametrize(
    ("exit_code", "is_final"),
    [(65, True), (75, False), (-9, False), (137, False)],
)
def test_exit_code_of_a_repair_determines_whether_it_is_retried(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    exit_code: int,
    is_final: bool,
) -> None:
    monkeypatch.setenv("REWINDOW_AIRFLOW__REPAIRS", "true")
    monkeypatch.setattr(SparkProcess, "run", lambda process: exit_code)
    seal_again(config, 105)
    operator, context = task()
    with pytest.raises(AirflowException) as caught:
        operator.execute(context)
    assert isinstance(caught.value, AirflowFailException) == is_final


def test_repair_ended_by_airflow_resumes_in_the_same_try(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_AIRFLOW__REPAIRS", "true")
    seal_again(config, 105)
    operator, context = task()

    def ended(process: SparkProcess) -> int:
        operator.on_kill()
        return -15

    monkeypatch.setattr(SparkProcess, "run", ended)
    with pytest.raises(AirflowRescheduleException):
        operator.execute(context)


@pytest.fixture
def asking(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[RepairOperator, dict[str, Any], dict[str, Any]]:
    """The task with its context and its question: a window must be repaired, and a person must
    approve it.
    """
    monkeypatch.setenv("REWINDOW_AIRFLOW__REPAIRS", "approve")
    asked: dict[str, Any] = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: asked.update(values))
    seal_again(config, 105)
    operator, context = task()
    with pytest.raises(TaskAwaitingInput):
        operator.execute(context)
    return operator, context, asked


def answer(option: str) -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": {"id": "admin", "name": "admin"},
    }


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that the task has run, each with success."""
    commands: list[Sequence[str]] = []

    def run(process: SparkProcess) -> int:
        commands.append(process.command[-2:])
        return 0

    monkeypatch.setattr(SparkProcess, "run", run)
    return commands


def test_question_lists_the_windows_to_repair_with_their_times(asking: Any) -> None:
    _, _, asked = asking
    assert asked["options"] == ["Approve", "Reject"]
    line = "to be replayed: app, windows [105, 105] (1970-01-05T09:00:00Z to 1970-01-05T10:00:00Z)"
    assert line in asked["body"]


@pytest.mark.parametrize(("option", "is_run"), [("Approve", True), ("Reject", False)])
def test_repair_runs_only_after_approval(
    asking: Any,
    runs: list[Sequence[str]],
    option: str,
    is_run: bool,
) -> None:
    operator, context, _ = asking
    assert runs == []
    assert operator.execute_complete(context, answer(option))["repaired"] is is_run
    assert runs == ([["repair", "--run"]] if is_run else [])


def test_approval_is_valid_for_a_retry_but_not_after_the_repair(
    asking: Any,
    runs: list[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator, context, _ = asking
    with monkeypatch.context() as patch:
        patch.setattr(SparkProcess, "run", lambda process: 75)
        with pytest.raises(AirflowException):
            operator.execute_complete(context, answer("Approve"))
    assert operator.execute(context)["repaired"] and len(runs) == 1
    with pytest.raises(TaskAwaitingInput):
        operator.execute(context)


def test_task_asks_again_when_other_windows_must_be_repaired(
    asking: Any,
    runs: list[Sequence[str]],
    config: Config,
) -> None:
    operator, context, _ = asking
    seal_again(config, 108)
    with pytest.raises(AirflowException, match="other windows must be repaired") as caught:
        operator.execute_complete(context, answer("Approve"))
    assert not isinstance(caught.value, AirflowFailException)
    with pytest.raises(TaskAwaitingInput):
        operator.execute(context)
    assert runs == []


def test_task_asks_only_once_if_there_is_no_answer(asking: Any) -> None:
    operator, context, _ = asking
    with pytest.raises(AirflowFailException, match="not answered in time"):
        operator.execute_complete(context, {"error": "late", "error_type": "timeout"})


def test_repairs_run_after_all_publications_of_the_dag_unless_one_failed(
    dags: Mapping[str, Any],
) -> None:
    found = dags["fill_heartbeat_gaps"].get_task("repair_windows")
    assert isinstance(found, RepairOperator)
    assert found.upstream_task_ids == {"clicks.publish_filling"}
    assert (found.trigger_rule, found.pool) == ("none_failed", "spark")


@pytest.mark.long
def test_repair_run_publishes_late_tuples_exactly_once(
    airflow_database: None,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Config.load(make_project(tmp_path / "mended", ROOT))
    record_without_spark(config)
    with in_force(config), monkeypatch.context() as patch:
        patch.setattr(loop, "run", jobs_here(spark))
        replay(config, "clicks_by_page", replay_id="before")
        check(config, "before")
        publish(config, "before")
        with (config.root / "clicks.csv").open("a") as source:
            source.write(f"home,{FIRST_DAY:%Y-%m-%dT}05:30:00Z,1000\n")
        assert record(config, "clicks").late == 1
    DagBundlesManager().sync_bundles_to_db()
    dag = dag_of(tmp_path, MENDING)
    seen = len(events(0, TOTALS))
    ledger = Ledger.open(config.ledger_url)
    with in_force(config):
        assert_success(dag.test())
        assert [one.tuples for one in find_repairs(config).late] == [1]
        monkeypatch.setenv("REWINDOW_AIRFLOW__REPAIRS", "true")
        assert_success(dag.test())
        assert not find_repairs(config).steps
        replays = ledger.replays.newest()
        assert_success(dag.test())
    assert ledger.replays.newest() == replays
    emitted = [(one["publication"], one["act"]) for _, one in events(seen, TOTALS)]
    made = [(one.number, one.kind) for one in ledger.publications.newest()]
    assert emitted == made[::-1] and len(made) > 1
    late = int(FIRST_DAY.timestamp()) // 3600 + 5
    totals = query(
        f"select window_id, total from t where page = 'home' and window_id in ({late - 1}, {late}) "
        "order by 1",
        t=Table.open(config.stream_table(TOTALS)),
    )["total"].to_pylist()
    assert totals == [sum(hour % 7 for hour in range(5)), sum(hour % 7 for hour in range(6)) + 1000]
