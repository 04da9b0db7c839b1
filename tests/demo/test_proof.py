"""The demo's proofs: they hold for what the engine leaves, and fail loudly for anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rewindow.application import Mode
from rewindow.crash import Step
from rewindow.demo import proof
from rewindow.demo.drill import Drill
from rewindow.demo.watch import DemoRun
from rewindow.errors import RewindowError
from rewindow.settings.config import Config
from rewindow.windows import WindowRange
from tests.pages import replays
from tests.publication.staging import StagedReplay, rows_of, state_of

CALM = DemoRun(Drill(Mode.EXACTLY_ONCE), "run", "calm")
GROUP = WindowRange(105, 109)


@pytest.fixture(autouse=True)
def _second_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replays made by hand were killed in their second group."""
    monkeypatch.setattr(proof._Facts, "killed_group", lambda self: GROUP)


def run_of(mode: Mode, replay_id: str) -> DemoRun:
    return DemoRun(Drill(mode, Step.AFTER_OUTPUTS, 2), "run", replay_id)


@pytest.mark.parametrize(
    ("mode", "make", "words"),
    [
        (Mode.EXACTLY_ONCE, replays.killed_exactly_once, "computed again: 5 windows [105, 109]"),
        (
            Mode.AT_LEAST_ONCE,
            replays.killed_at_least_once,
            "after the checkpoint at 104: 5 windows [105, 109]",
        ),
        (
            Mode.AT_MOST_ONCE,
            replays.killed_at_most_once,
            "ranks: exactly the listed windows are lost, 5 windows [105, 109]",
        ),
    ],
)
def test_guarantee_of_each_mode_is_proven_from_the_tables(
    config: Config,
    mode: Mode,
    make: Callable[[Config], StagedReplay],
    words: str,
) -> None:
    replays.undisturbed(config)
    replay = make(config)
    found = proof.prove(config, run_of(mode, replay.replay_id), CALM)
    assert any(words in sentence for sentence in found.sentences), found.sentences


def test_replay_without_a_kill_is_proven_without_a_comparison(config: Config) -> None:
    replays.undisturbed(config)
    assert proof.prove(config, CALM, None).certificate is None


def broken(config: Config, run: DemoRun) -> str:
    replays.undisturbed(config)
    with pytest.raises(RewindowError, match="violated guarantee") as caught:
        proof.prove(config, run, CALM)
    return str(caught.value)


def test_window_neither_sealed_nor_lost_violates_every_guarantee(config: Config) -> None:
    replay = StagedReplay(config, "holed", 100, 119)
    for first in (100, 110, 115):
        replay.group(first, first + 4, rows_of(range(first, first + 5)), state=state_of(first))
    replay.end()
    assert "[105, 109]" in broken(config, run_of(Mode.EXACTLY_ONCE, "holed"))


def test_different_rows_violate_exactly_once(config: Config) -> None:
    replay = StagedReplay(config, "other", 100, 119)
    for first in (100, 105, 110, 115):
        replay.group(
            first,
            first + 4,
            rows_of(range(first, first + 5), plus=first == 110),
            state=state_of(first),
        )
    replay.end()
    assert "[110, 11" in broken(config, run_of(Mode.EXACTLY_ONCE, "other"))


def test_repeats_outside_the_killed_group_violate_at_least_once(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replays.killed_at_least_once(config)
    monkeypatch.setattr(proof._Facts, "killed_group", lambda self: WindowRange(110, 114))
    assert "repeats are confined" in broken(config, run_of(Mode.AT_LEAST_ONCE, "twice"))


def test_mismatch_of_lost_windows_and_rows_violates_at_most_once(config: Config) -> None:
    replay = StagedReplay(config, "liar", 100, 119, mode=Mode.AT_MOST_ONCE)
    replay.group(100, 104, rows_of(range(100, 105)), state=state_of(104))
    replay.write("ranks", 105, 109, rows_of(range(105, 110))["ranks"], 1)
    replay.write("delays", 105, 109, rows_of(range(105, 110))["delays"], 1)
    replay.seal("delays", rows_of(range(105, 110))["delays"], 1)
    replay.lose(105, 109, ["ranks"], epoch=2)
    for first in (110, 115):
        replay.group(
            first,
            first + 4,
            rows_of(range(first, first + 5), plus=1),
            2,
            state=state_of(first),
        )
    replay.end(epoch=2)
    assert "exactly the listed windows are lost" in broken(
        config, run_of(Mode.AT_MOST_ONCE, "liar")
    )
