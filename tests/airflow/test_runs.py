"""Every DAG run on a small range: dag.test() with real Spark, from recording to the report page.

The recording is a job of its own, as all are under `rewindow up` (test_supervisor.py); the others
run in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow_airflow import failures
from rewindow_airflow.identity import run_name
from rewindow_airflow.spark_process import SparkProcess
from tests.airflow.conftest import ROOT, assert_success, in_force
from tests.airflow.small_project import DAYS, FIRST_DAY, SILENT_HOURS, make_project
from tests.recovery.here import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1500)  # Of a loaded machine; a free one needs a minute.
FOLLOWING = """
from rewindow_airflow import check, plan_unpublished, publish, replay, stream_dag

with stream_dag("replay_new_clicks", "clicks", application="clicks_by_page"):
    plan = plan_unpublished()
    plan >> replay(plan) >> check(plan) >> publish(plan)
"""


@pytest.fixture(autouse=True, scope="module")
def settings(recorded: Config, spark: SparkSession) -> Iterator[None]:
    """The project's settings, and jobs in this process, while the tests of this module run."""

    def run(process: SparkProcess) -> int:
        return run_here(spark, process.command, process.environment, process._take)

    with in_force(recorded), pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkProcess, "run", run)
        yield


def test_record_streams_dag_seals_every_window_up_to_the_bound(recorded: Config) -> None:
    assert count(recorded.windows_table("clicks")) == 24 * DAYS


@pytest.fixture(scope="module")
def first_day(dags: Mapping[str, Any], recorded: Config) -> Any:
    """The run of replay_windows that has replayed and published the first day."""
    form = {
        "application": "clicks_by_page",
        "reason": "first day, by hand",
        "range_as": "times",
        "from_time": f"{FIRST_DAY:%Y-%m-%dT%H:%M:%SZ}",
        "to_time": f"{FIRST_DAY + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
        "publish": "at_once",
        "group_windows": 10,
    }
    run = dags["replay_windows"].test(run_conf=form)
    assert_success(run)
    return run


@pytest.mark.long
def test_replay_windows_dag_publishes_the_requested_range(first_day: Any, recorded: Config) -> None:
    rows = query(
        f"select page, max(total) as total from t where window_id < {hour(1)} group by page order "
        "by page",
        t=recorded.stream_table("clicks_by_page.totals"),
    ).to_pylist()
    day = sum(number % 7 for number in range(24))
    assert rows == [{"page": "home", "total": day}, {"page": "shop", "total": day + 24}]
    report = (
        recorded.results
        / "quality"
        / "replays"
        / run_name("replay_windows", first_day.run_id).replay_id("2026-03-01")
    )
    assert (report / "totals.html").is_file()
    assert (report / "totals.windows.csv").is_file()


def test_replay_daily_dag_starts_from_the_state_of_the_previous_day(
    dags: Mapping[str, Any],
    first_day: Any,
    recorded: Config,
) -> None:
    moment = FIRST_DAY + timedelta(days=2)
    ledger = Ledger.open(recorded.ledger_url)
    for number in (1, 2):
        run = dags["replay_daily"].test(
            logical_date=moment,
            run_after=moment,
        )  # The same run id each time.
        assert_success(run)
        row = ledger.replays.get(
            run_name("replay_daily", run.run_id).replay_id("2026-03-02", number)
        )
        newest = ledger.publications.newest(application="clicks_by_page", limit=1)[0]
        assert (row.state, row.mark, newest.replay_id) == ("published", 24, row.replay_id)
        home = query(
            f"select max(total) as total from t where page = 'home' and window_id < {hour(2)}",
            t=recorded.stream_table("clicks_by_page.totals"),
        )
        assert home.to_pylist() == [{"total": sum(number % 7 for number in range(48))}]


