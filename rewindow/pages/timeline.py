"""Draws a replay: its attempts on a clock, and its windows as strips. Pure functions: the input is
values, the result is shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap

from rewindow.inspection.window_runs import WindowRun
from rewindow.pages.replay_report import DrawnAttempt, Group, KillEvent, ReplayReport

WIDTH = 1000
LANE = 34
_STRIP = 16
_KIND_WORDS = {
    "committed": "committed",
    "repeated": "staged twice; readers see one attempt",
    "lost": "given up",
    "affected": "computed from a state that lacks windows",
}


@dataclass(frozen=True)
class Shape:
    """A rectangle with a class, a tooltip and optionally a text."""

    x: float
    width: float
    kind: str
    title: str
    text: str = ""


@dataclass(frozen=True)
class Lane:
    """One attempt on the clock."""

    y: int
    label: str
    shapes: tuple[Shape, ...]
    checkpoints: tuple[float, ...]
    kill: tuple[float, str] | None


@dataclass(frozen=True)
class Timeline:
    """A replay's attempts on a clock.

    Attributes:
        recovery: start, end and label of the time from the kill to the next commit; None if nothing
            was killed.
        ticks: positions and labels of the clock.
    """

    height: int
    lanes: tuple[Lane, ...]
    recovery: tuple[float, float, str] | None
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Strips:
    """The windows of each output from left to right, and the positions of checkpoints."""

    height: int
    rows: tuple[tuple[int, str, tuple[Shape, ...]], ...]
    checkpoints: tuple[tuple[float, str], ...]
    ends: tuple[str, str]


def clock_seconds(stories: Sequence[ReplayReport]) -> float:
    """Returns the duration of the longest of the given replays, so that all can be drawn with the
    same clock.
    """
    return max(map(_length, stories), default=1.0) or 1.0


def draw_timeline(report: ReplayReport, seconds_max: float) -> Timeline:
    """Returns the attempts of a replay on a clock that ends at `seconds_max`."""
    clock = _Clock(report, seconds_max)
    lanes = tuple(starmap(clock.lane, enumerate(report.attempts)))
    recovery = None
    if report.kills and report.recovery_seconds is not None:
        begin = clock.x(report.kills[0].at)
        length = report.recovery_seconds * WIDTH / seconds_max
        recovery = (
            begin,
            begin + length,
            f"{report.recovery_seconds:.1f} s from the kill to the next commit",
        )
    height = LANE * max(len(lanes), 1) + (22 if recovery else 2) + 18
    return Timeline(height, lanes, recovery, ticks=tuple(_ticks(seconds_max)))


def draw_strips(report: ReplayReport) -> Strips:
    """Returns the windows of each output as a strip of runs with the same state."""
    scale = WIDTH / len(report.windows)
    rows = []
    for index, (name, parts) in enumerate(report.outputs.items()):
        stretches = tuple(_stretch(report, part, scale) for part in parts)
        rows.append((index * (_STRIP + 4), name, stretches))
    checkpoints = tuple(
        (
            (window - report.windows.first + 1) * scale,
            f"checkpoint after window {report.grid.describe(window)}",
        )
        for window in report.checkpoints
    )
    begin = _day(report.grid.start_us(report.windows.first))
    end = _day(report.grid.end_us(report.windows.last))
    return Strips(len(rows) * (_STRIP + 4) + 8, tuple(rows), checkpoints, ends=(begin, end))


def phases(report: ReplayReport) -> list[tuple[str, str, float]]:
    """Returns the phases of a replay's time, each with a class, a text and its seconds."""
    found = {"start": 0.0, "compute": 0.0, "commit": 0.0, "killed": 0.0, "wait": 0.0}
    for attempt, following in zip(report.attempts, [*report.attempts[1:], None], strict=False):
        kill = _kill_of(report, attempt)
        first = attempt.groups[0] if attempt.groups else None
        if first is not None:
            found["start"] += _seconds(attempt.began_at, first.ended_at) - first.seconds
        found["compute"] += sum(group.compute_seconds for group in attempt.groups)
        found["commit"] += sum(group.commit_seconds for group in attempt.groups)
        if kill is not None:
            found["killed"] += _seconds(_working_since(attempt), kill.at)
            if following is not None:
                found["wait"] += _seconds(kill.at, following.began_at)
    words = {
        "start": "start of Spark and of the attempt",
        "compute": "computing and writing files",
        "commit": "commits",
        "killed": "work lost in the kill",
        "wait": "until the next attempt started",
    }
    found["rest"] = max(0.0, _length(report) - sum(found.values()))
    words["rest"] = "the rest"
    return [
        (kind, words[kind], round(seconds, 1)) for kind, seconds in found.items() if seconds >= 0.05
    ]


