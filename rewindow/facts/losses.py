"""Losses in the mode at most once: windows missing from an output, and windows affected because
their state lacks other windows.

Rules: R14
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.facts.window_facts import Ids, WindowFacts, ids_of
from rewindow.location import Location
from rewindow.names import container_id
from rewindow.recovery import Plan, open_windows
from rewindow.recovery.resume import affected_from
from rewindow.sequences import excluding, names_of, only_named
from rewindow.storage import Table, query
from rewindow.storage.fields import column_pairs
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.storage.staged_marks import plan_in
from rewindow.windows import WindowRange, to_ranges

_BEGUN = """
with groups as (
    select group_first, group_last, ended_at, max(attempt) as attempt from facts
    where direction = 'out' group by group_first, group_last, ended_at
    having not bool_or(lost) and min(attempt) = max(attempt))
select attempt, min(group_first) as first from groups group by attempt order by attempt
"""
"""SQL for the first window that each attempt computed. Groups of facts with lost windows, or with
rows of several attempts, are left out: they were written to complete the work of an earlier
attempt."""


_LOST_TO_STATES = """
with ranked as (
    select *, row_number() over (partition by direction, port, window_id order by attempt desc)
        as nth from facts
    where direction in ('state', 'skipped'))
select direction, port, window_id, tuples from ranked where nth = 1 order by window_id
"""


@dataclass(frozen=True)
class Losses:
    """The losses of a replay, or of one side of a comparison.

    Attributes:
        lost: output name to its lost windows, as closed ranges.
        affected_first: name of an output with state upstream to the first window that was computed
            from a state that lacks windows or was stale; every later window is affected too.
        lacking: windows that are missing from the state, as closed ranges.
        state_lost: operator name to the windows whose outputs are kept, but which are missing from
            its state.
        skipped: operator name to the tuples, by window, that it dropped from its state at a skip.

    Rules: X2, X3
    """

    lost: dict[str, list[WindowRange]] = field(default_factory=dict)
    affected_first: dict[str, int] = field(default_factory=dict)
    lacking: list[WindowRange] = field(default_factory=list)
    state_lost: dict[str, list[WindowRange]] = field(default_factory=dict)
    skipped: dict[str, WindowFacts] = field(default_factory=dict)

    def is_affected(
        self,
        output: str,
        window: int,
    ) -> bool:
        """Returns whether a window was computed from a state that lacks lost windows."""
        first = self.affected_first.get(output)
        return first is not None and window >= first


def losses_of(
    plan: Plan,
    facts: Table,
    checkpoints: Table | None,
    windows: WindowRange,
) -> Losses:
    """Returns the losses of a replay.

    They are the losses of its start state, and in the mode at most once the losses recorded in its
    tables. If its checkpoints were purged, every window after its first attempt counts as affected.
    """
    if plan.is_divided:
        return _of_containers(
            plan,
            facts.path.parent,
            windows,
        )
    lacking = list(starmap(WindowRange, plan.start.lacking))
    stateful = [output.name for output in plan.staged if output.stateful]
    if not plan.mode.may_lose:
        return Losses(
            affected_first=dict.fromkeys(stateful, plan.first) if plan.start.affects else {},
            lacking=lacking,
        )
    lost = query(
        f"""select distinct port, window_id from facts where direction in ('out', 'error') and lost
            and window_id between {windows.first} and {windows.last}""",
        facts=facts,
    )
    begun = query(_BEGUN, facts=facts)
    sql = "select distinct mark, attempt from c where mark >= 0"
    saved = column_pairs(query(sql, c=checkpoints), "mark", "attempt") if checkpoints else []
    first_windows = dict(column_pairs(begun, "attempt", "first"))
    for saved_mark, attempt in saved:
        # An attempt without windows left to compute has saved the state, too.
        if saved_mark == len(plan.range):
            first_windows.setdefault(attempt, plan.last + 1)
    skipped = skipped_marks(sorted(first_windows.items()), saved, plan.first)
    mark = affected_from(plan.mode, skipped)
    first = None if mark is None else plan.window_of(mark)
    if plan.start.affects:
        first = plan.first
    if checkpoints:
        for marks in skipped:
            lacking.append(WindowRange(*map(plan.window_of, marks)))
    state_lost, dropped = _lost_to_states(facts)
    return Losses(
        lost=_windows_by_port(lost),
        state_lost=state_lost,
        skipped=dropped,
        affected_first={} if first is None else dict.fromkeys(stateful, first),
        lacking=lacking,
    )


def unfed_windows(plan: Plan) -> Ids:
    """Returns the windows that are missing from all inputs of a container, because upstream
    operators lost them.

    The outputs of the container lose these windows, too. The upstream operators have the mode at
    most once.
    """
    missing: dict[str, list[WindowRange]] = {}
    for entry in plan.recorded:
        missing[entry.stream] = []
    missing |= plan.missing_upstream()
    lost = open_windows(plan.range, missing).lost if plan.container else ()
    # The empty array keeps the type of window ids if no window is lost.
    return np.concatenate([np.arange(0), *map(ids_of, lost)])


def _of_containers(
    plan: Plan,
    root: Location,
    windows: WindowRange,
) -> Losses:
    """Returns the losses of a replay with several containers.

    The tables of each container record its losses. The windows that were lost upstream are missing
    in the streams that it reads.
    """
    lost: dict[str, list[WindowRange]] = {}
    affected: dict[str, int] = {}
    lacking: list[WindowRange] = []
    state_lost: dict[str, list[WindowRange]] = {}
    skipped: dict[str, WindowFacts] = {}
    first_lacking: dict[str, int] = {}
    staged = set(names_of(plan.staged))
    for container in plan.containers:
        folder = root.with_name(container_id(root.name, container.name))
        if not Table.exists(folder / CHECKPOINTS):
            continue
        own = plan_in(folder)
        facts = Table.open(folder / FACTS)
        checkpoints = Table.open(folder / CHECKPOINTS)
        losses = losses_of(
            own,
            facts,
            checkpoints,
            windows,
        )
        # A state lacks windows from the first one that was lost, here or upstream.
        firsts = [*losses.affected_first.values()]
        for part in chain(*own.missing_upstream().values()):
            firsts.append(part.first)
        for name in first_lacking.keys() & set(container.after):
            firsts.append(first_lacking[name])
        if firsts:
            first_lacking[container.name] = min(firsts)
        unfed = to_ranges(unfed_windows(own))
        # Streams between containers are not outputs of the replay.
        for output in only_named(own.staged, staged):
            if output.stateful and firsts:
                affected[output.name] = min(firsts)
            lost_ranges = [*losses.lost.get(output.name, [])]
            if not output.errors:
                lost_ranges += unfed
            if lost_ranges:
                ids = np.concatenate(list(map(ids_of, lost_ranges)))
                lost[output.name] = to_ranges(np.unique(ids))
        # Containers with the same start state lack the same windows.
        lacking += excluding(losses.lacking, lacking)
        state_lost |= losses.state_lost
        skipped |= losses.skipped
    return Losses(
        lost,
        affected,
        lacking,
        state_lost,
        skipped,
    )


def _lost_to_states(facts: Table) -> tuple[dict[str, list[WindowRange]], dict[str, WindowFacts]]:
    """Returns the losses of states by skips.

    If several attempts have skipped a window, only the rows of the newest attempt are used, because
    each attempt repeats them.
    """
    rows = query(_LOST_TO_STATES, facts=facts)
    unseen = rows.filter(pc.equal(rows["direction"], "state"))
    dropped = rows.filter(pc.equal(rows["direction"], "skipped"))
    return _windows_by_port(unseen), {
        port: WindowFacts.of(facts_of_port) for port, facts_of_port in by_port(dropped)
    }


def _windows_by_port(rows: pa.Table) -> dict[str, list[WindowRange]]:
    return {port: to_ranges(facts["window_id"].to_numpy()) for port, facts in by_port(rows)}


def by_port(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields each port of the given facts with its rows."""
    for port in pc.unique(rows["port"]).to_pylist():
        yield port, rows.filter(pc.equal(rows["port"], port))


def skipped_marks(
    begun: Iterable[tuple[int, int]],
    saved: Iterable[tuple[int, int]],
    first: int,
) -> list[tuple[int, int]]:
    """Returns the marks that are missing from the state, as one pair (from, to) for each attempt
    that continued after them.

    An attempt restores the newest checkpoint that an earlier attempt has saved. If it starts with a
    later window than the one after that checkpoint, the windows in between are missing from the
    state.

    Args:
        begun: attempt and the first window that it computed.
        saved: mark of a checkpoint and the attempt that saved it.
        first: the replay's first window.

    >>> skipped_marks([(1, 100), (2, 108)], [(0, 0), (5, 1)], first=100)
    [(6, 8)]
    """
    saved = list(saved)
    skipped = []
    for attempt, window in begun:
        restored = max((mark for mark, saved_by in saved if saved_by < attempt), default=0)
        done = window - first
        if done > restored:
            skipped.append((restored + 1, done))
    return skipped
