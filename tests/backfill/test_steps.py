"""A range in steps: which replays it becomes, and which of them a repeated call still runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rewindow.backfill import steps
from rewindow.backfill.steps import plan_steps, run_steps
from rewindow.errors import InputError, RangeError
from rewindow.launcher.verbs import ReplayResult
from rewindow.ledger import Ledger
from rewindow.ledger.replays import ReplayState
from rewindow.planning import ReplayRequest
from rewindow.settings.config import Config
from tests.airflow.small_project import DAYS, FIRST_DAY, make_project, record
from tests.commands.conftest import run
from tests.ledger.life import run_to_end

ROOT = Path(__file__).parents[2]
FIRST = int(FIRST_DAY.timestamp()) // 3600
WITHOUT_STATE = """
import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OutputPort

PAGES = pa.schema([("page", pa.string())])


class Pages(FrameOperator):
    inputs = {"rows": InputPort(PAGES)}
    outputs = {"out": OutputPort(PAGES)}

    def transform(self, inputs, state, windows):
        return inputs["rows"].select("window_id", "page")


app = Application("pages", window="1 hour")
app.output("out", app.add("pages", Pages(), rows=app.input("clicks")), key=["page"])
"""

__all__ = ["run"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    config = Config.load(make_project(tmp_path / "project", ROOT))
    (config.applications[0] / "pages.py").write_text(WITHOUT_STATE)
    record(config)
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    return config


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces jobs and publications by their entries in the ledger. Returns what was run."""
    done: list[str] = []

    def resume(config: Config, replay_id: str, **_: Any) -> ReplayResult:
        ledger = Ledger.open(config.ledger_url)
        if ledger.replays.get(replay_id).state is ReplayState.PLANNED:
            if (config.root / "broken").exists() and len(done) == 2:
                raise InputError("the third step fails")
            run_to_end(ledger, replay_id)
            done.append(replay_id)
        row = ledger.replays.get(replay_id)
        return ReplayResult(row.read_plan(), row.state, 1)

    monkeypatch.setattr(steps.verbs, "resume", resume)
    monkeypatch.setattr(
        steps, "check_and_publish", lambda *given: done.append(f"published {given[1]}")
    )
    return done


def ranges(requests: list[ReplayRequest]) -> list[tuple[int | None, int | None]]:
    return [(one.first, one.last) for one in requests]


@pytest.mark.parametrize("step", ["1d", "24 h", "1440 min"])
def test_range_is_divided_into_steps_from_its_start(config: Config, step: str) -> None:
    first = FIRST + 10
    request = ReplayRequest("clicks_by_page", first=first, last=FIRST + 71, initial_state=True)
    found = plan_steps(config, request, step)
    assert ranges([*found.requests]) == [
        (first, first + 23),
        (first + 24, first + 47),
        (first + 48, FIRST + 71),
    ]
    assert found.has_state


def test_week_is_seven_days_and_a_short_range_is_one_step(config: Config) -> None:
    (one,) = plan_steps(config, ReplayRequest("clicks_by_page"), "1w").requests
    assert (one.first, one.last) == (FIRST, FIRST + 24 * DAYS - 1)


@pytest.mark.parametrize("step", ["90 min", "0 h", "30 min"])
def test_step_that_is_not_a_multiple_of_the_window_is_rejected(config: Config, step: str) -> None:
    with pytest.raises(RangeError, match=f'step "{step}" is not a multiple of the window.*1 h'):
        plan_steps(config, ReplayRequest("clicks_by_page"), step)


def test_unpublished_step_starts_with_the_state_of_the_step_before_it(config: Config) -> None:
    request = ReplayRequest("clicks_by_page", initial_state=True)
    chained = plan_steps(config, request, "1d").requests
    assert chained[0].initial_state and chained[0].state_from is None
    for before, one in pairwise(chained):
        assert (one.state_from, one.initial_state) == (before.replay_id, False)
    for one in plan_steps(config, request, "1d", publish=True).requests:
        assert one.state_from is None


