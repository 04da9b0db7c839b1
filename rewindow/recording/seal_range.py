"""Decides up to which window a recording seals.

A recording seals up to a given time. Without one, it seals up to the newest tuple, whose window
stays open.

Rules: W40
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from rewindow.errors import InputError
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.sources.source import SourceContents
from rewindow.recording.stream import StreamTables
from rewindow.settings.config import StreamConfig
from rewindow.windows import WindowRange, format_time, parse_time


@dataclass(frozen=True)
class RecordingCounts:
    """The numbers of a source's tuples by what the recording does with them.

    Attributes:
        malformed: rows from which no tuple could be made.
        sealed: tuples of windows that were sealed before.
        new: tuples of the windows that are sealed now.
        waiting: tuples of windows that are not sealed yet.
        first, last: windows to seal; none if `last` is less than `first`, or either is None.
        open: tuples of windows that stay open, except those of the future; `open_first`,
            `open_last`: these windows.
    """

    malformed: int
    sealed: int
    new: int
    waiting: int
    first: int | None
    last: int | None
    open: int = 0
    open_first: int | None = None
    open_last: int | None = None

    @property
    def windows(self) -> WindowRange | None:
        """The windows to seal; None if there are none."""
        if self.first is None or self.last is None or self.last < self.first:
            return None
        return WindowRange(self.first, self.last)


@dataclass(frozen=True)
class SealRange:
    """Computes up to which window the recordings of a stream seal."""

    name: str
    stream: StreamConfig

    def given(self, sealed_to: str | None) -> int | None:
        """Returns the last window that ends at or before the given time; None if no time was given.

        Raises:
            InputError: the time is in the future.
        """
        text = sealed_to or self.stream.sealed_to
        if text is None:
            return None
        bound_us = parse_time(text)
        if bound_us > _now_us():
            raise InputError(
                f'stream "{self.name}" cannot be sealed to {format_time(bound_us)}: this time is '
                "in the future",
                detail="Tuples may still arrive in windows that have not ended.",
                hint="Use an earlier time in --sealed-to, or in sealed_to of rewindow.toml. "
                "Without a time, windows up to the newest tuple are sealed.",
            )
        return self._ended_before(bound_us)

    def by_source(self, given: int | None, contents: SourceContents) -> int | None:
        """Returns the given last window.

        If none is given, returns the last window in which the source will have no more tuples, if
        the source knows that.
        """
        if given is not None or contents.complete_to_us is None:
            return given
        return self._ended_before(contents.complete_to_us)

    def newest_window(self, arrivals: ArrivalCounts) -> int | None:
        """Returns the window of the newest tuple that is not in the future; None if there is no
        such tuple.
        """
        newest_us = arrivals.newest_arrival_us
        return None if newest_us is None else self.stream.grid.window(newest_us)

    def last(
        self,
        arrivals: ArrivalCounts,
        ended: int | None,
        given: int | None,
        end: bool,
    ) -> int | None:
        """Returns the last window to seal; None if there is none.

        Args:
            arrivals: counts of the source.
            ended: last window of a stream that has ended; no later window is sealed.
            given: last window before the given time.
            end: whether the stream ends with its newest tuple, or at the given time if that is
                later.

        Raises:
            InputError: `end` is given although the stream has tuples of the future.
        """
        if arrivals.future and end:
            raise InputError(
                f'stream "{self.name}" cannot end: {arrivals.future:,} tuples have arrival '
                "timestamps in the future",
                hint="Check the stream's setting arrived_at, or seal windows up to a time: "
                "--sealed-to.",
            )
        if ended is not None:
            return ended
        newest_us = arrivals.newest_arrival_us
        newest = self.newest_window(arrivals)
        if end and newest is not None:
            return newest if given is None else max(newest, given)
        if given is not None or newest_us is None:
            return given
        return self._ended_before(newest_us - self.stream.seal_after_us)

    def count(
        self,
        arrivals: ArrivalCounts,
        tables: StreamTables,
        last: int | None,
    ) -> RecordingCounts:
        """Returns the counts of a recording that seals all windows up to `last`."""
        # Every tuple counts once: in a window sealed before, in one that this run seals, or in one
        # that waits for a later run.
        ids = arrivals.windows
        sealed = ids <= tables.last if tables.last is not None else np.zeros(len(ids), bool)
        inside = ids <= last if last is not None else np.zeros(len(ids), bool)
        waiting = ~sealed & ~inside
        stay_open = ids[waiting & (arrivals.present > 0)]
        first = int(ids[0]) if len(ids) else None
        if tables.last is not None:
            first = tables.last + 1
        return RecordingCounts(
            arrivals.malformed,
            int(arrivals.tuples[sealed].sum()),
            int(arrivals.tuples[~sealed & inside].sum()),
            waiting=int(arrivals.tuples[waiting].sum()),
            first=first,
            last=last,
            open=int(arrivals.present[waiting].sum()),
            open_first=int(stay_open[0]) if len(stay_open) else None,
            open_last=int(stay_open[-1]) if len(stay_open) else None,
        )

    def open_windows(self, counts: RecordingCounts) -> str:
        """Returns a text about windows that have tuples and are not sealed.

        Its argument is the result of `count`.
        """
        assert counts.open_first is not None and counts.open_last is not None, (
            "asked where tuples are open"
        )
        windows = WindowRange(counts.open_first, counts.open_last)
        which = f"windows {self.stream.grid.describe(windows)} are"
        if len(windows) == 1:
            which = f"window {self.stream.grid.describe(windows.first)} is"
        end = format_time(self.stream.grid.end_us(windows.last))
        return (
            f"{which} open, because more tuples may arrive: {counts.open:,} tuples wait. Later "
            f"tuples seal the open windows. To seal them after {end}: `rewindow record "
            f"{self.name} --sealed-to {end}`; if the stream has ended: `rewindow record "
            f"{self.name} --end`"
        )

    def _ended_before(self, t_us: int) -> int:
        grid = self.stream.grid
        return (t_us - grid.origin_us) // grid.width_us - 1


def _now_us() -> int:
    return time.time_ns() // 1000
