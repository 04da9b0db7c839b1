"""Windows over event time, fired when the live system would have fired them (docs/rules/event_time.md).

judged = lateness({"clicks": clicks}, time, end_us=end_us)
hours = event_windows(judged, EventWindows(length="1 h", slide="1 h"), {"clicks": ("count", "*")}, keys=["country"])
hours.fired.show()

A tuple on time lies in no window that has fired: its timestamp is not below the watermark, a fired window's end is not
above it. So a window holds a plain aggregate of the tuples on time, and only the tick that fires it and what is left
for the next piece depend on the watermark.

How it scales: tuples are aggregated by key and pane, the longest stretch of event time whose tuples share their
windows; panes are spread over their windows and aggregated again. Where a tuple lies in few windows, panes would hardly
be fewer than tuples: these are spread at once. No tuple is sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.event_time.firing import END, FIRED, first_ticks
from rewindow.operators.event_time.folds import Fold, fold_of
from rewindow.operators.event_time.lateness import ADDED, ON_TIME, OUTCOME, SMALL, TIMESTAMP, Lateness, matched
from rewindow.operators.event_time.window_settings import EventWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW = ("window_begin_us", "window_end_us", "pane", "kind", "fired_us")
"""Columns of a fired row beside apart, keys and aggregates (E65)."""
TARGET = ("_rw_window_begin_us", "_rw_window_end_us")
"""Where the windows of a late tuple lie: the begin of the first, the end of the last."""
STREAM, PANE, TUPLES, FIRED_UNTIL = STATE = ("stream", "_rw_pane_us", "tuples", "fired_until_us")
"""Columns of the carried state beside apart, keys and parts of aggregates: stream, begin of the pane, how many tuples
it holds, and up to which watermark its windows have fired; null for none."""
BETWEEN = "between_windows"
_BEGIN, _REACHED, _CARRIED = "_begin_us", "_reached_us", "_carried"
FEW_WINDOWS = 4
"""Tuples in so many windows at most are spread over them one by one, in more of them as aggregates of panes."""
_TICKS_APART_US = 1_000_000
"""Ticks that raise the watermark lie hardly closer together in event time."""


@dataclass(frozen=True)
class Windows:
    """Windows that a piece of a recording fired, and what is left.

    Attributes:
        fired: a row per window and key that has tuples: the columns of apart and keys, `window_begin_us BIGINT`,
            `window_end_us BIGINT` (exclusive), `pane INT` (0), `kind STRING` (on_time), `fired_us BIGINT` (the tick
            that fired it, on the arrival clock: it tells the streaming window, E43), and the aggregates.
        state: what the next piece needs (E41); None where the recording has ended, for then nothing is left (E45).
        late: by stream, the late tuples as `lateness` shows them, with the stretch of the windows that they missed.
        between: by stream, the tuples on time that lie between two windows (E20).
    """

    fired: DataFrame
    _judged: Lateness
    _windows: EventWindows
    _panes: DataFrame
    _rows: DataFrame
    _apart: Sequence[str]
    _ended_us: int | None

    @cached_property
    def state(self) -> DataFrame | None:
        """The panes with a window that has not fired."""
        if self._ended_us is not None:
            return None
        return _left(_reached(self._panes, self._judged, self._apart, None), self._windows)

    @cached_property
    def late(self) -> dict[str, DataFrame]:
        """The late tuples."""
        return _late(self._judged, self._windows)

    @cached_property
    def between(self) -> dict[str, DataFrame]:
        """The tuples that are in no window."""
        return _between(self._judged, self._windows)

    def counts(self, *by: str) -> DataFrame:
        """Returns tuples by stream, the columns `by` (of apart and keys) and outcome: what went in, came out (X37).

        Outcomes are `pending_before` and `input`, which together are all others: `on_time` (in a window that has
        fired), `late`, `null_ts`, `far_future`, `between_windows` and `pending_after`. Columns: `stream STRING`, those
        of `by`, `outcome STRING`, `tuples BIGINT`.
        """
        from pyspark.sql import functions as F

        judged = self._judged.counts(*by).drop("late_by_us_max")
        given = judged.withColumn("outcome", F.lit("input"))
        refused = judged.where(F.col("outcome") != ON_TIME)
        columns = [F.col(quoted_column(name)) for name in (STREAM, *by)]
        first, reached = F.col(END), F.col(_REACHED)
        waited = F.col(_CARRIED) & (F.col(FIRED_UNTIL).isNull() | (first > F.col(FIRED_UNTIL)))
        is_new = ~F.col(_CARRIED)
        fires = F.coalesce(first <= reached, F.lit(False))
        outcome = F.when(first.isNull(), BETWEEN).when(fires, ON_TIME).otherwise("pending_after")
        rows = _reached(self._rows, self._judged, self._apart, self._ended_us)
        before = rows.where(waited).select(*columns, F.lit("pending_before").alias("outcome"), TUPLES)
        after = rows.where(waited | is_new).select(*columns, outcome.alias("outcome"), TUPLES)
        every = reduce(lambda one, other: one.unionByName(other), [given, refused, before, after])
        return every.groupBy(STREAM, *by, "outcome").agg(F.sum(TUPLES).alias(TUPLES))


def event_windows(
    judged: Lateness,
    windows: EventWindows,
    aggregates: Mapping[str, tuple[str, str]],
    *,
    keys: Sequence[str] = (),
    state: DataFrame | None = None,
    ended_us: int | None = None,
    apart: Sequence[str] = (),
) -> Windows:
    """Returns the windows that fire: at the first tick whose watermark is not below their end (E28, X35, X36).

    Nothing runs here. Tuples of all streams of `judged` come into the same windows; keys only group inside of them
    (E44), a null key like any other. Windows without tuples never fire (E8).

    Args:
        judged: what `lateness` says; with its `end_us` where the recording is taken in pieces.
        windows: how long they are, and where they begin.
        aggregates: by name, a function and what it is taken of, a column or a SQL expression: `("sum", "price")`.
            `avg`, `count` (of `*` too), `max`, `min` and `sum` are carried as aggregates of panes; `count_distinct`,
            `median`, `stddev` and `variance` make the state carry a row per tuple.
        keys: columns to group by.
        state: `state` of the piece before (E42).
        ended_us: when the recording ended, where this piece is the last: then everything fires (E45, X34). Leave it
            out at the end of a range that is not the end of the recording (E46).
        apart: columns whose values are recordings of their own, as for `lateness`.

    Raises:
        InputError: a column is missing, an aggregate cannot be read, a name is taken, a state is of other windows.
    """
    from pyspark.sql import functions as F

    own = [*apart, *keys]
    _check(judged, aggregates, own)
    fold = fold_of(next(iter(judged.tuples.values())), aggregates)
    tuples = _tuples(judged, windows, fold, own)
    rows = tuples if state is None else tuples.unionByName(_carried(state, tuples))
    rows = rows.withColumn(END, _inside(windows, _first_begin(windows)) + windows.length_us)
    inside = rows.where(F.col(END).isNotNull()) if windows.sampling else rows
    panes = _panes(inside.drop(_CARRIED, END), fold, own)
    many = windows.length_us > windows.slide_us * FEW_WINDOWS
    of_windows = panes if many else inside
    step_us = min(windows.slide_us, _TICKS_APART_US)
    ticks = first_ticks(_ends(judged, windows, state, apart), judged.ticks, step_us, apart)
    if not apart and judged.range_us is not None and judged.range_us // windows.slide_us <= SMALL:
        ticks = F.broadcast(ticks)
    fired = _fired(of_windows, windows, fold, ticks, own, apart, ended_us)
    return Windows(fired, judged, windows, panes, rows, apart, ended_us)


def _check(judged: Lateness, aggregates: Mapping[str, tuple[str, str]], own: Sequence[str]) -> None:
    if not aggregates:
        raise InputError("windows have no aggregate", hint='Name one, such as {"tuples": ("count", "*")}.')
    names = [*own, *WINDOW, *aggregates]
    twice = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if twice:
        raise InputError(f"column {', '.join(twice)} would come twice in what windows return")
    reserved = [name for name in own if name.lower() in STATE]
    if reserved:
        raise InputError(f"key {', '.join(reserved)} has the name of a column of the state", hint="Rename it.")
    for name, frame in judged.tuples.items():
        missing = [column for column in own if column not in frame.columns]
        if missing:
            has = ", ".join(column for column in frame.columns if column not in ADDED)
            raise InputError(f'stream "{name}" has no column {", ".join(missing)}', hint=f"It has {has}.")


def _tuples(judged: Lateness, windows: EventWindows, fold: Fold, own: Sequence[str]) -> DataFrame:
    """Returns the tuples on time as rows of one tuple, with what each adds to the aggregates."""
    from pyspark.sql import functions as F

    of_streams = []
    for name, frame in judged.tuples.items():
        on_time = frame.where(F.col(OUTCOME) == ON_TIME)
        parts = [column.alias(part) for part, column in fold.parts.items()]
        base = [
            F.lit(name).alias(STREAM),
            _pane_of(windows).alias(PANE),
            F.lit(1).cast("bigint").alias(TUPLES),
            F.lit(None).cast("bigint").alias(FIRED_UNTIL),
            F.lit(False).alias(_CARRIED),
        ]
        of_streams.append(on_time.select(*(F.col(quoted_column(column)) for column in own), *base, *parts))
    return reduce(lambda one, other: one.unionByName(other), of_streams)


def _carried(state: DataFrame, tuples: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    carried = state.withColumn(_CARRIED, F.lit(True))
    if set(carried.columns) != set(tuples.columns):
        raise InputError(
            "the state is of other windows: its columns are " + ", ".join(state.columns),
            hint="Pass the state of the same keys and aggregates, or start without one.",
        )
    return carried


def _pane_of(windows: EventWindows) -> Column:
    from pyspark.sql import functions as F

    return F.col(TIMESTAMP) - F.pmod(F.col(TIMESTAMP), F.lit(windows.pane_us))


def _first_begin(windows: EventWindows) -> Column:
    """Returns where the first window that holds a pane begins (E27, E63)."""
    from pyspark.sql import functions as F

    if windows.length_us % windows.slide_us == 0:
        return _last_begin(windows) - windows.length_us + windows.slide_us
    before = F.col(PANE) - windows.length_us
    return before - F.pmod(before, F.lit(windows.slide_us)) + windows.slide_us


def _last_begin(windows: EventWindows) -> Column:
    from pyspark.sql import functions as F

    if windows.pane_us == windows.slide_us:
        return F.col(PANE)
    return F.col(PANE) - F.pmod(F.col(PANE), F.lit(windows.slide_us))


def _inside(windows: EventWindows, value: Column) -> Column:
    """Returns the value for a pane that lies in a window, else null."""
    from pyspark.sql import functions as F

    if windows.slide_us <= windows.length_us:
        return value
    return F.when(_first_begin(windows) <= _last_begin(windows), value)


def _panes(rows: DataFrame, fold: Fold, own: Sequence[str]) -> DataFrame:
    """Returns a row per stream, key and pane where aggregates merge, else the rows as they are."""
    from pyspark.sql import functions as F

    if not fold.merges:
        return rows
    merged = [column.alias(part) for part, column in fold.merged.items()]
    totals = [F.sum(TUPLES).alias(TUPLES), F.max(FIRED_UNTIL).alias(FIRED_UNTIL)]
    return rows.groupBy(*(F.col(quoted_column(name)) for name in own), STREAM, PANE).agg(*totals, *merged)


def _ends(judged: Lateness, windows: EventWindows, state: DataFrame | None, apart: Sequence[str]) -> DataFrame:
    """Returns the ends of windows that may fire; those of late tuples too, as knowing them would cost a join."""
    from pyspark.sql import functions as F

    own = [F.col(quoted_column(name)) for name in apart]
    panes = [frame.select(*own, _pane_of(windows).alias(PANE)) for frame in judged.tuples.values()]
    if state is not None:
        panes.append(state.select(*own, PANE))
    every = reduce(lambda one, other: one.unionByName(other), panes).where(F.col(PANE).isNotNull()).distinct()
    begins = F.explode(_begins(windows)).alias(END)
    ends = every.select(*own, begins).withColumn(END, F.col(END) + windows.length_us)
    return ends.distinct()


def _begins(windows: EventWindows) -> Column:
    from pyspark.sql import functions as F

    step = F.lit(windows.slide_us).cast("bigint")
    return _inside(windows, F.sequence(_first_begin(windows), _last_begin(windows), step))


def _each_begin(windows: EventWindows) -> Column:
    """Returns the begin of the window, or a row for each, of a pane that lies in one."""
    from pyspark.sql import functions as F

    last = _last_begin(windows)
    if windows.slide_us >= windows.length_us:
        return last
    most = -(-windows.length_us // windows.slide_us)
    if most > FEW_WINDOWS or windows.length_us % windows.slide_us:
        return F.explode(_begins(windows))
    return F.explode(F.array(*(last - number * windows.slide_us for number in range(most))))


def _fired(
    rows: DataFrame,
    windows: EventWindows,
    fold: Fold,
    ticks: DataFrame,
    own: Sequence[str],
    apart: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.col(quoted_column(name)) for name in own]
    parts = [F.col(part) for part in fold.parts]
    spread = rows.select(*columns, *parts, FIRED_UNTIL, _each_begin(windows).alias(_BEGIN))
    waiting = F.col(FIRED_UNTIL).isNull() | (F.col(_BEGIN) + windows.length_us > F.col(FIRED_UNTIL))
    results = [column.alias(name) for name, column in fold.results.items()]
    found = spread.where(waiting).groupBy(*columns, _BEGIN).agg(*results)
    found = found.withColumn(END, F.col(_BEGIN) + windows.length_us)
    joined = matched(found, ticks, apart, END, "inner" if ended_us is None else "left")
    fired_us = F.col(FIRED) if ended_us is None else F.coalesce(FIRED, F.lit(ended_us).cast("bigint"))
    about = [
        F.col(_BEGIN).alias("window_begin_us"), F.col(END).alias("window_end_us"), F.lit(0).alias("pane"),
        F.lit(ON_TIME).alias("kind"), fired_us.alias("fired_us"),
    ]  # fmt: skip
    return joined.select(*columns, *about, *(F.col(quoted_column(name)) for name in fold.results))


def _reached(rows: DataFrame, judged: Lateness, apart: Sequence[str], ended_us: int | None) -> DataFrame:
    """Adds the last watermark of the piece to rows; beyond all data where the recording has ended (E45)."""
    from pyspark.sql import functions as F

    if ended_us is not None:
        return rows.withColumn(_REACHED, F.lit(2**63 - 1).cast("bigint"))
    last = F.broadcast(judged.ticks.groupBy(*apart).agg(F.max("watermark_us").alias(_REACHED)))
    if not apart:
        return rows.crossJoin(last)
    same = {name: f"_same_{number}" for number, name in enumerate(apart)}
    on = [F.col(quoted_column(name)).eqNullSafe(F.col(renamed)) for name, renamed in same.items()]
    return rows.join(last.withColumnsRenamed(same), on, "left").drop(*same.values())


def _left(panes: DataFrame, windows: EventWindows) -> DataFrame:
    """Returns the panes with a window that has not fired (E41)."""
    from pyspark.sql import functions as F

    until = F.coalesce(_REACHED, FIRED_UNTIL)
    panes = panes.withColumn(FIRED_UNTIL, until).drop(_REACHED)
    last_end = _last_begin(windows) + windows.length_us
    return panes.where(F.col(FIRED_UNTIL).isNull() | (last_end > F.col(FIRED_UNTIL)))


def _late(judged: Lateness, windows: EventWindows) -> dict[str, DataFrame]:
    ends = (_inside(windows, _first_begin(windows)), _inside(windows, _last_begin(windows)))
    late = {}
    for name, frame in judged.late.items():
        placed = frame.withColumn(PANE, _pane_of(windows))
        late[name] = placed.withColumns({TARGET[0]: ends[0], TARGET[1]: ends[1] + windows.length_us}).drop(PANE)
    return late


def _between(judged: Lateness, windows: EventWindows) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F

    outside = _first_begin(windows) > _last_begin(windows)
    return {
        name: frame.where(F.col(OUTCOME) == ON_TIME).withColumn(PANE, _pane_of(windows)).where(outside).drop(PANE)
        for name, frame in judged.tuples.items()
    }