def test_newest_step_runs_first_only_in_an_application_without_state(config: Config) -> None:
    found = plan_steps(config, ReplayRequest("pages"), "1d", newest_first=True)
    assert ranges([*found.requests])[0] == (FIRST + 48, FIRST + 71)
    assert not found.has_state
    with pytest.raises(InputError, match='"clicks_by_page" has state, .* newest first'):
        plan_steps(config, ReplayRequest("clicks_by_page"), "1d", newest_first=True)


@pytest.mark.parametrize(("given", "prefix"), [("year", "year"), (None, "pages")])
def test_ids_of_steps_have_a_prefix_and_the_windows(
    config: Config, given: str | None, prefix: str
) -> None:
    found = plan_steps(config, ReplayRequest("pages", replay_id=given), "1d")
    assert [one.replay_id for one in found.requests] == [
        f"{prefix}-{first}-{first + 23}" for first in (FIRST, FIRST + 24, FIRST + 48)
    ]


def test_repeated_call_with_other_options_is_rejected(config: Config, ran: list[str]) -> None:
    run_steps(config, plan_steps(config, ReplayRequest("pages"), "1d"))
    other = plan_steps(config, ReplayRequest("pages", mode="at_least_once"), "1d")
    with pytest.raises(InputError, match="(?s)has at_least_once.*another --id"):
        run_steps(config, other)
    assert len(ran) == 3


def test_repeated_call_continues_with_the_step_that_failed(
    config: Config, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found = plan_steps(config, ReplayRequest("pages", replay_id="year"), "1d")
    ids = [str(one.replay_id) for one in found.requests]
    (config.root / "broken").touch()
    with pytest.raises(InputError, match="the third step fails"):
        run_steps(config, found)
    (config.root / "broken").unlink()
    assert ran == ids[:2]
    caplog.set_level("INFO")
    results = run_steps(config, found)
    assert ran == ids
    assert [result.state.value for result in results] == ["checked"] * 3
    assert f"step 3 of 3: {ids[2]} is planned" in caplog.text


def test_each_step_is_published_before_the_next_one_and_only_once(
    config: Config, ran: list[str]
) -> None:
    found = plan_steps(config, ReplayRequest("pages", replay_id="year"), "1d", publish=True)
    ids = [str(one.replay_id) for one in found.requests]
    run_steps(config, found, publish=True)
    assert ran == [word for one in ids for word in (one, f"published {one}")]
    ledger = Ledger.open(config.ledger_url)
    publication = ledger.publications.open(ids[0], {"pages.out": None}, FIRST, FIRST + 23).number
    ledger.publications.mark_done(publication, "pages.out", 1)
    ledger.publications.close(publication)
    ran.clear()
    states = [result.state.value for result in run_steps(config, found, publish=True)]
    assert states == ["published"] * 3
    assert ran == [f"published {one}" for one in ids[1:]]


def test_abandoned_step_is_planned_again_under_the_next_number(config: Config) -> None:
    request = ReplayRequest("pages", replay_id="year")
    run = plan_steps(config, request, "1d").requests[0]
    steps.create_replay(config, run)
    Ledger.open(config.ledger_url).replays.abandon(str(run.replay_id))
    again = plan_steps(config, request, "1d").requests
    assert [one.replay_id for one in again] == [
        f"{run.replay_id}-2",
        f"year-{FIRST + 24}-{FIRST + 47}",
        f"year-{FIRST + 48}-{FIRST + 71}",
    ]


def test_replay_command_runs_the_steps_and_counts_them(
    config: Config, ran: list[str], run: Callable[..., tuple[int, str, str]]
) -> None:
    words = ("replay", "pages", "--step", "1d", "--newest-first", "--id", "year")
    code, shown, _ = run(*words)
    assert code == 0 and len(ran) == 3
    assert ran[0] == f"year-{FIRST + 48}-{FIRST + 71}"
    assert f"3 steps, the last one is year-{FIRST}-{FIRST + 23} (checked)" in shown
    code, shown, _ = run(*words, "--json")
    assert [step["replay"] for step in json.loads(shown)["steps"]] == ran


@pytest.mark.parametrize("option", ["--newest-first", "--publish"])
def test_options_of_steps_are_rejected_without_a_step(
    config: Config, run: Callable[..., tuple[int, str, str]], option: str
) -> None:
    code, _, errors = run("replay", "pages", option)
    assert code == 2
    assert "--newest-first and --publish can only be used with --step" in errors