class _Clock:
    """Converts times of one replay to positions on a line."""

    def __init__(self, report: ReplayReport, seconds_max: float) -> None:
        self._story = report
        self._scale = WIDTH / seconds_max
        self._zero = report.attempts[0].began_at if report.attempts else None

    def x(self, moment: datetime) -> float:
        assert self._zero is not None, "only attempts are drawn"
        return round(_seconds(self._zero, moment) * self._scale, 1)

    def lane(self, index: int, attempt: DrawnAttempt) -> Lane:
        kill = _kill_of(self._story, attempt)
        end = kill.at if kill else attempt.ended_at or _working_since(attempt)
        shapes = [
            self._shape(
                attempt.began_at,
                end,
                "track",
                title=f"attempt {attempt.epoch}: {attempt.outcome or 'running'}",
            )
        ]
        if attempt.groups:
            begin = self.x(attempt.groups[0].ended_at) - attempt.groups[0].seconds * self._scale
            start = begin - self.x(attempt.began_at)
            words = f"start of Spark and of the attempt: {start / self._scale:.1f} s"
            shapes.append(
                Shape(self.x(attempt.began_at), round(max(start, 0), 1), "start", title=words)
            )
        for group in attempt.groups:
            shapes += self._group(group)
        if kill is not None:
            shapes.append(
                self._shape(
                    _working_since(attempt),
                    kill.at,
                    "killed",
                    title="in progress when it was killed",
                )
            )
        checkpoints = tuple(self.x(group.ended_at) for group in attempt.groups if group.checkpoint)
        marker = (self.x(kill.at), _kill_words(kill)) if kill else None
        return Lane(
            index * LANE,
            f"attempt {attempt.epoch}",
            tuple(shapes),
            checkpoints=checkpoints,
            kill=marker,
        )

    def _group(self, group: Group) -> Iterator[Shape]:
        end = self.x(group.ended_at)
        compute = group.compute_seconds * self._scale
        commit = group.commit_seconds * self._scale
        title = (
            f"group {group.number}: windows {group.windows.first} to {group.windows.last}, "
            f"{group.compute_seconds:.1f} s computing, {group.commit_seconds:.1f} s commits"
            + (", checkpoint" if group.checkpoint else "")
        )
        yield Shape(
            round(end - compute - commit, 1),
            round(max(compute, 1), 1),
            "compute",
            title=title,
            text=str(group.number or ""),
        )
        yield Shape(round(end - commit, 1), round(max(commit, 1), 1), "commit", title=title)

    def _shape(self, begin: datetime, end: datetime, kind: str, title: str) -> Shape:
        return Shape(
            self.x(begin), round(max(self.x(end) - self.x(begin), 0), 1), kind, title=title
        )


def _working_since(attempt: DrawnAttempt) -> datetime:
    return attempt.groups[-1].ended_at if attempt.groups else attempt.began_at


def _kill_words(kill: KillEvent) -> str:
    return f"SIGKILL at {kill.step}, group {kill.group}" if kill.step else "killed"


def _stretch(report: ReplayReport, part: WindowRun, scale: float) -> Shape:
    words = _KIND_WORDS[part.kind]
    by = f" by attempt {part.attempt}" if part.attempt else ""
    title = f"{len(part.windows):,} windows {report.grid.describe(part.windows)}: {words}{by}"
    kind = f"{part.kind} a{part.attempt % 2}"
    return Shape(
        round((part.windows.first - report.windows.first) * scale, 2),
        round(len(part.windows) * scale, 2),
        kind,
        title=title,
    )


def _length(report: ReplayReport) -> float:
    if not report.attempts:
        return 0.0
    ends = []
    # A running or killed attempt may have no end; then its groups show how far it came.
    for attempt in report.attempts:
        if attempt.ended_at:
            ends.append(attempt.ended_at)
        ends += [group.ended_at for group in attempt.groups]
    return _seconds(report.attempts[0].began_at, max(ends)) if ends else 0.0


def _kill_of(report: ReplayReport, attempt: DrawnAttempt) -> KillEvent | None:
    return next((kill for kill in report.kills if kill.epoch == attempt.epoch), None)


def _ticks(seconds_max: float) -> Iterator[tuple[float, str]]:
    step = next(
        (
            step
            for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
            if seconds_max / step <= 8
        ),
        7200,
    )
    second = 0
    while second <= seconds_max:
        words = f"{second} s" if step < 60 else f"{second // 60} min"
        yield round(second * WIDTH / seconds_max, 1), words
        second += step


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _day(t_us: int) -> str:
    from rewindow.windows import to_datetime

    return to_datetime(t_us).strftime("%Y-%m-%d %H:%MZ")
