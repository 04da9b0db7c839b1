"""Staleness: windows published from a state that has since changed. Pure arithmetic.

Every publication keeps the digests of the states that its replay saved, mark 0 included, and where
its start state came from. From these alone it follows which windows are stale, however publications
lie over each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewindow.windows import WindowRange


@dataclass(frozen=True)
class EffectivePublication:
    """A publication that was not taken back, as far as state goes.

    Attributes:
        states: window to the digest of the state after it, wherever the replay saved one.
        source: where its start state came from (see `rewindow.recovery.StartState`).
        base: the window whose published state it began with, None when it did not begin with a
            published one.
        base_digest: digest of that state, empty when it is not known.
        repeats: publications whose state at the end of its range its replay has computed again.
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
    """Returns, ascending and disjoint, which publication each window shows: the newest one over
    it.
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
    """Returns the stale windows of an application's stateful outputs, ascending; the first range
    comes next.

    A segment is stale if the state before it, as published now, is not the one that it was computed
    from, or is itself stale. Where no state was saved at the border, a warm-up's base decides; in
    the middle of a replay, an unknown state is stale, unless the publication before the border only
    repeats that replay's windows. Windows computed from the initial state on request depend on no
    published state.
    """
    # In the order of windows, since a segment that is stale makes the ones after it stale.
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
    """Returns the first window that comes out otherwise since the end of a stream was moved; None
    if none does (X21).

    Args:
        pinned: the end that a replay was computed with, None if it met none.
        end: the stream's end now, None where it may go on.
        last: last window of the replay: an end behind it is none for it (X34).
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
    index = bisect_right([segment.range.first for segment in segments], window) - 1
    return segments[index] if index >= 0 and window in segments[index].range else None


def _outside(segment: EffectiveStretch, windows: WindowRange) -> list[EffectiveStretch]:
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
