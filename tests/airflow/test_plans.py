"""The tasks that plan: which replay a DAG run has, and what becomes of it after retries and
clears.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.compute as pc
import pytest
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    TaskDeferred,
)
from deltalake import write_deltalake

from rewindow.facts.seals import with_checksums
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table, query
from rewindow.storage.formats import TableKind, format_property
from rewindow_airflow import replay_requests, steps, unstarted
from rewindow_airflow.failures import WAIT, WAITS_MAX
from rewindow_airflow.forms import daily_params, replay_params
from rewindow_airflow.identity import run_name
from rewindow_airflow.links import REPLAY_LINKS
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.order import ChangeTrigger
from rewindow_airflow.steps import RewindowPlanOperator
from tests.airflow.conftest import ROOT, in_force
from tests.airflow.small_project import CONTAINERS, DAYS, FIRST_DAY, make_project, record
from tests.inspection.test_unusable import BEGIN, DAY, GOOD, bad_ones
from tests.ledger.life import run_to_end

DAG = "replay_daily"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The project, its stream recorded without Spark."""
    config = Config.load(make_project(tmp_path_factory.mktemp("planned"), ROOT))
    record(config)
    return config


@pytest.fixture(autouse=True)
def settings(recorded: Config, tmp_path: Path) -> Iterator[Config]:
    """The settings of a copy of the project with its recorded stream alone, which each test may
    change.
    """
    whole = shutil.ignore_patterns("state")
    copy = Path(shutil.copytree(recorded.root, tmp_path / "project", symlinks=True, ignore=whole))
    config = Config.load(copy / "rewindow.toml")
    for table in (recorded.stream_table, recorded.windows_table, recorded.files_table):
        path = table("clicks")
        shutil.copytree(path, config.state / path.relative_to(recorded.state))
    with in_force(config):
        yield config


def context(run_id: str, days: int = 0, **conf: Any) -> dict[str, Any]:
    """Returns what Airflow tells the task of a run of replay_daily over one of the project's
    days.
    """
    params = {name: param.value for name, param in daily_params(["clicks_by_page"]).items()}
    return {
        "dag_run": SimpleNamespace(dag_id=DAG, run_id=run_id, conf=conf),
        "dag": SimpleNamespace(params=params, timetable=None, timezone=UTC),
        "task": SimpleNamespace(params={}),
        "params": params | conf,
        "data_interval_start": FIRST_DAY + timedelta(days=days),
        "data_interval_end": FIRST_DAY + timedelta(days=days + 1),
    }


class Instance:
    """A task instance that keeps what is pushed.

    Its first try, or the one after a clear, is the first of `retries` + 1 tries.
    """

    def __init__(self, retries: int = 0, *, cleared: bool = False) -> None:
        self.pushed: dict[str, Any] = {}
        self.try_number = 4
        self.max_tries = 3 + retries if cleared else 3 + retries - 1

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def execute(
    operator: RewindowPlanOperator,
    found: dict[str, Any],
    *,
    cleared: bool = False,
) -> dict[str, Any]:
    """Executes a task that plans and returns its XComs."""
    instance = Instance(operator.retries, cleared=cleared)
    jobs = operator.execute(found | {"ti": instance})  # type: ignore[arg-type]
    assert jobs[-1] == instance.pushed["replay_id"] == operator.replay
    assert instance.pushed["_link_ReplayLink"] == f"/rewindow/replays/{operator.replay}/page"
    return instance.pushed


def plan(
    found: dict[str, Any],
    *,
    cleared: bool = False,
    **arguments: Any,
) -> RewindowPlanOperator:
    operator = RewindowPlanOperator(
        task_id="plan_replay",
        request_of=replay_requests.interval_request,
        **arguments,
    )
    execute(operator, found, cleared=cleared)
    return operator


def test_run_continues_its_open_replay() -> None:
    first = plan(context("open"))
    again = plan(context("open"))
    assert first.replay == again.replay == run_name(DAG, "open").replay_id("2026-03-01")


