"""Under a real scheduler: a day that is cleared never waits for ever, and a task outlives its
scheduler.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rewindow.embedded import environment
from rewindow.embedded.components import busy_workers
from rewindow.embedded.environment import airflow_home
from rewindow.embedded.processes import started_at
from rewindow.embedded.status import read_status
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.airflow.airflows import LiveAirflow, live_airflow
from tests.airflow.conftest import ROOT
from tests.airflow.small_project import CONTAINERS, make_project, record
from tests.airflow.small_project import DAYS as PROJECT_DAYS
from tests.delivery.test_deliver import in_lake, published, staged, visible

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("scheduler"),
]  # One Airflow for all.
DAYS = 21
DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
DAG = '''
"""The first task of replay_daily without Spark: a day fails while a file asks for it."""

import os
import signal
import sys
import time
from datetime import datetime, timedelta, UTC
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, CronPartitionTimetable
from airflow.sdk import PartitionedAssetTimetable, task

from rewindow.errors import InputError, OverlapError
from rewindow.launcher import Submission
from rewindow.location import location
from rewindow_airflow import (
    attempts, check, failures, form_dag, operators, plan_form, plan_unpublished, repairs, replay,
    stream_asset, stream_dag
)
from rewindow_airflow.assets import PUBLICATIONS
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.steps import EmitPublicationsOperator, RewindowPlanOperator

failures.WAIT = timedelta(seconds=4)
FOLDER = Path(__file__).parents[1]


def request_of(config, context):
    run = context["dag_run"]
    if run.dag_id == "unsealed" and run.logical_date.day == 2 and not (FOLDER / "sealed").exists():
        raise failures.NotYet("the second day is not sealed yet")
    if (FOLDER / f"fail-{{run.logical_date:%m-%d}}").exists():
        raise InputError("this day fails")
    with open(FOLDER / f"{{run.dag_id}}.done", "a") as done:
        print(f"{{run.logical_date:%Y-%m-%d}}", file=done)
    raise failures.Nothing("this day is noted")


for name in ("days", "every_day", "backfilled", "unsealed"):
    with DAG(
        dag_id=name,
        schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        end_date=datetime(2026, 3, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,
        default_args={{"retries": 20, "retry_delay": timedelta(seconds=1)}},
    ) as dag:
        {plan}
    globals()[name] = dag


with stream_dag("follow_clicks", "clicks", "clicks_by_page.totals", application="clicks_by_page"):
    plan_unpublished()


with form_dag("by_form"):
    plan_form()


with form_dag("containers"):
    planned = plan_form()
    planned >> replay(planned) >> check(planned)


def begin_held(config, name, arguments, again):
    if (FOLDER / "held").exists():
        raise OverlapError("windows of r-2 are held by replay r-1")
    return None


def begin_told_to_end(config, name, arguments, again):
    begun = FOLDER / "told_to_end.began"
    if begun.exists():
        return None
    code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(600)"
    outcome = location(FOLDER / "none.json")
    return Submission("r-1", 0, [sys.executable, "-c", code, str(begun)], dict(os.environ), outcome)


operators.HELD_WAIT = timedelta(seconds=4)
attempts.BEGINNINGS |= {{"held": begin_held, "told_to_end": begin_told_to_end}}
for name in ("held", "told_to_end"):
    pool = {{"pool": "default_pool"}}
    with DAG(dag_id=name, schedule=None, is_paused_upon_creation=False, default_args=pool) as dag:
        RewindowSubmitOperator(task_id="replay_windows", job=name, replay="r-1", retries=5)
    globals()[name] = dag


def nothing():
    pass


with DAG(dag_id="recorded", schedule=None, is_paused_upon_creation=False):
    task(outlets=[stream_asset("clicks")])(nothing)()


with DAG(dag_id="published", schedule=None, is_paused_upon_creation=False):

    @task(outlets=[PUBLICATIONS])
    def publish(outlet_events):
        outlet_events[PUBLICATIONS].add(stream_asset("clicks_by_page.totals"), {{"replay": "r-1"}})

    publish()


class EmitterThatIsKilled(EmitPublicationsOperator):
    def execute(self, context):
        super().execute(context)
        os.kill(os.getpid(), signal.SIGKILL)


repairs._COMMAND = ("publish", "airports-3")
emitting = {{"outlets": [PUBLICATIONS], "pool": "default_pool"}}
for name, operator in (
    ("publishing", RewindowSubmitOperator(
        task_id="publish_windows", job="publish", replay="airports-1", **emitting
    )),
    ("killed_emitter", EmitterThatIsKilled(task_id="emit_publications", **emitting)),
    ("repairing", repairs.RepairOperator(task_id="repair_windows", **emitting)),
):
    with DAG(dag_id=name, schedule=None, is_paused_upon_creation=False) as dag:
        dag.add_task(operator)
    globals()[name] = dag


airports = stream_asset("airports.delays")
with DAG(dag_id="follow_airports", schedule=airports, is_paused_upon_creation=False):

    @task
    def note(triggering_asset_events):
        with open(FOLDER / "follow_airports.done", "a") as done:
            for event in triggering_asset_events[airports]:
                print(event.extra["publication"], event.extra["act"], file=done)

    note()


by_day = CronPartitionTimetable("@daily", timezone="UTC")
first_day = datetime(2026, 1, 1)
with DAG(
    dag_id="published_by_day", schedule=by_day, start_date=first_day, is_paused_upon_creation=False
):

    @task(outlets=[PUBLICATIONS])
    def publish(outlet_events):
        outlet_events[PUBLICATIONS].add(stream_asset("daily.totals"), {{"replay": "r-2"}})

    publish()


each_day = PartitionedAssetTimetable(assets=stream_asset("daily.totals"))
with DAG(dag_id="each_day", schedule=each_day, is_paused_upon_creation=False):
    task(nothing)()


with DAG(dag_id="long", schedule=None, is_paused_upon_creation=False):

    @task
    def compute():
        (FOLDER / f"long-{{os.getpid()}}.began").touch()
        while not (FOLDER / "long-may-end").exists():
            time.sleep(0.2)

    compute()
'''
SOON_GONE = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
}
MORE_SETTINGS = """
[airflow]
repairs = "approve"