@pytest.mark.long
def test_dag_follows_a_growing_stream_and_emits_an_asset_on_publication(
    first_day: Any,
    recorded: Config,
    tmp_path: Path,
) -> None:
    before = Ledger.open(recorded.ledger_url).publications.newest(
        application="clicks_by_page",
        limit=1,
    )[0]
    dag = dag_of(tmp_path, FOLLOWING)
    assert_success(dag.test())
    newest = Ledger.open(recorded.ledger_url).publications.newest(
        application="clicks_by_page",
        limit=1,
    )[0]
    assert (newest.first, newest.last) == (before.last + 1, hour(DAYS) - 1)
    assert published_event("clicks_by_page.totals") == {
        "replay": newest.replay_id,
        "application": "clicks_by_page",
        "publication": newest.number,
        "act": "publish",
        "first": newest.first,
        "last": newest.last,
        "from": f"{moment(newest.first):%Y-%m-%dT%H:%M:%SZ}",
        "to": f"{FIRST_DAY + timedelta(days=DAYS):%Y-%m-%dT%H:%M:%SZ}",
        "windows": len(newest.range),
        "tuples": 2 * len(newest.range) - sum(hour(0) + at in newest.range for at in SILENT_HOURS),
    }
    assert {instance.state for instance in dag.test().get_task_instances()} == {"skipped"}


def dag_of(folder: Path, text: str) -> Any:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    (folder / "one.py").write_text(text)
    bag = DagBag(dag_folder=str(folder / "one.py"), collect_dags=True)
    assert not bag.import_errors
    sync_bag_to_db(bag, "dags-folder", None)
    [dag] = bag.dags.values()
    for task in dag.tasks:
        task.retries = 0
    return dag


def published_event(stream: str) -> Any:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return (
            events.filter(AssetModel.uri == f"rewindow://streams/{stream}")
            .order_by(AssetEvent.id)
            .all()[-1]
            .extra
        )


def test_replay_daily_dag_skips_a_day_before_the_first_recorded_day(
    dags: Mapping[str, Any],
    recorded: Config,
) -> None:
    run = dags["replay_daily"].test(logical_date=FIRST_DAY - timedelta(days=5))
    assert {instance.state for instance in run.get_task_instances()} == {"skipped"}


def test_replay_daily_dag_waits_for_the_recording_up_to_the_limit(
    dags: Mapping[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.utils.session import create_session

    monkeypatch.setattr(failures, "WAIT", timedelta(0))
    monkeypatch.setattr(failures, "WAITS_MAX", 2)
    with in_force(Config.load(make_project(tmp_path / "unrecorded", ROOT))):
        run = dags["replay_daily"].test(logical_date=FIRST_DAY + timedelta(days=30))
    plan = next(
        instance for instance in run.get_task_instances() if instance.task_id == "plan_replay"
    )
    with create_session() as session:
        waits = session.query(TaskReschedule).filter_by(ti_id=plan.id).count()
    assert (plan.state, plan.try_number, waits) == ("failed", 1, 2)


@pytest.mark.long
def test_fill_heartbeat_gaps_dag_publishes_silent_hours_as_timers(
    dags: Mapping[str, Any],
    recorded: Config,
) -> None:
    assert_success(dags["fill_heartbeat_gaps"].test(logical_date=FIRST_DAY))
    rows = query(
        "select page, clicked_at, _rw_is_timer as is_timer from t order by page, clicked_at",
        t=Table.open(recorded.stream_table("heartbeat_clicks.ticks")),
    ).to_pylist()
    hours: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
    for row in rows:
        hours[row["is_timer"]].append(
            (row["page"], (row["clicked_at"] - FIRST_DAY) // timedelta(hours=1))
        )
    timers = hours[True]
    data = hours[False]
    assert len(timers) == len(set(timers)) and len(data) == count(recorded.stream_table("clicks"))
    silent = {("shop", hour) for hour in SILENT_HOURS}
    assert silent <= set(timers) and not silent & set(data)
    assert {hour for page, hour in timers + data if page == "shop"} == set(range(24 * DAYS))


def test_expectation_reports_dag_builds_the_time_page_even_without_checks(
    dags: Mapping[str, Any],
    recorded: Config,
) -> None:
    assert_success(dags["expectation_reports"].test(logical_date=FIRST_DAY))
    assert (recorded.results / "quality" / "index.html").is_file()


def hour(days: int) -> int:
    """Returns the window, one an hour, that begins some days after the first."""
    return int((FIRST_DAY + timedelta(days=days)).timestamp()) // 3600


def moment(window: int) -> datetime:
    return datetime.fromtimestamp(3600 * window, UTC)


def count(path: Path) -> int:
    return int(query("select count(*) as n from t", t=Table.open(path)).to_pylist()[0]["n"])
