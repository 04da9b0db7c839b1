"""Gap filling as an operator: connects `fill_gaps` to an input port, two output ports and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pydantic import ValidationError, model_validator

from rewindow.application import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.application.error_tuples import DETAIL, EMITTED, REASON
from rewindow.names import quoted_column
from rewindow.operators.columns import WINDOW, Columns, to_us
from rewindow.operators.durations import Duration, duration_us
from rewindow.operators.event_time.lateness import BAD_TYPE, FAR_FUTURE, NULL_TS, refused_because
from rewindow.operators.event_time.timestamp_checks import is_shrunk
from rewindow.operators.filling.carried import (
    carried_gaps,
    carried_nulls,
    carried_rows,
    closing_window,
    state_names,
    state_of,
)
from rewindow.operators.filling.function import check_columns
from rewindow.operators.filling.settings import FillRules, refuse_later_rows
from rewindow.operators.filling.values import (
    AT,
    COUNTS,
    FILLED_PREFIX,
    METHODS,
    POINT,
    PROVENANCE,
    SOURCES,
    TS,
    filled_column,
    make_rows,
    outliers,
    timestamp,
    with_places,
    with_provenance,
)
from rewindow.operators.setting_errors import refusal
from rewindow.sequences import names_of, not_named
from rewindow.spark.columns import named_columns, null_of
from rewindow.spark.functions import F
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOT_CARRIED = ("window_id", "attempt", "offset")
_ADDED = pa.schema([
    ("_rw_is_made", pa.bool_()), ("_rw_made_rows", pa.int64()), ("_rw_gap_id", pa.string()),
    ("_rw_gap_is_open", pa.bool_()), ("_rw_methods", pa.string()), ("_rw_before_us", pa.int64()),
    ("_rw_after_us", pa.int64()), ("_rw_sources", pa.string()),
])  # fmt: skip


class FillGaps(FrameOperator):
    """Creates the missing rows of each key, in the window that closes the gap.

    All tuples are passed on. A gap extends from the newest row of a key to the next one, across any
    number of windows; the state has the rows of earlier windows that are needed. A tuple that is
    not newer than all tuples of its key in earlier windows closes no gap and is not a source, and a
    row that was created for it remains. Without `from_time` a key starts at its first row. The end
    of a replay's range closes no gap; `to_time` does, in the window that contains it.

    The nulls of a column with `treat_null_as_missing` are filled from earlier rows only, by the
    methods constant, forward, or seasonal.

    The port `out` has the stream's columns and those of `fill_gaps`, with maps as JSON; a created
    row has the arrival of the tuple that closed its gap. The port `errors` reports tuples that are
    passed on but are not a source: `null_key`, `null_ts`, `far_future`, `bad_type` (a number in a
    wrong unit). It also reports, as `emitted`, tuples with a value out of bounds, which remain a
    source for other columns.

    Attributes:
        columns: those of the stream.
        event_at: column of the event timestamp.
        step: a row of each key is expected in each step, a duration such as "1 hour"; with a zone,
            days, weeks or months, such as "1 month".
        zone: time zone of calendar steps, or of the opening hours.
        hours: rows are expected only during these opening hours, such as "09:30-16:00".
        weekdays: days with opening hours, such as "mon-fri" or ["mon", "wed"]; by default all.
        closed: dates without opening hours, such as ["2024-12-25"].
        keys: columns that identify the source of a row; a tuple with a null key passes, and is not
            filled.
        fill: a method for each column, by name or as a table with `method` and further settings.
        from_time: start of the range to fill, as ISO 8601 text; by default a key starts at its
            first row.
        to_time: end of the range to fill, exclusive, as ISO 8601 text.
        expected_keys: keys that must appear, a list of values for each; needs `from_time` and
            `to_time`.
        origin: instant from which steps are counted, as ISO 8601 text; by default 1970-01-01 UTC.
        max_rows: a gap with more rows gets one row, which has the number of rows that it
            represents.
        unit: unit of a whole number in `event_at`.
        max_ahead: a tuple whose timestamp is ahead of its arrival by more than this duration closes
            no gap, and neither does one that would be close to its arrival in a larger unit; null
            disables the checks.
        arrived_at: column of the arrival.
        look_back: largest distance of a source before a created row, a duration; by default sources
            may be any rows from `from_time` on.

    Example:
        fill = FillGaps(
            columns=WEATHER, event_at="at", step="1 h", keys=("origin",), fill={"temp": "linear"}
        )
        app.output("filled", app.add("fill", fill, stream=app.input("weather")), key=[])

    Rules: G34 to G36, X34
    """

    columns: Columns
    event_at: str
    step: Any
    zone: str | None = None
    hours: str | None = None
    weekdays: Any = ()
    closed: tuple[Any, ...] = ()
    keys: tuple[str, ...] = ()
    fill: dict[str, Any] = {}
    from_time: Any = None
    to_time: Any = None
    expected_keys: tuple[tuple[Any, ...], ...] = ()
    origin: Any = 0
    max_rows: int = 1_000_000
    unit: Literal["us", "ms", "s"] = "us"
    max_ahead: Duration = "1 day"
    arrived_at: str = "arrived_at"
    look_back: Duration = None

    @model_validator(mode="after")
    def _check_properties(self) -> Self:
        settings = self.rules()
        names = names_of(self._carried())
        _ = self.max_ahead_us
        refuse_later_rows(settings.nulls)
        if self.arrived_at not in names:
            raise ValueError(
                f"the stream has no column {self.arrived_at}; available columns: {', '.join(names)}"
            )
        if self.arrived_at in (self.event_at, *self.fill):
            raise ValueError(
                f"column {self.arrived_at} is the arrival and cannot be event_at or filled: a "
                "created row has the arrival of the tuple that closes its gap"
            )
        if self.expected_keys and (self.from_time is None or self.to_time is None):
            raise ValueError(
                "expected_keys needs from_time and to_time, the range in which a key without "
                "tuples is filled"
            )
        taken = []
        for name in names:
            if name.lower() in _ADDED.names or name.lower().startswith(FILLED_PREFIX):
                taken.append(name)
        if taken:
            raise ValueError(
                f"FillGaps adds a column {', '.join(taken)}, but the input already has this "
                "column: rename it upstream"
            )
        from pyspark.sql.pandas.types import from_arrow_schema

        types = {}
        for field in from_arrow_schema(pa.schema(self._carried())):
            types[field.name] = field.dataType.simpleString()
        check_columns(types, settings)
        return self

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns one port, `stream`."""
        return {"stream": InputPort(pa.schema(self._carried()))}

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the ports `out` and `errors`."""
        carried = self._carried()
        return {
            "out": OutputPort(pa.schema([*carried, *_ADDED, *self._filled()])),
            "errors": OutputPort(pa.schema(carried), error=True),
        }

    def state_columns(self) -> pa.Schema:
        """Returns keys, timestamp, grid point and source columns.

        The state has one row per key, and more rows for seasonal values.
        """
        columns = pa.schema(self._carried())
        keys = map(columns.field, self.keys)
        values = map(columns.field, state_names(columns.names, self.rules()))
        return pa.schema([*keys, (TS, pa.int64()), (POINT, pa.int64()), *values])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns all tuples and the created rows on `out`, and the tuples that cannot be a source
        on `errors`.
        """
        settings = self.rules()
        frame = self._frame(inputs["stream"])
        closing = closing_window(settings, context.grid)
        rows = self._rows(frame, state, context.first, closing)
        gaps = carried_gaps(
            rows,
            settings,
            context.windows,
            grid=context.grid,
            closing=closing,
        )
        is_time = dict(frame.dtypes)[self.arrived_at].startswith("timestamp")
        arrival = F.timestamp_micros(AT) if is_time else F.col(AT)
        made = make_rows(
            gaps,
            rows,
            frame,
            settings,
            {WINDOW: F.col(WINDOW), self.arrived_at: arrival},
        )
        recorded = frame
        names = [*frame.columns, *PROVENANCE, *map(filled_column, settings.nulls)]
        if settings.nulls:
            recorded = carried_nulls(
                self._marked(frame),
                state,
                rows,
                settings=settings,
                windows=context.windows,
                closing=closing,
            )
        out = (
            with_provenance(recorded)
            .select(*map(quoted_column, names))
            .unionByName(made, allowMissingColumns=True)
        )
        out = out.withColumns({METHODS: F.to_json(METHODS), SOURCES: F.to_json(SOURCES)})
        return {"out": out, "errors": self._refused(frame)}

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the rows that later windows need.

        The rows depend only on the inputs, so they are the same in every run.
        """
        settings = self.rules()
        frame = self._frame(inputs["stream"])
        closing = closing_window(settings, context.grid)
        return state_of(self._rows(frame, state, context.first, closing), settings)

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state, updated with the tuples that were emitted in skipped windows.

        The next gap of a key starts after them.
        """
        if "out" not in outputs:
            return state
        kept = self._frame(outputs["out"].where(~F.col("_rw_is_made")))
        return state_of(self._rows(kept, state, windows.first, None), self.rules())

    @property
    def max_ahead_us(self) -> int | None:
        """The largest accepted distance, in microseconds, of a timestamp ahead of its arrival; None
        for no limit.
        """
        return None if self.max_ahead is None else duration_us(self.max_ahead)

    def _frame(self, stream: DataFrame) -> DataFrame:
        return stream.select(WINDOW, *named_columns(names_of(self._carried())))

    def _rows(
        self,
        frame: DataFrame,
        state: DataFrame | None,
        first: int,
        closing: int | None,
    ) -> DataFrame:
        return carried_rows(
            self._marked(frame).where(COUNTS),
            state,
            self.rules(),
            first=first,
            closing=closing,
        )

    def _marked(self, frame: DataFrame) -> DataFrame:
        """Returns all tuples with their grid points. Tuples with an implausible timestamp do not
        count as sources.
        """
        placed = with_places(frame, self.rules(), names_of(self._carried()))
        placed = placed.withColumn(AT, to_us(frame, self.arrived_at))
        return placed.withColumn(COUNTS, F.col(COUNTS) & self._unbelieved().isNull())

    def _unbelieved(self) -> Column:
        """Returns the reason why the timestamp `TS` of a tuple is implausible for its arrival `AT`;
        null if it is plausible.
        """
        if self.max_ahead_us is None:
            return null_of("string")
        return F.when(F.col(TS) - F.col(AT) > self.max_ahead_us, FAR_FUTURE).when(
            F.expr(is_shrunk(TS, AT)),
            BAD_TYPE,
        )

    def _refused(self, frame: DataFrame) -> DataFrame:
        """Returns the tuples that are not a source or have a value out of bounds, with a reason and
        a detail.
        """
        rules = self.rules()
        unbelieved = self._unbelieved()
        timed = frame.withColumns({TS: timestamp(frame, rules), AT: to_us(frame, self.arrived_at)})
        reason = F.when(F.col(TS).isNull(), NULL_TS)
        for key in self.keys:
            reason = reason.when(F.col(quoted_column(key)).isNull(), "null_key")
        reason = reason.when(unbelieved.isNotNull(), unbelieved).when(
            outliers(rules).isNotNull(),
            EMITTED,
        )
        detail = F.when(unbelieved.isNotNull(), refused_because(F.col(AT), TS)).otherwise(
            self._detail()
        )
        return (
            timed.withColumns({REASON: reason, DETAIL: detail})
            .where(F.col(REASON).isNotNull())
            .drop(TS, AT)
        )

    def _detail(self) -> Column:
        """Returns a text that lists the columns whose values are out of bounds."""
        return F.concat(
            F.lit("value is below min_value or above max_value: "),
            F.array_join(outliers(self.rules()), ", "),
        )

    def rules(self) -> FillRules:
        """Returns the gap-filling settings that follow from the properties."""
        try:
            return FillRules(
                event_at=self.event_at,
                step=self.step,
                zone=self.zone,
                hours=self.hours,
                weekdays=self.weekdays,
                closed=self.closed,
                keys=self.keys,
                columns=self.fill,
                from_time=self.from_time,
                to_time=self.to_time,
                expected_keys=self.expected_keys,
                origin=self.origin,
                max_rows=self.max_rows,
                unit=self.unit,
                look_back=self.look_back,
            )
        except ValidationError as error:
            raise refusal("gap filling", error, FillRules) from error

    def _filled(self) -> list[Any]:
        """Returns the columns that hold the values of recorded nulls."""
        fields = []
        for name in self.rules().nulls:
            fields.append(pa.field(filled_column(name), self.columns.field(name).type))
        return fields

    def _carried(self) -> list[Any]:
        return not_named(self.columns, _NOT_CARRIED)