def test_run_plans_a_new_replay_after_its_last_replay_is_closed(settings: Config) -> None:
    ledger = Ledger.open(settings.ledger_url)
    first = run_name(DAG, "closed").replay_id("2026-03-01")
    for replay_id in (first, f"{first}-2", f"{first}-3"):
        operator = plan(context("closed"))
        assert operator.replay == replay_id
        assert (
            REPLAY_LINKS[0].get_link(operator, ti_key=None) == f"/rewindow/replays/{replay_id}/page"
        )  # type: ignore[arg-type]
        ledger.replays.abandon(replay_id)


def test_open_replay_with_a_different_mode_is_rejected_with_a_hint(settings: Config) -> None:
    replay = plan(context("modes")).replay
    with pytest.raises(AirflowFailException, match=f"rewindow abandon {replay}"):
        plan(context("modes", mode="at_least_once"))
    Ledger.open(settings.ledger_url).replays.abandon(replay)
    assert plan(context("modes", mode="at_least_once")).replay == f"{replay}-2"


def mend(settings: Config, application: str = "clicks_by_page") -> None:
    """Changes the code of an application, as a deployment of a fix does."""
    module = settings.applications[0] / f"{application}.py"
    module.write_text(module.read_text() + "\nMENDED = True\n")


def test_retry_never_gives_up_a_replay_of_other_code(settings: Config) -> None:
    # Rules: W65
    # A clear after a fix must not publish what the old code computed.
    replay = plan(context("fixed")).replay
    mend(settings)
    with pytest.raises(
        AirflowFailException,
        match=f"In Airflow: clear the plan task of the run.*\n.*rewindow abandon {replay}",
    ):
        plan(context("fixed"))
    assert Ledger.open(settings.ledger_url).replays.get(replay).state == "planned"


def test_cleared_plan_task_gives_up_a_replay_of_other_code_and_plans_again(
    settings: Config,
) -> None:
    # Rules: W65
    ledger = Ledger.open(settings.ledger_url)
    replay = plan(context("fixed")).replay
    epoch = ledger.take_over(replay, [], 0, 23)
    ledger.attempts.report_progress(replay, epoch, 12, 12)
    mend(settings)
    assert plan(context("fixed"), cleared=True).replay == f"{replay}-2"
    given_up = ledger.replays.get(replay)
    assert given_up.state == "abandoned" and given_up.message == (
        "its code or configuration changed, and run fixed was cleared; results of 12 committed "
        "windows are discarded"
    )
    assert plan(context("fixed")).replay == f"{replay}-2"


def test_cleared_plan_task_keeps_the_replay_if_planning_again_fails(settings: Config) -> None:
    replay = plan(context("broken")).replay
    module = settings.applications[0] / "clicks_by_page.py"
    module.write_text(module.read_text() + "\nraise ValueError('broken')\n")
    with pytest.raises(AirflowFailException, match="broken"):
        plan(context("broken"), cleared=True)
    assert Ledger.open(settings.ledger_url).replays.get(replay).state == "planned"


def test_cleared_plan_task_may_refuse_to_give_up_a_replay(settings: Config) -> None:
    replay = plan(context("kept")).replay
    mend(settings)
    with pytest.raises(
        AirflowFailException, match="In Airflow: start the DAG act_on_replay with action abandon"
    ):
        plan(context("kept"), cleared=True, on_other_code="refuse")
    assert Ledger.open(settings.ledger_url).replays.get(replay).state == "planned"


def test_replay_of_containers_is_planned_again_with_reuse_if_possible(settings: Config) -> None:
    (settings.applications[0] / "containers.py").write_text(CONTAINERS)
    asked = context("parts", application="containers", initial_state=True)
    replay = plan(asked).replay
    mend(settings, "containers")
    again = plan(asked, cleared=True).replay
    planned = Ledger.open(settings.ledger_url).replays.get(again).read_plan()
    assert again == f"{replay}-2"
    assert f'all containers are computed: no container of replay "{replay}"' in " ".join(
        planned.warnings
    )


