"""Aggregate: computes sums, counts and other values of the tuples of a window.

Rules: O113 to O120, O128, O129
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.names import quoted_column
from rewindow.operators.columns import WINDOW
from rewindow.operators.event_time_windows.aggregates import aggregate_types
from rewindow.operators.library.columns import ROWS, check_twice
from rewindow.operators.library.exact_sums import ExactSum
from rewindow.operators.library.order import OFFSET
from rewindow.operators.library.spans import ORIGIN, SpanningOperator, first_result
from rewindow.spark.columns import aliased, equal_or_null, named_columns, renamed_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CALL = re.compile(r"(\w+)\(\s*(\*|[^,()]+?)\s*(?:,\s*(-?[\d.]+)\s*)?\)")
_SAME_TYPE = ("first", "last", "most_frequent", "least_frequent", "reduce", "range")
_FREQUENT = ("most_frequent", "least_frequent")
_ORDERED = ("first", "last")
_COUNTS = ("count", "unique")
_NUMBERS = ("median", "quantile")
FUNCTIONS = (
    *("sum", "count", "avg", "unique", "min", "max", "range"),
    *_ORDERED,
    *_NUMBERS,
    *_FREQUENT,
    "reduce",
)
_ARGUMENTS = ("one", "other")


@dataclass(frozen=True)
class Call:
    """An aggregate function, its column and its output.

    Attributes:
        name: name of its column in the output.
        column: the column that it aggregates; `*` counts tuples.
        share: the share of a quantile, from 0 to 1; 0.5 for a median.
    """

    name: str
    function: str
    column: str
    share: float = 0.5


class _Fold(NamedTuple):
    """A Spark aggregate and the aggregate that merges its partial results; None if they cannot be
    merged.
    """

    value: Column
    merge: Callable[[str], Column] | None = None


class Aggregate(SpanningOperator):
    """Computes aggregates over the tuples of each window, for each value of the columns `by`.

    With `application_windows`, a result covers an application window. With `slide_windows` too, it
    covers a sliding window. It is emitted in the last window that it covers. A window without
    tuples has no result. In `by`, null is a value like any other. Aggregates ignore null, except
    `first` and `last`. Sums of floating-point numbers are rounded only at the end, so they do not
    depend on the order of the tuples. If `unique`, `median`, `quantile`, `reduce`, or `avg` of
    decimals is computed together with such sums, the tuples are read twice.

    Attributes:
        aggregates: the aggregate of each output column, such as `sum(price)`. Functions: sum,
            count, avg, unique, min, max, range (two columns, NAME_min and NAME_max), first, last,
            median, quantile(x, 0.9), most_frequent, least_frequent and reduce. `count(*)` counts
            tuples. If values are equally frequent, the smallest one is the result.
        reduce: for each aggregate `reduce`, by name, an SQL expression that combines the values
            `one` and `other`, such as "one * other". It must be associative and commutative. A task
            needs memory for all values of a group.
        by: columns to group by.
        where: SQL condition over the columns of the input; other tuples are left out.
        order_by: columns that order the tuples of a window for first and last. Among equal tuples,
            first returns the smallest value and last the largest. By default, the order of the
            recording.
        emit_empty: whether counts of a window without tuples are 0; not with `by`.
        mark_partial: whether the column `_rw_partial` marks results of application windows in which
            windows are missing.
    """

    aggregates: Annotated[dict[str, str], Field(min_length=1)]
    reduce: dict[str, str] = Field(default_factory=dict)
    by: tuple[str, ...] = ()
    where: str | None = None
    order_by: tuple[str, ...] = (OFFSET,)
    emit_empty: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_known("by", self.by)
        if self.where is not None:
            self.check_sql("where", self.where)
        calls = self.calls()
        reduced = [call.name for call in calls if call.function == "reduce"]
        if sorted(reduced) != sorted(self.reduce):
            raise ValueError(
                "reduce: it must have an expression for each aggregate that uses reduce, and no "
                "others"
            )
        for name in reduced:
            self.check_sql(f"reduce.{name}", self.reduce[name], _ARGUMENTS)
        check_twice("aggregates", self.output_ports()["out"].schema.names)
        if any(call.function in _ORDERED for call in calls):
            for name in self.order_by:
                if name not in self.columns.names:
                    raise ValueError(
                        f'order_by: the input has no column "{name}"; available columns: '
                        f"{', '.join(self.columns.names)}"
                    )
        counts = all(call.function in _COUNTS for call in calls)
        if self.emit_empty and (self.by or not counts):
            raise ValueError(
                "emit_empty: it can only be used without by, and with no aggregates but count and "
                "unique"
            )
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
        """Returns the aggregates to compute.

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
                raise ValueError(f'aggregates.{name}: {function} needs a column, not "*"')
            share = 0.5
            if (function == "quantile") != (found[3] is not None):
                raise ValueError(
                    f'aggregates.{name}: "{text}" is invalid: quantile needs a share, such as '
                    "quantile(delay, 0.9), and other functions cannot have one"
                )
            if found[3] is not None:
                share = float(found[3])
                if not 0 <= share <= 1:
                    raise ValueError(
                        f"aggregates.{name}: the share of a quantile must be from 0 to 1, not "
                        f"{share}"
                    )
            calls.append(Call(name, function, column, share))
        return calls

    def kept_columns(self) -> pa.Schema:
        """Returns the columns that are needed for groups, aggregates and their order."""
        return pa.schema([self.columns.field(name) for name in self._kept_names()])

    def kept_rows(self, rows: DataFrame) -> DataFrame:
        """Returns the tuples that meet the condition `where`."""
        kept = rows if self.where is None else rows.where(F.expr(self.where))
        return kept.select(*named_columns([WINDOW, *self._kept_names()]))

    def ordered_ports(self) -> Collection[str]:
        """See FrameOperator."""
        is_ordered = any(call.function in _ORDERED for call in self.calls())
        return (ROWS,) if is_ordered and OFFSET in self.order_by else ()

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the aggregates of each window."""
        calls = self.calls()
        rows = self.spanned(inputs, state, context)
        groups = named_columns([WINDOW, *self.by])
        folds: dict[str, _Fold] = {}
        results: list[Column] = []
        for number, call in enumerate(calls):
            if call.function in _FREQUENT:
                # The count of its value is added to each tuple, so that one aggregation is enough.
                [value] = named_columns([call.column])
                alike = Window.partitionBy(*groups, value)
                rows = rows.withColumn(f"_count_{number}", F.count(value).over(alike))
            results += self._results(call, number, folds)
        found = self._aggregated(rows, folds).select(*groups, *results)
        if self.emit_empty:
            # Only a window that ends an application window has a result.
            windows = context.frame(rows.sparkSession).withColumnRenamed(WINDOW, ORIGIN)
            due = windows.where(first_result(F.col(ORIGIN), context) == F.col(ORIGIN))
            counts = [F.coalesce(call.name, F.lit(0)).alias(call.name) for call in calls]
            joined = due.join(found, *equal_or_null({ORIGIN: WINDOW}), "left")
            found = joined.select(F.col(ORIGIN).alias(WINDOW), *counts)
        return self.with_partial(found, context)

    def _aggregated(self, rows: DataFrame, folds: Mapping[str, _Fold]) -> DataFrame:
        """Returns the Spark aggregates of each group, and the exact sums of float columns."""
        names = [WINDOW, *self.by]
        sums = self._exact_sums()
        if not sums:
            return rows.groupBy(*named_columns(names)).agg(*_partials(folds))
        merged = {name: fold for name, fold in folds.items() if fold.merge}
        cut = rows
        partials = _partials(merged)
        totals: list[Column] = []
        for name, fold in merged.items():
            if fold.merge is not None:
                totals.append(fold.merge(name).alias(name))
        for one in sums.values():
            cut = one.cut(cut)
            partials += one.partials()
            totals.append(one.total())
        bins = [one.bin for one in sums.values()]
        in_bins = cut.groupBy(*named_columns([*names, *bins])).agg(*partials)
        found = in_bins.groupBy(*named_columns(names)).agg(*totals)
        if len(merged) == len(folds):
            return found
        # The others need all tuples of a group at once.
        whole = {name: fold for name, fold in folds.items() if not fold.merge}
        others = rows.groupBy(*named_columns(names)).agg(*_partials(whole))
        keys = {name: f"_group_{place}" for place, name in enumerate(names)}
        others = others.select(*renamed_columns(keys), *named_columns(whole))
        return found.join(others, equal_or_null(keys))

    def _exact_sums(self) -> dict[str, ExactSum]:
        """Returns the exact sum of each column with floating-point numbers, by column."""
        found: dict[str, ExactSum] = {}
        for call in self.calls():
            if call.function not in ("sum", "avg") or call.column in found:
                continue
            if pa.types.is_floating(self.columns.field(call.column).type):
                found[call.column] = ExactSum(call.column, len(found))
        return found

    def _results(self, call: Call, number: int, folds: dict[str, _Fold]) -> list[Column]:
        """Adds the Spark aggregates of a call to `folds`, and returns its output columns."""
        name = f"_fold_{number}"
        if call.column == "*":
            folds[name] = _Fold(F.count(F.lit(1)), F.sum)
            return [F.col(name).alias(call.name)]
        [value] = named_columns([call.column])
        if call.function == "range":
            low, high = _range_names(call.name)
            folds[f"{name}_min"] = _Fold(F.min(value), F.min)
            folds[f"{name}_max"] = _Fold(F.max(value), F.max)
            return [F.col(f"{name}_min").alias(low), F.col(f"{name}_max").alias(high)]
        if call.function in _ORDERED:
            # Structs compare field by field, so the smallest one belongs to the first tuple.
            order = F.struct(ORIGIN, *named_columns(self.order_by), value.alias("value"))
            chosen = F.min if call.function == "first" else F.max
            folds[name] = _Fold(chosen(order), chosen)
            return [F.col(name).getField("value").alias(call.name)]
        if call.function in _FREQUENT:
            count = F.col(f"_count_{number}")
            count = -count if call.function == "most_frequent" else count
            ranked = F.struct(count.alias("count"), value.alias("value"))
            # The struct with the smallest count wins; on a tie, the one with the smallest value.
            folds[name] = _Fold(F.min(F.when(value.isNotNull(), ranked)), F.min)
            return [F.col(name).getField("value").alias(call.name)]
        return [self._folded(call, value, name, folds).alias(call.name)]

    def _folded(
        self,
        call: Call,
        value: Column,
        name: str,
        folds: dict[str, _Fold],
    ) -> Column:
        if call.function in ("sum", "avg"):
            return self._added(call, value, name, folds)
        if call.function in _NUMBERS:
            folds[name] = _Fold(F.percentile(value.cast("double"), call.share))
        elif call.function == "unique":
            folds[name] = _Fold(F.count_distinct(value))
        elif call.function == "reduce":
            folds[name] = _Fold(self._reduced(call))
        elif call.function == "count":
            folds[name] = _Fold(F.count(value), F.sum)
        else:
            extreme = F.min if call.function == "min" else F.max
            folds[name] = _Fold(extreme(value), extreme)
        return F.col(name)

    def _reduced(self, call: Call) -> Column:
        """Reduces the values in ascending order and returns the result.

        Rules: O122
        """
        from pyspark.sql.pandas.types import from_arrow_type

        kind = from_arrow_type(self._kind(call)).simpleString()
        values = f"sort_array(collect_list({quoted_column(call.column)}))"
        combined = f"if(one is null, other, cast({self.reduce[call.name]} as {kind}))"
        return F.expr(f"aggregate({values}, cast(null as {kind}), (one, other) -> {combined})")

    def _added(
        self,
        call: Call,
        value: Column,
        name: str,
        folds: dict[str, _Fold],
    ) -> Column:
        """Returns a sum or an average that does not depend on the order of the tuples."""
        from pyspark.sql.pandas.types import from_arrow_type

        kind = self.columns.field(call.column).type
        if call.function == "avg" and pa.types.is_decimal(kind):
            folds[name] = _Fold(F.avg(value))
            return F.col(name)
        if pa.types.is_floating(kind):
            name = self._exact_sums()[call.column].name
        else:
            # The sum of sums of decimals would have more digits.
            total = from_arrow_type(self._kind(call))
            folds[name] = _Fold(F.sum(value), lambda part: F.sum(part).cast(total))
        if call.function == "sum":
            return F.col(name)
        folds[f"{name}_count"] = _Fold(F.count(value), F.sum)
        return F.col(name).cast("double") / F.nullif(F.col(f"{name}_count"), F.lit(0))

    def _kind(self, call: Call) -> pa.DataType:
        if call.function == "unique":
            return pa.int64()
        if call.function in _NUMBERS:
            aggregate_types(f"sum({call.column})", self.columns)
            return pa.float64()
        if call.function in _SAME_TYPE:
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


def _partials(folds: Mapping[str, _Fold]) -> list[Column]:
    return aliased({name: fold.value for name, fold in folds.items()})
