"""How far a verb is: told of what takes long, with what is left, by whatever is done at the
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rewindow.progress import steps as progress_steps
from rewindow.progress.job_lines import StepProgress, parse_step
from rewindow.progress.listener import Lines
from rewindow.progress.steps import Watch, counted, step
from rewindow.publication.actions import PublicationAction, run_action
from rewindow.publication.publish import publish
from rewindow.quality import check
from rewindow.settings.config import Config
from tests.publication.staging import simple
from tests.quality.staging import StagedReplay, ended


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a watch that looks when a step begins, five seconds after the one before."""
    lines: list[str] = []

    class Looking(Watch):
        @contextmanager
        def during(self, what: str, of: int, unit: str) -> Iterator[Any]:
            with super().during(what, of, unit) as begun:
                clock.now += 5
                self.poll()
                yield begun

    monkeypatch.setattr(progress_steps, "Watch", lambda tell: Looking(lines.append, clock))
    return lines


def steps(lines: list[str]) -> list[str]:
    found = [parse_step(line) for line in lines]
    return [f"{one.step} {one.count}".strip() for one in found if one is not None]


def test_progress_reports_step_done_and_remaining_at_intervals(clock: Clock) -> None:
    # Nothing in the first two seconds, then on each new step and every five seconds.
    lines: list[str] = []
    watch = Watch(lines.append, clock)
    token = progress_steps._watch.set(watch)
    try:
        for item in counted("linking files", [3, 5], 8, "files", lambda size: size):
            clock.now += 1.5
            watch.poll()
            if item == 5:
                with step("one of them"):
                    watch.poll()
                clock.now += 1
                watch.poll()
                clock.now += 4
                watch.poll()
        watch.poll()
    finally:
        progress_steps._watch.reset(token)
    assert [parse_step(line) for line in lines] == [
        StepProgress("linking files", 3, 8, "files", 3.0, 5.0),
        StepProgress("one of them", 3, 8, "files", 3.0, 5.0),
        StepProgress("linking files", 3, 8, "files", 4.0, 4.0 * 5 / 3),
    ]


def test_progress_wrapper_returns_items_unchanged_without_a_listener() -> None:
    with step("something"):
        assert list(counted("linking files", range(3), 3, "files")) == [0, 1, 2]


def test_line_listener_receives_progress_as_text() -> None:
    said: list[str] = []
    Lines(said.append).line(
        StepProgress("reading", 1_500_000, 3_000_000, "bytes", 4.0, None).line()
    )
    Lines(said.append).line("another line")
    assert said == ["reading, 2/3 MB, 4 s", "another line"]


def test_publish_and_undo_report_their_progress(config: Config, told: list[str]) -> None:
    simple(config, "one", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "one")
    simple(config, "fix", 105, 109, plus=3, publishable=True, outputs=("ranks",))
    assert told == []
    with progress_steps.watched(told.append):
        run_action(PublicationAction.PUBLISH, config, "fix")
    found = steps(told)
    assert (
        found[0] == "comparing staged files 0/0 MB"
        and "app.ranks: linking files 0/1 files" in found
    )
    assert "app.ranks: reading its files 0/0 MB" in found
    told.clear()
    with progress_steps.watched(told.append):
        run_action(PublicationAction.UNDO, config, "fix")
    assert "app.ranks: linking files 0/1 files" in steps(told)


def test_gate_reports_its_steps_and_the_number_of_checked_outputs(
    tmp_path: Path,
    told: list[str],
) -> None:
    staged = StagedReplay(tmp_path)
    ended(staged)
    assert check(staged.config, staged.replay_id).verdict == "passed"
    name = staged.output
    assert steps(told) == [
        "judging outputs 0/1 outputs",
        *(
            f"{name}: {what} 0/1 outputs"
            for what in (
                "its facts",
                "seals of the inputs",
                "counting its rows by key",
                "its measures",
                "quarantine",
                "its checks",
            )
        ),
    ]
