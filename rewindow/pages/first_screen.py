"""Draws the picture in the README. It shows the steps of a replay, and the outcome of a kill in
each mode.

The values come from replays of one range. Nothing is read here, and the result is one SVG file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewindow.pages.drawing import draw
from rewindow.pages.replay_report import ReplayReport
from rewindow.pages.timeline import Shape, Timeline, clock_seconds, draw_strips, draw_timeline

_LEFT = 100
_MARGIN = 18
_BOX_WIDTH = 186
_BOX_GAP = 37
_TIMELINE_TOP = 140
_BAND_HEIGHT = 62
_STRIP_HEIGHT = 8


@dataclass(frozen=True)
class StepBox:
    """A box in the first row of the picture, with a step of a replay and its figures."""

    x: int
    title: str
    words: str


@dataclass(frozen=True)
class Band:
    """The windows of a replay's outputs, one strip for each output, below a line of text."""

    y: int
    title: str
    words: str
    strips: tuple[tuple[int, tuple[Shape, ...]], ...]


def draw_first_screen(replays: Sequence[ReplayReport]) -> str:
    """Returns the picture as SVG.

    Args:
        replays: replays of the same range that were killed, each in another mode. The attempts of
            the first one are drawn on a clock.
    """
    first = replays[0]
    timeline = draw_timeline(first, clock_seconds([first]))
    bands_top = _TIMELINE_TOP + timeline.height + 40
    bands = [
        _band(report, bands_top + index * _BAND_HEIGHT) for index, report in enumerate(replays)
    ]
    axis_y = bands_top + len(bands) * _BAND_HEIGHT
    return draw(
        "first_screen.svg",
        steps=_steps(first),
        box_width=_BOX_WIDTH,
        box_gap=_BOX_GAP,
        timeline=timeline,
        timeline_title=_timeline_title(first, timeline),
        timeline_top=_TIMELINE_TOP,
        bands=bands,
        bands_top=bands_top,
        strip_height=_STRIP_HEIGHT,
        ends=draw_strips(first).ends,
        axis_y=axis_y,
        left=_LEFT,
        margin=_MARGIN,
        width=_LEFT + 1000 + _MARGIN,
        height=axis_y + 52,
    )


def _steps(report: ReplayReport) -> list[StepBox]:
    counts = report.counts
    groups = set()
    for attempt in report.attempts:
        for group in attempt.groups:
            groups.add(group.number)
    gate = report.gate.verdict if report.gate else "not run"
    texts = (
        ("record", f"{counts.tuples_in:,} tuples in Delta"),
        ("plan", f"{len(report.windows):,} windows"),
        ("replay", f"Spark, {len(groups)} commit groups"),
        ("check", f"gate {gate}"),
        ("publish", f"{counts.tuples:,} rows in Delta"),
    )
    steps = []
    x = _MARGIN
    for title, words in texts:
        steps.append(StepBox(x, title, words))
        x += _BOX_WIDTH + _BOX_GAP
    return steps


def _timeline_title(report: ReplayReport, timeline: Timeline) -> str:
    attempts = f"{len(timeline.lanes)} attempts of one replay"
    return f"{attempts}, {report.title.lower()}: a killed job resumes after its last checkpoint"


def _band(report: ReplayReport, y: int) -> Band:
    strips = []
    strip_y = y + 12
    for _, _, shapes in draw_strips(report).rows:
        strips.append((strip_y, shapes))
        strip_y += _STRIP_HEIGHT + 2
    return Band(y, report.title, _outcome(report), tuple(strips))


def _outcome(report: ReplayReport) -> str:
    """Returns the outcome of a kill as text, starting with the verdict of the certificate."""
    counts = report.counts
    words = []
    if report.comparison is not None:
        is_equal = report.comparison.verdict == "equal"
        words.append(f"{'equal to' if is_equal else 'differs from'} a replay without a kill")
    if counts.repeated:
        words.append(f"{counts.repeated:,} windows staged twice, readers see one")
    if counts.lost:
        words.append(f"{counts.lost:,} windows lost, and listed")
    if counts.affected:
        words.append(f"{counts.affected:,} computed without them, and marked")
    return "; ".join(words)