[targets.lake]
format = "parquet"
folder = "lake"
outputs = ["flight_delays.delays"]
"""
PLAN = 'RewindowPlanOperator(task_id="plan_replay", request_of=request_of, in_order=True)'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("ordered")
    config = Config.load(make_project(folder, ROOT))
    record(config)
    (folder / "dags").unlink()
    (folder / "dags").mkdir()
    (folder / "dags" / "days.py").write_text(DAG.format(plan=PLAN))
    (folder / "applications" / "containers.py").write_text(CONTAINERS)
    for name in ("deliver_windows", "emit_publications"):
        shutil.copy(ROOT / "dags" / f"{name}.py", folder / "dags")
    with config.file.open("a") as settings:
        settings.write(MORE_SETTINGS)
    config = Config.load(config.file)
    return config


@pytest.fixture(scope="module")
def airflow(project: Config) -> Iterator[LiveAirflow]:
    """An Airflow for it, which soon notices that its scheduler is gone."""
    tuning = environment._tuning() | {"AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "_tuning", lambda: tuning)
        with live_airflow(project, **SOON_GONE) as airflow:
            yield airflow


@pytest.mark.parametrize(
    ("dag", "marked"),
    [
        ("days", range(8, 20)),
        pytest.param("every_day", (), marks=pytest.mark.exhaustive),
    ],
)
def test_cleared_day_runs_again_and_twenty_later_days_follow_in_order(
    dag: str,
    marked: Sequence[int],
    airflow: LiveAirflow,
    project: Config,
) -> None:
    # Days marked as success by hand let the days after them run, too.
    for number in range(DAYS):
        trigger(airflow, dag, START + number * DAY)
    (project.root / "fail-01-01").touch()
    (project.root / "fail-01-05").touch()
    unpause(airflow, dag)
    first = run_id(dag, START)
    airflow.until(lambda: airflow.runs(dag)[first] == "failed", "the first day has failed")
    airflow.until(lambda: waits(airflow, dag, START + DAY), "the second day waits")
    trigger(airflow, dag, START - DAY)
    airflow.until(lambda: done(project, dag) == ["2025-12-31"], "the day started by hand is done")
    assert airflow.runs(dag)[first] == "failed"

    (project.root / "fail-01-01").unlink()
    clear(airflow, dag, START)
    airflow.until(
        lambda: airflow.runs(dag)[run_id(dag, START + 4 * DAY)] == "failed",
        "the fifth day has failed",
    )
    clear(airflow, dag, START + DAY)  # A day that was done, while all later ones wait.
    (project.root / "fail-01-05").unlink()
    airflow.until(lambda: len(done(project, dag)) == 6, "the second day is done again")
    for number in marked:
        mark_success(airflow, dag, START + number * DAY)
    clear(airflow, dag, START + 4 * DAY)
    ordered = [f"{START + number * DAY:%Y-%m-%d}" for number in range(DAYS) if number not in marked]
    wanted = ["2025-12-31", *ordered[:4], ordered[1], *ordered[4:]]
    airflow.until(lambda: len(done(project, dag)) == len(wanted), "all days are done")
    assert done(project, dag) == wanted
    airflow.until(lambda: set(airflow.runs(dag).values()) == {"success"}, "all runs have ended")


def test_backfill_continues_in_order_after_its_first_day_was_cleared(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    (project.root / "fail-02-01").touch()
    unpause(airflow, "backfilled")
    first = datetime(2026, 2, 1, tzinfo=UTC)
    last = datetime(2026, 2, 8, tzinfo=UTC)
    wish = {
        "dag_id": "backfilled",
        "from_date": stamp(first),
        "to_date": stamp(last),
        "max_active_runs": 3,
    }
    airflow.ask("backfills", body={**wish, "reprocess_behavior": "completed"})

    def states() -> list[str]:
        return list(airflow.runs("backfilled").values())

    airflow.until(
        lambda: states().count("failed") == 1 and states().count("running") >= 3,
        "all slots are taken",
    )
    (project.root / "fail-02-01").unlink()
    [failed] = [name for name, state in airflow.runs("backfilled").items() if state == "failed"]
    airflow.ask(f"dags/backfilled/dagRuns/{failed}/clear", body={"dry_run": False})
    airflow.until(lambda: len(done(project, "backfilled")) == 8, "all days are done")
    airflow.until(lambda: set(states()) == {"success"}, "all runs have ended")
    assert done(project, "backfilled") == [
        f"{first + number * DAY:%Y-%m-%d}" for number in range(8)
    ]


def test_day_that_waits_for_its_recording_does_not_block_an_earlier_day(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    trigger(airflow, "unsealed", START)
    trigger(airflow, "unsealed", START + DAY)
    unpause(airflow, "unsealed")
    second = f"dags/unsealed/dagRuns/{run_id('unsealed', START + DAY)}"

    def looks_again() -> bool:
        states = {
            task["state"] for task in airflow.ask(f"{second}/taskInstances")["task_instances"]
        }
        return "up_for_reschedule" in states

    airflow.until(looks_again, "the second day looks again and again")
    clear(airflow, "unsealed", START)
    airflow.until(
        lambda: done(project, "unsealed") == ["2026-01-01"] * 2,
        "the first day is done again",
    )
    (project.root / "sealed").touch()
    # A run that gave up its slot is a success, too.
    airflow.until(lambda: len(done(project, "unsealed")) == 3, "the second day is done")
    airflow.until(lambda: airflow.ask(second)["state"] == "success", "its run has ended")
    assert done(project, "unsealed") == ["2026-01-01", "2026-01-01", "2026-01-02"]


def test_recording_or_publishing_a_stream_triggers_the_dag_that_follows_it(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    unpause(airflow, "follow_clicks")
    for number, dag in enumerate(("recorded", "published"), 1):
        trigger(airflow, dag, START)
        done = ["success"] * number
        airflow.until(
            lambda done=done: list(airflow.runs("follow_clicks").values()) == done,  # type: ignore[misc]
            f"{dag} was followed",
        )
    trigger(
        airflow,
        "by_form",
        START,
        application="clicks_by_page",
        reason="what is left",
        range_as="unpublished",
    )
    airflow.until(
        lambda: list(airflow.runs("by_form").values()) == ["success"],
        "the form's range is planned",
    )
    planned = Ledger.open(project.ledger_url).replays.newest("clicks_by_page")
    assert [len(row.range) for row in planned] == [24 * PROJECT_DAYS] * 3
    assert planned[0].replay_id.startswith("by_form-")
    [event] = airflow.ask("assets/events?source_dag_id=published")["asset_events"]
    assert (event["uri"], event["extra"]["replay"]) == (
        "rewindow://streams/clicks_by_page.totals",
        "r-1",
    )


def test_follower_runs_after_each_publication_whichever_process_made_it(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    unpause(airflow, "emit_publications", is_paused=True)
    ledger = Ledger.open(project.ledger_url)
    for number in (1, 2, 3):
        first = 100 * number
        staged(project, f"airports-{number}", first, first + 9, number, application="airports")

    def number_of_newest() -> int:
        return ledger.publications.newest(application="airports", limit=1)[0].number

    def followed(act: str) -> None:
        line = f"{number_of_newest()} {act}"
        airflow.until(lambda: line in done(project, "follow_airports"), f"{line} was followed")

    trigger(airflow, "publishing", START)
    airflow.until(
        lambda: airflow.runs("publishing")[run_id("publishing", START)] == "success",
        "the task has published",
    )
    followed("publish")

    in_a_shell(project, "publish", "airports-2")
    trigger(airflow, "killed_emitter", START)
    airflow.until(
        lambda: airflow.runs("killed_emitter")[run_id("killed_emitter", START)] == "failed",
        "the task was killed",
    )
    assert f"{number_of_newest()} publish" not in done(project, "follow_airports")
    unpause(airflow, "emit_publications")
    trigger(airflow, "emit_publications", START)
    followed("publish")

    in_a_shell(project, "undo", "airports-2")
    trigger(airflow, "emit_publications", START + DAY)
    followed("undo")

    ledger.stale.add("airports", "airports.delays", 100, 109, since=number_of_newest())
    trigger(airflow, "repairing", START)
    airflow.until(
        lambda: instance_of(airflow, "repairing")["state"] == "awaiting_input",
        "the task asks",
    )
    assert ledger.replays.get("airports-3").state != "published"
    # Airflow fails a task that is answered before its executor has reported the question.
    trigger(airflow, "emit_publications", START + 3 * DAY)
    airflow.until(
        lambda: (
            airflow.runs("emit_publications")[run_id("emit_publications", START + 3 * DAY)]
            == "success"
        ),
        "another task has ended",
    )
    question = f"dags/repairing/dagRuns/{run_id('repairing', START)}/taskInstances/repair_windows"
    approval = {"chosen_options": ["Approve"], "params_input": {}}
    airflow.ask(f"{question}/-1/hitlDetails", body=approval, method="PATCH")
    airflow.until(
        lambda: airflow.runs("repairing")[run_id("repairing", START)] == "success",
        "the task has repaired",
    )
    followed("publish")
    acts = [line.partition(" ")[2] for line in dict.fromkeys(done(project, "follow_airports"))]
    assert acts == ["publish", "publish", "undo", "publish"]


def in_a_shell(project: Config, *arguments: str) -> None:
    """Runs a command as a user of a shell does."""
    environment = {**os.environ, "REWINDOW_CONFIG": str(project.file)}
    command = [sys.executable, "-m", "rewindow.cli", *arguments]
    subprocess.run(command, env=environment, cwd=project.root, check=True)


def test_publication_of_an_output_starts_its_delivery(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    published(project, "delays-1", 100, 109, seed=1)
    unpause(airflow, "deliver_windows")

    def delivered() -> bool:
        runs = airflow.ask("dags/deliver_windows/dagRuns")["dag_runs"]
        states = {run["state"] for run in runs if run["run_type"] == "asset_triggered"}
        return states == {"success"}

    unpause(airflow, "emit_publications")
    trigger(airflow, "emit_publications", START + 2 * DAY)
    airflow.until(delivered, "the publication was delivered")
    assert in_lake(project) == visible(project) and visible(project)


def test_publication_by_partition_starts_a_run_with_the_same_partition_key(
    airflow: LiveAirflow,
) -> None:
    key = "2026-01-05T00:00:00"

    def followed() -> bool:
        runs = airflow.ask("dags/each_day/dagRuns")["dag_runs"]
        return [run["state"] for run in runs if run["partition_key"] == key] == ["success"]

    airflow.ask("dags/published_by_day/dagRuns", body={"logical_date": None, "partition_key": key})
    airflow.until(followed, "the partition was followed")
    published = airflow.ask("assets/events?source_dag_id=published_by_day")["asset_events"]
    assert key in [event["partition_key"] for event in published]


def test_waiting_for_another_replay_does_not_use_up_a_try(
    airflow: LiveAirflow, project: Config
) -> None:
    (project.root / "held").touch()
    trigger(airflow, "held", START)
    airflow.until(
        lambda: instance_of(airflow, "held")["state"] == "up_for_reschedule",
        "the task waits",
    )
    (project.root / "held").unlink()
    airflow.until(
        lambda: instance_of(airflow, "held")["state"] == "success",
        "the task has gone on",
    )
    assert instance_of(airflow, "held")["try_number"] == 1


def test_task_ended_by_rewindow_down_resumes_in_the_same_try(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    trigger(airflow, "told_to_end", START)
    airflow.until((project.root / "told_to_end.began").exists, "the job has begun")
    status = read_status(airflow_home(project))
    assert status is not None
    airflow.until(lambda: len(busy_workers(status.pid)) == 1, "tasks of other tests have ended")
    [worker] = busy_workers(status.pid)
    os.kill(worker, signal.SIGTERM)
    airflow.until(
        lambda: instance_of(airflow, "told_to_end")["state"] == "success",
        "the task has gone on",
    )
    assert instance_of(airflow, "told_to_end")["try_number"] == 1


def test_containers_of_a_replay_are_mapped_instances_of_one_task(
    airflow: LiveAirflow,
    project: Config,
) -> None:
    # Rules: X53
    # With one slot the others begin, and wait, while the killed one is up for retry.
    run = f"dags/containers/dagRuns/{run_id('containers', START)}"
    trigger(
        airflow,
        "containers",
        START,
        application="containers",
        reason="one is killed",
        range_as="unpublished",
        publish="staged",
        crash="totals/after_outputs:2@1",
    )

    def ended() -> bool:
        return str(airflow.ask(run)["state"]) in ("success", "failed")

    def instances() -> dict[str, tuple[str, int]]:
        found = airflow.ask(f"{run}/taskInstances/replay_windows/listMapped")["task_instances"]
        return {
            one["rendered_map_index"]: (one["state"], one["try_number"])
            for one in sorted(found, key=lambda one: one["map_index"])
        }

    airflow.until(ended, "the run has ended")
    ledger = Ledger.open(project.ledger_url)
    replay_id = str(airflow.ask(f"{run}/taskInstances/plan_replay/xcomEntries/replay_id")["value"])
    jobs = ledger.replays.get(replay_id).read_plan().jobs
    attempts = [ledger.attempts.of(name) for name in jobs]
    expected = {"totals": 2, "doubled": 1, "negated": 1, replay_id: 1}
    assert instances() == {name: ("success", tries) for name, tries in expected.items()}
    assert [[one.outcome for one in of] for of in attempts] == [["killed", "done"], *3 * [["done"]]]
    times = [(one.began_at, one.ended_at) for of in attempts for one in of]
    for (_, end), (begin, _) in pairwise(sorted(times)):
        assert end is not None and end <= begin
    body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id("containers", START)}
    tasks = {"task_ids": [["replay_windows", 1]], "include_downstream": False}
    airflow.ask("dags/containers/clearTaskInstances", body=body | tasks)
    airflow.until(lambda: instances()["doubled"] == ("success", 2), "the cleared one has ended")
    assert {name: tries for name, (_, tries) in instances().items()} == expected | {"doubled": 2}
    assert [ledger.attempts.of(name) for name in jobs] == attempts


def instance_of(airflow: LiveAirflow, dag: str) -> dict[str, object]:
    [instance] = airflow.ask(f"dags/{dag}/dagRuns/{run_id(dag, START)}/taskInstances")[
        "task_instances"
    ]
    return dict(instance)


def test_task_continues_after_the_scheduler_that_started_it_ends(
    airflow: LiveAirflow, project: Config
) -> None:
    trigger(airflow, "long", START)
    airflow.until(lambda: len(list(project.root.glob("long-*.began"))) == 1, "the task has begun")
    [began] = project.root.glob("long-*.began")
    first = jobs_of(project)
    status = read_status(airflow_home(project))
    assert status is not None
    os.kill(status.components["scheduler"][0], signal.SIGKILL)
    airflow.until(
        lambda: jobs_of(project) != first,
        "another scheduler has the task, or it was given up",
    )
    assert started_at(int(began.stem.partition("-")[2])), "the task's process is alive"
    (project.root / "long-may-end").touch()
    airflow.until(
        lambda: airflow.runs("long")[run_id("long", START)] == "success",
        "the task has ended",
    )
    assert instance_of(airflow, "long")["try_number"] == 1
    assert list(project.root.glob("long-*.began")) == [began]


def jobs_of(project: Config) -> list[tuple[object, ...]]:
    """Returns the state of the long task, and which scheduler has it; Airflow's API does not
    tell.
    """
    with closing(
        sqlite3.connect(f"file:{airflow_home(project) / 'airflow.db'}?mode=ro", uri=True)
    ) as database:
        return database.execute(
            "select state, queued_by_job_id from task_instance where dag_id = 'long'"
        ).fetchall()


def trigger(airflow: LiveAirflow, dag: str, date: datetime, **form: str) -> None:
    airflow.ask(
        f"dags/{dag}/dagRuns",
        body={"logical_date": stamp(date), "dag_run_id": run_id(dag, date), "conf": form},
    )


def unpause(airflow: LiveAirflow, dag: str, is_paused: bool = False) -> None:
    airflow.ask(f"dags/{dag}", body={"is_paused": is_paused}, method="PATCH")


def clear(airflow: LiveAirflow, dag: str, date: datetime) -> None:
    airflow.ask(f"dags/{dag}/dagRuns/{run_id(dag, date)}/clear", body={"dry_run": False})


def mark_success(airflow: LiveAirflow, dag: str, date: datetime) -> None:
    airflow.ask(
        f"dags/{dag}/dagRuns/{run_id(dag, date)}",
        body={"state": "success"},
        method="PATCH",
    )


def waits(airflow: LiveAirflow, dag: str, date: datetime) -> bool:
    tasks = airflow.ask(f"dags/{dag}/dagRuns/{run_id(dag, date)}/taskInstances")["task_instances"]
    run = airflow.runs(dag)[run_id(dag, date)]
    return run == "running" and {task["state"] for task in tasks} <= {"deferred", None}


def done(project: Config, dag: str) -> list[str]:
    """Returns the days that were done, in the order of doing."""
    path: Path = project.root / f"{dag}.done"
    return path.read_text().splitlines() if path.exists() else []


def run_id(dag: str, date: datetime) -> str:
    return f"{dag}-{date:%Y-%m-%d}"


def stamp(date: datetime) -> str:
    return f"{date:%Y-%m-%dT%H:%M:%SZ}"
