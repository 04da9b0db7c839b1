"""Aggregate: sums, counts and other values of the tuples of a window (O113 to O120, O128, O129)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.errors import InputError
from rewindow.operators.columns import WINDOW
from rewindow.operators.event_time_windows.aggregates import aggregate_types
from rewindow.operators.library.columns import ROWS, check_twice
from rewindow.operators.library.spans import ORIGIN, SpanningOperator, first_result
from rewindow.spark.columns import equal_or_null, named_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CALL = re.compile(r"(\w+)\(\s*(\*|[^,()]+?)\s*(?:,\s*(-?[\d.]+)\s*)?\)")
_SAME_TYPE = ("first", "last", "most_frequent", "least_frequent")
_FREQUENT = ("most_frequent", "least_frequent")
_ORDERED = ("first", "last")
_COUNTS = ("count", "unique")
_NUMBERS = ("median", "quantile")
FUNCTIONS = (
    *("sum", "count", "avg", "unique", "min", "max", "range"),
    *_ORDERED,
    *_NUMBERS,
    *_FREQUENT,
)


@dataclass(frozen=True)
class Call:
    """An aggregate.

    Attributes:
        name: name of its column in the output.
        column: its argument; `*` counts tuples.
        share: the share of a quantile; 0.5 for a median.
    """

    name: str
    function: str
    column: str
    share: float = 0.5


class Aggregate(SpanningOperator):
    """Computes aggregates over the tuples of each window, for each value of the columns `by`.

    With `application_windows`, a result covers an application window. With `slide_windows` too, it
    covers a sliding window. It is emitted in the last window that it covers. A window without
    tuples has no result. In `by`, null is a value like any other. Aggregates ignore null, except
    `first` and `last`. Floating-point numbers are added in ascending order, so that a sum does not
    depend on the number of partitions. A task therefore needs memory for all numbers of a group;
    use decimals if groups are large.

    Attributes:
        aggregates: the aggregate of each output column, such as `sum(price)`. Functions: sum,
            count, avg, unique, min, max, range (two columns, NAME_min and NAME_max), first, last,
            median, quantile(x, 0.9), most_frequent and least_frequent. `count(*)` counts tuples. If
            values are equally frequent, the smallest one is the result.
        by: columns to group by.
        where: SQL condition over the columns of the input; other tuples are left out.
        order_by: columns that order the tuples of a window for first and last. Among equal tuples,
            first returns the smallest value and last the largest. By default the order of the
            recording.
        emit_empty: whether counts of a window without tuples are 0; not with `by`.
        mark_partial: whether the column `_rw_partial` marks results of application windows in which
            windows are missing.
    """

    aggregates: Annotated[dict[str, str], Field(min_length=1)]
    by: tuple[str, ...] = ()
    where: str | None = None
    order_by: tuple[str, ...] = ("offset",)
    emit_empty: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_known("by", self.by)
        if self.where is not None:
            self.check_sql("where", self.where)
        calls = self.calls()
        check_twice("aggregates", self.output_ports()["out"].schema.names)
        if any(call.function in _ORDERED for call in calls):
            for name in self.order_by:
                if name not in self.columns.names:
                    raise ValueError(
                        f'order_by: the input has no column "{name}": name columns that order its '
                        "tuples"
                    )
        counts = all(call.function in _COUNTS for call in calls)
        if self.emit_empty and (self.by or not counts):
            raise ValueError("emit_empty: only counts without by can be 0 where no tuple came")
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        columns = [self.columns.field(name) for name in self.by]
        results: list[tuple[str, pa.DataType]] = []
        for call in self.calls():
            kind = self._kind(call)
            names = _range_names(call.name) if call.function == "range" else [call.name]
            results += [(name, kind) for name in names]
        return {"out": OutputPort(pa.schema([*columns, *results, *self.partial_fields()]))}

    def calls(self) -> list[Call]:
        """Returns the aggregates.

        Raises:
            ValueError: an aggregate is malformed, or its column is not in the input.
        """
        calls = []
        for name, text in self.aggregates.items():
            found = _CALL.fullmatch(text.strip())
            function = found[1].lower() if found else ""
            if found is None or function not in FUNCTIONS:
                raise ValueError(
                    f'aggregates.{name}: "{text}" must be one of {", ".join(FUNCTIONS)} over a '
                    'column, such as "sum(price)"'
                )
            column = found[2]
            if column != "*":
                self.check_known(f"aggregates.{name}", [column])
            elif function != "count":
                raise ValueError(f"aggregates.{name}: {function} needs a column")
            share = 0.5
            if (function == "quantile") != (found[3] is not None):
                raise ValueError(
                    f'aggregates.{name}: "{text}": a quantile and no other aggregate has a share, '
                    "such as quantile(delay, 0.9)"
                )
            if found[3] is not None:
                share = float(found[3])
                if not 0 <= share <= 1:
                    raise ValueError(f"aggregates.{name}: a quantile is from 0 to 1, not {share}")
            calls.append(Call(name, function, column, share))
        return calls

    def kept_columns(self) -> pa.Schema:
        """Returns the columns that groups, aggregates and their order need."""
        return pa.schema([self.columns.field(name) for name in self._kept_names()])

    def kept_rows(self, rows: DataFrame) -> DataFrame:
        """Returns the tuples that meet the condition `where`."""
        from pyspark.sql import functions as F

        kept = rows if self.where is None else rows.where(F.expr(self.where))
        return kept.select(*named_columns([WINDOW, *self._kept_names()]))

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the aggregates of each window."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        calls = self.calls()
        is_ordered = any(call.function in _ORDERED for call in calls)
        if is_ordered and "offset" in self.order_by and ROWS in context.unordered:
            raise InputError(
                f"first and last of {context.operator} have no order: the offset of tuples that "
                "are published or come from an operator names none",
                hint="Set order_by to columns that order them.",
            )
        rows = self.spanned(inputs, state, context)
        groups = named_columns([WINDOW, *self.by])
        results: list[Column] = []
        for number, call in enumerate(calls):
            if call.function in _FREQUENT:
                # Each tuple carries the count of its value, so that one aggregation is enough.
                [value] = named_columns([call.column])
                alike = Window.partitionBy(*groups, value)
                rows = rows.withColumn(f"_count_{number}", F.count(value).over(alike))
            results += self._results(call, number)
        found = rows.groupBy(*groups).agg(*results)
        if self.emit_empty:
            # Only a window that ends an application window has a result.
            windows = context.frame(rows.sparkSession).withColumnRenamed(WINDOW, ORIGIN)
            due = windows.where(first_result(F.col(ORIGIN), context) == F.col(ORIGIN))
            counts = [F.coalesce(call.name, F.lit(0)).alias(call.name) for call in calls]
            joined = due.join(found, *equal_or_null({ORIGIN: WINDOW}), "left")
            found = joined.select(F.col(ORIGIN).alias(WINDOW), *counts)
        return self.with_partial(found, context)

    def _results(self, call: Call, number: int) -> list[Column]:
        from pyspark.sql import functions as F

        if call.column == "*":
            return [F.count(F.lit(1)).alias(call.name)]
        [value] = named_columns([call.column])
        if call.function == "range":
            low, high = _range_names(call.name)
            return [F.min(value).alias(low), F.max(value).alias(high)]
        if call.function in _ORDERED:
            # Structs compare field by field, so the smallest one belongs to the first tuple.
            order = F.struct(ORIGIN, *named_columns(self.order_by), value.alias("value"))
            found = F.min(order) if call.function == "first" else F.max(order)
            return [found.getField("value").alias(call.name)]
        if call.function in _FREQUENT:
            count = F.col(f"_count_{number}")
            count = -count if call.function == "most_frequent" else count
            ranked = F.struct(count.alias("count"), value.alias("value"))
            # The smallest count comes first, then the smallest value: ties are decided too.
            chosen = F.min(F.when(value.isNotNull(), ranked))
            return [chosen.getField("value").alias(call.name)]
        if call.function in _NUMBERS:
            return [F.percentile(value.cast("double"), call.share).alias(call.name)]
        return [self._folded(call, value).alias(call.name)]

    def _folded(self, call: Call, value: Column) -> Column:
        from pyspark.sql import functions as F

        if call.function in ("sum", "avg"):
            kind = self.columns.field(call.column).type
            if call.function == "avg" and pa.types.is_decimal(kind):
                # Spark adds decimals exactly, so its average does not depend on an order.
                return F.avg(value)
            total = F.sum(value)
            if pa.types.is_floating(kind):
                # A sum of floating-point numbers depends on their order, so they are sorted.
                numbers = F.sort_array(F.collect_list(value.cast("double")))
                added = F.aggregate(
                    numbers,
                    F.lit(0.0),
                    lambda one, other: one + other,
                )
                total = F.when(F.count(value) > 0, added)
            return total if call.function == "sum" else total.cast("double") / _nonzero(value)
        functions = {
            "count": F.count,
            "unique": F.count_distinct,
            "min": F.min,
            "max": F.max,
        }
        return functions[call.function](value)

    def _kind(self, call: Call) -> pa.DataType:
        if call.function == "unique":
            return pa.int64()
        if call.function in _NUMBERS:
            aggregate_types(f"sum({call.column})", self.columns)
            return pa.float64()
        if call.function in _SAME_TYPE or call.function == "range":
            return self.columns.field(call.column).type
        try:
            return aggregate_types(f"{call.function}({call.column})", self.columns)[0]
        except ValueError as error:
            raise ValueError(f"aggregates.{call.name}: {error}") from error

    def _kept_names(self) -> list[str]:
        names = [*self.by]
        for call in self.calls():
            names += [call.column] if call.column != "*" else []
            names += self.order_by if call.function in _ORDERED else ()
        return list(dict.fromkeys(names))


def _range_names(name: str) -> list[str]:
    return [f"{name}_min", f"{name}_max"]


def _nonzero(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.nullif(F.count(value), F.lit(0))
