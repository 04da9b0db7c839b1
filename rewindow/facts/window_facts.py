"""Facts about windows as Arrow columns. A group can have a million windows, so there is no Python
object per window.

All facts have the class WindowFacts and differ only in their columns: counts have `tuples`, digests
also `digest` and `float_digest`, and seals also `attempt`, the attempt whose rows they refer to.
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
    """Returns the window ids of a range."""
    return np.arange(windows.first, windows.last + 1)


@dataclass(frozen=True)
class WindowFacts:
    """Facts about the windows of one port.

    They are created by `of`.

    Attributes:
        rows: `window_id`, ascending and unique, and the columns of the facts.
    """

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, schema: pa.Schema = COUNTS_SCHEMA) -> WindowFacts:
        """Creates facts from rows in any order. Columns that are not in the schema are dropped."""
        return cls(in_order(rows.select(schema.names).cast(schema).combine_chunks(), "window_id"))

    @classmethod
    def empty(cls, schema: pa.Schema = COUNTS_SCHEMA) -> WindowFacts:
        """Returns facts without windows."""
        return cls(schema.empty_table())

    @property
    def ids(self) -> Ids:
        """The window ids."""
        ids: Ids = self.rows["window_id"].to_numpy()
        return ids

    @property
    def tuples(self) -> int:
        """The total number of tuples in all windows."""
        return int(pc.sum(self.rows["tuples"]).as_py() or 0)

    def within(self, windows: WindowRange) -> WindowFacts:
        """Returns the facts of the windows in a range."""
        begin, end = np.searchsorted(self.ids, (windows.first, windows.last + 1)).tolist()
        return WindowFacts(self.rows.slice(begin, end - begin))

    def reindex(self, ids: Ids, **otherwise: Any) -> WindowFacts:
        """Returns facts with exactly the given windows, in ascending order.

        Windows without facts get the given defaults, otherwise null.
        """
        if np.array_equal(ids, self.ids):
            return self
        # Both are ascending, so a binary search finds the row of each window. For a missing
        # window it finds the row of the next one, which `known` masks.
        index = np.searchsorted(self.ids, ids)
        known = index < self.rows.num_rows
        known[known] = self.ids[index[known]] == ids[known]
        rows = self.rows.take(pa.array(index, mask=~known))
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        columns["window_id"] = pa.array(ids)
        for name, value in otherwise.items():
            columns[name] = pc.if_else(
                pa.array(known),
                columns[name],
                pa.scalar(value, columns[name].type),
            )
        return WindowFacts(pa.table(columns, schema=self.rows.schema))

    def with_column(self, name: str, values: pa.ChunkedArray | int) -> WindowFacts:
        """Returns the facts with one more column.

        It has one value per window, or one value for all windows.
        """
        if isinstance(values, int):
            values = pa.repeat(pa.scalar(values, pa.int64()), self.rows.num_rows)
        return WindowFacts(self.rows.append_column(name, values))

    def diff(self, other: WindowFacts, *names: str) -> Ids:
        """Returns the windows in which at least one of the named columns differs.

        Both sides must have the same windows.
        """
        differs = np.zeros(self.rows.num_rows, dtype=bool)
        for name in names:
            differs |= unequal(self.rows[name], other.rows[name])
        return self.ids[differs]


def unequal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Returns a mask that is true where two columns differ. Null equals only null."""
    differ = pc.fill_null(pc.not_equal(one, other), False)
    mask: npt.NDArray[np.bool_] = pc.or_(
        differ,
        pc.xor(pc.is_null(one), pc.is_null(other)),
    ).to_numpy()
    return mask
