"""Decides which ranges of an application a repair replays next: as few and as short as can be
determined (docs/decisions/0021).

Pure functions: the input is the published windows and the changes, the result is ranges with
reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rewindow.planning.request import ReplayOptions
from rewindow.recovery import Plan
from rewindow.windows import WindowRange, without

JOIN_WINDOWS = 1_000
"""Ranges with at most this many windows between them become one replay, because starting another
replay takes longer than computing these windows.
"""


@dataclass(frozen=True)
class PublishedStretch:
    """Consecutive windows whose visible rows are from one publication."""

    windows: WindowRange
    plan: Plan
    states: frozenset[int] = frozenset()
    """Windows after which the digest of its state is stored."""

    @property
    def read(self) -> WindowRange:
        """The windows of the inputs from which the stretch was computed, including the windows of a
        warm-up before it.
        """
        start = self.plan.start
        if (
            self.windows.first == self.plan.first
            and start.source == "warm_up"
            and start.warm_up_first is not None
        ):
            return WindowRange(min(start.warm_up_first, self.windows.first), self.windows.last)
        return self.windows

    @property
    def begins_anew(self) -> bool:
        """Whether the stretch starts with the initial state."""
        return self.windows.first == self.plan.first and self.plan.start.source == "initial"

    @property
    def began_on_request(self) -> bool:
        """Whether a user requested the initial state for the stretch although there are windows
        before it.

        Then no other state can be used.
        """
        return self.begins_anew and "--initial-state" in self.plan.options

    @property
    def kind(self) -> tuple[object, ...]:
        """Properties that must be equal for replays to be merged."""
        given = sorted((one.path, repr(one.value)) for one in self.plan.given)
        changes = tuple((one.path, repr(one.value), one.from_window) for one in self.plan.changes)
        return self.plan.mode, tuple(sorted(self.plan.parameters.items())), tuple(given), changes

    def replay_options(self, windows: WindowRange) -> ReplayOptions:
        """Returns the options that replay a range starting in this stretch in the same way as the
        published replay.
        """
        return ReplayOptions(
            mode=self.plan.mode.name,
            parameters=dict(self.plan.parameters),
            properties=self.plan.properties,
            changes_from=self.plan.replay_id if self.plan.changes else None,
            allow_missing=any(entry.missing for entry in self.plan.inputs),
            initial_state=self.began_on_request and windows.first == self.plan.first,
        )

    def carries_on(self, changed: Sequence[WindowRange]) -> bool:
        """Returns whether the state of the stretch was computed from changed windows."""
        if self.windows.first > self.plan.first:
            return any(part.overlap(self.plan.range) is not None for part in changed)
        is_published = self.plan.start.source not in ("initial", "none")
        return is_published and any(self.plan.start.window in part for part in changed)


class Change(NamedTuple):
    """Windows of an input that have changed for a stretch.

    If the stretch is None, they have changed for all stretches that contain them.

    Attributes:
        made_stale_by: number of windows of the publication that changed the state before these
            windows, so that they must be replayed although their inputs are unchanged; 0 if the
            inputs have changed.
    """

    windows: WindowRange
    words: str
    stretch: PublishedStretch | None = None
    made_stale_by: int = 0


@dataclass
class PublishedApplication:
    """The published windows of an application.

    Attributes:
        stale: windows that were published from a state that has changed since.
        marked: windows that are marked as stale since an input changed.
    """

    stretches: list[PublishedStretch] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    stateful: bool = False
    stale: list[Change] = field(default_factory=list)
    marked: list[Change] = field(default_factory=list)


class RangeToReplay(NamedTuple):
    """A range to replay.

    Attributes:
        begin: the stretch in which it starts.
        reasons: texts why it is necessary, and why a smaller range is not enough.
        may_follow: windows that must be replayed too if the state at its end differs from the
            published one.
    """

    windows: WindowRange
    begin: PublishedStretch
    reasons: tuple[str, ...]
    may_follow: tuple[WindowRange, ...] = ()


def ranges_to_replay(known: PublishedApplication, changed: Sequence[Change]) -> list[RangeToReplay]:
    """Returns the ranges to replay now. They are ascending and disjoint.

    For an application with state, each range ends at a window whose published state has a known
    digest. If the new state is equal, all windows after it are kept. Otherwise publishing makes
    them stale, and they must be replayed next.

    Rules: X48
    """
    parts: list[RangeToReplay] = []
    for part in sorted(_widened(known, changed), key=lambda one: one.windows):
        if parts and _is_near(known, parts[-1].windows, parts[-1].begin, part.windows, part.begin):
            parts.append(_joined(parts.pop(), part))
        else:
            parts.append(part)
    return [part._replace(reasons=tuple(dict.fromkeys(part.reasons))) for part in parts]


def _joined(one: RangeToReplay, other: RangeToReplay) -> RangeToReplay:
    """Returns the union of two ranges. The second range must not start before the first."""
    reasons = one.reasons
    if other.windows.first > one.windows.last + 1:
        reasons += ("includes the windows between these ranges: one replay is faster than several",)
    longer = other if other.windows.last >= one.windows.last else one
    windows = WindowRange(one.windows.first, longer.windows.last)
    return RangeToReplay(
        windows, one.begin, (*reasons, *other.reasons), may_follow=longer.may_follow
    )


def _widened(known: PublishedApplication, changed: Iterable[Change]) -> Iterator[RangeToReplay]:
    """Yields the published windows that depend on changed ones. Each part is in one stretch."""
    for change in changed:
        if change.made_stale_by:
            yield from _behind_a_changed_state(known, change)
            continue
        for stretch in known.stretches:
            own = _own(stretch, change.windows) if change.stretch in (None, stretch) else None
            if own is not None and known.stateful and stretch.began_on_request:
                own = WindowRange(stretch.windows.first, own.last)
                words = (
                    "it started from the initial state on request, so it starts again with window "
                    f"{own.first}"
                )
                yield _up_to_known_state(known, stretch, own, reasons=(change.words, words))
            elif own is not None and known.stateful:
                yield _up_to_known_state(known, stretch, own, reasons=(change.words,))
            elif own is not None:
                yield RangeToReplay(own, stretch, (change.words,))


def _behind_a_changed_state(known: PublishedApplication, change: Change) -> Iterator[RangeToReplay]:
    """Yields the windows to replay because the state before them has changed.

    It yields twice as many windows as the publication that changed the state has, so that few
    replays are needed. The windows after that may be correct after this repair.
    """
    stretches = [part for part in known.stretches if part.windows.overlap(change.windows)]
    many = max(2 * change.made_stale_by, JOIN_WINDOWS)
    words = f"at least {many:,} windows, if they exist: one long replay is faster than many short"
    for stretch in stretches:
        first = max(change.windows.first, stretches[0].windows.first)
        own = stretch.windows.overlap(
            WindowRange(first, min(first + many - 1, change.windows.last))
        )
        if own is not None:
            yield _up_to_known_state(known, stretch, own, reasons=(change.words, words))


def _up_to_known_state(
    known: PublishedApplication,
    stretch: PublishedStretch,
    own: WindowRange,
    reasons: tuple[str, ...],
) -> RangeToReplay:
    """Extends a range to the first window with a known published state, or to the end of the
    stretch if there is none.
    """
    end = min(
        (window for window in stretch.states if own.last <= window), default=stretch.windows.last
    )
    end = min(end, stretch.windows.last)
    windows = WindowRange(own.first, end)
    follows = _may_follow(known, stretch, WindowRange(own.first, end))
    if own.last < end == stretch.windows.last:
        reasons += (f"its state is passed on, so all windows up to {end} depend on these",)
    elif own.last < end:
        reasons += (
            f"its state is passed on: {end} is the next window with a published state to compare "
            "with",
        )
    if follows:
        listed = ", ".join(map(str, follows))
        reasons += (
            f"if the state after window {end} differs from the published one, at most {listed} "
            "follow",
        )
    return RangeToReplay(windows, stretch, reasons, may_follow=follows)


def _may_follow(
    known: PublishedApplication,
    stretch: PublishedStretch,
    windows: WindowRange,
) -> tuple[WindowRange, ...]:
    """Returns the published windows after a range to which the state of the range is passed on, in
    all stretches.
    """
    follows = without(stretch.windows, [WindowRange(stretch.windows.first, windows.last)])
    carried = [windows, *follows]
    for other in known.stretches:
        if other.windows.first > stretch.windows.last and other.carries_on(carried):
            follows.append(other.windows)
            carried.append(other.windows)
    joined: list[WindowRange] = []
    for part in follows:
        begin = joined.pop().first if joined and joined[-1].last + 1 == part.first else part.first
        joined.append(WindowRange(begin, part.last))
    return tuple(joined)


def _own(stretch: PublishedStretch, changed: WindowRange) -> WindowRange | None:
    """Returns the windows of a stretch that read changed windows directly.

    The first window of the stretch also reads its warm-up.
    """
    if changed.last >= stretch.windows.first or changed.overlap(stretch.read) is None:
        return stretch.windows.overlap(changed)
    return WindowRange(stretch.windows.first, stretch.windows.first)


def _is_near(
    known: PublishedApplication,
    one: WindowRange,
    begin: PublishedStretch,
    other: WindowRange,
    end: PublishedStretch,
) -> bool:
    """Returns whether two ranges can be combined into one replay.

    They need the same options and only few windows between them, which were published with the same
    options too. They cannot be combined if a publication between them started with the initial
    state, because no state was passed on to it.
    """
    anew = [stretch for stretch in known.stretches if known.stateful and stretch.begins_anew]
    if begin.kind != end.kind or any(
        one.last < stretch.windows.first <= other.first for stretch in anew
    ):
        return False
    if other.first <= one.last + 1:
        return True
    between = WindowRange(one.last + 1, other.first - 1)
    published = [stretch.windows for stretch in known.stretches if stretch.kind == begin.kind]
    return len(between) <= JOIN_WINDOWS and not without(between, published)
