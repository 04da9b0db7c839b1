"""SQL queries of the window report over staged rows, and conversions of their results to
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.loading.measures import Measure
from rewindow.storage import quoted

Ints = npt.NDArray[np.int64]


def aggregate_sql(measures: Sequence[Measure]) -> str:
    """Returns SQL over `t` that computes all aggregate measures in one pass over the staged
    rows.
    """
    parts = [
        "window_id",
        "attempt",
        *(f"{measure.sql} as {quoted(measure.name)}" for measure in measures),
    ]
    return f"select {', '.join(parts)} from t group by window_id, attempt"


def rows_sql(key: Sequence[str]) -> str:
    """Returns SQL over `t` that counts rows per window and attempt, and rows that repeat the key of
    another row.

    Grouping by the key is hundreds of times faster than counting distinct structs of it.
    """
    if not key:
        return (
            "select window_id, attempt, count(*) as rows, 0 as repeats from t group by "
            "window_id, attempt"
        )
    columns = ", ".join(map(quoted, key))
    inner = (
        f"select window_id, attempt, count(*) as n from t group by window_id, attempt, {columns}"
    )
    counts = "sum(n) as rows, sum(n - 1) as repeats"
    return f"select window_id, attempt, {counts} from ({inner}) group by window_id, attempt"


def numbers(rows: pa.Table, *columns: str) -> list[Ints]:
    return [pc.fill_null(rows[column].cast(pa.int64()), 0).to_numpy() for column in columns]


def plain_numbers(values: pa.ChunkedArray) -> pa.Array:
    """Converts numbers to types that pandas supports.

    Decimals without a fraction become integers.
    """
    column = values.combine_chunks()
    if pa.types.is_decimal(column.type):
        # The detour by text is needed because Arrow's cast to a float is off by the last bit for
        # some numbers, such as 51.98.
        return (
            column.cast(pa.int64())
            if column.type.scale == 0
            else column.cast(pa.string()).cast(pa.float64())
        )
    if pa.types.is_unsigned_integer(column.type) or pa.types.is_signed_integer(column.type):
        return column.cast(pa.int64())
    return column


def distinct_attempts(index: Ints, attempt: Ints, size: int) -> Ints:
    """Returns the number of attempts with facts for each window.

    The facts must be ordered by window and attempt.
    """
    is_new = np.ones(len(index), dtype=bool)
    is_new[1:] = (index[1:] != index[:-1]) | (attempt[1:] != attempt[:-1])
    return np.bincount(index[is_new], minlength=size)
