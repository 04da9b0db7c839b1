"""Columns and column arithmetic that several operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from pydantic import PlainSerializer

from rewindow.names import quoted_column
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

WINDOW = "window_id"
AT = "_arrived_us"
TS = "_event_us"
"""Columns with the arrival and the timestamp of a tuple, in microseconds.

Rules: H48
"""
FARTHEST_US = 1 << 61
"""Instants further from 1970 than this, 73,000 years, are clipped to it. So the difference of two
instants, and the sum of an instant and a duration, fit into 64 bits.
"""
BIGINT_MIN = -(1 << 63)
"""Sorts before every BIGINT value of a stream."""


def to_us(frame: DataFrame, name: str) -> Column:
    """Converts a column of instants to microseconds since the epoch; see `instant_us`."""
    return instant_us(F.col(quoted_column(name)), frame.schema[name].dataType)


def instant_us(column: Column, kind: DataType, unit_us: int = 1) -> Column:
    """Returns instants in microseconds since the epoch, clipped to `FARTHEST_US` before or after
    it.

    Args:
        column: times, or whole numbers.
        kind: type of the column.
        unit_us: microseconds per unit of a whole number.
    """
    from pyspark.sql.types import IntegralType

    is_count = isinstance(kind, IntegralType)
    number = column.cast("bigint") if is_count else F.unix_micros(column.cast("timestamp"))
    factor = unit_us if is_count else 1
    most = FARTHEST_US // factor
    return F.when(number > most, most).when(number < -most, -most).otherwise(number) * factor


def within_reach(instant_us: str) -> str:
    """Returns a SQL expression that clips an instant in microseconds to `FARTHEST_US` before or
    after the epoch.
    """
    most = FARTHEST_US
    return (
        f"case when {instant_us} > {most} then {most} when {instant_us} < -{most} then -{most} "
        f"else {instant_us} end"
    )


def floor_div(value: Column, divisor: int) -> Column:
    """Returns the quotient of a BIGINT division, rounded down also for negative numbers.

    Rules: H54
    """
    return F.call_function(
        "div",
        value - F.pmod(value, F.lit(divisor)),
        F.lit(divisor),
    )


def type_texts(columns: pa.Schema) -> dict[str, str]:
    """Returns the type of each column as text, by column name."""
    return dict(zip(columns.names, map(str, columns.types), strict=True))


Columns = Annotated[pa.Schema, PlainSerializer(type_texts)]
"""Columns of an input port; in an application they are set from the stream that feeds it."""
