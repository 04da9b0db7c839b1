"""`play`: sends the tuples of a recorded stream again, each when it is due. Starts no JVM.

A tuple is due at `(its arrival - the first arrival) / speed` after the first one was sent. The
speed applies to every wait in the recording, also to that of a timer that a Heartbeat created. A
tuple that is sent late does not shift the tuples after it, so delays do not add up.

Rules: H14, H51
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.errors import InputError, Interrupted, RangeError, TableError
from rewindow.facts.seals import read_seals, sealed_range
from rewindow.names import did_you_mean
from rewindow.playback.lines import json_lines
from rewindow.playback.report import Delays, PlaybackReport, delays_of
from rewindow.playback.targets import ReaderGone, Receiver
from rewindow.progress.listener import Listener, Silent
from rewindow.sequences import quantity
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.queries import in_order
from rewindow.storage.stream_settings import check_recorded_settings
from rewindow.storage.streams import sealed_streams, stored_grid
from rewindow.windows import (
    Grid,
    WindowRange,
    check_order,
    describe_seconds,
    format_time,
    parse_time,
)

logger = logging.getLogger(__name__)

PART_TUPLES = 20_000
"""Number of tuples that are read and formatted at once; a window with more tuples is one part."""
SEND_TUPLES = 1_000
"""Largest number of tuples that are sent at once. With more, the last one would wait until the
reader has received the first one.
"""
_SAY_S = 10.0
_Between = tuple[int | None, int | None]
"""From (inclusive) and to (exclusive), microseconds of arrival; None means no limit."""


class PlaybackStopped(Interrupted):
    """Raised if the reader has disconnected or the user has stopped the playback.

    Attributes:
        report: report of the tuples sent until then.
        by_reader: whether the reader has disconnected.
    """

    def __init__(
        self,
        primary: str,
        *,
        report: PlaybackReport,
        by_reader: bool = False,
        detail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(primary, detail=detail, hint=hint)
        self.report = report
        self.by_reader = by_reader


class Clock(Protocol):
    """The clock of a playback."""

    def now(self) -> float:
        """Returns the number of seconds since an arbitrary time."""

    def wait_until(self, moment: float) -> None:
        """Returns at a given time, or immediately if it has passed."""


class _MachineClock:
    """The machine's monotonic clock, which is never set back."""

    def now(self) -> float:
        return time.monotonic()

    def wait_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


@dataclass(frozen=True)
class _Part:
    windows: npt.NDArray[np.int64]
    arrived_us: npt.NDArray[np.int64]
    lines: Sequence[bytes]


def play(  # noqa: PLR0913 - each is an option of the verb
    config: Config,
    stream: str,
    target: Receiver,
    *,
    speed: float | None = 1.0,
    first: int | None = None,
    last: int | None = None,
    from_time: str | None = None,
    to_time: str | None = None,
    listener: Listener | None = None,
    clock: Clock | None = None,
) -> PlaybackReport:
    """Sends a recorded or published stream as JSON lines, in its state at the time of the call.

    Args:
        config: current settings.
        stream: its name.
        target: receives the lines, see `rewindow.playback`.
        speed: multiple of the recorded speed; None for as fast as possible.
        first, last: the range, window ids, closed; by default all sealed windows.
        from_time, to_time: the range as times in ISO 8601, half-open: only tuples that arrived in
            it are sent. They override window ids.
        listener: receives the progress.
        clock: by default the machine's clock.

    Raises:
        InputError: the stream was never recorded, or the speed is not above zero.
        RangeError: the range is empty or reversed, or no window in it is sealed.
        TableError: the stream's tuples do not match its seals.
        PlaybackStopped: the reader has disconnected, or the user has stopped the playback; the hint
            shows how to resume.
    """
    if speed is not None and not (speed > 0 and math.isfinite(speed)):
        raise InputError(
            f"speed {speed:g} is out of range: it must be a finite number above 0",
            hint="For twice the recorded speed, use 2; for the maximum speed, use max.",
        )
    listener = listener or Silent()
    clock = clock or _MachineClock()
    if not Table.exists(config.windows_table(stream)):
        raise _not_there(config, stream)
    windows = Table.open(config.windows_table(stream))
    check_recorded_settings(config, stream, windows)
    data = Table.open(config.stream_table(stream))
    grid = stored_grid(windows)
    asked = _asked(stream, windows, grid, (first, last), (from_time, to_time))
    seals = read_seals(windows, asked, table_id=data.id).select(["window_id", "tuples"])
    if not seals.num_rows:
        raise RangeError(
            f'no window of {asked} of stream "{stream}" is sealed',
            hint=f"To see its sealed windows: rewindow streams show {stream}",
        )
    if missing := len(asked) - seals.num_rows:
        logger.warning(
            f"{missing:,} of {quantity(len(asked), 'window')} are not sealed and are skipped"
        )
    report = PlaybackReport(
        stream, asked, missing, tuples=0, speed=speed, recorded_s=0.0, seconds=0.0, delay_s=None
    )
    between = (
        parse_time(from_time) if from_time else None,
        parse_time(to_time) if to_time else None,
    )
    parts = _parts(data, seals, between)
    return _Player(report, target, listener, clock=clock, grid=grid).play(parts)


