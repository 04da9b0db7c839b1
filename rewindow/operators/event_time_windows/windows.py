"""Windows over event time, which fire at the same instant as in the live system.

Example:
    classified = lateness({"clicks": clicks}, time, end_us=end_us)
    windows = EventWindows(length="1 h", slide="1 h")
    hours = event_windows(classified, windows, {"clicks": ("count", "*")}, keys=["country"])
    hours.fired.show()

A tuple on time is in no window that has fired: its timestamp is not below the watermark, and a
fired window's end is not above it. So a window is a plain aggregate of the tuples on time, and only
the tick that fires it and the remaining state depend on the watermark.

Tuples are aggregated by key and pane, the longest stretch of event time whose tuples are in the
same windows. Panes are copied into their windows and aggregated again. If a tuple is in few
windows, there would be hardly fewer panes than tuples, so the tuples themselves are copied. No
tuple is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.operators.event_time.lateness import (
    ADDED,
    ON_TIME,
    OUTCOME,
    Lateness,
    Materialize,
    cached,
    matched,
)
from rewindow.operators.event_time_windows import counted, sessions
from rewindow.operators.event_time_windows import late_sessions as changed
from rewindow.operators.event_time_windows import retriggering as repeats
from rewindow.operators.event_time_windows.aggregates import AggregateSpec, aggregate_spec
from rewindow.operators.event_time_windows.firing import (
    BEGIN,
    CARRIED,
    END,
    FIRED,
    FIRED_UNTIL,
    REACHED,
    STREAM,
    TUPLES,
    WINDOW,
    check_state,
    fired_at,
    firing_columns,
    first_fired,
    first_ticks,
    reached,
)
from rewindow.operators.event_time_windows.grid import (
    FEW_WINDOWS,
    PANE,
    begins,
    each_begin,
    first_begin,
    inside,
    last_begin,
    pane_of,
)
from rewindow.operators.event_time_windows.late_windows import BETWEEN, late_tuples, tuples_between
from rewindow.operators.event_time_windows.settings import (
    AnyWindows,
    CountWindows,
    EventWindows,
    GlobalWindow,
    SessionWindows,
)
from rewindow.operators.event_time_windows.tuple_accounting import tuple_accounting
from rewindow.sequences import excluding, matching_names, repeated_names
from rewindow.spark.columns import aliased, bigint, named_columns, or_false, union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATE = (STREAM, PANE, TUPLES, FIRED_UNTIL)
"""Columns of the carried state in addition to `recording_keys`, keys and parts of aggregates:
stream, start of the pane, number of its tuples, and the watermark up to which its windows have
fired; null if none has.
"""
_TICKS_APART_US = 1_000_000
"""Assumed minimal distance, in event time, of ticks that raise the watermark."""


@dataclass(frozen=True)
class Windows:
    """The windows that fired in a piece of a recording, and the remaining state.

    Attributes:
        fired: a row per firing of a window and key that has tuples: the columns of `recording_keys`
            and keys, `window_begin_us BIGINT`, `window_end_us BIGINT` (exclusive; both null for the
            global window), `pane INT` (number of the firing of a window, from 0; for windows that
            count tuples, the number of the window), `kind STRING` (on_time; early, late,
            retraction), `fired_us BIGINT` (instant on the arrival clock, which decides the
            streaming window), and the aggregates.
        state: rows that the next piece needs; None if the recording has ended, because nothing is
            then pending.
        late: by stream, the late tuples as in `Lateness.late`, with the range of the windows that
            they missed.
        between: by stream, the tuples on time that are between two windows.

    Rules: E20, E41, E43, E45
    """

    fired: DataFrame
    _classified: Lateness
    _windows: AnyWindows
    _rows: DataFrame
    _first_fired_tuples: Callable[[], DataFrame]
    _left: Callable[[], DataFrame]
    _apart: Sequence[str]
    _ended_us: int | None

    @cached_property
    def state(self) -> DataFrame | None:
        """The rows that the next piece needs; None if the recording has ended."""
        return None if self._ended_us is not None else self._left()

    @cached_property
    def late(self) -> dict[str, DataFrame]:
        """The late tuples, by stream."""
        return late_tuples(self._classified, self._windows)

    @cached_property
    def between(self) -> dict[str, DataFrame]:
        """The tuples on time, by stream, that are in no window."""
        return tuples_between(self._classified, self._windows)

    def by_window(self, window_of: Callable[[str], Column], *by: str) -> DataFrame:
        """Returns `counts` for each streaming window, see `tuple_accounting`.

        The tuples need a column `window_id`.

        Args:
            window_of: returns the streaming window of a column of instants on the arrival clock, in
                microseconds.
            by: columns of `recording_keys` and keys.
        """
        return tuple_accounting(
            self._classified,
            self._windows,
            self._first_fired_tuples(),
            window_of,
            by,
        )

    def counts(self, *by: str) -> DataFrame:
        """Returns the number of tuples for each stream, outcome and value of the columns `by`.

        `by` can name recording keys and keys. The outcomes `pending_before` and `input` add up to
        all others: `on_time` (in a window that has fired), `late`, `null_ts`, `far_future`,
        `between_windows` and `pending_after`. Columns: `stream STRING`, the columns `by`, `outcome
        STRING`, `tuples BIGINT`.

        Rules: E30, X37
        """
        # The sums are equal by construction: every tuple is counted once as pending or input and
        # once as an outcome. `END` is null for tuples between two windows.
        classified = self._classified.counts(*by).drop("late_by_us_max")
        given = classified.withColumn("outcome", F.lit("input"))
        refused = classified.where(F.col("outcome") != ON_TIME)
        columns = named_columns((STREAM, *by))
        first = F.col(END)
        waited = F.col(CARRIED) & (F.col(FIRED_UNTIL).isNull() | (first > F.col(FIRED_UNTIL)))
        is_new = ~F.col(CARRIED)
        fires = or_false(first <= F.col(REACHED))
        outcome = F.when(first.isNull(), BETWEEN).when(fires, ON_TIME).otherwise("pending_after")
        rows = reached(
            self._rows,
            self._classified.ticks,
            self._apart,
            ended_us=self._ended_us,
        )
        before = rows.where(waited).select(
            *columns,
            F.lit("pending_before").alias("outcome"),
            TUPLES,
        )
        after = rows.where(waited | is_new).select(
            *columns,
            outcome.alias("outcome"),
            TUPLES,
        )
        every = union_all([given, refused, before, after])
        return every.groupBy(*columns, "outcome").agg(F.sum(TUPLES).alias(TUPLES))


def event_windows(
    classified: Lateness,
    windows: AnyWindows,
    aggregates: Mapping[str, tuple[str, str]],
    *,
    keys: Sequence[str] = (),
    state: DataFrame | None = None,
    ended_us: int | None = None,
    recording_keys: Sequence[str] = (),
    materialize: Materialize | None = None,
) -> Windows:
    """Returns the windows that fire. Each fires at the first tick whose watermark is not below its
    end.

    The call itself runs no query. Tuples of all streams of `classified` are in the same windows, in
    any order. Keys only group tuples within windows, and a null key is a key like any other.
    Windows without tuples never fire.

    Args:
        classified: the result of `lateness`; with its `end_us` if the recording is processed in
            pieces.
        windows: length and slide of the windows; or settings of sessions, of windows that count
            tuples, or of the global window.
        aggregates: by name, a function and its argument, a column or a SQL expression: `("sum",
            "price")`. For `avg`, `count` (of `*` too), `max`, `min` and `sum` the state has
            aggregates of panes; for `count_distinct`, `median`, `stddev` and `variance` it has a
            row per tuple.
        keys: columns to group by.
        state: `state` of the previous piece.
        ended_us: end of the recording, if this piece is the last; all windows then fire. Omit it at
            the end of a range that is not the end of the recording.
        recording_keys: columns whose values are separate recordings, as for `lateness`.
        materialize: as for `lateness`; it caches aggregates of the tuples, so that the tuples are
            read once.

    Raises:
        InputError: a column is missing, an aggregate is invalid, a name is duplicate, or the state
            belongs to other windows.

    Rules: E8, E28, E32, E42, E44 to E46, X34 to X36
    """
    own = [*recording_keys, *keys]
    _check(classified, aggregates, own)
    aggregate = aggregate_spec(next(iter(classified.tuples.values())), aggregates)
    if isinstance(windows, SessionWindows):
        return _sessions(
            classified,
            windows,
            aggregate,
            own=own,
            state=state,
            ended_us=ended_us,
            recording_keys=recording_keys,
            materialize=materialize,
        )
    if isinstance(windows, CountWindows):
        return _counted(
            classified,
            windows,
            aggregate,
            own,
            state,
            ended_us,
            recording_keys,
            materialize,
        )
    if isinstance(windows, GlobalWindow) or not windows.fires_once:
        return _repeated(
            classified,
            windows,
            aggregate,
            own,
            state,
            ended_us,
            recording_keys,
            materialize,
        )
    # Windows that fire once: tuples are aggregated to panes, panes to windows, and each window gets
    # the tick that fires it. If ticks and windows are few, a broadcast join finds the ticks;
    # otherwise `first_ticks` sorts them together with the ends, in blocks.
    tuples = _tuples(classified, windows, aggregate, own)
    rows = tuples if state is None else tuples.unionByName(check_state(state, tuples.columns))
    rows = rows.withColumn(END, inside(windows, first_begin(windows)) + windows.length_us)
    placed = rows.where(F.col(END).isNotNull()) if windows.sampling else rows
    panes = cached(
        materialize,
        "panes",
        _panes(placed.drop(CARRIED, END), aggregate, own),
    )
    many = windows.length_us > windows.slide_us * FEW_WINDOWS or materialize is not None
    of_windows = panes if many else placed
    found = _found(of_windows, windows, aggregate, own)
    if (
        not recording_keys
        and classified.clock.has_few_ticks()
        and classified.clock.is_few(windows.slide_us)
    ):
        found = fired_at(
            found,
            classified.ticks,
            windows.slide_us,
            phase_us=windows.length_us % windows.slide_us,
        )
    else:
        ends = (
            _ends(classified, windows, state, recording_keys=recording_keys)
            if materialize is None
            else _ends_of(panes, windows, recording_keys)
        )
        ticks = first_ticks(
            ends,
            classified.ticks,
            min(windows.slide_us, _TICKS_APART_US),
            recording_keys=recording_keys,
        )
        found = matched(found, ticks, recording_keys, on=END, how="left")
    fired = _fired(found, aggregate, own, ended_us=ended_us)

    def left() -> DataFrame:
        return _left(reached(panes, classified.ticks, recording_keys, ended_us=None), windows)

    def first_fired_tuples() -> DataFrame:
        ends = panes.withColumn(END, inside(windows, first_begin(windows)) + windows.length_us)
        return first_fired(
            ends,
            classified.ticks,
            min(windows.slide_us, _TICKS_APART_US),
            recording_keys,
            ended_us,
        )

    return Windows(
        fired,
        classified,
        windows,
        _rows=rows,
        _first_fired_tuples=first_fired_tuples,
        _left=left,
        _apart=recording_keys,
        _ended_us=ended_us,
    )


def _sessions(
    classified: Lateness,
    windows: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
    ended_us: int | None,
    recording_keys: Sequence[str],
    materialize: Materialize | None,
) -> Windows:
    if windows.allowed_us:
        aggregate.check_merges()
        rows = cached(
            materialize,
            "sessions",
            changed.changed_rows(
                classified,
                windows,
                aggregate,
                own=own,
                state=state,
                recording_keys=recording_keys,
                ended_us=ended_us,
            ),
        )
        fired = changed.fired_changed(rows, windows, aggregate, own=own)
        left = partial(
            changed.left_changed,
            rows,
            classified.ticks,
            windows,
            aggregate,
            own,
            recording_keys,
        )
        once_each = changed.waiting_changed(rows, own)
        return Windows(
            fired,
            classified,
            windows,
            _rows=once_each,
            _first_fired_tuples=lambda: once_each,
            _left=left,
            _apart=recording_keys,
            _ended_us=ended_us,
        )
    rows = cached(
        materialize,
        "sessions",
        sessions.session_rows(classified, windows, aggregate, own=own, state=state),
    )
    left = partial(
        sessions.left_sessions,
        rows,
        classified.ticks,
        aggregate,
        own,
        recording_keys,
    )
    fired = sessions.fired_sessions(
        rows,
        classified,
        windows,
        aggregate=aggregate,
        own=own,
        recording_keys=recording_keys,
        ended_us=ended_us,
    )
    return _until_fired(
        fired,
        rows,
        classified,
        windows,
        step_us=min(windows.gap_us, _TICKS_APART_US),
        left=left,
        recording_keys=recording_keys,
        ended_us=ended_us,
    )


def _counted(
    classified: Lateness,
    windows: CountWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
    ended_us: int | None,
    recording_keys: Sequence[str],
    materialize: Materialize | None,
) -> Windows:
    rows = cached(
        materialize,
        "counted",
        counted.counted_rows(
            classified,
            windows,
            aggregate,
            own=own,
            state=state,
            recording_keys=recording_keys,
            ended_us=ended_us,
        ),
    )
    left = partial(counted.left_counted, rows, windows, aggregate, own)
    fired = counted.fired_counted(
        rows,
        classified,
        windows,
        aggregate=aggregate,
        own=own,
        recording_keys=recording_keys,
        ended_us=ended_us,
    )
    first_fired_tuples = partial(
        counted.first_fired_counted,
        rows,
        fired,
        windows,
        own,
    )
    return Windows(
        fired,
        classified,
        windows,
        _rows=rows,
        _first_fired_tuples=first_fired_tuples,
        _left=left,
        _apart=recording_keys,
        _ended_us=ended_us,
    )


def _repeated(
    classified: Lateness,
    windows: EventWindows | GlobalWindow,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
    ended_us: int | None,
    recording_keys: Sequence[str],
    materialize: Materialize | None,
) -> Windows:
    """Returns windows that may fire more than once."""
    rows = cached(
        materialize,
        "shown",
        repeats.pane_rows(classified, windows, aggregate, own=own, state=state),
    )
    emit_at = repeats.emit_at_rows(
        rows,
        classified,
        windows,
        aggregate=aggregate,
        own=own,
        recording_keys=recording_keys,
        ended_us=ended_us,
    )
    left = partial(
        repeats.left_rows,
        emit_at,
        classified.ticks,
        windows,
        aggregate,
        own,
        recording_keys,
    )
    fired = repeats.fired_rows(emit_at, windows, aggregate, own=own)
    if isinstance(windows, GlobalWindow):
        fired = fired.withColumns(dict.fromkeys(WINDOW[:2], bigint(None)))
    return _until_fired(
        fired,
        rows,
        classified,
        windows,
        step_us=min(windows.slide_us, _TICKS_APART_US),
        left=left,
        recording_keys=recording_keys,
        ended_us=ended_us,
    )


def _until_fired(
    fired: DataFrame,
    rows: DataFrame,
    classified: Lateness,
    windows: EventWindows | GlobalWindow | SessionWindows,
    *,
    step_us: int,
    left: Callable[[], DataFrame],
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> Windows:
    """Returns windows whose tuples are pending until the first tick that fires one of their
    windows.
    """
    first_fired_tuples = partial(
        first_fired,
        rows,
        classified.ticks,
        step_us,
        recording_keys,
        ended_us,
    )
    return Windows(
        fired,
        classified,
        windows,
        _rows=rows,
        _first_fired_tuples=first_fired_tuples,
        _left=left,
        _apart=recording_keys,
        _ended_us=ended_us,
    )


def _check(
    classified: Lateness,
    aggregates: Mapping[str, tuple[str, str]],
    own: Sequence[str],
) -> None:
    if not aggregates:
        raise InputError(
            "aggregates is empty",
            hint='Pass at least one, such as {"tuples": ("count", "*")}.',
        )
    twice = sorted(set(repeated_names([*own, *WINDOW, *aggregates])))
    if twice:
        raise InputError(
            f"column {', '.join(twice)} would appear twice in the result of the windows",
            hint="Rename the key or the aggregate.",
        )
    reserved = matching_names(own, STATE)
    if reserved:
        raise InputError(
            f"key {', '.join(reserved)} has a name that the state of the windows uses",
            hint="Rename the key.",
        )
    for name, frame in classified.tuples.items():
        missing = excluding(own, frame.columns)
        if missing:
            has = ", ".join(excluding(frame.columns, ADDED))
            raise InputError(
                f'stream "{name}" has no column {", ".join(missing)}',
                hint=f"Available columns: {has}.",
            )


def _tuples(
    classified: Lateness,
    windows: EventWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns one row per tuple on time, with its contribution to each aggregate."""
    of_streams = []
    for name, frame in classified.tuples.items():
        on_time = frame.where(F.col(OUTCOME) == ON_TIME)
        parts = aliased(aggregate.parts)
        base = [
            F.lit(name).alias(STREAM),
            pane_of(windows).alias(PANE),
            bigint(1).alias(TUPLES),
            bigint(None).alias(FIRED_UNTIL),
            F.lit(False).alias(CARRIED),
        ]
        of_streams.append(on_time.select(*named_columns(own), *base, *parts))
    return union_all(of_streams)