def test_cleared_job_on_other_code_fails_before_spark_starts(settings: Config) -> None:
    replay = plan(context("job")).replay
    mend(settings)
    task = RewindowSubmitOperator(task_id="replay_windows", job="replay", replay=replay)
    with pytest.raises(AirflowFailException, match="In Airflow: clear the plan task of the run"):
        task.execute({"ti": Instance(cleared=True)})  # type: ignore[typeddict-item]
    assert Ledger.open(settings.ledger_url).attempts.of(replay) == []


def test_plan_of_an_ended_run_that_never_started_is_closed(
    settings: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger.open(settings.ledger_url)
    ended, running, started = (plan(context(run)).replay for run in ("ended", "live", "begun"))
    ledger.take_over(started, [], 0, 23)
    states = {"ended": "failed", "live": "running", "begun": "failed"}
    monkeypatch.setattr(unstarted, "run_state", lambda dag, run: states[run])
    assert unstarted.CloseUnstartedOperator(task_id="close").execute({}) == [ended]  # type: ignore[arg-type]
    assert [ledger.replays.get(one).state for one in (ended, running, started)] == [
        "abandoned",
        "planned",
        "planned",
    ]
    assert plan(context("ended")).replay == f"{ended}-2"


def test_gap_filling_keeps_the_range_of_its_open_replay_after_new_recordings(
    settings: Config,
) -> None:
    def plan_filling() -> dict[str, Any]:
        request = partial(replay_requests.gap_request, "clicks")
        operator = RewindowPlanOperator(
            task_id="plan_filling",
            request_of=request,
            part="clicks",
        )
        return execute(operator, context("grown"))

    before = plan_filling()
    seals = settings.windows_table("clicks")
    newest = query("select * from w order by window_id desc limit 1", w=Table.open(seals))
    number = newest.schema.get_field_index("window_id")
    more = with_checksums(newest.set_column(number, "window_id", pc.add(newest["window_id"], 1)))
    write_deltalake(str(seals), more, mode="append")
    assert plan_filling() == before
    Ledger.open(settings.ledger_url).replays.abandon(before["replay_id"])
    assert plan_filling()["last"] == before["last"] + 1


def test_stream_is_filled_with_its_configured_methods_or_with_timers_by_default(
    settings: Config,
) -> None:
    for fill, application in (
        ({"columns": {"page": "forward"}}, "filled_clicks"),
        (None, "heartbeat_clicks"),
    ):
        stream = settings.stream("clicks").model_copy(update={"fill": fill})
        config = settings.model_copy(update={"streams": {"clicks": stream}})
        assert (
            replay_requests.gap_request("clicks", config, context("methods")).application
            == application
        )


def test_backfill_uses_the_initial_state_only_if_no_earlier_state_was_published(
    settings: Config,
) -> None:
    # Airflow passes the flag to every day of a backfill.
    def start_of(day: int) -> str:
        replay = plan(context(f"initial {day}", day, initial_state=True)).replay
        return Ledger.open(settings.ledger_url).replays.get(replay).read_plan().start.source

    assert start_of(1) == "initial"
    window = int((FIRST_DAY + timedelta(days=1)).timestamp()) // 3600 - 1
    states = stored.encode(window, 24, {}, {}, stored.Provenance({}, 1))
    table = settings.checkpoints_table("clicks_by_page")
    create_table(table, stored.SCHEMA, format_property(TableKind.STATES)).append(states)
    assert start_of(0) == "initial"
    assert start_of(2) == "warm_up"


@pytest.mark.parametrize("application", [None, "heartbeat_clicks"])
def test_run_waits_for_an_unrecorded_day_without_using_up_tries(
    application: str | None,
    settings: Config,
) -> None:
    shutil.rmtree(settings.windows_table("clicks"))
    shutil.rmtree(settings.stream_table("clicks"))
    found = context("early") if application is None else context("early", application=application)
    began = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as caught:
        plan(found)
    assert caught.value.reschedule_date >= began + WAIT
    with pytest.raises(AirflowFailException, match='stream "clicks" is not recorded yet'):
        plan(found | {"task_reschedule_count": WAITS_MAX})


def test_run_waits_for_a_day_that_is_not_completely_sealed(settings: Config) -> None:
    assert settings.file is not None
    text = settings.file.read_text()
    settings.file.write_text(
        "\n".join(line for line in text.splitlines() if not line.startswith("sealed_to"))
    )
    with pytest.raises(AirflowRescheduleException):
        plan(context("next", DAYS))


def form(**changes: Any) -> dict[str, Any]:
    params = {name: param.value for name, param in replay_params(["clicks_by_page"]).items()}
    filled = {"application": "clicks_by_page", "reason": "natural range", **changes}
    return of_form("form", params | filled)


def of_form(run_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the context of a task in a run of replay_windows."""
    return context(run_id) | {
        "dag": SimpleNamespace(params=params, timetable=None, timezone=UTC),
        "dag_run": SimpleNamespace(dag_id="replay_windows", run_id=run_id, conf={}),
        "params": params,
    }


@pytest.mark.parametrize("range_as", ["times", "windows", "interval"])
def test_first_day_is_limited_to_its_recorded_windows(
    range_as: str,
    settings: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = int(FIRST_DAY.timestamp()) // 3600
    Table.open(settings.windows_table("clicks")).delta.delete(f"window_id < {first + 10}")
    if range_as == "interval":
        request = replay_requests.interval_request(settings, context("natural"))
    else:
        times = {"from_time": f"{FIRST_DAY:%Y-%m-%dT%H:%M:%SZ}", "to_time": "2026-03-02T00:00:00Z"}
        windows = {"first_window": first, "last_window": first + 23}
        wanted = form(range_as=range_as, **(times if range_as == "times" else windows))
        request = replay_requests.form_request(settings, wanted)
    assert (request.first, request.last, request.from_time) == (first + 10, first + 23, None)
    assert "10 of the 24 requested windows" in caplog.text
    assert "2026-03-01T10:00:00Z to" in caplog.text


def test_missing_windows_allowed_in_the_form_are_replayed_as_missing(settings: Config) -> None:
    first = int(FIRST_DAY.timestamp()) // 3600
    wanted = form(
        range_as="windows",
        first_window=first - 5,
        last_window=first + 5,
        allow_missing=True,
    )
    assert replay_requests.form_request(settings, wanted).first == first - 5
    wanted = form(range_as="windows", first_window=first + 1000, last_window=first + 1001)
    assert replay_requests.form_request(settings, wanted).first == first + 1000


def test_gap_report_states_how_many_rows_it_omits(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    log = SimpleNamespace(
        info=lambda text, *values: lines.append(text % values),
        warning=lambda *_, **__: None,
    )
    monkeypatch.setattr(steps, "_SHOWN_ROWS", 0)
    monkeypatch.setattr(steps.ReportGapsOperator, "log", log)
    told = steps.ReportGapsOperator(task_id="report_gaps", stream="clicks").execute({})  # type: ignore[arg-type]
    left = (
        f"{told['rows']} of {told['rows']} rows, none of them longer, are not shown; all of them: "
    )
    assert lines[-2].startswith(left) and lines[-2].endswith(" /rewindow/files/time/clicks.csv")


def test_gap_report_logs_the_longest_gaps_first_and_streams_that_ended_early(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    rows = [*GOOD[:6], ("b", BEGIN + 60, BEGIN + 20, 1.0), ("a", BEGIN + 61, BEGIN + 10 * DAY, 1.0)]
    config = bad_ones(tmp_path, rows, interval="5 s")
    lines: list[str] = []
    warnings: list[str] = []
    log = SimpleNamespace(
        info=lambda text, *values: lines.append(text % values),
        warning=lambda text, *values: warnings.append(text % values),
    )
    monkeypatch.setattr(steps.ReportGapsOperator, "log", log)
    monkeypatch.setattr(Config, "load", lambda *_: config)
    told = steps.ReportGapsOperator(task_id="report_gaps", stream="s").execute({})  # type: ignore[arg-type]
    place = lines[0].split(" | ").index("seconds")
    seconds = [float(line.split(" | ")[place]) for line in lines[1 : 1 + told["rows"]]]
    assert (
        len(seconds) > 5 and seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]
    )
    unusable, end, silent = warnings[-3:]
    assert unusable.startswith("1 tuple has a timestamp that cannot be")
    assert (
        end.startswith("all keys end by 2026-")
        and silent == "silent at the end of what is sealed: k=b"
    )
    assert told["silent"] == 1


def test_gap_report_is_written_as_a_page_and_a_table(settings: Config) -> None:
    told = steps.ReportGapsOperator(task_id="report_gaps", stream="clicks").execute({})  # type: ignore[arg-type]
    folder = settings.results / "time"
    assert "Time of clicks" in (folder / "clicks.html").read_text()
    assert len((folder / "clicks.csv").read_text().splitlines()) == 1 + told["rows"]
    assert {"rows", "silent", "windows_empty", "rows_missing"} <= set(told)


def test_run_without_a_data_interval_is_rejected_with_a_hint() -> None:
    found = context("manual__1")
    del found["data_interval_start"], found["data_interval_end"]
    with pytest.raises(
        AirflowFailException,
        match="the run has no data interval\n  Hint: .* plan_unpublished",
    ):
        plan(found)


def plan_unpublished(run_id: str) -> dict[str, Any]:
    """Plans in a run that an asset has started, which has no data interval."""
    found = context(run_id)
    del found["data_interval_start"], found["data_interval_end"]
    operator = RewindowPlanOperator(
        task_id="plan_replay",
        request_of=replay_requests.unpublished_request,
    )
    return execute(operator, found)


def plan_rest_by_form(run_id: str) -> dict[str, Any]:
    """Plans in a run of replay_windows whose form asks for all that is not yet published, as
    Airflow validates it.
    """
    params = ParamsDict(replay_params(["clicks_by_page"]))
    params.update(
        {"application": "clicks_by_page", "reason": "what is left", "range_as": "unpublished"}
    )
    operator = RewindowPlanOperator(task_id="plan_replay", request_of=replay_requests.form_request)
    return execute(operator, of_form(run_id, params.validate()))


@pytest.mark.parametrize(
    "plan_unpublished",
    [plan_unpublished, plan_rest_by_form],
    ids=["asset", "form"],
)
def test_run_triggered_by_an_asset_or_a_form_plans_sealed_unpublished_windows(
    plan_unpublished: Callable[[str], dict[str, Any]],
    settings: Config,
) -> None:
    first = int(FIRST_DAY.timestamp()) // 3600
    planned = plan_unpublished("asset_triggered__1")
    assert (planned["first"], planned["last"]) == (first, first + 24 * DAYS - 1)
    ledger = Ledger.open(settings.ledger_url)
    run_to_end(ledger, planned["replay_id"])
    tables = {"clicks_by_page.totals": None}
    number = ledger.publications.open(
        planned["replay_id"],
        tables,
        planned["first"],
        planned["last"],
    ).number
    ledger.publications.mark_done(number, "clicks_by_page.totals", 1)
    ledger.publications.close(number)
    with pytest.raises(
        AirflowSkipException,
        match=r'Nothing to replay: all windows .* "clicks_by_page" have sealed',
    ):
        plan_unpublished("asset_triggered__2")


def test_replay_id_contains_the_day_that_the_replay_computes() -> None:
    today = "manual__2027-05-06T10:11:12+00:00"
    assert plan(context(today, 1)).replay.startswith("replay_daily-2026-03-02-")
    assert plan_unpublished(today.replace("manual", "asset_triggered"))["replay_id"].startswith(
        "replay_daily-2026-03-01-"
    )


def test_replay_id_contains_the_local_day_of_a_schedule_with_a_time_zone(
    settings: Config,
) -> None:
    # Midnight in Vienna is 23:00 UTC of the previous day.
    found = context("vienna", 2)
    zone = CronDataIntervalTimetable("0 0 * * *", timezone="Europe/Vienna")
    found["dag"].timetable = zone
    for name in ("data_interval_start", "data_interval_end"):
        found[name] -= timedelta(hours=1)
    operator = plan(found)
    assert operator.replay.startswith("replay_daily-2026-03-03-")
    first = Ledger.open(settings.ledger_url).replays.get(operator.replay).read_plan().first
    assert first == int(FIRST_DAY.timestamp()) // 3600 + 47
    assert plan(found).replay == operator.replay


def test_parameter_of_the_dag_file_or_the_task_is_accepted() -> None:
    found = context("added", team="a", shift=1)
    found["dag"].params = {**found["dag"].params, "team": "b"}
    found["task"].params = {"shift": 2}
    assert plan(found).replay


def test_run_with_an_empty_data_interval_is_rejected_with_a_hint() -> None:
    found = context("trigger")
    found["data_interval_end"] = found["data_interval_start"]
    with pytest.raises(AirflowFailException, match="the run has no data interval"):
        plan(found)


def test_waiting_run_logs_the_run_that_it_waits_for_and_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    log = SimpleNamespace(
        info=lambda text, *values: lines.append(text % values),
        warning=lambda *_, **__: None,
    )
    monkeypatch.setattr(steps.RewindowPlanOperator, "log", log)
    change = ChangeTrigger(DAG, "scheduled__2026-03-01", "failed", queued=0)
    monkeypatch.setattr(steps, "turn_of", lambda _: change)
    operator = RewindowPlanOperator(
        task_id="plan_replay", request_of=replay_requests.interval_request, in_order=True
    )
    with pytest.raises(TaskDeferred):
        execute(operator, context("scheduled__2026-03-02", 1))
    assert lines == ["Waiting for the previous run, scheduled__2026-03-01 (failed)"]


def test_largest_window_of_the_form_is_rejected_without_a_retry() -> None:
    largest = replay_params([])["last_window"].schema["maximum"]
    wanted = form(range_as="windows", first_window=largest, last_window=largest)
    for allow_missing in (False, True):
        wanted["params"]["allow_missing"] = allow_missing
        operator = RewindowPlanOperator(
            task_id="plan_replay", request_of=replay_requests.form_request
        )
        with pytest.raises(AirflowFailException, match=f"{largest}"):
            execute(operator, wanted)


def test_run_finds_its_replay_after_the_range_has_changed(settings: Config) -> None:
    planned = plan_unpublished("asset_triggered__4")
    other = {"clicks_by_page.totals": None}
    first = planned["first"]
    plan(context("one day", 0))
    ledger = Ledger.open(settings.ledger_url)
    one_day = ledger.replays.newest(limit=1)[0]
    run_to_end(ledger, one_day.replay_id)
    number = ledger.publications.open(one_day.replay_id, other, first, first + 23).number
    ledger.publications.mark_done(number, "clicks_by_page.totals", 1)
    ledger.publications.close(number)
    assert plan_unpublished("asset_triggered__4") == planned
    assert plan_unpublished("asset_triggered__5")["replay_id"].startswith(
        "replay_daily-2026-03-02-"
    )


def test_asset_triggered_run_is_skipped_while_another_input_is_not_recorded(
    settings: Config,
) -> None:
    # The asset of the other stream will start another run.
    shutil.rmtree(settings.windows_table("clicks"))
    shutil.rmtree(settings.stream_table("clicks"))
    with pytest.raises(AirflowSkipException, match='stream "clicks" is not recorded yet'):
        plan_unpublished("asset_triggered__3")


def test_parameter_unknown_to_the_dag_is_rejected() -> None:
    with pytest.raises(AirflowFailException, match='parameter "group_size" is unknown'):
        plan(context("misspelt", group_size=5))


def test_scheduled_run_without_an_application_is_rejected_with_a_hint() -> None:
    with pytest.raises(
        AirflowFailException,
        match="(?s)names no application.*\\[airflow\\] application",
    ):
        plan(context("unnamed", application=None))
