"""Deduplicate: separates unique, duplicate and expired tuples by event time.

Rules: E71 to E76, E78, X39
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.application.error_tuples import REASON
from rewindow.operators.columns import WINDOW, floor_div, to_us
from rewindow.operators.durations import Duration
from rewindow.operators.library.columns import ROWS, ColumnsOperator
from rewindow.operators.library.order import (
    OFFSET,
    no_nulls,
    ordering,
    with_running_max,
)
from rewindow.sequences import names_of
from rewindow.spark.columns import equal_or_null, named_columns, null_of, renamed_columns, union_all
from rewindow.spark.functions import F, Window
from rewindow.windows import parse_duration, parse_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUCKET = "_rw_bucket"
_START = "_rw_start"
_OUTCOME = "_outcome"
_PLACE = "_place"
OUTCOMES = ("unique", "duplicate", "expired")


class Deduplicate(ColumnsOperator):
    """Sends the first tuple of each key to the port `unique` and later ones to `duplicate`, within
    a range of event time; tuples that are older than the range go to `expired`.

    The range starts at `reference` - `expire` and is divided into buckets of `span`; the last one
    ends at `reference` or later. A tuple at or after the end of the range moves the
    range forward by whole buckets, just far enough to contain it. A tuple is a duplicate if an
    earlier tuple in its bucket has the same key. Tuples without event time go to the error port
    `errors` with the reason `null_ts`. A single event time in the far future makes all normal
    tuples after it expire: if that can happen, put a `SplitLate` before this operator. The state
    contains the keys of the range; keys that have left the range are removed after each commit
    group.

    Attributes:
        key: the columns that form the key.
        event_at: column with the event time.
        reference: the first range extends at least to this time, such as "2026-01-01".
        expire: length of the range, such as "1 day".
        span: length of a bucket, such as "1 hour".
        whole_range: whether a tuple is a duplicate as long as the last unique tuple of its key is
            in the range, even in another bucket.
        null_keys: "apart": tuples with null in their key are never duplicates; "equal": null equals
            null.
        order_by: columns that order the tuples of a window; the first tuple of a key is unique. By
            default, the order of the recording.

    Rules: E71 to E76, E78
    """

    key: Annotated[tuple[str, ...], Field(min_length=1)]
    event_at: str
    reference: str
    expire: Duration
    span: Duration
    whole_range: bool = False
    null_keys: Literal["apart", "equal"] = "apart"
    order_by: tuple[str, ...] = (OFFSET,)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_known("key", self.key)
        self.check_time("event_at", self.event_at)
        self.check_known(
            "order_by",
            set(self.order_by) - {OFFSET},
        )
        parse_time(self.reference)
        for name in ("expire", "span"):
            if parse_duration(getattr(self, name)) <= 0:
                raise ValueError(f"{name}: it must be above 0")
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the ports `unique`, `duplicate`, `expired` and `errors`."""
        port = OutputPort(self.event_columns())
        errors = OutputPort(self.event_columns(), error=True)
        return {**dict.fromkeys(OUTCOMES, port), "errors": errors}

    def state_columns(self) -> pa.Schema:
        """Returns the columns of the key, its bucket, and the first bucket of the range.

        Only one row has the first bucket, and its other columns are null.
        """
        keys = [self.columns.field(name) for name in self.key]
        return pa.schema([*keys, (_BUCKET, pa.int64()), (_START, pa.int64())])

    def ordered_ports(self) -> Collection[str]:
        """See FrameOperator."""
        return (ROWS,) if OFFSET in self.order_by else ()

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the tuples of each output port."""
        assert state is not None, "it has state columns"
        judged = context.materialize(
            "judged",
            lambda: self._judged(inputs, state, context),
        )
        columns = named_columns([WINDOW, *names_of(self.event_columns())])
        ports = {}
        for port in OUTCOMES:
            ports[port] = judged.where(F.col(_OUTCOME) == port).select(*columns)
        errors = judged.where(F.col(_OUTCOME).isNull()).select(*columns)
        ports["errors"] = errors.withColumn(REASON, F.lit("null_ts"))
        return ports

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the keys of the range after the group."""
        starts = self._placed(inputs[ROWS]).select(_START)
        starts = starts.unionByName(state.select(_START))
        start = starts.agg(F.coalesce(F.max(_START), F.lit(0)).alias(_START))
        new = self._placed(outputs["unique"]).where(no_nulls(self.key, self.null_keys))
        columns = named_columns([*self.key, _BUCKET])
        keys = union_all([new.select(*columns), state.select(*columns)])
        kept = keys.join(
            F.broadcast(start),
            F.col(_BUCKET) >= F.col(_START),
        )
        return kept.unionByName(start, allowMissingColumns=True)

    def _judged(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        # Keys of the state are sorted before all tuples, as tuples of the window before the group.
        known = state.withColumn(
            WINDOW,
            F.lit(context.first - 1),
        )
        rows = self._placed(inputs[ROWS]).unionByName(
            known,
            allowMissingColumns=True,
        )
        order = ordering(self.event_columns(), self.order_by)
        rows = with_running_max(rows, _START, "_first", order)
        in_order = Window.partitionBy(*named_columns(self.key)).orderBy(
            WINDOW,
            *order,
        )
        if self.whole_range:
            rows = rows.withColumn(
                _PLACE,
                F.row_number().over(in_order),
            )
            rows, is_first = self._first_in_range(rows)
        else:
            in_bucket = Window.partitionBy(
                *named_columns(self.key),
                _BUCKET,
            )
            in_bucket = in_bucket.orderBy(WINDOW, *order)
            rows = rows.withColumn(
                _PLACE,
                F.row_number().over(in_bucket),
            )
            is_first = F.col(_PLACE) == 1
        outcome = F.when(
            F.col(_BUCKET) < F.col("_first"),
            "expired",
        )
        outcome = outcome.when(
            is_first | ~no_nulls(self.key, self.null_keys),
            "unique",
        )
        outcome = F.when(
            F.col(_BUCKET).isNotNull(),
            outcome.otherwise("duplicate"),
        )
        return rows.where(F.col(WINDOW) >= context.first).withColumn(
            _OUTCOME,
            outcome,
        )

    def _first_in_range(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """Adds whether each tuple is the first of its key, or the first after the previous unique
        tuple has left the range.
        """
        # While the range does not move, only the first tuple of a key can be unique, so only few
        # tuples of a key are collected.
        keys = named_columns(self.key)
        in_range = rows.where(F.col(_BUCKET) >= F.col("_first"))
        at_start = Window.partitionBy(*keys, "_first")
        earliest = F.min(_PLACE).over(at_start)
        candidates = in_range.withColumn("_earliest", earliest).where(
            F.col(_PLACE) == F.col("_earliest")
        )
        collected = F.sort_array(F.collect_list(F.struct(_PLACE, "_first", _BUCKET)))
        nothing = F.struct(
            null_of("bigint").alias("bucket"),
            F.array().cast("array<int>").alias("places"),
        )

        def judge(chosen: Column, one: Column) -> Column:
            bucket = chosen.getField("bucket")
            places = chosen.getField("places")
            is_new = bucket.isNull() | (bucket < one.getField("_first"))
            grown = F.struct(
                one.getField(_BUCKET).alias("bucket"),
                F.array_append(places, one.getField(_PLACE)).alias("places"),
            )
            return F.when(is_new, grown).otherwise(chosen)

        places = F.aggregate(
            collected,
            nothing,
            judge,
            lambda chosen: chosen.getField("places"),
        )
        names = {name: f"_key_{number}" for number, name in enumerate(self.key)}
        first = candidates.groupBy(*keys).agg(places.alias("_places"))
        first = first.select(
            *renamed_columns(names),
            F.explode("_places").alias("_unique"),
        )
        is_same = equal_or_null({**names, _PLACE: "_unique"})
        return rows.join(first, is_same, "left"), F.col("_unique").isNotNull()

    def _placed(self, rows: DataFrame) -> DataFrame:
        """Adds the bucket of each tuple, and the first bucket of the range that ends with this
        bucket.

        Buckets are counted from the first bucket of the first range.
        """
        expire, span = parse_duration(self.expire), parse_duration(self.span)
        start = parse_time(self.reference) - expire
        buckets = -(-expire // span)
        names = [WINDOW, *dict.fromkeys([*names_of(self.event_columns()), *self.order_by])]
        present = [name for name in names if name in rows.columns]
        bucket = floor_div(
            to_us(rows, self.event_at) - start,
            span,
        )
        needed = F.greatest(
            F.col(_BUCKET) - (buckets - 1),
            F.lit(0),
        )
        placed = rows.select(*named_columns(present)).withColumn(
            _BUCKET,
            bucket,
        )
        return placed.withColumn(
            _START,
            F.when(F.col(_BUCKET).isNotNull(), needed),
        )
