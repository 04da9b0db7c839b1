"""The tasks of a backfill: the steps of a form, their order, and a complete run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
)

from rewindow.cli import main
from rewindow.ledger import Ledger
from rewindow.planning import ReplayRequest, create_replay
from rewindow.settings.config import Config
from rewindow_airflow.backfills import PlanStepsOperator, ReplayStepOperator
from rewindow_airflow.forms import backfill_params
from rewindow_airflow.identity import replays_of_run
from tests.airflow.conftest import ROOT, assert_success, in_force
from tests.airflow.small_project import FIRST_DAY, make_project, record

FIRST = int(FIRST_DAY.timestamp()) // 3600
FORM = {"application": "clicks_by_page", "reason": "a year again", "initial_state": True}
BY_WINDOWS = {"range_as": "windows", "first_window": FIRST, "last_window": FIRST + 71}


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    config = Config.load(make_project(tmp_path / "project", ROOT))
    record(config)
    with in_force(config):
        yield config


def steps_of(try_number: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """Returns the steps of a form, as Airflow validates it."""
    params = ParamsDict(backfill_params(["clicks_by_page"]))
    params.update(FORM | BY_WINDOWS | changes)
    context = {
        "dag_run": SimpleNamespace(dag_id="backfill_range", run_id="manual__1", conf={}),
        "dag": SimpleNamespace(params=backfill_params([])),
        "task": SimpleNamespace(params={}),
        "params": params.validate(),
        "ti": SimpleNamespace(try_number=try_number, max_tries=1),
    }
    operator = PlanStepsOperator(task_id="plan_steps", retries=0)
    return operator.execute(context)  # type: ignore[arg-type]


def test_form_is_divided_into_steps_whose_ids_share_the_prefix_of_the_run(config: Config) -> None:
    steps = steps_of()
    prefix = steps[0]["replay"].removesuffix(f"-{FIRST}-{FIRST + 23}")
    assert prefix.startswith("backfill_range-")
    assert [step["replay"] for step in steps] == [
        f"{prefix}-{first}-{first + 23}" for first in (FIRST, FIRST + 24, FIRST + 48)
    ]
    assert [step["needs_previous"] for step in steps] == [False, True, True]
    words = " ".join(steps[1]["command"])
    assert words.startswith(f"replay clicks_by_page --id {prefix} --step 1 d --first {FIRST + 24}")
    assert words.endswith("--reason a year again --publish")
    assert steps == steps_of()


def test_staged_steps_start_with_the_state_of_the_replay_before(config: Config) -> None:
    first, second, _ = steps_of(publish="staged")
    assert "--initial-state" in first["command"]
    assert "--publish" not in second["command"]
    assert second["command"][second["command"].index("--state-from") + 1] == first["replay"]


def test_clear_plans_the_steps_again_that_have_not_ended_if_their_code_has_changed(
    config: Config,
) -> None:
    ledger = Ledger.open(config.ledger_url)
    step = steps_of(step="3 d")[0]
    request = ReplayRequest(
        "clicks_by_page", replay_id=step["replay"], first=FIRST, last=FIRST + 71, initial_state=True
    )
    create_replay(config, request)
    assert steps_of(step="3 d", try_number=2)[0]["replay"] == step["replay"]
    code = config.applications[0] / "clicks_by_page.py"
    code.write_text(code.read_text().replace('"amount"]', '"amount"]  # fixed').replace("12", "6"))
    assert steps_of(step="3 d", try_number=1)[0]["replay"] == step["replay"]
    assert steps_of(step="3 d", try_number=2)[0]["replay"] == f"{step['replay']}-2"
    row = ledger.replays.get(step["replay"])
    assert row.state == "abandoned" and "run manual__1 was cleared" in row.message


def test_replays_of_a_backfill_are_found_by_their_run(config: Config) -> None:
    step = steps_of()[1]
    request = ReplayRequest(
        "clicks_by_page",
        replay_id=step["replay"],
        first=FIRST,
        last=FIRST + 23,
        initial_state=True,
    )
    create_replay(config, request)
    ledger = Ledger.open(config.ledger_url)
    assert replays_of_run(ledger, "backfill_range", "manual__1") == [step["replay"]]


@pytest.mark.parametrize("changes", [{"step": "soon"}, {"publish": "approve"}, {"reuse": "one"}])
def test_form_of_a_backfill_rejects_invalid_values(changes: dict[str, Any], config: Config) -> None:
    with pytest.raises(Exception, match=next(iter(changes))):
        steps_of(**changes)


def test_newest_first_is_rejected_for_an_application_with_state(config: Config) -> None:
    with pytest.raises(AirflowFailException, match="cannot run newest first"):
        steps_of(newest_first=True)


@pytest.mark.parametrize(
    ("state", "expected", "words"),
    [
        ("running", AirflowRescheduleException, ""),
        ("up_for_retry", AirflowRescheduleException, ""),
        ("failed", AirflowFailException, "step 1 of this run.*is failed\n  Hint: .*clear this run"),
    ],
)
def test_step_waits_for_the_one_before_it_and_fails_with_it(
    config: Config, state: str, expected: type[AirflowException], words: str
) -> None:
    class Instance(SimpleNamespace):
        def get_task_states(self, **_: Any) -> dict[str, Any]:
            return {"run": {"replay_steps_1": state}}

    operator = ReplayStepOperator(task_id="replay_steps", step=steps_of()[2])
    instance = Instance(dag_id="d", task_id="replay_steps", run_id="run", map_index=2)
    with pytest.raises(expected, match=words):
        operator.execute({"ti": instance, "task_reschedule_count": 0})  # type: ignore[arg-type]


@pytest.mark.long
def test_backfill_publishes_every_step_and_a_clear_repeats_none(
    airflow_database: None, config: Config
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(ROOT / "dags" / "backfill_range.py"), collect_dags=True)
    assert not bag.import_errors
    dag = bag.dags["backfill_range"]
    for task in dag.tasks:
        task.retries = 0
    run = dag.test(run_conf=FORM | BY_WINDOWS)
    assert_success(run)
    assert len(run.get_task_instances()) == 4
    rows = Ledger.open(config.ledger_url).replays.newest("clicks_by_page")
    assert [row.state.value for row in rows] == ["published"] * 3
    plans = sorted((row.read_plan() for row in rows), key=lambda plan: plan.first)
    assert [plan.start.source for plan in plans] == ["initial", "published", "published"]
    assert {(plan.dag, plan.run) for plan in plans} == {(run.dag_id, run.run_id)}
    # A clear runs the same commands again.
    words = ["replay", "clicks_by_page", "--id", plans[0].replay_id.rsplit("-", 2)[0]]
    with pytest.raises(SystemExit) as end:
        main([*words, "--step", "1 d", "--publish"])
    assert not end.value.code
    assert Ledger.open(config.ledger_url).replays.newest("clicks_by_page") == rows
