"""Counts the windows and tuples in a replay's tables: recomputed, repeated, lost and affected
windows.

Reads only the tables, without a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.facts.losses import Losses, losses_of
from rewindow.inspection.window_runs import (
    AFFECTED,
    COMMITTED,
    LOST,
    REPEATED,
    ReplayCounts,
    WindowRun,
)
from rewindow.location import Location
from rewindow.names import container_id
from rewindow.recovery import Plan
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.storage.staged_marks import plan_in
from rewindow.windows import WindowRange

Ints = npt.NDArray[np.int64]
_LOST = 1
_COMMITTED = 2
_AFFECTED = 3
_REPEATED = 4
_KINDS = {_LOST: LOST, _COMMITTED: COMMITTED, _AFFECTED: AFFECTED, _REPEATED: REPEATED}


@dataclass(frozen=True)
class OutputCount:
    """Counts of one output, as arrays with one element for each window of the range.

    Attributes:
        taken: attempt whose rows readers see; 0 if the window is not sealed.
        taken_rows: rows of that attempt.
        rows: rows of all attempts.
        lost: windows listed as lost.
        wrote: attempt to the windows in which it left rows or a seal.
    """

    taken: Ints
    taken_rows: Ints
    rows: Ints
    lost: npt.NDArray[np.bool_]
    wrote: dict[int, npt.NDArray[np.bool_]]

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """Sealed windows that have more rows than the visible attempt has written."""
        return (self.taken > 0) & (self.rows > self.taken_rows)


@dataclass(frozen=True)
class ReplayCount:
    """Counts of a replay's tables.

    Attributes:
        outputs: counts by output name.
        processed, unprocessed: input tuples that were processed, and those that at most once gave
            up.
        resumed_after: attempt to the window after which it resumed an earlier attempt.
        checkpoints: saved checkpoints, as (last window, attempt that saved it).
        groups: commit groups in the facts, including those that were given up.
        containers: the counts of its containers if it has several.
    """

    plan: Plan
    outputs: dict[str, OutputCount]
    processed: int
    unprocessed: int
    losses: Losses
    resumed_after: dict[int, int]
    checkpoints: tuple[tuple[int, int], ...]
    groups: tuple[WindowRange, ...] = ()
    containers: tuple[ReplayCount, ...] = ()

    def affected(self, output: str) -> npt.NDArray[np.bool_]:
        """Windows of an output that were computed from a state that lacks other windows.

        Rules: R14
        """
        first = self.losses.affected_first.get(output)
        found = self.outputs[output].taken > 0
        if first is None:
            return np.zeros_like(found)
        return found & (np.arange(len(found)) + self.plan.first >= first)

    @property
    def redone(self) -> npt.NDArray[np.bool_]:
        """Windows that an attempt computed although an earlier attempt had committed a part of
        them.
        """
        found = np.zeros(len(self.plan.range), dtype=bool)
        for container in self.containers:
            found |= container.redone
        window = np.arange(len(found)) + self.plan.first
        for attempt, after in self.resumed_after.items():
            for count in self.outputs.values():
                for earlier, wrote in count.wrote.items():
                    if earlier < attempt:
                        found |= wrote & (window > after)
        return found

    def summary(self) -> ReplayCounts:
        """Returns the counts over all outputs."""
        outputs = list(self.outputs.values())

        def anywhere(masks: list[npt.NDArray[np.bool_]]) -> int:
            return int(np.logical_or.reduce(masks).sum()) if masks else 0

        return ReplayCounts(
            windows=anywhere([(count.taken > 0) | count.lost for count in outputs]),
            tuples=sum(int(count.taken_rows.sum()) for count in outputs),
            tuples_in=self.processed,
            redone=int(self.redone.sum()),
            repeated=anywhere([count.repeated for count in outputs]),
            repeated_tuples=sum(
                int((count.rows - count.taken_rows)[count.repeated].sum()) for count in outputs
            ),
            lost=anywhere([count.lost for count in outputs]),
            lost_tuples=self.unprocessed,
            affected=anywhere(list(map(self.affected, self.outputs))),
        )

    def stretches(self, output: str) -> tuple[WindowRun, ...]:
        """Returns the windows of an output as runs with the same state and attempt.

        Windows that were neither computed nor lost are left out.
        """
        count = self.outputs[output]
        # Later lines win: a window that is both affected and repeated is shown as repeated.
        kind = np.where(count.taken > 0, _COMMITTED, 0)
        kind = np.where(self.affected(output), _AFFECTED, kind)
        kind = np.where(count.repeated, _REPEATED, kind)
        kind = np.where(count.lost & (count.taken == 0), _LOST, kind)
        return _stretches(kind, count.taken, self.plan.first)


def count_replay(plan: Plan, root: Location) -> ReplayCount:
    """Returns the counts of a replay's tables.

    Raises:
        TableError: a table is missing, for example after a purge.
    """
    facts = Table.open(root / FACTS)
    checkpoints = Table.open(root / CHECKPOINTS)
    seals = query(
        "select window_id, port, attempt, lost from facts where direction = 'out'",
        facts=facts,
    )
    pairs = query(
        "select distinct window_id, attempt from c where mark >= 0 order by window_id",
        c=checkpoints,
    )
    saved = tuple(zip(pairs["window_id"].to_pylist(), pairs["attempt"].to_pylist(), strict=True))
    outputs = {
        output.name: _count_output(
            plan,
            seals.filter(pc.equal(seals["port"], output.name)),
            root / output.name,
        )
        for output in plan.outputs
    }
    processed, unprocessed = _count_inputs(facts)
    resumed = {}
    containers = []
    if plan.is_divided:
        # Attempts of each container are numbered separately, so each container is counted
        # separately.
        for one in plan.containers:
            folder = root.with_name(container_id(root.name, one.name))
            if Table.exists(folder / CHECKPOINTS):
                containers.append(count_replay(plan_in(folder), folder))
    else:
        resumed = _resumed_after(plan, seals, saved)
    losses = losses_of(plan, facts, checkpoints, windows=plan.range)
    return ReplayCount(
        plan,
        outputs,
        processed,
        unprocessed=unprocessed,
        losses=losses,
        resumed_after=resumed,
        checkpoints=saved,
        groups=_groups(facts),
        containers=tuple(containers),
    )


def _groups(facts: Table) -> tuple[WindowRange, ...]:
    sql = """select group_last as last, max(group_first) as first from facts where direction
        not in ('state', 'skipped')
             group by group_last order by group_last"""
    return tuple(
        WindowRange(row["first"], row["last"]) for row in query(sql, facts=facts).to_pylist()
    )


def _count_output(plan: Plan, seals: pa.Table, path: Location) -> OutputCount:
    size = len(plan.range)
    window = seals["window_id"].to_numpy()
    attempt = seals["attempt"].to_numpy()
    lost_seal = seals["lost"].to_numpy()
    sealed = ~lost_seal
    taken = np.zeros(size, dtype=np.int64)
    np.maximum.at(taken, window[sealed] - plan.first, attempt[sealed])
    lost = np.zeros(size, dtype=bool)
    lost[window[lost_seal] - plan.first] = True
    wrote: dict[int, npt.NDArray[np.bool_]] = {}
    _note(wrote, attempt[sealed], window[sealed] - plan.first, size)

    sql = "select window_id, attempt, count(*) as n from t group by window_id, attempt"
    rows = query(sql, t=Table.open(path))
    place = rows["window_id"].to_numpy() - plan.first
    writer = rows["attempt"].to_numpy()
    number = rows["n"].to_numpy()
    _note(wrote, writer, place, size)
    total = np.zeros(size, dtype=np.int64)
    mine = np.zeros(size, dtype=np.int64)
    np.add.at(total, place, number)
    own = taken[place] == writer
    mine[place[own]] = number[own]
    return OutputCount(taken, mine, total, lost=lost, wrote=wrote)


def _note(wrote: dict[int, npt.NDArray[np.bool_]], attempts: Ints, places: Ints, size: int) -> None:
    for attempt in np.flatnonzero(np.bincount(attempts)).tolist():
        mask = wrote.setdefault(attempt, np.zeros(size, dtype=bool))
        mask[places[attempts == attempt]] = True


def _count_inputs(facts: Table) -> tuple[int, int]:
    """Returns the numbers of input tuples that were processed and given up.

    If several attempts counted a window, the newest count is used.
    """
    counted = (
        "select lost, sum(tuples) as n, min(attempt) as low, max(attempt) as high from "
        "facts where direction = 'in'"
    )
    rows = query(f"{counted} group by lost", facts=facts).to_pylist()
    sql = """
    select f.lost, sum(f.tuples) as n from facts f join (
        select window_id, port, max(attempt) as attempt from facts where direction = 'in'
            group by window_id, port
    ) newest on f.window_id = newest.window_id and f.port = newest.port
        and f.attempt = newest.attempt
    where f.direction = 'in' group by f.lost"""
    attempts: set[int] = set()
    for row in rows:
        attempts |= {row["low"], row["high"]}
    # The newest count of each window matters only if several attempts counted inputs.
    if len(attempts) > 1:
        rows = query(sql, facts=facts).to_pylist()
    found = {row["lost"]: int(row["n"]) for row in rows}
    return found.get(False, 0), found.get(True, 0)


def _resumed_after(
    plan: Plan,
    seals: pa.Table,
    saved: tuple[tuple[int, int], ...],
) -> dict[int, int]:
    """Returns, for each attempt except the first, the window after which it resumed.

    It is the window of the checkpoint that the attempt restored, which is the newest checkpoint of
    an earlier attempt. In the mode at most once, an attempt resumes after the windows that were
    started.
    """
    attempts = sorted(
        {int(attempt) for _, attempt in saved if attempt > 0}
        | set(pc.unique(seals["attempt"]).to_pylist())
    )
    found = {}
    for attempt in attempts[1:]:
        after = max((window for window, maker in saved if maker < attempt), default=plan.first - 1)
        if plan.may_lose:
            mine = pc.and_(pc.equal(seals["attempt"], attempt), pc.invert(seals["lost"]))
            first = pc.min(seals.filter(mine)["window_id"]).as_py()
            after = max(after, first - 1) if first is not None else after
        found[attempt] = after
    return found


def _stretches(kind: Ints, attempt: Ints, first: int) -> tuple[WindowRun, ...]:
    if not len(kind):
        return ()
    change = np.flatnonzero((np.diff(kind) != 0) | (np.diff(attempt) != 0)) + 1
    starts = np.concatenate([[0], change])
    ends = np.concatenate([change, [len(kind)]])
    runs = []
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        if kind[a]:
            windows = WindowRange(first + a, first + b - 1)
            runs.append(WindowRun(windows, _KINDS[int(kind[a])], int(attempt[a])))
    return tuple(runs)
