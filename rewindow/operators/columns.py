"""Columns and column arithmetic that several operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

WINDOW = "window_id"
AT = "_arrived_us"
TS = "_event_us"
"""Arrival and timestamp of a tuple: a(j) and t(j) of H48."""
BIGINT_MIN = -(1 << 63)
"""Sorts before every BIGINT value that a stream can hold."""


def to_us(frame: DataFrame, name: str) -> Column:
    """Returns a TIMESTAMP column in microseconds since the epoch; a BIGINT is taken as
    microseconds.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType

    column = F.col(quoted_column(name))
    is_count = isinstance(frame.schema[name].dataType, IntegralType)
    return column.cast("bigint") if is_count else F.unix_micros(column.cast("timestamp"))


def floor_div(value: Column, divisor: int) -> Column:
    """Returns the floor of a BIGINT division, also below zero (H54)."""
    from pyspark.sql import functions as F

    return F.call_function(
        "div",
        value - F.pmod(value, F.lit(divisor)),
        F.lit(divisor),
    )


def type_texts(columns: pa.Schema) -> dict[str, str]:
    """Returns the type of each column by its name, as text."""
    return dict(zip(columns.names, map(str, columns.types), strict=True))