def _not_there(config: Config, stream: str) -> InputError:
    if stream in config.streams:
        return InputError(
            f'stream "{stream}" is not recorded yet',
            hint=f"Run: rewindow record {stream}",
        )
    there = sealed_streams(config.state / "streams")
    meant = did_you_mean(stream, there)
    known = (
        f"Recorded and published streams: {', '.join(there)}."
        if there
        else "No stream is recorded or published yet."
    )
    return InputError(f'stream "{stream}" is unknown', hint=f"{meant}{known}")


def _asked(
    stream: str,
    windows: Table,
    grid: Grid,
    ids: tuple[int | None, int | None],
    times: tuple[str | None, str | None],
) -> WindowRange:
    first, last = ids
    from_time, to_time = times
    if from_time and to_time:
        check_order(parse_time(from_time), parse_time(to_time))
    first = grid.window(parse_time(from_time)) if from_time else first
    last = grid.window(parse_time(to_time) - 1) if to_time else last
    sealed = sealed_range(windows)
    if sealed is None:
        raise RangeError(
            f'no window of stream "{stream}" is sealed',
            hint=f"Run: rewindow record {stream}",
        )
    first = sealed.first if first is None else first
    last = sealed.last if last is None else last
    if first > sealed.last or last < sealed.first:
        raise RangeError(
            f'window range from {first} to {last} of stream "{stream}" does not overlap the '
            f"sealed windows {sealed}",
            detail=f"Sealed range: {format_time(grid.start_us(sealed.first))} to "
            f"{format_time(grid.end_us(sealed.last))}.",
        )
    return WindowRange(first, last).checked(f'stream "{stream}"')


def _parts(data: Table, seals: pa.Table, between: _Between) -> Iterator[_Part]:
    """Yields the tuples of sealed windows in order. The next part is read while one is sent."""
    with ThreadPoolExecutor(1) as pool:
        ahead = None
        for rows in _cut(seals):
            coming = pool.submit(_read, data, rows, between)
            if ahead is not None:
                yield ahead.result()
            ahead = coming
        if ahead is not None:
            yield ahead.result()


def _cut(seals: pa.Table) -> Iterator[pa.Table]:
    """Yields seals in runs of consecutive windows with about PART_TUPLES tuples."""
    number = np.cumsum(seals["tuples"].to_numpy()) // PART_TUPLES
    begins = np.concatenate(([0], np.flatnonzero(np.diff(number)) + 1, [len(number)]))
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        yield seals.slice(begin, end - begin)


