"""Event-time windows as an operator: connects the function `event_windows` to input ports,
output ports and state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pydantic import model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.operators.durations import Duration, duration_us
from rewindow.operators.event_time import watermarks as clock
from rewindow.operators.event_time.lateness import Lateness
from rewindow.operators.event_time.operator import EventTimeOperator
from rewindow.operators.event_time_windows import counted, sessions
from rewindow.operators.event_time_windows import late_sessions as changed_sessions
from rewindow.operators.event_time_windows import retriggering as repeats
from rewindow.operators.event_time_windows.aggregates import CALL, MERGING, aggregate_types
from rewindow.operators.event_time_windows.firing import STREAM, WINDOW
from rewindow.operators.event_time_windows.late_windows import TARGET
from rewindow.operators.event_time_windows.settings import (
    AnyWindows,
    CountWindows,
    EventWindows,
    GlobalWindow,
    SessionWindows,
)
from rewindow.operators.event_time_windows.windows import STATE, Windows, event_windows
from rewindow.sequences import excluding, map_values, matching_names
from rewindow.spark.columns import union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART = "_rw_part"
"""Part of the state that a row belongs to: the watermark, or the pending tuples."""
_CLOCK = "clock"
_WAITING = "pane"
_US = pa.int64()
_KINDS = {repeats.IS_LATE: pa.bool_(), changed_sessions.IS_SHOWN: pa.bool_()}
"""Types of state columns that are not whole numbers."""
_TUPLES = re.compile(r"\s*(\d+)\s+tuples?\s*")
GLOBAL = "global"
_TRIGGERS = ("allowed_lateness", "early", "early_tuples", "late", "late_tuples")
_UPDATED = "only_updated_panes"


class AggregateWindows(EventTimeOperator):
    """Aggregates tuples by windows of event time, which fire when the watermark has passed their
    end.

    The port `fired` has a row for each key of a window that fires: keys, `window_begin_us`,
    `window_end_us` (exclusive), `pane`, `kind`, `fired_us`, and the aggregates. The ports `late`
    and `errors` have the same columns as in `SplitLate`; `late` also has the range of the windows
    that a tuple missed. A row of `fired` belongs to the streaming window in which its window fired.
    A correction belongs to the streaming window of the tick that caused it. If a replay ends before
    the recording does, pending windows do not fire. The state has a row for each key and pane,
    session, or window that may fire again.

    The port `counts` has the number of tuples by key, streaming window and outcome:
    `pending_before` and `input` add up to all other outcomes. These are `on_time`, for tuples whose
    first window fired in the streaming window; the outcomes of tuples that enter no window, as for
    `SplitLate`; and `pending_after`. There are no rows for 0 tuples.

    Attributes:
        length: length of a window, a duration such as "1 hour". "100 tuples" creates windows that
            count tuples, see `CountWindows`; "global" creates one window of all tuples, see
            `GlobalWindow`.
        slide: distance of the starts of consecutive windows, of the same kind as `length`; without
            it the windows tumble.
        allowed_lateness: late tuples whose timestamp is at most this duration below the watermark
            correct their windows.
        early: windows that have not fired yet emit their present content at the multiples of this
            duration.
        early_tuples: windows that have not fired yet emit their present content after this number
            of tuples, and its multiples.
        late: windows that have fired emit late tuples at the multiples of this duration; by default
            at the next watermark update.
        late_tuples: windows that have fired emit late tuples after this number of tuples, and its
            multiples.
        accumulation: content of a window that fires again: the new tuples, all tuples, or all
            tuples after a retraction of the previous content.
        only_updated_panes: leave out a firing whose values equal the previous ones.
        gap: creates sessions instead of windows with a length: a session ends when no tuple of the
            key follows for this duration. Sessions may have `allowed_lateness`, but none of the
            other properties from `length` to `only_updated_panes`.
        gap_inclusive: whether a tuple that follows after exactly `gap` belongs to the same session.
        aggregates: by name, one of avg, count, max, min and sum over a column: `{"spent":
            "sum(amount)"}`; `count(*)` counts tuples. Sums of floats depend on the order of
            addition, so use decimals.
        keys: columns to group by; a null key is a key like any other.

    Example::

        hours = AggregateWindows(
            columns=CLICKS, event_at="clicked_at", lag="5 s", length="1 h", keys=["page"],
            aggregates={"clicks": "count(*)"},
        )
        fired = app.add("hours", hours, stream=clicks)["fired"]
        app.output("hours", fired, key=["page", "window_begin_us"])

    Rules: E28, E40, E43, E46, X29, X34, X36, X37
    """

    length: Duration = None
    slide: Duration = None
    allowed_lateness: Duration = "0 s"
    early: Duration = None
    early_tuples: int | None = None
    late: Duration = None
    late_tuples: int | None = None
    accumulation: Literal["discarding", "accumulating", "retracting"] = "retracting"
    only_updated_panes: bool = False
    gap: Duration = None
    gap_inclusive: bool = False
    aggregates: dict[str, str]
    keys: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        self.windows()
        self._check_columns(*self.keys)
        if not self.aggregates:
            raise ValueError('aggregates is empty: set one, such as {"tuples": "count(*)"}')
        for name, text in self.aggregates.items():
            _, argument = self._aggregate(name, text)
            self._check_columns(*([argument] if argument != "*" else []))
            aggregate_types(text, self.columns)
        shown = {*WINDOW, "window_id"}
        cached = {*clock.STATE, *self._waiting(), PART}
        wrong = matching_names(self.aggregates, shown)
        wrong += matching_names(self.keys, shown | cached)
        twice = matching_names(self.aggregates, set(map(str.lower, self.keys)))
        if wrong or twice:
            raise ValueError(
                f"column {', '.join(wrong or twice)} would appear twice in the result or state of "
                "the windows: rename it"
            )
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the ports `fired`, `late`, `errors` and `counts`."""
        fired = [
            ("window_begin_us", _US),
            ("window_end_us", _US),
            ("pane", pa.int32()),
            ("kind", pa.string()),
        ]
        results = map_values(lambda text: aggregate_types(text, self.columns)[0], self.aggregates)
        columns = [*self._key_fields(), *fired, ("fired_us", _US), *results.items()]
        late = [*self._late_port().schema, *dict.fromkeys(TARGET, _US).items()]
        return {
            "fired": OutputPort(pa.schema(columns)),
            "late": OutputPort(pa.schema(late), optional=True),
            "errors": self._errors_port(),
            "counts": self._counts_port(self.keys),
        }

    def state_columns(self) -> pa.Schema:
        """Returns the columns from which the watermark is computed, and the columns of pending
        tuples.

        Rules: E37, E41
        """
        of_clock = [(name, _US) for name in clock.STATE if name != STREAM]
        waiting = [(name, _KINDS.get(name, _US)) for name in self._waiting() if name != STREAM]
        names = [(PART, pa.string()), (STREAM, pa.string())]
        return pa.schema([*names, *of_clock, *self._key_fields(), *waiting, *self._parts()])

    def _waiting(self) -> tuple[str, ...]:
        """Returns the state columns of pending tuples, except keys and parts of aggregates."""
        windows = self.windows()
        if isinstance(windows, SessionWindows):
            return changed_sessions.STATE if windows.allowed_us else sessions.STATE
        if isinstance(windows, CountWindows):
            return counted.STATE
        return STATE if windows.fires_once else repeats.STATE

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the windows that fire, the late tuples, the tuples without a usable timestamp,
        and the counts.
        """
        classified, windows = self._fire(inputs, state, context)
        window = self._window_of("fired_us", context).alias("window_id")
        counts = windows.by_window(partial(self._window_of, context=context), *self.keys)
        return {
            **self._refused(classified, windows.late),
            "fired": windows.fired.select(window, "*"),
            "counts": counts if self.streams else counts.drop(STREAM),
        }

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the state of the watermark and the pending tuples after the group."""
        classified, windows = self._fire(inputs, state, context)
        assert classified.state is not None, "the end of the group is given"
        # At the end of the recording all windows have fired, so no tuple is pending.
        # Rules: E35, E45
        waiting = state.where(F.lit(False)) if windows.state is None else windows.state
        parts = [
            classified.state.select(F.lit(_CLOCK).alias(PART), *clock.STATE),
            waiting.withColumn(PART, F.lit(_WAITING)),
        ]
        return union_all(parts, allow_missing=True)

    def _fire(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> tuple[Lateness, Windows]:
        assert state is not None, "windows are stateful"
        before = state.where(F.col(PART) == _CLOCK).select(*clock.STATE)
        waiting = state.where(F.col(PART) == _WAITING).drop(
            PART,
            *excluding(clock.STATE, (STREAM,)),
        )
        classified = self._classify(inputs, before, context)
        windows = event_windows(
            classified,
            self.windows(),
            self.calls(),
            keys=self.keys,
            state=waiting,
            ended_us=context.ended_us,
            materialize=context.materialize,
        )
        return classified, windows

    def windows(self) -> AnyWindows:
        """Returns the windows that the properties describe.

        Raises:
            ValueError: the properties contradict each other.
        """
        if self.gap is not None:
            self._refuse(
                "session windows (gap is set)",
                "length",
                "slide",
                *_TRIGGERS[1:],
                _UPDATED,
            )
            if self.accumulation != "retracting":
                raise ValueError(
                    "accumulation of session windows (gap is set) must be retracting, not "
                    f"{self.accumulation}"
                )
            return SessionWindows(
                gap=self.gap,
                gap_inclusive=self.gap_inclusive,
                allowed_lateness=self.allowed_lateness,
            )
        if self.gap_inclusive:
            raise ValueError(
                "gap_inclusive applies only to session windows: set gap instead of length"
            )
        if self.length is None:
            raise ValueError(
                "windows have neither length nor gap: set length, or gap for session windows"
            )
        triggers = self.model_dump(include={*_TRIGGERS, "accumulation", _UPDATED})
        if self.length == GLOBAL:
            self._refuse("the global window", "slide")
            return GlobalWindow(**triggers)
        slide = self.length if self.slide is None else self.slide
        length_tuples = _TUPLES.fullmatch(str(self.length))
        slide_tuples = _TUPLES.fullmatch(str(slide))
        if length_tuples and slide_tuples:
            self._refuse("windows with a count of tuples as length", *_TRIGGERS, _UPDATED)
            return CountWindows(length=int(length_tuples[1]), slide=int(slide_tuples[1]))
        if length_tuples or slide_tuples:
            raise ValueError("length and slide must both be counts of tuples or both be durations")
        return EventWindows(length=self.length, slide=slide, **triggers)

    def calls(self) -> dict[str, tuple[str, str]]:
        """Returns the aggregates by name. Each consists of a function and its column, or `*`."""
        return {name: self._aggregate(name, text) for name, text in self.aggregates.items()}

    def _refuse(self, what: str, *names: str) -> None:
        is_unset = {
            "allowed_lateness": not duration_us(self.allowed_lateness),
            _UPDATED: not self.only_updated_panes,
        }
        wrong = [name for name in names if not is_unset.get(name, getattr(self, name) is None)]
        if wrong:
            raise ValueError(f"{what} cannot have {', '.join(wrong)}")

    def _key_fields(self) -> list[Any]:
        return list(map(self.columns.field, self.keys))

    def _parts(self) -> list[tuple[str, pa.DataType]]:
        parts = []
        for number, text in enumerate(self.aggregates.values()):
            _, kinds = aggregate_types(text, self.columns)
            for ending, kind in kinds.items():
                parts.append((f"_part_{number}{ending}", kind))
        return parts

    def _aggregate(self, name: str, text: str) -> tuple[str, str]:
        found = CALL.fullmatch(text.strip())
        if found is None or found[1].lower() not in MERGING:
            raise ValueError(
                f'aggregate "{name}" must be one of {", ".join(MERGING)} over a column, not '
                f'"{text}"'
            )
        return found[1].lower(), found[2].strip()
