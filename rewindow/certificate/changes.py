"""Changes between two sides, with totals per column.

Rows are matched by the output's declared key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict  # pydantic does not support that of Python 3.11.

if TYPE_CHECKING:
    from rewindow.certificate.rows import RowComparison


class ChangeTotals(TypedDict):
    """A ColumnChange in the format of a certificate."""

    rows: int
    smallest: float | None
    largest: float | None
    total: float | None


@dataclass
class ColumnChange:
    """The differences of one column in matched rows.

    Attributes:
        rows: matched rows in which it differs.
        smallest, largest, total: of the changes b - a, for numbers, durations and times (in
            seconds); None for other types.
    """

    rows: int = 0
    smallest: float | None = None
    largest: float | None = None
    total: float | None = None

    def totals(self) -> ChangeTotals:
        """Returns the change in the format of a certificate."""
        return {
            "rows": self.rows,
            "smallest": self.smallest,
            "largest": self.largest,
            "total": self.total,
        }

    def add(self, other: ColumnChange) -> None:
        """Adds the change that was found in another batch."""
        self.rows += other.rows
        if other.smallest is None or other.largest is None or other.total is None:
            return
        self.smallest = (
            other.smallest if self.smallest is None else min(self.smallest, other.smallest)
        )
        self.largest = other.largest if self.largest is None else max(self.largest, other.largest)
        self.total = (self.total or 0.0) + other.total


def merge_changes(
    found: dict[str, ColumnChange],
    rows: pa.Table,
    comparison: RowComparison,
) -> tuple[int, int, int]:
    """Adds the changes of a batch of differing rows; returns the numbers of rows added, removed and
    changed.

    Rows are matched by window and declared key (by rank if a key is not unique). Without a declared
    key no rows can be matched, so every row is added or removed.
    """
    key = ["window_id", *comparison.key, "rank_"]
    sides = [rows.filter(pc.equal(rows["side_"], side)) for side in (0, 1)]
    totals = [pc.sum(side["n_"]).as_py() or 0 for side in sides]
    if not comparison.key or not sides[0].num_rows or not sides[1].num_rows:
        return totals[1], totals[0], 0
    # Only keys and row numbers are joined, because Arrow cannot join nested columns. These are
    # selected by row number afterwards.
    before, after = (
        side.select(key).append_column(f"at_{letter}", pa.array(range(side.num_rows), pa.int64()))
        for side, letter in zip(sides, "ab", strict=True)
    )
    matched = before.join(after, key, join_type="inner")
    a = sides[0].take(matched["at_a"])
    b = sides[1].take(matched["at_b"])
    for name in comparison.columns:
        if name not in comparison.key:
            change = _column_change(a[name], b[name])
            if change.rows:
                found.setdefault(name, ColumnChange()).add(change)
    count = matched.num_rows
    return totals[1] - count, totals[0] - count, count


def _column_change(before: pa.ChunkedArray, after: pa.ChunkedArray) -> ColumnChange:
    """Returns the number of rows in which a column differs, and the numeric changes in rows where
    both sides have a value.
    """
    if pa.types.is_nested(before.type):
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return ColumnChange(sum(1 for left, right in pairs if repr(left) != repr(right)))
    none = pc.and_(pc.is_null(before), pc.is_null(after))
    differs = pc.invert(pc.or_(pc.fill_null(pc.equal(before, after), False), none))
    change = ColumnChange(pc.sum(differs).as_py() or 0)
    old = _number(before.filter(differs))
    new = _number(after.filter(differs))
    if old is None or new is None:
        return change
    steps = pc.subtract(new, old)
    steps = steps.filter(pc.fill_null(pc.is_finite(steps), False))
    if len(steps):
        bounds = pc.min_max(steps).as_py()
        change.smallest = bounds["min"]
        change.largest = bounds["max"]
        change.total = pc.sum(steps).as_py()
    return change


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Returns numbers as floats, and times and durations in seconds; None for any other type."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.divide(
            pc.cast(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), pa.float64()),
            1e6,
        )
    if pa.types.is_duration(kind):
        return pc.divide(
            pc.cast(column.cast(pa.duration("us")).cast(pa.int64()), pa.float64()),
            1e6,
        )
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.cast(column, pa.float64(), safe=False)
    return None