def _read(data: Table, seals: pa.Table, between: _Between) -> _Part:
    windows = WindowRange(seals["window_id"][0].as_py(), seals["window_id"][-1].as_py())
    found = query(
        f"select * from t where window_id between {windows.first} and {windows.last}",
        t=data,
    )
    rows = in_order(found.select(data.schema.names), "window_id", "arrived_at", "offset")
    # Rows are in the order of windows, so the left and right positions of a window's id show how
    # many tuples it has.
    ids = seals["window_id"].to_numpy()
    counts = seals["tuples"].to_numpy()
    windows_of_rows = rows["window_id"].to_numpy()
    actual = np.searchsorted(windows_of_rows, ids, "right") - np.searchsorted(windows_of_rows, ids)
    if (wrong := np.flatnonzero(actual != counts)).size:
        index = wrong[0]
        raise TableError(
            f'window {ids[index]} of stream "{data.path.name}" has {actual[index]} tuples, but '
            f"{counts[index]} were sealed",
            hint="The stream was changed after it was sealed, or is being changed now. Run the "
            "command again, or record the stream again.",
        )
    arrived_us = rows["arrived_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    from_us, to_us = between
    wanted = np.isin(windows_of_rows, ids)
    wanted &= arrived_us >= from_us if from_us is not None else True
    wanted &= arrived_us < to_us if to_us is not None else True
    rows = rows.filter(pa.array(wanted))
    arrived_us = arrived_us[wanted]
    return _Part(rows["window_id"].to_numpy(), arrived_us, json_lines(rows))


class _Player:
    """Sends parts one after the other, each tuple when it is due."""

    def __init__(
        self,
        report: PlaybackReport,
        target: Receiver,
        listener: Listener,
        clock: Clock,
        grid: Grid,
    ) -> None:
        self._report = report
        self._send = target
        self._listener = listener
        self._clock = clock
        self._grid = grid
        self._delays = Delays()
        self._began = self._said = clock.now()
        self._first_us: int | None = None
        self._latest_us = 0
        self._window = report.windows.first
        self._sent_us = -(2**63)

    def play(self, parts: Iterator[_Part]) -> PlaybackReport:
        """Sends all parts and returns the report."""
        try:
            for part in parts:
                self._play(part)
        except ConnectionError:
            raise self._stopped("the reader closed the connection", by_reader=True) from None
        except KeyboardInterrupt:
            raise self._stopped("the command was interrupted") from None
        return self._told()

    def _told(self) -> PlaybackReport:
        paced = self._report.speed is not None
        return replace(
            self._report,
            recorded_s=(self._sent_us - (self._first_us or 0)) / 1e6
            if self._report.tuples
            else 0.0,
            seconds=round(self._clock.now() - self._began, 6),
            delay_s=delays_of(self._delays) if paced else None,
        )

    def _play(self, part: _Part) -> None:
        if not len(part.lines):
            return
        due = self._due(part.arrived_us)
        at = 0
        while at < len(due):
            self._window = int(part.windows[at])
            self._clock.wait_until(due[at])
            end = min(int(np.searchsorted(due, self._clock.now(), "right")), at + SEND_TUPLES)
            try:
                self._send(b"".join(part.lines[at:end]))
            except ReaderGone as gone:
                lengths = np.cumsum(list(map(len, part.lines[at:end])))
                self._count(part, due, at, at + int(np.searchsorted(lengths, gone.taken, "right")))
                raise
            sent = self._count(part, due, at, end)
            at = end
            if sent - self._said >= _SAY_S:
                self._said = sent
                self._say(int(part.arrived_us[end - 1]))

    def _count(self, part: _Part, due: npt.NDArray[np.float64], at: int, end: int) -> float:
        """Counts tuples as sent and returns the current time."""
        sent = self._clock.now()
        if end > at:
            self._delays.add(sent - due[at:end])
            self._sent_us = max(self._sent_us, int(part.arrived_us[at:end].max()))
            self._report = replace(self._report, tuples=self._report.tuples + end - at)
        return sent

    def _due(self, arrived_us: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Returns the times at which tuples are due.

        A tuple that arrived before an earlier one is due at the same time, because time does not go
        back.
        """
        if self._first_us is None:
            self._first_us = int(arrived_us[0])
            self._began = self._clock.now()
            self._latest_us = self._first_us
        rising = np.maximum.accumulate(np.maximum(arrived_us, self._latest_us))
        self._latest_us = int(rising[-1])
        if self._report.speed is None:
            return np.full(len(rising), self._began)
        return self._began + (rising - self._first_us) / (1e6 * self._report.speed)

    def _say(self, arrived_us: int) -> None:
        left = ""
        if self._report.speed is not None:
            end_us = self._grid.end_us(self._report.windows.last)
            seconds = (end_us - arrived_us) / 1e6 / self._report.speed
            left = f", at most {describe_seconds(round(seconds))} left"
        self._listener.line(
            f"{quantity(self._report.tuples, 'tuple')} sent, up to {format_time(arrived_us)}{left}"
        )

    def _stopped(self, why: str, *, by_reader: bool = False) -> PlaybackStopped:
        stream = self._report.stream
        last = self._report.windows.last
        speed = "max" if self._report.speed is None else f"{self._report.speed:g}"
        sent = f"{quantity(self._report.tuples, 'tuple')}, in window {self._window}"
        return PlaybackStopped(
            f'playback of stream "{stream}" ended after {sent}: {why}',
            report=replace(self._told(), is_complete=False),
            by_reader=by_reader,
            hint=f"To continue with that window: rewindow play {stream} --first {self._window} "
            f"--last {last} --speed {speed}. Add --port if the playback used one.",
        )
