"""Which ranges of an application a repair replays: few ones, with all that depends on changed windows.

Pure: what is published and what has changed come in, ranges with reasons go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rewindow.planning.request import Wishes
from rewindow.recovery import Plan
from rewindow.windows import WindowRange, without

JOIN_WINDOWS = 1_000
"""Ranges with at most so many windows between them are one replay: to begin another takes longer than these."""


@dataclass(frozen=True)
class PublishedStretch:
    """Consecutive windows that show what one publication has published."""

    windows: WindowRange
    plan: Plan

    @property
    def read(self) -> WindowRange:
        """The windows of its inputs that it was computed from: also those of a warm-up before it."""
        start = self.plan.start
        if self.windows.first == self.plan.first and start.source == "warm_up" and start.warm_up_first is not None:
            return WindowRange(min(start.warm_up_first, self.windows.first), self.windows.last)
        return self.windows

    @property
    def kind(self) -> tuple[object, ...]:
        """What replays must have in common to be done as one."""
        given = sorted((one.path, repr(one.value)) for one in self.plan.given)
        changes = tuple((one.path, repr(one.value), one.from_window) for one in self.plan.changes)
        return self.plan.mode, tuple(sorted(self.plan.parameters.items())), tuple(given), changes

    def wishes(self, windows: WindowRange) -> Wishes:
        """Returns how a range that begins in it is asked for, as the replay was that is published there."""
        return Wishes(
            mode=self.plan.mode.name,
            parameters=dict(self.plan.parameters),
            properties=self.plan.properties,
            changes_from=self.plan.replay_id if self.plan.changes else None,
            allow_missing=any(entry.missing for entry in self.plan.inputs),
            initial_state=self.plan.start.source == "initial" and windows.first == self.plan.first
            and "--initial-state" in (self.plan.options or ()),
        )  # fmt: skip

    def carries_on(self, changed: Sequence[WindowRange]) -> bool:
        """Returns whether its state comes from windows that have changed."""
        if self.windows.first > self.plan.first:
            return any(part.overlap(self.plan.range) is not None for part in changed)
        is_published = self.plan.start.source not in ("initial", "none")
        return is_published and any(self.plan.start.window in part for part in changed)


class Change(NamedTuple):
    """Windows of an input that have changed for a stretch; for any that they lie in where it is None."""

    windows: WindowRange
    words: str
    stretch: PublishedStretch | None = None


@dataclass
class PublishedApplication:
    """What is published of an application."""

    stretches: list[PublishedStretch] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    stateful: bool = False
    stale: list[Change] = field(default_factory=list)


def ranges_to_replay(
    known: PublishedApplication, changed: Sequence[Change]
) -> list[tuple[WindowRange, PublishedStretch, tuple[str, ...]]]:
    """Returns the ranges to replay, ascending and apart, each with where it begins and its reasons."""
    parts: list[tuple[WindowRange, PublishedStretch, list[str]]] = []
    for part, stretch, reasons in sorted(_widened(known, changed), key=lambda one: one[0]):
        if parts and _is_near(known, *parts[-1][:2], part, stretch):
            last, begin, before = parts.pop()
            if part.first > last.last + 1:
                between = WindowRange(last.last + 1, part.first - 1)
                before.append(f"windows {between} lie between: one replay is quicker than two")
            parts.append((WindowRange(last.first, max(last.last, part.last)), begin, [*before, *reasons]))
        else:
            parts.append((part, stretch, reasons))
    return [(windows, stretch, tuple(dict.fromkeys(reasons))) for windows, stretch, reasons in parts]


def _widened(
    known: PublishedApplication, changed: Iterable[Change]
) -> Iterator[tuple[WindowRange, PublishedStretch, list[str]]]:
    """Gives the published windows that depend on changed ones, each part inside of one stretch, and why."""
    for windows, words, origin in changed:
        carried = list[WindowRange]()
        for stretch in known.stretches:
            own = _own(stretch, windows) if origin in (None, stretch) else None
            if own is not None:
                yield own, stretch, [words]
            elif not (known.stateful and stretch.carries_on(carried)):
                continue
            begin, end = own.first if own else stretch.windows.first, stretch.windows.last
            carried.append(WindowRange(begin, end))
            if known.stateful and (own is None or own.last < end):
                why = f"its state is carried on, so all windows up to {end} depend on these"
                yield carried[-1], stretch, [words, why]


def _own(stretch: PublishedStretch, changed: WindowRange) -> WindowRange | None:
    """Returns which windows of a stretch read changed windows themselves; the first one does for its warm-up."""
    if changed.last >= stretch.windows.first or changed.overlap(stretch.read) is None:
        return stretch.windows.overlap(changed)
    return WindowRange(stretch.windows.first, stretch.windows.first)


def _is_near(
    known: PublishedApplication, one: WindowRange, begin: PublishedStretch, other: WindowRange, end: PublishedStretch
) -> bool:
    """Returns whether two ranges are one replay: of one kind, few windows between, all published in that kind too."""
    if begin.kind != end.kind:
        return False
    if other.first <= one.last + 1:
        return True
    between = WindowRange(one.last + 1, other.first - 1)
    published = [stretch.windows for stretch in known.stretches if stretch.kind == begin.kind]
    return len(between) <= JOIN_WINDOWS and not without(between, published)
