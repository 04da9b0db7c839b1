"""One attempt of a replay: fence, read, resume, then group after group (the commit protocol of the design).

The order is the protocol. Fence the checkpoints first and read their mark, then fence every other table. Read done(t)
and the checkpoints only now. Per group: materialise once, commit the outputs in any order, then facts and seals, the
checkpoint last. Every commit checks the epoch on the snapshot that it commits on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.application import Application, GroupWindows, Mode
from rewindow.engine.committed import Committed
from rewindow.engine.crash import Step, crash_point
from rewindow.engine.facts import GroupFacts, Seal, check_input_counts
from rewindow.engine.frames import count_windows
from rewindow.engine.group import GroupResult, GroupRunner
from rewindow.engine.session import send_applications
from rewindow.errors import CheckpointError, Interrupted
from rewindow.ledger import PortCount
from rewindow.recovery import GroupSizer, Marks, Plan, Resume, next_end, resume
from rewindow.tables import FencedTable, Table, data_files, fence, query
from rewindow.tables import checkpoints as stored
from rewindow.tables.staging import CHECKPOINTS, FACTS, app_id
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rewindow.ledger import Ledger

FIRST_GROUP_TUPLES = 500_000


@dataclass(frozen=True)
class Progress:
    """A committed group, as told to whoever watches."""

    first: int
    last: int
    mark: int
    of: int
    checkpoint: bool
    seconds: float
    tuples: Mapping[str, int] = field(default_factory=dict)


class Attempt:
    """Runs a planned replay under one epoch until its last window is committed.

    Args:
        session: gives the Spark session; called after the fence, since that needs no JVM.
        tell: called with every committed group.
        say: called with lines for people.
        stop: returns whether the user asked to stop; looked at after each group.
    """

    def __init__(
        self,
        plan: Plan,
        app: Application,
        root: Path,
        ledger: Ledger,
        epoch: int,
        session: Callable[[], SparkSession],
        *,
        tell: Callable[[Progress], None] = lambda progress: None,
        say: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan, self.app, self.root, self.ledger, self.epoch = plan, app, root, ledger, epoch
        self._session, self._tell, self._say, self._stop = session, tell, say, stop
        self._marks = Marks(plan.checkpoint_windows, plan.checkpoint_multiple)
        self._inputs = {entry.stream: Table.open(entry.path, entry.version) for entry in plan.inputs}
        self._seals = {
            entry.stream: Table.open(f"{entry.path}.windows", entry.windows_version) for entry in plan.inputs
        }
        self._made = stored.Provenance(plan.code_version, plan.configuration_digest, epoch)
        self._versions = {node.name: node.operator.state_version for node in app.nodes.values()}
        self._number = 0
        self._stopping = False

    def run(self) -> None:
        """Runs to the end of the range.

        Raises:
            FencedError: a newer attempt has begun.
            CheckpointError: no checkpoint can be restored.
            NotDeterministicError: a window computed again differs from what is committed.
            Interrupted: the user asked to stop; everything up to a group's end is kept.
        """
        self._fence()
        self._crash(Step.FENCED)
        send_applications()
        runner = GroupRunner(self._session(), self.app, self._inputs, self.root, self.epoch)
        runner.clear_scratch()
        self._committed = Committed(self.plan, self.root, self.epoch, runner, self._tables)
        states = self._restore(runner)
        self._crash(Step.RESUMED)
        self._run_groups(runner, states)
        runner.clear_scratch()

    # --- fence and read

    def _fence(self) -> None:
        """Takes every table, the checkpoints first, and decides how to go on."""
        self._checkpoints = self._take(CHECKPOINTS, lambda mark: mark)
        usable = set(stored.marks(self._checkpoints.table))
        if not usable and self.plan.start.source != "warm_up":
            raise CheckpointError(
                f'replay "{self.plan.replay_id}" has no checkpoint at all, not even of its start state',
                hint="Abandon it and plan the range again; what is published is untouched.",
            )
        self._warm_up_needed = not usable
        usable = usable or {0}
        self._loaded: stored.Checkpoint | None = None
        if self.plan.mode is Mode.AT_LEAST_ONCE:
            self._resume = self._load_newest(usable, {})
            restored = self._resume.restore
            self._tables = {name: self._take(name, lambda mark: restored) for name in [*self.app.outputs, FACTS]}
            return
        self._tables = {name: self._take(name, lambda mark: mark) for name in [*self.app.outputs, FACTS]}
        self._resume = self._load_newest(usable, {name: table.done for name, table in self._tables.items()})

    def _take(self, name: str, mark_of: Callable[[int], int]) -> FencedTable:
        return fence(self.root / name, app_id(self.plan.replay_id, name), self.epoch, mark_of)

    def _load_newest(self, usable: set[int], done: dict[str, int]) -> Resume:
        """Loads the newest checkpoint that the mode allows; a damaged one is passed over for an older one (R25)."""
        started = self.ledger.started(self.plan.replay_id) if self.plan.mode is Mode.AT_MOST_ONCE else 0
        while True:
            found = resume(self.plan.mode, usable, done, started)
            if self._warm_up_needed:
                return found
            try:
                self._loaded = stored.load(self._checkpoints.table, found.restore)
                self._check_operators(self._loaded)
                return found
            except CheckpointError as error:
                usable = usable - {found.restore}
                self._say(f"{error.primary}; looking for an older one")
                if not usable:
                    raise

    def _check_operators(self, loaded: stored.Checkpoint) -> None:
        wanted = {node.name for node in self.app.nodes.values() if node.operator.is_stateful}
        if set(loaded.states) != wanted:
            raise CheckpointError(
                f"checkpoint at mark {loaded.mark} is foreign: it has the states of {sorted(loaded.states)}, "
                f"the application has {sorted(wanted)}"
            )

    # --- restore

    def _restore(self, runner: GroupRunner) -> dict[str, pa.Table]:
        """Returns the states with which the first group begins; lists what at most once gives up."""
        states = dict(self._loaded.states) if self._loaded else self._warm_up(runner)
        plan, found = self.plan, self._resume
        if found.restore or found.first > 1:
            self._say(f"resumed from checkpoint {found.restore}, next window {plan.window_of(found.first)}")
        if plan.mode is Mode.AT_MOST_ONCE:
            self._settle_losses()
        if found.skipped:
            windows = WindowRange(plan.window_of(found.skipped[0]), plan.window_of(found.skipped[1]))
            states = runner.skip(states, windows)
        return states

    def _warm_up(self, runner: GroupRunner) -> dict[str, pa.Table]:
        """Computes the state before the range from an earlier one, writes nothing but checkpoint 0."""
        start = self.plan.start
        assert start.warm_up_first is not None, "a warm-up has a first window"
        states = self._warm_up_base()
        window, last = start.warm_up_first, self.plan.first - 1
        sizer = self._sizer()
        while window <= last:
            began = time.monotonic()
            end = min(last, window + sizer.size - 1)
            group = self._group(window, end)
            tuples = sum(sum(self._count_input(stream, group.range).values()) for stream in self._inputs)
            states = runner.compute(group, 0, states, (), tuples).states
            sizer.took(end - window + 1, time.monotonic() - began)
            self._say(f"warm-up: windows {window} to {end} of {last}")
            window = end + 1
        self._checkpoints.commit(0, stored.encode(last, 0, states, self._versions, self._made))
        return states

    def _warm_up_base(self) -> dict[str, pa.Table]:
        stateful = {node.name: node.operator for node in self.app.nodes.values() if node.operator.is_stateful}
        if not self.plan.start.taken_from:
            return {name: operator.initial_state() for name, operator in stateful.items()}
        table = Table.open(self.plan.start.taken_from, self.plan.start.version)
        rows = stored.rows_at(table, self.plan.start.warm_up_first - 1)  # type: ignore[operator]
        return {row["operator"]: stored.decode(row) for row in rows.to_pylist() if row["operator"]}

    def _settle_losses(self) -> None:
        """Writes, before the first new group, which windows are lost and the seals that a crash left out (R15)."""
        plan, started = self.plan, self._resume.first - 1
        facts = self._tables[FACTS]
        if facts.done >= started:
            return
        windows = WindowRange(plan.window_of(facts.done + 1), plan.window_of(started))
        rows = GroupFacts(windows, self.epoch, datetime.now(UTC), above=windows.first - 1)
        for name, (low, high) in self._resume.lost.items():
            if name in self.app.outputs:
                rows.add_lost(name, WindowRange(plan.window_of(low), plan.window_of(high)))
        for name in self.app.outputs:
            present = self._tables[name].done
            if present > facts.done:
                rows.add_output(name, self._committed.seals(name, WindowRange(windows.first, plan.window_of(present))))
        lost = any(name in self._resume.lost for name in self.app.outputs)
        for stream, table in self._inputs.items():
            rows.add_input(stream, count_windows(table, windows), lost=lost)
        for port in self.app.dropped():
            rows.add_dropped(str(port), {}, lost=True)
        facts.commit(started, rows.table())
        self._say(f"at most once: windows {windows.first} to {windows.last} were in progress and are given up")

    # --- groups

    def _run_groups(self, runner: GroupRunner, states: dict[str, pa.Table]) -> None:
        plan = self.plan
        sizer = self._sizer()
        cuts = [plan.window_of(mark) for mark in self._resume.cuts]
        window = plan.window_of(self._resume.first)
        while window <= plan.last:
            began = time.monotonic()
            end = next_end(window, plan.last, sizer.size, plan.mode, self._marks, cuts)
            self._number += 1
            states = self._run_group(runner, self._group(window, end), states, began)
            sizer.took(end - window + 1, time.monotonic() - began)
            window = end + 1
            if self._stopping:
                raise Interrupted(
                    f'replay "{plan.replay_id}" stopped after window {end} of {plan.last}',
                    detail="Everything up to there is committed.",
                    hint=f"Go on with: rewindow replay --resume {plan.replay_id}",
                )

    def _run_group(
        self, runner: GroupRunner, group: GroupWindows, states: Mapping[str, pa.Table], began: float
    ) -> dict[str, pa.Table]:
        mark = self.plan.mark_of(group.last)
        if self.plan.mode is Mode.AT_MOST_ONCE:
            self.ledger.start_group(self.plan.replay_id, self.epoch, mark)
        self._crash(Step.STARTED)
        rows = GroupFacts(group.range, self.epoch, datetime.now(UTC), self.plan.window_of(self._done(FACTS)))
        counts = {stream: self._count_input(stream, group.range) for stream in self._inputs}
        staged = [name for name in self.app.outputs if self._done(name) < mark]
        tuples = sum(sum(found.values()) for found in counts.values())
        result = runner.compute(group, mark, states, staged, tuples)
        computed = time.monotonic()
        self._crash(Step.MATERIALISED)
        for stream, found in counts.items():
            rows.add_input(stream, found)
        for port, found in result.dropped.items():
            rows.add_dropped(port, found)
        self._commit_outputs(runner, group, mark, staged, result, rows)
        self._crash(Step.AFTER_OUTPUTS)
        if self._done(FACTS) < mark:
            self._tables[FACTS].commit(mark, rows.table())
        self._crash(Step.AFTER_FACTS)
        self._stopping = group.last < self.plan.last and self._stop()
        saved = self._save(group.last, mark, result.states)
        self._crash(Step.AFTER_CHECKPOINT)
        runner.clear_scratch()
        self._report(group, mark, saved, result, counts, began, computed)
        return result.states

    def _done(self, name: str) -> int:
        """Mark that a table had when this attempt fenced it; only exactly once leaves out what is there already."""
        return self._tables[name].done if self.plan.mode is Mode.EXACTLY_ONCE else 0

    def _commit_outputs(
        self,
        runner: GroupRunner,
        group: GroupWindows,
        mark: int,
        staged: list[str],
        result: GroupResult,
        rows: GroupFacts,
    ) -> None:
        committed = self._committed.before(group.range, staged)
        self._committed.check(group.range, result, committed)
        for number, name in enumerate(self.app.outputs):
            found = result.digests[name]
            if name in staged:
                self._tables[name].commit(mark, data_files(result.folders[name]), {"epoch": self.epoch, "mark": mark})
                empty = runner.empty(name)
                rows.add_output(name, {w: Seal(found.get(w, empty), self.epoch) for w in group.range})
            else:
                rows.add_output(name, committed[name])
            if number == 0:
                self._crash(Step.AFTER_FIRST_OUTPUT)

    def _save(self, window: int, mark: int, states: Mapping[str, pa.Table]) -> bool:
        """Commits the checkpoint of all operators if one falls due here: in exactly once after every group (W51).

        So it does where the user stops: nothing is to be repeated or lost to the state for that.
        """
        ends = self._stopping or window == self.plan.last
        due = self.plan.mode is Mode.EXACTLY_ONCE or self._marks.is_due(window) or ends
        if due:
            rows = stored.encode(window, mark, states, self._versions, self._made)
            self._checkpoints.commit(max(mark, self._checkpoints.done), rows)
        return due

    def _count_input(self, stream: str, windows: WindowRange) -> dict[int, int]:
        """Counts an input's tuples per window in its files and holds them against the seals (R58)."""
        counted = count_windows(self._inputs[stream], windows)
        sql = f"select window_id, tuples from w where window_id between {windows.first} and {windows.last}"
        rows = query(sql, w=self._seals[stream])
        sealed = dict(zip(rows["window_id"].to_pylist(), rows["tuples"].to_pylist(), strict=True))
        check_input_counts(stream, {w: n for w, n in counted.items() if w in sealed}, sealed)
        return counted

    def _report(
        self,
        group: GroupWindows,
        mark: int,
        saved: bool,
        result: GroupResult,
        counts: Mapping[str, Mapping[int, int]],
        began: float,
        computed: float,
    ) -> None:
        seconds = time.monotonic() - began
        tuples = {name: sum(window.tuples for window in found.values()) for name, found in result.digests.items()}
        timings = {"compute": round(computed - began, 3), "commit": round(seconds - (computed - began), 3)}
        self.ledger.report_progress(
            self.plan.replay_id,
            self.epoch,
            mark,
            mark if saved else None,
            timings,
            self._port_counts(group, counts, tuples, result.dropped),
        )
        self._tell(Progress(group.first, group.last, mark, len(self.plan.range), saved, round(seconds, 3), tuples))

    def _port_counts(
        self,
        group: GroupWindows,
        counts: Mapping[str, Mapping[int, int]],
        tuples: Mapping[str, int],
        dropped: Mapping[str, Mapping[int, int]],
    ) -> list[PortCount]:
        first, last = group.first, group.last
        found = [PortCount("in", name, first, last, sum(windows.values())) for name, windows in counts.items()]
        found += [PortCount("out", name, first, last, number) for name, number in tuples.items()]
        for port, windows in dropped.items():
            number = sum(windows.values())
            found.append(PortCount("dropped", port, first, last, number))
            if number:
                self._say(f"nothing reads port {port}: {number:,} tuples of windows {first} to {last} are dropped")
        return found

    def _sizer(self) -> GroupSizer:
        tuples = max(sum(entry.tuples for entry in self.plan.inputs), 1)
        size = max(16, len(self.plan.range) * FIRST_GROUP_TUPLES // tuples)
        return GroupSizer(self.plan.group_windows, self.plan.group_seconds, size)

    def _group(self, first: int, last: int) -> GroupWindows:
        return GroupWindows(self.plan.grid, WindowRange(first, last), self.plan.mode)

    def _crash(self, step: Step) -> None:
        crash_point(step, max(self._number, 1), self.epoch)
