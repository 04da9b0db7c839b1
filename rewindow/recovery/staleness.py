"""Finds stale windows, which were published from a state that has changed since. Pure functions.

Every publication stores the digests of the states that its replay saved, including the start state,
and the origin of the start state. The stale windows follow from these values alone, in whatever
order publications overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewindow.windows import WindowRange


@dataclass(frozen=True)
class EffectivePublication:
    """A publication that was not undone, with the facts about its states.

    Attributes:
        states: window to the digest of the state after it, for each window whose state the replay
            saved.
        source: origin of its start state (see `rewindow.recovery.StartState`).
        base: the window whose published state it started with, None if it did not start with a
            published state.
        base_digest: digest of that state, empty if unknown.
        repeats: numbers of the publications whose state at the end of its range its replay has
            reproduced.
    """

    number: int
    range: WindowRange
    states: Mapping[int, str] = field(default_factory=dict)
    source: str = "initial"
    base: int | None = None
    base_digest: str = ""
    repeats: tuple[int, ...] = ()


@dataclass(frozen=True)
class EffectiveStretch:
    """Consecutive windows whose content comes from one publication."""

    range: WindowRange
    owner: EffectivePublication


def in_effect(publications: Sequence[EffectivePublication]) -> list[EffectiveStretch]:
    """Returns the publication that readers see in each window, as ascending and disjoint ranges.

    In each window, this is the newest publication.
    """
    segments: list[EffectiveStretch] = []
    for publication in sorted(publications, key=lambda publication: publication.number):
        windows = publication.range
        low = bisect_left(segments, windows.first, key=lambda segment: segment.range.last)
        high = bisect_right(segments, windows.last, key=lambda segment: segment.range.first)
        # Only the segments that the publication overlaps change, found by bisection: a stream may
        # have been published a thousand times.
        parts = [EffectiveStretch(windows, publication)]
        for segment in segments[low:high]:
            parts += _outside(segment, windows)
        segments[low:high] = sorted(parts, key=lambda segment: segment.range.first)
    return segments


def stale_windows(publications: Sequence[EffectivePublication]) -> list[WindowRange]:
    """Returns the stale windows of an application's stateful outputs, ascending.

    Repair them in this order, since a repaired range can make later ranges current again.

    A segment is stale if the published state before it is not the one that it was computed from, or
    is stale itself. If no state was saved at the border, the base of a warm-up decides. In the
    middle of a replay an unknown state makes the segment stale, unless the publication before the
    border only repeats that replay's windows. Windows that were explicitly computed from the
    initial state do not depend on a published state.
    """
    # Ascending, since a stale segment makes the segments that follow it stale.
    segments = in_effect(publications)
    stale: list[EffectiveStretch] = []
    for index, segment in enumerate(segments):
        before = segments[index - 1] if index else None
        if before is not None and before.range.last + 1 < segment.range.first:
            before = None
        if _is_stale(segment, before, segments[:index], stale=stale):
            stale.append(segment)
    return _joined([segment.range for segment in stale])


def moved_end(pinned: int | None, end: int | None, last: int) -> int | None:
    """Returns the first window whose result differs because the end of a stream has moved; None if
    there is none.

    Args:
        pinned: the end that a replay was computed with, None if the stream did not end within its
            range.
        end: the stream's end now, None if it has not ended.
        last: last window of the replay; an end after it does not affect the replay.

    Rules: X21, X34
    """
    now = end if end is not None and end <= last else None
    if now == pinned:
        return None
    return min(window for window in (pinned, now) if window is not None)


def _is_stale(
    segment: EffectiveStretch,
    before: EffectiveStretch | None,
    earlier: list[EffectiveStretch],
    stale: list[EffectiveStretch],
) -> bool:
    """Returns whether a segment is stale, given the segments before it.

    The state that its replay used at the segment's first window is compared with the state that is
    now published there. Which two values these are depends on the border: at the start of a
    publication the replay used its start state, in the middle the state that it computed itself.
    `before` is the segment that ends right before this one, None after a gap; without it only the
    base of a warm-up can decide.
    """
    # A stale segment makes the next one stale. Otherwise the digests decide. If the digest of the
    # used state is unknown, `repeats` decides: whether the publication before the border has only
    # repeated windows of this one.
    owner = segment.owner
    border = segment.range.first - 1
    begins = segment.range.first == owner.range.first
    if begins and owner.source in ("initial", "none"):
        return False
    if before is not None and before in stale:
        return True
    used = owner.states.get(border)
    now = before.owner.states.get(border) if before else None
    if before is not None and not (begins and now is None):
        return owner.number not in before.owner.repeats if used is None else used != now
    if not begins or owner.base is None:
        return False
    below = _holding(earlier, owner.base)
    if below is None or below in stale:
        return True
    return bool(owner.base_digest) and below.owner.states.get(owner.base) != owner.base_digest


def _holding(segments: list[EffectiveStretch], window: int) -> EffectiveStretch | None:
    """Returns the segment that contains a window; None if there is none."""
    index = bisect_right([segment.range.first for segment in segments], window) - 1
    return segments[index] if index >= 0 and window in segments[index].range else None


def _outside(segment: EffectiveStretch, windows: WindowRange) -> list[EffectiveStretch]:
    """Returns the parts of a segment that are outside of a range."""
    if segment.range.overlap(windows) is None:
        return [segment]
    left = []
    if segment.range.first < windows.first:
        left.append(
            EffectiveStretch(WindowRange(segment.range.first, windows.first - 1), segment.owner)
        )
    if segment.range.last > windows.last:
        left.append(
            EffectiveStretch(WindowRange(windows.last + 1, segment.range.last), segment.owner)
        )
    return left


def _joined(ranges: list[WindowRange]) -> list[WindowRange]:
    joined: list[WindowRange] = []
    for part in ranges:
        if joined and joined[-1].last + 1 == part.first:
            joined[-1] = WindowRange(joined[-1].first, part.last)
        else:
            joined.append(part)
    return joined
