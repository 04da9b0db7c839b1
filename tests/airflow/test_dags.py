"""Policy over all DAGs: what exists, what each must have, what parsing may cost."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rewindow.settings.config import Config

ROOT = Path(__file__).parents[2]
IDS = {
    "act_on_replay",
    "act_on_stream",
    "backfill_range",
    "deliver_windows",
    "drill_application",
    "emit_publications",
    "expectation_reports",
    "fill_heartbeat_gaps",
    "purge_replays",
    "record_streams",
    "replay_daily",
    "replay_windows",
}
VERBS = (
    "act",
    "approve",
    "build",
    "check",
    "close",
    "deliver",
    "drill",
    "emit",
    "fill",
    "notify",
    "plan",
    "preview",
    "publish",
    "record",
    "repair",
    "replay",
    "report",
    "run",
)
AN_HOUR_ENDS = datetime(2026, 3, 1, 1, tzinfo=UTC)
HEAVY = (
    "pyspark",
    "great_expectations",
    "pandas",
    "deltalake",
    "pyarrow",
    "numpy",
    "sqlalchemy.orm.never",
)


@pytest.fixture(scope="module")
def dags(airflow_database: None) -> Mapping[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(ROOT / "dags"), collect_dags=True)
    assert not bag.import_errors
    return bag.dags


def test_dags_folder_contains_exactly_the_documented_dags(dags: Mapping[str, Any]) -> None:
    assert set(dags) == IDS
    assert {path.stem for path in (ROOT / "dags").glob("*.py")} == IDS
    listed = set(
        re.findall(r"^\| `?([a-z_]+)`? \|", (ROOT / "dags" / "README.md").read_text(), re.MULTILINE)
    )
    assert listed >= IDS


def test_every_dag_has_docs_owner_retries_tags_and_no_catchup(dags: Mapping[str, Any]) -> None:
    for dag in dags.values():
        assert len(dag.doc_md or "") > 100, dag.dag_id
        assert "rewindow" in dag.tags, dag.dag_id
        assert not dag.catchup, dag.dag_id
        for task in dag.tasks:
            assert task.owner == "rewindow", task.task_id
            # A retry would ask the question and call its notifiers again.
            asks = task.task_id.startswith("approve_")
            assert task.retries == 0 if asks else task.retries >= 10, task.task_id


def test_every_task_id_is_a_verb_and_an_object(dags: Mapping[str, Any]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            verb, _, thing = task.task_id.rpartition(".")[2].partition("_")
            assert verb in VERBS, f"{dag.dag_id}.{task.task_id}"
            assert thing, f"{dag.dag_id}.{task.task_id}"


def test_every_spark_task_waits_for_the_spark_pool(dags: Mapping[str, Any]) -> None:
    # One pool keeps two Spark drivers from competing for one machine.
    from rewindow_airflow.operators import RewindowSubmitOperator

    submits = [
        task
        for dag in dags.values()
        for task in dag.tasks
        if isinstance(task, RewindowSubmitOperator)
    ]
    assert submits
    assert {task.pool for task in submits} == {"spark"}


def test_pool_can_be_set_in_default_args_or_on_a_single_task() -> None:
    from rewindow_airflow import interval_dag, plan_interval, publish, replay

    with interval_dag("pooled", default_args={"pool": "mine"}):
        plan = plan_interval()
        assert [replay(plan).pool, publish(plan, pool="other").pool] == ["mine", "other"]


def test_commands_in_the_docs_are_complete_airflow_commands(dags: Mapping[str, Any]) -> None:
    from airflow.cli.cli_parser import get_parser

    pages = [dag.doc_md or "" for dag in dags.values()] + [
        (ROOT / "dags" / "README.md").read_text()
    ]
    found = [
        line for page in pages for line in re.findall(r"^    (.*airflow .*)$", page, re.MULTILINE)
    ]
    assert len(found) == 2
    for line in found:
        words = shlex.split(line)
        get_parser().parse_args(words[words.index("airflow") + 1 :])
    assert not re.search(r"^ +airflow", pages[-1], re.MULTILINE)


@pytest.mark.parametrize(
    ("context", "rendered", "bound"),
    [
        ({"data_interval_end": AN_HOUR_ENDS}, "2026-03-01 01:00:00+00:00", "2026-03-01T00:50:00Z"),
        ({}, "", None),
    ],
)
def test_record_streams_dag_seals_silent_streams_to_the_end_of_its_data_interval(
    dags: Mapping[str, Any],
    context: dict[str, Any],
    rendered: str,
    bound: str | None,
) -> None:
    from rewindow.settings.config import StreamConfig
    from rewindow_airflow.attempts import sealing_bound

    dag = dags["record_streams"]
    for task in dag.tasks:
        assert task.render_template(task.arguments["sealed_to"], context) == rendered
    live = StreamConfig(source="s.csv", arrived_at="at", seal_after="10 minutes")
    fed = live.model_copy(update={"source": "errors:shop.split.rejected"})
    config = Config(
        streams={
            "live": live,
            "fed": fed,
            "past": live.model_copy(update={"sealed_to": "2014-01-01"}),
        }
    )
    assert sealing_bound(config, "live", rendered) == (["--sealed-to", bound] if bound else [])
    assert sealing_bound(config, "past", rendered) == sealing_bound(config, "fed", rendered) == []


def test_replay_daily_dag_runs_in_order_without_occupying_pool_slots(
    dags: Mapping[str, Any],
) -> None:
    # A task that waits by `depends_on_past` would keep its slot.
    dag = dags["replay_daily"]
    plan = dag.get_task("plan_replay")
    assert dag.max_active_runs == 1
    assert plan.in_order
    assert not [task.task_id for task in dag.tasks if task.depends_on_past]
    assert plan.downstream_task_ids == set(dag.task_ids) - {"plan_replay"}


def test_every_integer_of_a_form_has_a_maximum_that_reaches_the_task(
    dags: Mapping[str, Any],
) -> None:
    # Airflow cannot pass integers of more than 64 bits to a task, which then fails without a log.
    schemas = {
        f"{dag.dag_id}.{name}": dag.params.get_param(name).schema
        for dag in dags.values()
        for name in dag.params
    }
    numbers = {
        name: schema for name, schema in schemas.items() if "integer" in schema.get("type", "")
    }
    assert len(numbers) >= 8
    for name, schema in numbers.items():
        assert schema.get("maximum", 2**64) < 2**53, name


def test_dags_with_a_form_and_the_outbox_start_unpaused(dags: Mapping[str, Any]) -> None:
    assert {dag.dag_id for dag in dags.values() if dag.is_paused_upon_creation is False} == {
        "act_on_replay",
        "act_on_stream",
        "emit_publications",
        "purge_replays",
        "backfill_range",
        "replay_windows",
    }


def test_dags_keep_their_tasks_and_links_after_serialization(dags: Mapping[str, Any]) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    for dag in dags.values():
        again = DagSerialization.deserialize_dag(
            json.loads(json.dumps(DagSerialization.serialize_dag(dag)))
        )
        assert set(again.task_ids) == set(dag.task_ids)


def test_parsing_the_dags_does_not_import_heavy_libraries() -> None:
    # The scheduler parses the DAGs every few seconds.
    program = (
        "import runpy, sys, json\n"
        f"sys.path[:0] = [{str(ROOT / 'plugins')!r}, {str(ROOT)!r}]\n"
        "import airflow.sdk\n"
        "before = set(sys.modules)\n"
        f"for name in {sorted(IDS)!r}: runpy.run_path({str(ROOT / 'dags')!r} + '/' + name + "
        "'.py')\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(answer.stdout.splitlines()[-1]))
    assert not loaded & set(HEAVY)
