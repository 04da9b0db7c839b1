"""Compares rows of differing windows as multisets, with SQL (DataFusion) over both sides.

Rows are first matched exactly, including floats. The remaining ones are matched within the
tolerance, by rank of the floats among rows with equal exact columns: |a - b| <= tolerance * max(1,
|a|, |b|). For floats inside arrays, structs or maps this is done in Python, over the rows that are
left.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application.error_tuples import OF_THE_REPLAY
from rewindow.certificate.snapshots import Snapshot
from rewindow.errors import TableError
from rewindow.facts.closeness import SortKey, are_close, in_one_order, sort_key
from rewindow.names import POSITION_COLUMNS
from rewindow.recovery import OutputPlan
from rewindow.sequences import excluding
from rewindow.storage import query, quoted
from rewindow.storage.layout import bookkeeping
from rewindow.storage.python_rows import python_rows
from rewindow.windows import to_ranges

SAMPLE_ROWS = 20
_RANGES_MAX = 40
_OWN = ("side_", "n_", "repeat_", "rank_")


class RowComparison:
    """Compares the rows of one output.

    Attributes:
        columns: event columns that both sides have with the same type.
        floats: columns that are compared within the tolerance; `nested` are columns that contain
            such values.
    """

    def __init__(self, a: Snapshot, b: Snapshot, output: OutputPlan, raw: bool) -> None:
        self.a = a
        self.b = b
        self.output = output
        self.raw = raw
        left = _event_columns(a, output)
        right = _event_columns(b, output)
        self.columns = [name for name, kind in left.items() if right.get(name) == kind]
        self.floats: list[str] = []
        self.nested: list[str] = []
        for name in self.columns:
            if pa.types.is_floating(left[name]):
                self.floats.append(name)
            elif _holds_float(left[name]):
                self.nested.append(name)
        self.key = [name for name in output.key if name in self.columns]

    def differing_rows(self, windows: list[int]) -> pa.Table:
        """Returns the rows of the given windows that one side has more often than the other.

        Columns: window_id, the common columns, side_ (0: more in a, 1: more in b), n_ (the
        difference in number), repeat_ (a row of b that a has too), rank_ (among rows of equal side,
        window and declared key).

        Raises:
            TableError: files that the pinned version needs are missing.
        """
        tables = self.a.tables(self.output.name, "a") | self.b.tables(self.output.name, "b")
        try:
            rows = query(self._sql(windows), **tables)
        except Exception as error:
            if "not found" not in str(error).lower() and "no such file" not in str(error).lower():
                raise
            raise TableError(
                f'rows of output "{self.output.name}" cannot be read: files of a pinned version '
                "no longer exist",
                detail=str(error)[:300],
                hint="The files were removed by VACUUM or purge. Digests can still be compared.",
            ) from error
        return self._without_close(rows) if self.nested else rows

    def counts(self, rows: pa.Table) -> dict[int, tuple[int, int, int]]:
        """Returns, for each window, the rows missing in b, the surplus rows of b, and how many of
        these repeat rows of a.
        """
        surplus = pc.equal(rows["side_"], 1)
        zero = pa.scalar(0, pa.int64())
        frame = pa.table(
            {
                "window_id": rows["window_id"],
                "missing": pc.if_else(surplus, zero, rows["n_"]),
                "surplus": pc.if_else(surplus, rows["n_"], zero),
                "repeats": pc.if_else(pc.and_(surplus, rows["repeat_"]), rows["n_"], zero),
            }
        )
        summed = frame.group_by("window_id").aggregate(
            [("missing", "sum"), ("surplus", "sum"), ("repeats", "sum")]
        )
        return {
            row["window_id"]: (row["missing_sum"], row["surplus_sum"], row["repeats_sum"])
            for row in summed.to_pylist()
        }

    def sample(self, window: int) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """Returns up to 20 differing rows of each side of a window, ordered by the declared key.

        Rules: O140
        """
        rows = self.differing_rows([window]).sort_by(
            [("side_", "ascending"), *((name, "ascending") for name in self.key)]
        )
        sides = []
        for side in (0, 1):
            chosen = rows.filter(pc.equal(rows["side_"], side)).slice(0, SAMPLE_ROWS)
            sides.append(python_rows(chosen.drop_columns(list(_OWN))))
        return sides[0], sides[1]

    def _sql(self, windows: list[int]) -> str:
        every = _names(self.columns)
        wanted = ", ".join(["o.window_id", *(f"o.{quoted(name)}" for name in self.columns)])
        where = _where(windows)
        comma = f", {every}" if every else ""
        left = self.a.rows_sql(self.output.name, "a", f"0 as side_, {wanted}", where, self.raw)
        right = self.b.rows_sql(self.output.name, "b", f"1 as side_, {wanted}", where, self.raw)
        rank = ", ".join(["side_", "window_id", *map(quoted, self.key)])
        # Rows of both sides are counted together: equal ones form one group, and a group whose
        # counts differ has a surplus on one side.
        return f"""
        with both_sides as ({left} union all {right}),
        counted as (
            select window_id{comma}, sum(1 - side_) as in_a, sum(side_) as in_b
            from both_sides group by window_id{comma}),
        {self._left_over(comma)}
        select window_id{comma}, side_, n_, repeat_,
            row_number() over (partition by {rank} order by {every or "window_id"}) as rank_
        from left_over"""

    def _left_over(self, comma: str) -> str:
        more = "case when in_a > in_b then 0 else 1 end as side_, abs(in_a - in_b) as n_"
        if not self.floats:
            return f"""left_over as (
                select window_id{comma}, {more}, in_a > 0 as repeat_ from counted
                    where in_a <> in_b)"""
        exact = _names(["window_id", *excluding(self.columns, self.floats)])
        near_low = []
        near_high = []
        bounds = []
        pair = []
        close = []
        for i, name in enumerate(self.floats):
            column = quoted(name)
            near_low.append(self._close(column, f"lo_{i}"))
            near_high.append(self._close(column, f"hi_{i}"))
            of_a = f"case when in_a > 0 then {column} end) over (partition by {exact})"
            bounds.append(f"min({of_a} as lo_{i}, max({of_a} as hi_{i}")
            of_pair = f"then {column} end) over (partition by {exact}, at_)"
            pair.append(f"max(case when side_ = 0 {of_pair} as fa_{i}")
            pair.append(f"max(case when side_ = 1 {of_pair} as fb_{i}")
            close.append(self._close(f"fa_{i}", f"fb_{i}"))
        # A row of b repeats one of a if a has the row itself, or a row with floats close to the
        # smallest or largest that a has among rows with these exact columns. Then unequal rows are
        # ranked by their floats on each side, and rows of equal rank form a pair. A pair does not
        # differ if all its floats are close and both sides have it equally often.
        return f"""
        bounded as (
            select *, {", ".join(bounds)}, max(in_a) over (partition by {exact}) as any_a
            from counted),
        unequal as (
            select window_id{comma}, {more},
                in_a > 0 or (any_a > 0 and (
                    ({" and ".join(near_low)}) or ({" and ".join(near_high)}))) as repeat_
            from bounded where in_a <> in_b),
        ranked as (
            select *, row_number() over (partition by side_, {exact}
                order by {_names(self.floats)}) as at_
            from unequal),
        paired as (
            select *, {", ".join(pair)},
                max(case when side_ = 0 then n_ end) over (partition by {exact}, at_) as n_a,
                max(case when side_ = 1 then n_ end) over (partition by {exact}, at_) as n_b
            from ranked),
        left_over as (
            select window_id{comma}, side_, n_, repeat_ from paired
            where not coalesce(n_a = n_b and {" and ".join(close)}, false))"""

    def _without_close(self, rows: pa.Table) -> pa.Table:
        """Removes the rows that have a close row on the other side."""
        sides: tuple[dict[tuple[str, ...], list[tuple[SortKey, int, list[object]]]], ...] = ({}, {})
        for place, row in enumerate(python_rows(rows)):
            values = [
                row["window_id"],
                row["n_"],
                *(in_one_order(row[name]) for name in self.columns),
            ]
            key = sort_key(values)
            sides[row["side_"]].setdefault(tuple(key[0]), []).append((key, place, values))
        left: set[int] = set(range(rows.num_rows))
        for exact in sides[0].keys() & sides[1].keys():
            # In sorted order, rows with the nearest floats are paired.
            pairs = zip(sorted(sides[0][exact]), sorted(sides[1][exact]), strict=False)
            for (_, place, mine), (_, other_place, theirs) in pairs:
                if are_close(mine, theirs, self.output.tolerance):
                    left -= {place, other_place}
        return rows.take(pa.array(sorted(left), pa.int64()))

    def _close(self, left: str, right: str) -> str:
        """Returns a SQL condition that two values are close: equal, both null, both NaN, or finite
        and within the tolerance.
        """
        allowed = f"{self.output.tolerance!r} * greatest(1.0, abs({left}), abs({right}))"
        infinity = "cast('inf' as double)"
        finite = f"abs({left}) < {infinity} and abs({right}) < {infinity}"
        close = f"coalesce({finite} and abs({left} - {right}) <= {allowed}, false)"
        return f"(({left} is not distinct from {right}) or {close})"


def _holds_float(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(
        _holds_float(kind.field(place).type) for place in range(kind.num_fields)
    )


def _event_columns(snapshot: Snapshot, output: OutputPlan) -> dict[str, pa.DataType]:
    """Returns the name and type of the event columns of a snapshot's table, without columns added
    for readers.
    """
    own = (
        bookkeeping(snapshot.data[output.name])
        if snapshot.facts is not None
        else frozenset(POSITION_COLUMNS)
    )
    own |= OF_THE_REPLAY if output.errors else frozenset()
    # Published streams have an arrival time, which is added for readers if the output has none.
    if snapshot.facts is None and "arrived_at" not in dict(output.columns):
        own |= {"arrived_at"}
    schema = snapshot.data[output.name].schema
    return {column.name: column.type for column in schema if column.name not in own}


def _where(windows: list[int]) -> str:
    ranges = to_ranges(windows)
    cover = f"o.window_id between {min(windows)} and {max(windows)}"
    if len(ranges) == 1:
        return cover
    if len(ranges) <= _RANGES_MAX:
        parts = [f"o.window_id between {part.first} and {part.last}" for part in ranges]
        return f"({' or '.join(parts)})"
    return f"{cover} and o.window_id in ({', '.join(map(str, windows))})"


def _names(columns: list[str]) -> str:
    return ", ".join(map(quoted, columns))
