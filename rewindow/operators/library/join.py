"""Join and Enrich: combine tuples of two streams that have equal keys.

Rules: E77, E78, O123, X25
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.names import BOOKKEEPING
from rewindow.operators.columns import WINDOW, Columns, to_us
from rewindow.operators.durations import Duration
from rewindow.operators.library.columns import ROWS, ColumnsOperator, check_twice
from rewindow.operators.library.order import (
    OFFSET,
    no_nulls,
    ordering,
    with_running_max,
)
from rewindow.operators.library.spans import SpanningOperator
from rewindow.sequences import map_values, names_of, not_named
from rewindow.spark.columns import equal_or_null, named_columns, null_of, renamed_columns, union_all
from rewindow.spark.functions import F, Window
from rewindow.windows import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEFT: Literal["left"] = "left"
RIGHT: Literal["right"] = "right"
TABLE = "table"
ARRIVED = "arrived_at"
_IS_RIGHT = "_rw_is_right"
_CLOCK = "_rw_clock_us"
_AT = "_at_us"
_NOW = "_now_us"
_LAST = "_last_us"
_PLACE = "_place"
_UNTIL = "_until"


class PairingOperator(ColumnsOperator):
    """An operator with a second input port, whose columns are added to the columns of the first
    port.

    `columns` are the columns of the first port.
    """

    on: Annotated[tuple[str, ...], Field(min_length=1)]
    null_keys: Literal["apart", "equal"] = "apart"
    order_by: tuple[str, ...] = (OFFSET,)

    def other_columns(self) -> pa.Schema:
        """Returns the columns of the second port."""
        raise NotImplementedError

    def check_keys(self) -> None:
        """Rejects keys that are unknown or of different types, and columns that both ports have.

        Raises:
            ValueError: the message names the property and the column.
        """
        self.check_known("on", self.on)
        for name in self.on:
            kind = self.columns.field(name).type
            if name not in self.other_columns().names:
                raise ValueError(f'on: the second input has no column "{name}"')
            other = self.other_columns().field(name).type
            if other != kind:
                raise ValueError(
                    f'on: column "{name}" must have the same type in both inputs, not {kind} and '
                    f"{other}"
                )
        check_twice(
            "on",
            names_of([*self.event_columns(), *self.added_columns()]),
        )

    def added_columns(self) -> list[pa.Field]:
        """Returns the columns of the second port that are added to the output.

        All recorded streams have `arrived_at`. The output has the `arrived_at` of the first port.
        """
        return not_named(
            self.other_columns(),
            {*BOOKKEEPING, *self.on, *self.shared_columns()},
        )

    def shared_columns(self) -> list[str]:
        """Returns `arrived_at` if both ports have it."""
        both = {*self.event_columns().names} & {*self.other_columns().names}
        return [ARRIVED] if ARRIVED in both else []

    def rows_of(
        self,
        frame: DataFrame,
        columns: list[pa.Field],
    ) -> DataFrame:
        """Returns the tuples of an input, with the window, the given columns and the columns of
        `order_by`.
        """
        names = dict.fromkeys([WINDOW, *names_of(columns), *self.order_by])
        return frame.select(*named_columns(name for name in names if name in frame.columns))

    def keys(self) -> list[pa.Field]:
        """Returns the columns of the key."""
        return list(map(self.columns.field, self.on))


class Join(PairingOperator, SpanningOperator):
    """Pairs tuples of the ports `left` and `right` that are equal in the columns `on`.

    Without `expire`, the operator pairs tuples of the same window. With `application_windows`, it
    pairs tuples of the same application window, and emits the pairs in its last window. With
    `expire`, it pairs each tuple with earlier tuples of the other port, and emits the pair in the
    window of the later tuple. A tuple expires when an event time of either port is more than
    `expire` later. A tuple that is already expired when it arrives, or has no event time, has no
    pairs. In a window, tuples of `left` come before those of `right`. The state contains the tuples
    that can still have pairs. The output has the columns of `left`, then those of `right` without
    the key and `arrived_at`. If both have another column of the same name, rename one with a
    `Select`.

    Attributes:
        on: columns of the key, with the same names and types in both inputs.
        expire: event time after which a tuple has no more pairs, such as "1 hour".
        event_at: with `expire`, the event-time column of each port.
        primary: with `expire`, the ports ("left", "right") where a newer tuple replaces the older
            tuple of the same key.
        null_keys: "apart": tuples with null in their key have no pairs; "equal": null equals null.
        order_by: with `expire`, columns of both inputs that order the tuples of a window. By
            default, the order of the recording.
        mark_partial: without `expire`, whether the column `_rw_partial` marks results of
            application windows in which windows are missing.

    Rules: E77, E78, O123
    """

    right_columns: Columns
    expire: Duration = None
    event_at: dict[Literal["left", "right"], str] = Field(default_factory=dict)
    primary: tuple[Literal["left", "right"], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_keys()
        if self.expire is None:
            if self.event_at or self.primary:
                raise ValueError("expire: it must be set if event_at or primary is set")
            return self
        if parse_duration(self.expire) <= 0:
            raise ValueError("expire: it must be above 0")
        if self.mark_partial:
            raise ValueError(
                "mark_partial: it cannot be used with expire, which replaces application windows"
            )
        for side, columns in self._sides().items():
            name = self.event_at.get(side)  # type: ignore[call-overload]
            if name not in columns.names:
                raise ValueError(
                    f'event_at.{side}: the {side} input has no column "{name}"; available '
                    f"columns: {', '.join(columns.names)}"
                )
            kind = columns.field(name).type
            if not pa.types.is_timestamp(kind):
                raise ValueError(
                    f'event_at.{side}: column "{name}" must be a timestamp, not {kind}'
                )
        return self

    def _sides(self) -> dict[str, pa.Schema]:
        shared = map(self.right_columns.field, self.shared_columns())
        right = pa.schema([*self.keys(), *shared, *self.added_columns()])
        return {LEFT: self.event_columns(), RIGHT: right}

    def other_columns(self) -> pa.Schema:
        """Returns the columns of the port `right`."""
        return self.right_columns

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the ports `left` and `right`."""
        return map_values(InputPort, self._sides())

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        columns = [*self.event_columns(), *self.added_columns(), *self.partial_fields()]
        return {"out": OutputPort(pa.schema(columns))}

    def kept_columns(self) -> pa.Schema:
        """Returns the columns of both inputs."""
        clock = [] if self.expire is None else [pa.field(_CLOCK, pa.int64())]
        side = pa.field(_IS_RIGHT, pa.bool_())
        return pa.schema([side, *clock, *self.event_columns(), *self.added_columns()])

    def state_columns(self) -> pa.Schema | None:
        """Returns the columns of the tuples in the state.

        With `expire`, one more row has only the largest event time and the last window.
        """
        if self.expire is None:
            return super().state_columns()
        return pa.schema([(WINDOW, pa.int64()), *self.kept_columns()])

    def ordered_ports(self) -> Collection[str]:
        """See FrameOperator."""
        return (LEFT, RIGHT) if self.expire is not None and OFFSET in self.order_by else ()

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the pairs."""
        results = [WINDOW, *names_of([*self.event_columns(), *self.added_columns()])]
        if self.expire is None:
            rows = self.spanned(inputs, state, context).where(no_nulls(self.on, self.null_keys))
            pairs = self._paired(rows, [WINDOW], [])
            return self.with_partial(
                pairs.select(*named_columns(results)),
                context,
            )
        stored, _ = self._stored(inputs, state)
        pairs = self._paired(
            stored,
            [],
            [WINDOW, _AT, _NOW, _UNTIL],
        )
        left, right = F.col(WINDOW), F.col(f"{WINDOW}_right")
        until, until_right = F.col(_UNTIL), F.col(f"{_UNTIL}_right")
        # In a window, all tuples of `left` are before those of `right`.
        left_first = (left <= right) & (until.isNull() | (until > right))
        left_first &= self._is_current(_AT, f"{_NOW}_right")
        right_first = (right < left) & (until_right.isNull() | (until_right >= left))
        right_first &= self._is_current(f"{_AT}_right", _NOW)
        pairs = pairs.where(left_first | right_first).withColumn(
            WINDOW,
            F.greatest(left, right),
        )
        return pairs.where(F.col(WINDOW) >= context.first).select(*named_columns(results))

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples that can still have pairs."""
        if self.expire is None:
            return super().next_state(
                inputs,
                outputs,
                state,
                context,
            )
        stored, clock = self._stored(inputs, state)
        columns = named_columns([WINDOW, *self.kept_columns().names])
        kept = stored.crossJoin(F.broadcast(clock.withColumnRenamed(_CLOCK, _LAST)))
        kept = kept.where(self._is_current(_AT, _LAST) & F.col(_UNTIL).isNull()).select(*columns)
        clock = clock.withColumn(WINDOW, F.lit(context.last))
        return kept.unionByName(clock, allowMissingColumns=True)

    def _rows(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
    ) -> DataFrame:
        frames = []
        for side, columns in self._sides().items():
            rows = self.rows_of(inputs[side], list(columns))
            frames.append(
                rows.withColumn(
                    _IS_RIGHT,
                    F.lit(side == RIGHT),
                )
            )
        rows = union_all(frames, allow_missing=True)
        names = [WINDOW, *self.kept_columns().names]
        if self.expire is not None:
            rows = rows.withColumn(_CLOCK, null_of("bigint"))
            names += [name for name in self.order_by if name in rows.columns]
        rows = rows.select(*named_columns(dict.fromkeys(names)))
        return rows if state is None else union_all([rows, state], allow_missing=True)

    def _stored(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
    ) -> tuple[DataFrame, DataFrame]:
        """Returns the tuples that have not expired on arrival, and the largest event time."""
        rows = self._rows(inputs, state)
        is_right = F.col(_IS_RIGHT)
        at = F.when(
            is_right,
            to_us(rows, self.event_at[RIGHT]),
        )
        at = at.when(
            ~is_right,
            to_us(rows, self.event_at[LEFT]),
        ).otherwise(F.col(_CLOCK))
        columns = [*self.event_columns(), *self.added_columns()]
        order = [is_right, *ordering(columns, self.order_by)]
        rows = with_running_max(
            rows.withColumn(_AT, at),
            _AT,
            _NOW,
            order,
        )
        clock = rows.agg(F.max(_AT).alias(_CLOCK))
        known = is_right.isNotNull() & no_nulls(self.on, self.null_keys)
        stored = rows.where(known & self._is_current(_AT, _NOW))
        if not self.primary:
            return stored.withColumn(_UNTIL, null_of("bigint")), clock
        # The window in which a newer tuple of the key replaces this one.
        by_side = Window.partitionBy(*named_columns(self.on), is_right).orderBy(
            WINDOW,
            *order,
        )
        is_primary = F.when(is_right, F.lit(RIGHT)).otherwise(F.lit(LEFT)).isin(*self.primary)
        newer = F.when(
            is_primary,
            F.lead(WINDOW).over(by_side),
        )
        return stored.withColumn(_UNTIL, newer), clock

    def _is_current(
        self,
        at: str,
        now: str,
    ) -> Column:
        """Returns whether a tuple with the event time `at` has not expired at the event time
        `now`.
        """
        return F.col(at) >= F.col(now) - parse_duration(self.expire)

    def _paired(
        self,
        rows: DataFrame,
        equal: list[str],
        both: list[str],
    ) -> DataFrame:
        """Returns the pairs of tuples with equal keys.

        Both sides have the columns `both`. In the result, the names of columns of the right side
        end with `_right`.
        """
        added = names_of(self.added_columns())
        left = rows.where(~F.col(_IS_RIGHT)).drop(*added)
        names = {}
        for name in [*equal, *self.on, *both]:
            names[name] = f"{name}_right"
        columns = [*renamed_columns(names), *named_columns(added)]
        right = rows.where(_IS_RIGHT).select(*columns)
        keys = {name: names[name] for name in [*equal, *self.on]}
        if self.null_keys == "apart":
            # Spark can hash keys that are compared by "=".
            conditions = []
            for one, other in keys.items():
                conditions.append(F.col(one) == F.col(other))
        else:
            conditions = equal_or_null(keys)
        return left.join(right, conditions)


