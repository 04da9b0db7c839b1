"""Reads the seals and rows that earlier attempts have committed, and compares recomputed windows
with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.engine.computation import GroupResult, Seals
from rewindow.engine.determinism import RecomputedOutput, check_recomputed
from rewindow.engine.group import GroupRunner
from rewindow.facts.losses import by_port
from rewindow.facts.readers import sealed_to
from rewindow.facts.window_facts import DIGESTS_SCHEMA, Ids, WindowFacts, ids_of
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.spark.frames import to_frame
from rewindow.storage import FencedTable, Table, query
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange

_ATTEMPTS = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64())])
_SEALS = pa.schema([*DIGESTS_SCHEMA, _ATTEMPTS.field("attempt")])


class Committed:
    """The output windows of a replay that earlier attempts have committed.

    Args:
        plan: the plan of the replay.
        root: folder of the replay's tables.
        epoch: epoch of this attempt.
        runner: computes digests of rows.
        tables: the outputs and the facts, as this attempt has fenced them.
    """

    def __init__(
        self,
        plan: Plan,
        root: Location,
        epoch: int,
        runner: GroupRunner,
        tables: Mapping[str, FencedTable],
    ) -> None:
        self._plan = plan
        self._root = root
        self._epoch = epoch
        self._runner = runner
        self._tables = tables
        self._sealed_to = plan.first - 1
        if plan.mode.may_repeat:
            self._sealed_to = sealed_to(Table.open(root / FACTS), self._sealed_to)

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        """Computes seals from the rows in an output's table.

        A crash may have prevented the commit of the original seals.
        """
        digests = self._runner.digest({output: self._runner.committed(output, windows)}, windows)[
            output
        ]
        wrote = self._attempts_of(output, windows)
        attempts = wrote.reindex(ids_of(windows), attempt=self._tables[output].previous)
        return digests.with_column("attempt", attempts.rows["attempt"])

    def before(self, windows: WindowRange, staged: Sequence[str]) -> Seals:
        """Returns the committed seals of a group's windows.

        If the mode can repeat windows, the seals of all outputs are returned; otherwise only those
        of outputs that are not written again.
        """
        if self._plan.mode.may_repeat:
            return self._sealed(windows)
        return {
            out.name: self.seals(out.name, windows)
            for out in self._plan.staged
            if out.name not in staged
        }

    def check(self, windows: WindowRange, result: GroupResult, committed: Seals) -> None:
        """Compares a recomputed group with its committed rows.

        Raises:
            NotDeterministicError: they differ.
        """
        known = []
        for output in self._plan.staged:
            if output.name in committed:
                seals = committed[output.name]
                now = result.digests[output.name].reindex(seals.ids)
                rows = partial(self._both, output.name, result.folders[output.name], windows, seals)
                known.append(
                    RecomputedOutput(output.name, seals, now, rows=rows, tolerance=output.tolerance)
                )
        check_recomputed(self._plan.replay_id, known)

    def _sealed(self, windows: WindowRange) -> Seals:
        """Returns the newest seals of earlier attempts.

        Windows after the last sealed one need no query.
        """
        if windows.first > self._sealed_to:
            return {}
        # If several attempts have sealed a window, the newest one counts. They are ranked in one
        # pass; a join with the newest attempt of each window would read the facts twice.
        columns = ", ".join(["port", *_SEALS.names])
        sql = f"""
        select {columns} from (
            select {columns}, row_number() over (partition by port, window_id
                order by attempt desc) as nth from f
            where direction in ('out', 'error') and attempt < {self._epoch}
                and window_id between {windows.first} and {windows.last})
        where nth = 1"""
        rows = query(sql, f=Table.open(self._root / FACTS))
        return {port: WindowFacts.of(seals, _SEALS) for port, seals in by_port(rows)}

    def _attempts_of(self, output: str, windows: WindowRange) -> WindowFacts:
        sql = f"""select window_id, max(attempt) as attempt from t
                  where window_id between {windows.first} and {windows.last} group by window_id"""
        return WindowFacts.of(query(sql, t=Table.open(self._root / output)), _ATTEMPTS)

    def _both(
        self,
        output: str,
        folder: Location,
        windows: WindowRange,
        seals: WindowFacts,
        wanted: Ids,
    ) -> tuple[DataFrame, DataFrame]:
        """Returns two frames for the given windows: the committed rows that their seals refer to,
        and the rows that were computed now.
        """
        committed = self._runner.committed(output, windows)
        sealed = F.broadcast(
            to_frame(committed.sparkSession, seals.reindex(wanted).rows.select(_ATTEMPTS.names))
        )
        now = self._runner.read_back(output, folder)
        return committed.join(sealed, _ATTEMPTS.names, "left_semi"), now.join(
            sealed,
            "window_id",
            "left_semi",
        )