def _panes(rows: DataFrame, aggregate: AggregateSpec, own: Sequence[str]) -> DataFrame:
    """Combines the rows of each stream, key and pane if aggregates can be merged; otherwise returns
    the rows unchanged.
    """
    if not aggregate.merges:
        return rows
    merged = aliased(aggregate.merged)
    totals = [F.sum(TUPLES).alias(TUPLES), F.max(FIRED_UNTIL).alias(FIRED_UNTIL)]
    return rows.groupBy(*named_columns(own), STREAM, PANE).agg(
        *totals,
        *merged,
    )


def _ends(
    classified: Lateness,
    windows: EventWindows,
    state: DataFrame | None,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the ends of the windows that may fire.

    The windows of late tuples are included, because a join would be needed to exclude them.
    """
    own = named_columns(recording_keys)
    panes = []
    for frame in classified.tuples.values():
        panes.append(frame.select(*own, pane_of(windows).alias(PANE)))
    if state is not None:
        panes.append(state.select(*own, PANE))
    every = union_all(panes).where(F.col(PANE).isNotNull())
    return _ends_of(every, windows, recording_keys)


def _ends_of(
    panes: DataFrame,
    windows: EventWindows,
    recording_keys: Sequence[str],
) -> DataFrame:
    own = named_columns(recording_keys)
    every = panes.select(*own, PANE).distinct()
    ends = every.select(*own, F.explode(begins(windows)).alias(END)).withColumn(
        END,
        F.col(END) + windows.length_us,
    )
    return ends.distinct()


def _found(
    rows: DataFrame,
    windows: EventWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns the windows that have not fired before, with their aggregates: `BEGIN`, `END`."""
    columns = named_columns(own)
    parts = list(map(F.col, aggregate.parts))
    spread = rows.select(
        *columns,
        *parts,
        FIRED_UNTIL,
        each_begin(windows).alias(BEGIN),
    )
    waiting = F.col(FIRED_UNTIL).isNull() | (F.col(BEGIN) + windows.length_us > F.col(FIRED_UNTIL))
    results = aliased(aggregate.results)
    found = spread.where(waiting).groupBy(*columns, BEGIN).agg(*results)
    return found.withColumn(END, F.col(BEGIN) + windows.length_us)


def _fired(
    found: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns the windows that a tick or the end of the recording fires.

    Rules: E45
    """
    columns = named_columns(own)
    if ended_us is None:
        found = found.where(F.col(FIRED).isNotNull())
    fired_us = F.col(FIRED) if ended_us is None else F.coalesce(FIRED, bigint(ended_us))
    about = firing_columns(
        F.col(BEGIN),
        F.col(END),
        F.lit(0),
        kind=F.lit(ON_TIME),
        fired_us=fired_us,
    )
    return found.select(
        *columns,
        *about,
        *named_columns(aggregate.results),
    )


def _left(panes: DataFrame, windows: EventWindows) -> DataFrame:
    """Returns the panes that are in a window that has not fired.

    Rules: E41
    """
    until = F.coalesce(REACHED, FIRED_UNTIL)
    panes = panes.withColumn(FIRED_UNTIL, until).drop(REACHED)
    last_end = last_begin(windows) + windows.length_us
    return panes.where(F.col(FIRED_UNTIL).isNull() | (last_end > F.col(FIRED_UNTIL)))
