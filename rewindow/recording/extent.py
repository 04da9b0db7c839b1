"""How far a recording seals (W40): to a time that was given, else to the newest tuple's time; its window stays open."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.recording.stream import StreamTables
from rewindow.recording.tuples import REASON
from rewindow.windows import WindowRange, format_time, parse_time


@dataclass(frozen=True)
class Newest:
    """The newest tuple of a source that is not of the future.

    Attributes:
        arrived_us, window: its arrival and its window, None without a tuple.
        future: tuples whose arrival is still to come. They tell nothing about how far the stream is.
    """

    arrived_us: int | None
    window: int | None
    future: int


@dataclass(frozen=True)
class Extent:
    """How far recordings of a stream seal."""

    name: str
    stream: StreamConfig

    def given(self, sealed_to: str | None) -> int | None:
        """Returns the last window that ends at or before the time that was given, None if none was.

        Raises:
            InputError: the time is in the future.
        """
        text = sealed_to or self.stream.sealed_to
        if text is None:
            return None
        bound_us = parse_time(text)
        if bound_us > _now_us():
            raise InputError(
                f'stream "{self.name}" cannot be sealed to {format_time(bound_us)}, which is in the future',
                hint="Tuples may still arrive in windows that have not ended.",
            )
        return self._ended_before(bound_us)

    def newest(self, tuples: DataFrame) -> Newest:
        """Returns the newest tuple, and how many are of the future."""
        now_us, arrived_us = _now_us(), F.unix_micros("arrived_at")
        row = tuples.where(F.col("window_id").isNotNull()).agg(
            F.max(F.when(arrived_us <= now_us, arrived_us)), F.count_if(arrived_us > now_us)
        )
        newest_us, future = row.collect()[0]
        return Newest(newest_us, None if newest_us is None else self.stream.grid.window(newest_us), future)

    def last(self, newest: Newest, tables: StreamTables, given: int | None, end: bool) -> int | None:
        """Returns the last window to seal, None if there is none.

        Args:
            newest: the newest tuple of the source.
            tables: the stream; one that has ended is sealed no further.
            given: last window before the time that was given.
            end: whether the stream ends with its newest tuple, or at the given time if that is later.

        Raises:
            InputError: it is said to have ended and has tuples of the future.
        """
        if newest.future and end:
            raise InputError(
                f'stream "{self.name}" has {newest.future:,} tuples of the future, so it has not ended',
                hint="Look at its expression arrived_at, or seal it only to a time: --sealed-to.",
            )
        if tables.end is not None:
            return tables.end
        if end and newest.window is not None:
            return newest.window if given is None else max(newest.window, given)
        if given is not None or newest.arrived_us is None:
            return given
        return self._ended_before(newest.arrived_us - self.stream.seal_after_us)

    def count(self, tuples: DataFrame, tables: StreamTables, last: int | None) -> dict[str, Any]:
        """Returns numbers of tuples and windows: `first` and `last` are to be sealed, `open_...` stay open."""
        now_us = _now_us()
        window = F.col("window_id")
        sealed = F.lit(False) if tables.last is None else window <= F.lit(tables.last)
        inside = F.lit(False) if last is None else window <= F.lit(last)
        open_window = F.when(~sealed & ~inside & (F.unix_micros("arrived_at") <= now_us), window)
        row = tuples.agg(
            F.count_if(F.col(REASON).isNotNull()).alias("malformed"),
            F.count_if(sealed).alias("sealed"),
            F.count_if(~sealed & inside).alias("new"),
            F.count_if(~sealed & ~inside).alias("waiting"),
            F.min(window).alias("first"),
            F.min(open_window).alias("open_first"),
            F.max(open_window).alias("open_last"),
            F.count(open_window).alias("open"),
        )
        found = dict(row.collect()[0].asDict())
        return found | {"first": found["first"] if tables.last is None else tables.last + 1, "last": last}

    def open_windows(self, facts: dict[str, Any]) -> str:
        """Returns what a person should know of windows that hold tuples and are not sealed, from `count`."""
        windows = WindowRange(facts["open_first"], facts["open_last"])
        which = f"window {windows.first} is" if len(windows) == 1 else f"windows {windows} are"
        end = format_time(self.stream.grid.end_us(windows.last))
        return (
            f"{which} open, as more may arrive: {facts['open']:,} tuples wait there. Later tuples seal them; so does,"
            f" from {end} on, `rewindow record {self.name} --sealed-to {end}`, or, if the stream has ended,"
            f" `rewindow record {self.name} --end`"
        )

    def _ended_before(self, t_us: int) -> int:
        grid = self.stream.grid
        return (t_us - grid.origin_us) // grid.width_us - 1


def _now_us() -> int:
    return time.time_ns() // 1000
