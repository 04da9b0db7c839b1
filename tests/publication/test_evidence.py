"""The facts for the decision about a publication."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.application import Mode
from rewindow.publication.evidence import publication_evidence
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from tests.publication.staging import StagedReplay, rows_of, simple, state_of


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "rewindow.toml").write_text('state = "state"\n')
    return Config.load(tmp_path / "rewindow.toml")


def stage(config: Config, name: str, *losses: tuple[int, int, list[str]]) -> None:
    """Stages a replay of windows 100 to 109 that has lost windows in some outputs."""
    replay = StagedReplay(config, name, 100, 109, mode=Mode.AT_MOST_ONCE)
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    for first, last, outputs in losses:
        replay.lose(first, last, outputs, 2)
    rows = rows_of(range(105, 110))
    for output, windows in rows.items():
        for first, last, outputs in losses:
            for window in range(first, last + 1) if output in outputs else ():
                windows.pop(window, None)
    replay.group(105, 109, rows, 2, state=state_of(2))
    replay.digest().end(epoch=2, checked=True)


def test_window_lost_in_some_outputs_only_is_partial(config: Config) -> None:
    stage(config, "one", (105, 106, ["ranks"]))
    evidence = publication_evidence(config, "one")
    assert (evidence.flawed("lost"), evidence.partial) == (2, 2)


def test_window_lost_in_all_outputs_is_not_partial(config: Config) -> None:
    stage(config, "both", (105, 106, ["ranks", "delays"]), (107, 107, ["ranks"]))
    evidence = publication_evidence(config, "both")
    assert (evidence.flawed("lost"), evidence.partial) == (3, 1)


def test_changed_windows_are_counted_against_the_published_ones(config: Config) -> None:
    simple(config, "old", 100, 109, publishable=True)
    publish(config, "old")
    simple(config, "new", 100, 109, plus=1, publishable=True)
    difference = publication_evidence(config, "new").difference
    assert difference is not None and not difference.equal
    assert publication_evidence(config, "new", compare=False).difference is None
    assert publication_evidence(config, "new").tuples == {"delays": 14, "ranks": 20}
