"""The visible rows of a staged output, as Arrow tables and with the columns of a published stream.
No JVM.

Rows are read in parts of whole windows with about a million tuples each, so that memory does not
grow with the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import TableError
from rewindow.facts.arrow_digests import arrow_digests, differing_windows
from rewindow.recovery import OutputPlan, Plan
from rewindow.sequences import excluding
from rewindow.storage import Table
from rewindow.storage.layout import event_columns
from rewindow.storage.queries import read_rows
from rewindow.windows import WindowRange

TUPLES_PER_FILE = 1_000_000


@dataclass(frozen=True)
class StagedOutput:
    """A staged output of a replay at the version to publish.

    Attributes:
        table: the staged table.
        seals: its seals, one row per window, ascending (see `rewindow.facts.readers.staged_seals`).
    """

    plan: Plan
    output: OutputPlan
    table: Table
    seals: pa.Table

    @cached_property
    def events(self) -> pa.Schema:
        """The event columns."""
        return event_columns(self.table)

    @property
    def stream_schema(self) -> pa.Schema:
        """The columns of the published stream."""
        return self.as_stream(
            self.table.schema.empty_table().select(["window_id", *self.events.names])
        ).schema

    def parts(self) -> Iterator[WindowRange]:
        """Yields ranges of windows that together contain all tuples.

        Each range has about TUPLES_PER_FILE tuples.
        """
        if not self.seals.num_rows:
            return
        windows = self.seals["window_id"].to_numpy()
        totals = np.cumsum(self.seals["tuples"].to_numpy())
        number = np.maximum(totals - 1, 0) // TUPLES_PER_FILE
        starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(windows)], strict=True):
            yield WindowRange(int(windows[start]), int(windows[end - 1]))

    def rows(self, windows: WindowRange) -> pa.Table:
        """Returns the visible rows of a range.

        For each window, these are the rows of the newest sealed attempt.

        Rules: R52
        """
        files = self.table.files(windows.first, windows.last)
        columns = ["window_id", "attempt", *self.events.names]
        with self.table.reading(*files):
            rows = read_rows(files, self.table.schema, columns, inside(windows))
        ids = self.seals["window_id"].to_numpy()
        attempts = self.seals["attempt"].to_numpy()
        index = np.minimum(
            np.searchsorted(ids, rows["window_id"].to_numpy()),
            max(0, len(ids) - 1),
        )
        seen = (ids[index] == rows["window_id"].to_numpy()) & (
            attempts[index] == rows["attempt"].to_numpy()
        )
        return rows.filter(pa.array(seen)).drop_columns(["attempt"])

    def check(self, rows: pa.Table, windows: WindowRange) -> None:
        """Compares the rows of a range with their seals.

        Raises:
            TableError: a window differs from its seal; nothing was published.
        """
        ids = self.seals["window_id"]
        mine = pc.and_(pc.greater_equal(ids, windows.first), pc.less_equal(ids, windows.last))
        wrong = differing_windows(
            arrow_digests(rows, self.events),
            self.seals.filter(mine),
            self.events,
        )
        for row in wrong.slice(0, 1).to_pylist():
            raise TableError(
                f'window {row["window_id"]} of staged output "{self.output.name}" differs from '
                f"its seal: it has {row['tuples']} tuples, but {row['sealed']} were sealed",
                detail="Its files were changed or damaged after the replay. Nothing was published.",
                hint="Plan the range again.",
            )

    def as_stream(self, rows: pa.Table) -> pa.Table:
        """Returns rows with the columns of a recorded stream, ordered by window and offset.

        `offset` counts from 0 in each window in the order of the declared key, then of all other
        columns. If the output has a column `arrived_at`, it is kept; otherwise `arrived_at` is the
        start of the window.
        """
        if "arrived_at" not in rows.column_names:
            grid = self.plan.grid
            start_us = pc.add(pc.multiply(rows["window_id"], grid.width_us), grid.origin_us)
            rows = rows.append_column("arrived_at", start_us.cast(pa.timestamp("us", tz="UTC")))
        rest = excluding(rows.column_names, ("window_id", "arrived_at"))
        ordered = [
            "window_id",
            *self.output.key,
            *excluding(rest, self.output.key),
        ]
        sortable = [
            (name, "ascending", "at_start")
            for name in ordered
            if not pa.types.is_nested(rows[name].type)
        ]
        rows = rows.take(pc.sort_indices(rows, sortable))
        ids = rows["window_id"].to_numpy()
        starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
        counts = np.diff([*starts, len(ids)])
        offsets = np.arange(len(ids)) - np.repeat(starts, counts)
        rows = rows.append_column("offset", pa.array(offsets, pa.int64()))
        return rows.select(["window_id", "offset", "arrived_at", *rest])


def outside(windows: WindowRange) -> pc.Expression:
    """Returns the condition that a row is not in a range.

    It is also true for rows without a window.
    """
    window = pc.field("window_id")
    return window.is_null() | (window < windows.first) | (window > windows.last)


def inside(windows: WindowRange) -> pc.Expression:
    """Returns the condition that a row is in a range."""
    return (pc.field("window_id") >= windows.first) & (pc.field("window_id") <= windows.last)
