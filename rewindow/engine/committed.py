"""What earlier attempts have committed: its seals, and its rows beside those of windows that are computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewindow.engine.computation import GroupResult, Seals
from rewindow.engine.determinism import RecomputedOutput, check_recomputed
from rewindow.engine.group import GroupRunner
from rewindow.facts.group_facts import Seal, WindowDigest
from rewindow.facts.readers import sealed_to
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.storage import FencedTable, Table, query
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange


class Committed:
    """The windows of a replay's outputs as earlier attempts left them.

    Args:
        tables: the outputs and the facts, as this attempt has fenced them.
    """

    def __init__(
        self, plan: Plan, root: Location, epoch: int, runner: GroupRunner, tables: Mapping[str, FencedTable]
    ) -> None:
        self._plan, self._root, self._epoch, self._runner, self._tables = plan, root, epoch, runner, tables
        self._sealed_to = plan.first - 1
        if plan.mode.may_repeat:
            self._sealed_to = sealed_to(Table.open(root / FACTS), self._sealed_to)

    def seals(self, output: str, windows: WindowRange) -> dict[int, Seal]:
        """Returns seals made from the rows that an output's table holds, as a crash may have left out the real ones."""
        found = self._runner.digest({output: self._runner.committed(output, windows)})[output]
        empty, wrote = self._runner.empty(output), self._attempts_of(output, windows)
        before = self._tables[output].previous
        return {w: Seal(found.get(w, empty), wrote.get(w, before)) for w in windows}

    def before(self, windows: WindowRange, staged: Sequence[str]) -> Seals:
        """Returns what is committed of a group's windows: of outputs that are left out, or that are written again."""
        if self._plan.mode.may_repeat:
            return self._sealed(windows)
        return {out.name: self.seals(out.name, windows) for out in self._plan.staged if out.name not in staged}

    def check(self, windows: WindowRange, result: GroupResult, committed: Seals) -> None:
        """Compares a group that was computed again with what is committed of it.

        Raises:
            NotDeterministicError: they differ.
        """
        known = []
        for output in self._plan.staged:
            seals = committed.get(output.name)
            if seals:
                empty, found = self._runner.empty(output.name), result.digests[output.name]
                rows = partial(self._both, output.name, result.folders[output.name], windows, seals)
                known.append(
                    RecomputedOutput(
                        output.name, seals, {w: found.get(w, empty) for w in seals}, rows, output.tolerance
                    )
                )
        check_recomputed(self._plan.replay_id, known)

    def _sealed(self, windows: WindowRange) -> Seals:
        """Returns the newest seals of earlier attempts; past the last one there is nothing to look up."""
        if windows.first > self._sealed_to:
            return {}
        sql = f"""
        select port, window_id, attempt, tuples, digest, float_digest from f
        where direction in ('out', 'error') and attempt < {self._epoch}
            and window_id between {windows.first} and {windows.last}
        order by attempt"""
        found: Seals = {}
        for row in query(sql, f=Table.open(self._root / FACTS)).to_pylist():
            digest = WindowDigest(row["tuples"], row["digest"], row["float_digest"])
            found.setdefault(row["port"], {})[row["window_id"]] = Seal(digest, row["attempt"])
        return found

    def _attempts_of(self, output: str, windows: WindowRange) -> dict[int, int]:
        sql = f"""select window_id, max(attempt) as attempt from t
                  where window_id between {windows.first} and {windows.last} group by window_id"""
        rows = query(sql, t=Table.open(self._root / output))
        return dict(zip(rows["window_id"].to_pylist(), rows["attempt"].to_pylist(), strict=True))

    def _both(
        self, output: str, folder: Location, windows: WindowRange, seals: Mapping[int, Seal], wanted: Sequence[int]
    ) -> tuple[DataFrame, DataFrame]:
        """Returns the rows of some windows twice: as their seals say that they are committed, and as computed now."""
        by_attempt: dict[int, list[int]] = {}
        for window in wanted:
            by_attempt.setdefault(seals[window].attempt, []).append(window)
        sealed = [
            (F.col("attempt") == attempt) & F.col("window_id").isin(chosen) for attempt, chosen in by_attempt.items()
        ]
        committed = self._runner.committed(output, windows).where(reduce(Column.__or__, sealed))
        return committed, self._runner.read_back(output, folder).where(F.col("window_id").isin(list(wanted)))
