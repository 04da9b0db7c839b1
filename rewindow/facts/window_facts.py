"""What is known of windows, as Arrow columns: a group may have a million of them, so none is a
Python object.

Counts have `tuples`, digests `digest` and `float_digest` too, seals also the `attempt` whose rows
they mean. All of them are one class; only its columns differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.storage.queries import in_order
from rewindow.windows import WindowRange

Ids: TypeAlias = npt.NDArray[np.int64]
"""Window ids, ascending."""
COUNTS_SCHEMA = pa.schema([("window_id", pa.int64()), ("tuples", pa.int64())])
DIGESTS_SCHEMA = pa.schema([*COUNTS_SCHEMA, ("digest", pa.string()), ("float_digest", pa.string())])


def ids_of(windows: WindowRange) -> Ids:
    """Returns the ids of a range."""
    return np.arange(windows.first, windows.last + 1)


@dataclass(frozen=True)
class WindowFacts:
    """What is known of some windows of one port; made by `of`.

    Attributes:
        rows: `window_id`, ascending and each once, and what is known.
    """

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, schema: pa.Schema = COUNTS_SCHEMA) -> WindowFacts:
        """Returns facts from rows in any order; columns that the schema does not name are left
        out.
        """
        return cls(in_order(rows.select(schema.names).cast(schema).combine_chunks(), "window_id"))

    @classmethod
    def empty(cls, schema: pa.Schema = COUNTS_SCHEMA) -> WindowFacts:
        """Returns facts of no window."""
        return cls(schema.empty_table())

    @property
    def ids(self) -> Ids:
        """The windows."""
        found: Ids = self.rows["window_id"].to_numpy()
        return found

    @property
    def tuples(self) -> int:
        """Tuples of all windows."""
        return int(pc.sum(self.rows["tuples"]).as_py() or 0)

    def within(self, windows: WindowRange) -> WindowFacts:
        """Returns what is known of the windows of a range."""
        begin, end = np.searchsorted(self.ids, (windows.first, windows.last + 1)).tolist()
        return WindowFacts(self.rows.slice(begin, end - begin))

    def reindex(self, ids: Ids, **otherwise: Any) -> WindowFacts:
        """Returns a row for each of some windows; of one that is not known, a column is what is
        said here, or null.
        """
        if np.array_equal(ids, self.ids):
            return self
        # Both are ascending, so a binary search finds the row of each window. For a missing
        # window it finds the row of the next one, which `known` masks.
        place = np.searchsorted(self.ids, ids)
        known = place < self.rows.num_rows
        known[known] = self.ids[place[known]] == ids[known]
        found = self.rows.take(pa.array(place, mask=~known))
        columns = dict(zip(found.column_names, found.columns, strict=True))
        columns["window_id"] = pa.array(ids)
        for name, value in otherwise.items():
            columns[name] = pc.if_else(
                pa.array(known),
                columns[name],
                pa.scalar(value, columns[name].type),
            )
        return WindowFacts(pa.table(columns, schema=self.rows.schema))

    def with_column(self, name: str, values: pa.ChunkedArray | int) -> WindowFacts:
        """Returns the same with one more column: a value for each window, or one for all."""
        if isinstance(values, int):
            values = pa.repeat(pa.scalar(values, pa.int64()), self.rows.num_rows)
        return WindowFacts(self.rows.append_column(name, values))

    def diff(self, other: WindowFacts, *names: str) -> Ids:
        """Returns the windows, of the same ones on both sides, of which a column is not what it is
        there.
        """
        differs = np.zeros(self.rows.num_rows, dtype=bool)
        for name in names:
            differs |= unequal(self.rows[name], other.rows[name])
        return self.ids[differs]


def unequal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Returns where two columns differ; null is equal to null alone."""
    differ = pc.fill_null(pc.not_equal(one, other), False)
    found: npt.NDArray[np.bool_] = pc.or_(
        differ,
        pc.xor(pc.is_null(one), pc.is_null(other)),
    ).to_numpy()
    return found