class Enrich(PairingOperator):
    """Adds to each tuple the columns of the newest row of the port `table` with the same key. The
    row can be from the tuple's window or from an earlier one. If there is no such row, the columns
    are null.

    A table is a stream of changes: each tuple is the new row of its key. It is recorded or
    published like any other stream, so a replay finds the same rows again. The state contains the
    newest row of each key.

    Attributes:
        on: columns of the key, with the same names and types in both inputs.
        null_keys: "apart": tuples with null in their key get null columns; "equal": null equals
            null.
        order_by: columns that order the rows of the table in a window. By default, the order of the
            recording.
    """

    table_columns: Columns

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_keys()
        return self

    def other_columns(self) -> pa.Schema:
        """Returns the columns of the port `table`."""
        return self.table_columns

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the ports `rows` and `table`."""
        table = InputPort(pa.schema(self._table_fields()))
        return {ROWS: InputPort(self.event_columns()), TABLE: table}

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        return {"out": OutputPort(pa.schema([*self.event_columns(), *self.added_columns()]))}

    def state_columns(self) -> pa.Schema:
        """Returns the columns of the newest row of each key, and its window."""
        return pa.schema([(WINDOW, pa.int64()), *self._table_fields()])

    def ordered_ports(self) -> Collection[str]:
        """See FrameOperator."""
        return (TABLE,) if OFFSET in self.order_by else ()

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples with the added columns."""
        assert state is not None, "it has state columns"
        newest = self._newest(
            inputs,
            state,
            context,
            [WINDOW, *self.on],
        )
        added = named_columns(names_of(self.added_columns()))
        newest = newest.select(
            WINDOW,
            *named_columns(self.on),
            F.struct(*added).alias("_row"),
        )
        rows = self.passed(inputs[ROWS])
        both = union_all(
            [rows.withColumn("_is_tuple", F.lit(True)), newest],
            allow_missing=True,
        )
        by_key = Window.partitionBy(*named_columns(self.on))
        # The rows of the table are first in their window, because null sorts before true.
        so_far = by_key.orderBy(
            WINDOW,
            F.col("_is_tuple").asc_nulls_first(),
        )
        found = F.last("_row", ignorenulls=True).over(so_far)
        found = F.when(
            no_nulls(self.on, self.null_keys),
            found,
        )
        both = both.withColumn("_row", found).where("_is_tuple")
        columns = named_columns([WINDOW, *names_of(self.event_columns())])
        for field in self.added_columns():
            columns.append(F.col("_row").getField(field.name).alias(field.name))
        return both.select(*columns)

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the newest row of each key."""
        newest = self._newest(inputs, state, context, self.on)
        return newest.select(*named_columns(self.state_columns().names))

    def _newest(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
        by: tuple[str, ...] | list[str],
    ) -> DataFrame:
        """Returns the newest row of the table for each value of the columns `by`."""
        table = self.rows_of(
            inputs[TABLE],
            self._table_fields(),
        )
        rows = union_all([table, state], allow_missing=True)
        order = [F.col(WINDOW), *ordering(self._table_fields(), self.order_by)]
        descending = [column.desc() for column in order]
        newest = Window.partitionBy(*named_columns(by)).orderBy(*descending)
        return rows.withColumn(
            _PLACE,
            F.row_number().over(newest),
        ).where(F.col(_PLACE) == 1)

    def _table_fields(self) -> list[pa.Field]:
        return [*self.keys(), *self.added_columns()]
