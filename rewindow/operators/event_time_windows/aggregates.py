"""Computes window aggregates in steps: the contribution of each tuple, the merge of contributions,
and the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

CALL = re.compile(r"(\w+)\((\*|[\w ]+)\)")
"""An aggregate as text: a function and its column, or `*`."""
MERGING = ("avg", "count", "max", "min", "sum")
"""Aggregates that can be computed from partial aggregates."""
WHOLE = {
    "count_distinct": "count(DISTINCT {})",
    "median": "median({})",
    "stddev": "stddev({})",
    "variance": "variance({})",
}
"""Aggregates that need every tuple."""


@dataclass
class AggregateSpec:
    """The aggregates of a window.

    Attributes:
        parts: column to the contribution of a tuple.
        merged: the same column to the contribution of several rows.
        results: name to the aggregate over rows of parts.
        functions: column of parts to the function that merges it, also as a running aggregate.
        finished: name to the aggregate of one row of merged parts.
        merges: whether rows may be merged; False if an aggregate needs every tuple.
    """

    parts: dict[str, Column] = field(default_factory=dict)
    merged: dict[str, Column] = field(default_factory=dict)
    results: dict[str, Column] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    finished: dict[str, Column] = field(default_factory=dict)
    merges: bool = True

    def check_merges(self) -> None:
        """Rejects aggregates that need every tuple, for windows that fire more than once.

        Raises:
            InputError: an aggregate needs every tuple.
        """
        if not self.merges:
            raise InputError(
                "windows that fire more than once need aggregates that can be merged",
                hint="Use only avg, count, max, min and sum, or remove early and allowed_lateness.",
            )


def aggregate_spec(frame: DataFrame, aggregates: Mapping[str, tuple[str, str]]) -> AggregateSpec:
    """Returns the computation of the given aggregates.

    `frame` has the columns of their arguments.

    Raises:
        InputError: an aggregate is unknown, or its argument is invalid.
    """
    known = (*MERGING, *WHOLE)
    for name, (function, _) in aggregates.items():
        if function not in known:
            raise InputError(
                f'aggregate "{name}" has an unknown function {function}',
                hint=f"Available functions: {', '.join(known)}.",
            )
    aggregate = AggregateSpec(
        merges=all(function in MERGING for function, _ in aggregates.values())
    )
    for number, (name, (function, argument)) in enumerate(aggregates.items()):
        part = f"_part_{number}"
        if not aggregate.merges:
            _add_whole(aggregate, frame, part, name=name, function=function, argument=argument)
        elif function in ("min", "max"):
            _add_extreme(aggregate, frame, part, name=name, function=function, argument=argument)
        else:
            _add_sum(aggregate, frame, part, name=name, function=function, argument=argument)
    return aggregate


def _type(
    frame: DataFrame,
    name: str,
    function: str,
    argument: str,
) -> DataType:
    """Returns the result type of Spark's aggregate function for the argument."""
    from pyspark.errors import AnalysisException, ParseException

    text = WHOLE[function].format(argument) if function in WHOLE else f"{function}({argument})"
    try:
        return frame.agg(F.expr(text).alias("is")).schema["is"].dataType
    except (AnalysisException, ParseException) as error:
        raise InputError(
            f'aggregate "{name}" is not a valid expression: {text}',
            detail=str(error).splitlines()[0],
            hint=f"Available columns: {', '.join(frame.columns)}.",
        ) from error


def _argument(argument: str) -> Column:
    return F.lit(1) if argument.strip() == "*" else F.expr(argument)


def _add_whole(
    aggregate: AggregateSpec,
    frame: DataFrame,
    part: str,
    name: str,
    function: str,
    argument: str,
) -> None:
    _type(frame, name, function, argument)
    aggregate.parts[part] = _argument(argument)
    aggregate.results[name] = F.expr(
        WHOLE[function].format(part) if function in WHOLE else f"{function}({part})"
    )


def _add_extreme(
    aggregate: AggregateSpec,
    frame: DataFrame,
    part: str,
    name: str,
    function: str,
    argument: str,
) -> None:
    _type(frame, name, function, argument)
    aggregate.parts[part] = _argument(argument)
    aggregate.merged[part] = aggregate.results[name] = F.expr(f"{function}({part})")
    aggregate.functions[part] = function
    aggregate.finished[name] = F.col(part)


def _add_sum(
    aggregate: AggregateSpec,
    frame: DataFrame,
    part: str,
    name: str,
    function: str,
    argument: str,
) -> None:
    """Adds a sum, a count or an average, with the result type of Spark's aggregate function."""
    from pyspark.sql.types import DecimalType, DoubleType

    kind = _type(frame, name, function, argument)
    value = _argument(argument)
    count = F.when(value.isNotNull(), 1).otherwise(0).cast("bigint")
    if function == "count":
        aggregate.parts[part] = count
        aggregate.merged[part] = aggregate.results[name] = F.sum(part)
        aggregate.functions[part] = "sum"
        aggregate.finished[name] = F.coalesce(part, F.lit(0))
        return
    if function == "avg":
        # Averages do not merge, but sums and counts do. Spark's average of decimals adds decimals,
        # and its average of all other numbers adds doubles.
        of_count = f"{part}_count"
        kind_of_sum = DoubleType()
        if isinstance(kind, DecimalType):
            kind_of_sum = _type(frame, name, "sum", argument)
        aggregate.parts[of_count] = count
        aggregate.merged[of_count] = F.sum(of_count)
        aggregate.functions[of_count] = "sum"
        total = F.nullif(F.sum(of_count), F.lit(0))
        aggregate.results[name] = (F.sum(part) / total).cast(kind)
        total = F.nullif(F.col(of_count), F.lit(0))
        aggregate.finished[name] = (F.col(part) / total).cast(kind)
    else:
        kind_of_sum = kind
        aggregate.results[name] = F.sum(part).cast(kind)
        aggregate.finished[name] = F.col(part).cast(kind)
    aggregate.functions[part] = "sum"
    aggregate.parts[part] = value.cast(kind_of_sum)
    aggregate.merged[part] = F.sum(part).cast(kind_of_sum)


def aggregate_types(text: str, columns: pa.Schema) -> tuple[pa.DataType, dict[str, pa.DataType]]:
    """Returns the Spark type of an aggregate and the types of its pane columns, by column
    suffix.
    """
    call = CALL.fullmatch(text.strip())
    assert call is not None, "checked before"
    function = call[1].lower()
    argument = call[2].strip()
    if function == "count":
        return pa.int64(), {"": pa.int64()}
    if argument not in columns.names:
        raise ValueError(
            f'{function}({argument}): the stream has no column "{argument}"; available columns: '
            f"{', '.join(columns.names)}"
        )
    kind = columns.field(argument).type
    if function in ("min", "max"):
        return kind, {"": kind}
    if pa.types.is_decimal(kind):
        sums = pa.decimal128(min(38, kind.precision + 10), kind.scale)
        means = pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
        return (
            (sums, {"": sums}) if function == "sum" else (means, {"_count": pa.int64(), "": sums})
        )
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(
            f'{function}({argument}): column "{argument}" must be a number, not {kind}'
        )
    if function == "avg":
        return pa.float64(), {"_count": pa.int64(), "": pa.float64()}
    total = pa.int64() if pa.types.is_integer(kind) else pa.float64()
    return total, {"": total}
