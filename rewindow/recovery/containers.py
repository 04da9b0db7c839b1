"""Computes the consequences of the modes of a graph with pure functions (docs/rules/recovery.md
sections 3 to 7). These are the outputs that can lose or repeat windows, how a container resumes
after a crash, and the windows that it opens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rewindow.application import Mode
from rewindow.recovery.groups import CheckpointSchedule
from rewindow.recovery.resume import resume
from rewindow.sequences import excluding
from rewindow.windows import WindowRange, to_ranges


@dataclass(frozen=True)
class Guarantee:
    """The effects that a crash can have on the tuples that an operator writes.

    Attributes:
        may_lose: whether windows may be lost, in its container or upstream.
        may_repeat: whether its staged table may contain a window twice; readers use one attempt.
        deciding: the operators whose modes decide this, the operator itself first.
        reason: the explanation, in one sentence.
    """

    may_lose: bool
    may_repeat: bool
    deciding: tuple[str, ...]
    reason: str


def guarantees(
    modes: Mapping[str, Mode],
    sources: Mapping[str, Iterable[str]],
    unset: Collection[str] = (),
) -> dict[str, Guarantee]:
    """Returns the guarantee of each operator.

    An at-least-once operator upstream weakens no guarantee, because its readers use one attempt of
    each window.

    Args:
        modes: mode of each operator, in topological order.
        sources: the operators that feed each operator.
        unset: operators for which the user has not set a mode.

    Rules: R42, R48 to R50

    >>> modes = {"a": Mode.AT_LEAST_ONCE, "b": Mode.EXACTLY_ONCE}
    >>> guarantees(modes, {"b": ["a"]}, unset={"b"})["b"].reason
    'b is exactly once, by default, and nothing upstream may lose windows'
    """
    losing: dict[str, list[str]] = {}
    by_operator = {}
    for name, mode in modes.items():
        own_loss = [name] if mode.may_lose else []
        upstream_losses = []
        for source in sources.get(name, ()):
            upstream_losses += losing.get(source, [])
        losing[name] = list(dict.fromkeys([*own_loss, *upstream_losses]))
        others = excluding(losing[name], [name])
        own = f"{name} is {mode.words}"
        if name in unset:
            own += ", by default"
        rest = "nothing upstream may lose windows"
        if others:
            rest = f"{', '.join(others)} upstream may lose windows"
        by_operator[name] = Guarantee(
            may_lose=bool(losing[name]),
            may_repeat=mode.may_repeat,
            deciding=(name, *others),
            reason=f"{own}, and {rest}",
        )
    return by_operator


@dataclass(frozen=True)
class AfterCrash:
    """Where the next attempt of a container resumes, and the windows that the crash costs.

    Attributes:
        restored: window after which the state is restored.
        first: first window to compute; the window after the range if none is left.
        recomputed: windows to compute that a table already contains, None if there are none.
        lost: table name to the windows that an at-most-once container skips.
        skipped: windows that the state never includes, None if there are none.
        state_lost: skipped windows that a table contains; their rows stay.

    Rules: X2
    """

    restored: int
    first: int
    recomputed: WindowRange | None
    lost: Mapping[str, WindowRange]
    skipped: WindowRange | None
    state_lost: WindowRange | None


def after_crash(
    mode: Mode,
    windows: WindowRange,
    checkpoints: Collection[int],
    done: Mapping[str, int],
    started: int = 0,
    furthest: int = 0,
) -> AfterCrash:
    """Returns where the next attempt resumes, as windows instead of marks as in `resume`.

    Args:
        mode: recovery mode of the container.
        windows: the range of the replay.
        checkpoints: marks of the checkpoints that can be loaded.
        done: mark of each output table and of the facts.
        started: highest mark whose computation an attempt has started, for a mode that may lose.
        furthest: highest mark that an attempt has sealed, for a mode that may repeat.

    Raises:
        CheckpointError: no checkpoint can be loaded.

    Rules: R10 to R15, R38

    >>> after_crash(Mode.EXACTLY_ONCE, WindowRange(100, 109), [0, 3], {"out": 5}).recomputed
    WindowRange(first=103, last=104)
    """
    start = resume(
        mode,
        checkpoints,
        done,
        started,
    )

    # Mark 1 is the first window of the range, and mark 0 is the start state.
    offset = windows.first - 1

    def between(first: int, last: int) -> WindowRange | None:
        return WindowRange(offset + first, offset + last) if first <= last else None

    lost = {}
    for name, (first, last) in start.lost.items():
        part = between(first, last)
        if part is not None:
            lost[name] = part
    furthest = max([furthest, *done.values()])
    skipped = None
    state_lost = None
    if start.skipped:
        first, last = start.skipped
        skipped = between(first, last)
        state_lost = between(first, min(last, furthest))
    return AfterCrash(
        restored=offset + start.restore,
        first=offset + start.first,
        recomputed=between(start.first, furthest),
        lost=lost,
        skipped=skipped,
        state_lost=state_lost,
    )


@dataclass(frozen=True)
class OpenWindows:
    """The windows of a range that a container opens when windows were lost upstream.

    Attributes:
        opened: windows that at least one input port has.
        partial: opened windows that some ports lack, with the names of those ports.
        lost: windows that no port has.

    Rules: R31, R35
    """

    opened: tuple[WindowRange, ...]
    partial: tuple[tuple[WindowRange, tuple[str, ...]], ...]
    lost: tuple[WindowRange, ...]


def open_windows(
    windows: WindowRange,
    missing: Mapping[str, Iterable[WindowRange]],
) -> OpenWindows:
    """Returns the windows that a container opens, and the windows that its outputs lose too.

    Args:
        windows: the range of the replay.
        missing: input port to the windows that were lost there; empty for a port that has all.

    Rules: R30 to R35

    >>> missing = {"a": [WindowRange(2, 4)], "b": [WindowRange(4, 5)]}
    >>> result = open_windows(WindowRange(1, 9), missing)
    >>> [str(part) for part in result.lost], [(str(part), ports) for part, ports in result.partial]
    (['[4, 4]'], [('[2, 3]', ('a',)), ('[5, 5]', ('b',))])
    """
    ids = np.arange(windows.first, windows.last + 1)
    lacks: dict[str, np.ndarray] = {}
    for port, parts in missing.items():
        lacks[port] = np.zeros(len(ids), dtype=bool)
        for part in parts:
            lacks[port] |= (ids >= part.first) & (ids <= part.last)
    everywhere = np.zeros(len(ids), dtype=bool)
    somewhere = everywhere
    if lacks:
        masks = list(lacks.values())
        everywhere = np.logical_and.reduce(masks)
        somewhere = np.logical_or.reduce(masks)
    partial: list[tuple[WindowRange, tuple[str, ...]]] = []
    for part in to_ranges(ids[somewhere & ~everywhere]):
        begin = part.first
        # A range is split where the ports that lack its windows change.
        for window in range(part.first, part.last + 1):
            index = window - windows.first
            ports = _lacking(lacks, index)
            if window == part.last or _lacking(lacks, index + 1) != ports:
                partial.append((WindowRange(begin, window), ports))
                begin = window + 1
    opened = to_ranges(ids[~everywhere])
    lost = to_ranges(ids[everywhere])
    return OpenWindows(tuple(opened), tuple(partial), tuple(lost))


def _lacking(
    lacks: Mapping[str, np.ndarray],
    index: int,
) -> tuple[str, ...]:
    """Returns the ports that lack a window. The window is given by its index in the range."""
    ports = []
    for port, mask in lacks.items():
        if mask[index]:
            ports.append(port)
    return tuple(ports)


@dataclass(frozen=True)
class RecoveryTimes:
    """The cost of a crash: the windows that are recomputed or lost, and the seconds until the
    container has caught up.

    Attributes:
        what: "recomputed" or "lost".
        is_measured: whether the time of a window was measured in this container; otherwise it is a
            share of the time of all containers.
    """

    what: str
    mean_windows: float
    worst_windows: int
    mean_seconds: float
    worst_seconds: float
    is_measured: bool = False


def recovery_times(
    mode: Mode,
    schedule: CheckpointSchedule,
    group_windows: int,
    window_seconds: float,
    start_seconds: float,
) -> RecoveryTimes:
    """Returns the cost of a crash in a container.

    A commit group is committed as a whole. So a crash costs half a group on average and a whole
    group at worst, although R46 counts single windows.

    Args:
        mode: recovery mode of the container.
        schedule: the marks of checkpoints, for a mode that does not save every group.
        group_windows: windows of a commit group.
        window_seconds: T, measured seconds per window.
        start_seconds: HC, measured seconds to start a job and load the state.

    Rules: R43 to R46

    >>> times = recovery_times(Mode.AT_LEAST_ONCE, CheckpointSchedule(60), 10, 0.5, 4)
    >>> times.mean_seconds, times.worst_seconds
    (19.0, 34.0)
    """
    if mode.may_lose:
        # Lost windows are skipped, so they take no time.
        what = "lost"
        seconds_each = 0.0
        worst = group_windows
    else:
        what = "recomputed"
        seconds_each = window_seconds
        gap = group_windows if mode.saves_every_group else schedule.gap_max
        worst = max(gap, 1)
    mean = worst / 2
    return RecoveryTimes(
        what,
        mean_windows=mean,
        worst_windows=worst,
        mean_seconds=mean * seconds_each + start_seconds,
        worst_seconds=worst * seconds_each + start_seconds,
    )
