"""`rewindow drill`: kills that are drawn, their cost, and promises that are broken."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rewindow import cli
from rewindow.candidates import drills
from rewindow.candidates.determinism import check_determinism
from rewindow.candidates.drills import GROUPS, Kill, drill, kills_of, recent_request
from rewindow.crash import Step, check_crash
from rewindow.errors import InputError, Interrupted, RewindowError
from rewindow.launcher import Outcome, Submission, loop, verbs
from rewindow.ledger import Ledger
from rewindow.planning import draft_plan
from rewindow.planning.request import ReplayRequest
from rewindow.settings.config import Config
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS, Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def config(tmp_path: Path) -> Config:
    found = make_project(tmp_path).config
    assert found.file is not None
    settings = Path(found.file)
    settings.write_text(settings.read_text() + "\n[replay]\ndrills = true\n")
    return Config.load(settings)


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process."""
    monkeypatch.setattr(loop, "run", jobs_here(spark))


def tables_of(config: Config) -> list[str]:
    return [folder.name for folder in (config.state / "replays").folders()]


@pytest.mark.long
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "modes",
    [["at_least_once"], ["exactly_once", "at_most_once"]],
)
def test_drill_shows_the_cost_of_a_kill_in_each_mode(
    modes: list[str],
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R48 to R51
    monkeypatch.setattr(drills, "kills_of", lambda *_, **__: [Kill(Step.AFTER_FIRST_OUTPUT, 4)])
    found = drill(config, "totals", modes=modes, seed=1)
    size = WINDOWS // GROUPS
    # At least once: [1008, 1015] without empty windows, 1015 was not sealed and 1010 has no row.
    expected = {
        "exactly_once": (
            f"at most {size} windows computed again",
            f"{size} windows computed again",
        ),
        "at_least_once": (
            f"at most {2 * size} windows computed again, at most {2 * size} windows repeated",
            "7 windows computed again, 6 windows repeated",
        ),
        "at_most_once": (f"at most {size} windows lost", f"{size} windows lost"),
    }
    seen = {kill.mode: (kill.promised, kill.seen) for kill in found.kills}
    assert seen == {mode: expected[mode] for mode in modes}
    assert found.kept and all(kill.seconds is not None for kill in found.kills)
    assert (found.first, found.last) == (FIRST, FIRST + WINDOWS - 1)
    assert tables_of(config) == []
    assert Ledger.open(config.ledger_url).replays.newest(without_samples=True) == []


@pytest.mark.long
@pytest.mark.usefixtures("here")
def test_drill_reports_a_broken_guarantee_and_keeps_the_candidates(
    config: Config,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = jobs_here(spark)

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        """The job survives."""
        environment = {**submission.environment}
        environment.pop("REWINDOW_CRASH", None)
        return job(replace(submission, environment=environment), on_line)

    monkeypatch.setattr(loop, "run", run)
    found = drill(config, "totals", kills=1, seed=1)
    [kill] = found.kills
    assert not found.kept and "the job was not killed" in kill.seen
    assert len(tables_of(config)) == 2 and kill.replay in tables_of(config)


@pytest.mark.recovery_matrix
@pytest.mark.parametrize("how", ["here", pytest.param("real", marks=pytest.mark.exhaustive)])
def test_drill_kills_jobs_of_several_containers(
    how: str,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    # Rules: R3, R48 to R50, X53
    # `make test-recovery` kills real jobs by the drill of Airflow, and of several containers in
    # test_container_kills.py.
    if how == "here":
        request.getfixturevalue("here")
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    arguments = ["drill", "three_modes", "--kills", "4", "--seed", "3", "--json"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["kept"] and len(report["kills"]) == 4
    assert len({kill["container"] for kill in report["kills"]}) > 1


def test_interrupted_drill_deletes_its_candidates_and_reports_none(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        resume = f"Go on with: rewindow replay --resume {submission.replay_id}"
        stopped = Interrupted("stopped by the user", hint=resume)
        return Outcome(130, str(stopped), retryable=False, facts={}, error=stopped.parts)

    monkeypatch.setattr(loop, "run", run)
    with pytest.raises(RewindowError, match="were deleted") as stopped:
        drill(config, "totals", seed=4)
    assert stopped.value.exit_code == Interrupted.exit_code
    assert stopped.value.hint == "Start again: rewindow drill totals --seed 4"
    with pytest.raises(RewindowError) as stopped:
        check_determinism(config, "totals", seed=5)
    assert stopped.value.hint == "Start again: rewindow check-determinism totals --seed 5"
    assert tables_of(config) == []


def test_every_step_of_every_container_is_a_crash_point(config: Config) -> None:
    plan = Project(config).plan_of("three_modes", "r", "exactly_once")
    found = kills_of(plan, 0, every_step=True, seed=1)
    for kill in found:
        check_crash(kill.crash)
    steps = {step for step in Step if step is not Step.WARMED_UP}
    for container in ("sums", "totals", "lossy"):
        assert {kill.step for kill in found if kill.container == container} == steps
    assert {kill.container for kill in found} == {"sums", "totals", "lossy", "assembly"}
    same = [kills_of(plan, 5, every_step=False, seed=7) for _ in range(2)]
    assert same[0] == same[1] != kills_of(plan, 5, every_step=False, seed=8)


@pytest.mark.parametrize("windows", [3, 7, 13])
def test_random_kills_are_chosen_only_in_existing_groups(config: Config, windows: int) -> None:
    request = ReplayRequest("totals", last=FIRST + windows - 1)
    plan = draft_plan(config, recent_request(config, request, windows)).plan
    last = math.ceil(windows / math.ceil(windows / GROUPS))
    drawn = set()
    for seed in range(1, 20):
        for kill in kills_of(plan, 0, every_step=True, seed=seed):
            drawn.add(kill.group)
    assert drawn == set(range(1, last + 1))


def test_drill_is_rejected_unless_the_settings_allow_it(tmp_path: Path) -> None:
    config = make_project(tmp_path).config
    with pytest.raises(
        InputError, match=r"drills are not enabled in this project[^$]*\[replay\] drills"
    ):
        drill(config, "totals")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"windows": 5}, "at least 6 windows"),
        ({"kills": 0}, "one kill"),
        ({"modes": ["twice"]}, 'mode "twice"'),
        (
            {"windows": 8},
            f'no state of application "totals" is published before window {FIRST + 16}',
        ),
    ],
)
def test_drill_rejects_unsupported_requests(
    config: Config,
    options: dict[str, object],
    words: str,
) -> None:
    with pytest.raises(InputError, match=words):
        drill(config, "totals", **options)  # type: ignore[arg-type]
    assert Ledger.open(config.ledger_url).replays.newest() == []


@pytest.mark.long
@pytest.mark.usefixtures("here")
def test_drill_uses_windows_after_the_newest_published_state(
    config: Config,
) -> None:
    for first, last in ((FIRST, FIRST + 9), (FIRST + 10, FIRST + WINDOWS - 1)):
        done = verbs.replay(config, "totals", first=first, last=last)
        verbs.publish(config, done.replay_id, accept="not checked")
    request = recent_request(config, ReplayRequest("totals"), 7)
    assert (request.first, request.last) == (FIRST + 10, FIRST + 16)
    with pytest.raises(InputError, match="no state of application"):
        recent_request(config, ReplayRequest("totals", first=FIRST + 12), 7)


@pytest.mark.long
def test_drill_reports_windows_that_differ_from_the_candidate_without_kills(
    config: Config,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = jobs_here(spark)
    replays: list[str] = []

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        """The operator emits other values in the second candidate."""
        if submission.replay_id not in replays:
            monkeypatch.setenv("NOISE_EXACT", str(len(replays)))
            replays.append(submission.replay_id)
        return job(submission, on_line)

    monkeypatch.setattr(loop, "run", run)
    monkeypatch.setattr(drills, "kills_of", lambda *_, **__: [Kill(Step.FENCED, 1)])
    [kill] = drill(config, "noisy", seed=1).kills
    assert not kill.kept and re.match(r"\d+ windows of scores changed", kill.seen)
    assert sorted(tables_of(config)) == sorted(replays), "both candidates are kept"
