"""Latency while a run is live, as of one moment: the heartbeats received until then, one after the
other (L19 to L23, L26, L33, L43).

An operator's value for a window is computed when its row comes in, and again when an upstream
operator's row of that window follows. A view takes each operator's newest value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout
from rewindow.latency.paths import UNKNOWN, Paths, find_paths
from rewindow.latency.report import (
    CAPPED,
    ESTIMATED,
    MEASURED,
    UNKNOWN_ORIGIN,
    moving_average,
)
from rewindow.latency.rows import ClockFault, StatisticsRows, read_statistics
from rewindow.settings.config import LatencyConfig
from rewindow.windows import format_time


class Value(NamedTuple):
    """An operator's latency, its slowest upstream operator, and where the latency comes from."""

    latency: int
    slowest: int
    origin: str


_UNKNOWN = Value(UNKNOWN, UNKNOWN, UNKNOWN_ORIGIN)


@dataclass
class LiveLatency:
    """The live view of a moment.

    Attributes:
        window: newest window of each operator, None before its first.
        newest: newest value of each operator.
        average: its moving average, UNKNOWN without a known value.
        paths: critical and longest path by moving averages, in arrays of one column. Where the
            newest value is unknown, as an upstream row is on its way, they use the newest known.
    """

    at_ms: int
    layout: Layout
    window: list[int | None]
    newest: list[Value]
    average: list[int]
    paths: Paths
    faults: list[ClockFault]

    def summary(self) -> dict[str, Any]:
        """Returns the view as plain values (L41), see docs/json.md; times are milliseconds."""
        layout = self.layout
        operators = []
        for n, value in enumerate(self.newest):
            known = value.latency != UNKNOWN
            slowest = value.slowest != UNKNOWN
            operators.append(
                {
                    "operator": layout.names[n],
                    "logical": layout.logical[n],
                    "container": layout.containers[n],
                    "window": self.window[n],
                    "latency": value.latency if known else None,
                    "latencyMA": None if self.average[n] == UNKNOWN else self.average[n],
                    "origin": value.origin,
                    "slowestUpstream": layout.names[value.slowest] if slowest else None,
                }
            )
        return {
            "at": format_time(self.at_ms * 1000),
            **self.paths.describe(layout, 0),
            "operators": operators,
            "clockFaults": list(map(vars, self.faults)),
        }


@dataclass
class _Planner:
    """What the planner of a live run knows.

    Attributes:
        window: newest window of each operator that has ended one.
        stored: the end times kept, by window and operator.
        values: the values of each operator by window.
        done: newest window that every operator has reported; no older one is stored any more.
    """

    layout: Layout
    settings: LatencyConfig
    window: dict[int, int] = field(default_factory=dict)
    stored: dict[int, dict[int, int]] = field(default_factory=dict)
    values: dict[int, dict[int, Value]] = field(default_factory=dict)
    done: int | None = None

    def receive(self, rows: list[tuple[int, int, int]]) -> None:
        """Takes the rows of one heartbeat: window, operator, end time."""
        for window, n, end_ms in rows:
            self.window[n] = max(window, self.window.get(n, window))
            if self.done is None or window > self.done:
                self.stored.setdefault(window, {})[n] = end_ms
        while len(self.stored) > self.settings.windows_kept:
            del self.stored[min(self.stored)]
        for window, n, _ in rows:
            for operator in (n, *self._readers(window, n)):
                self.values.setdefault(operator, {})[window] = self._value(operator, window)
        for window in {window for window, *_ in rows}:
            if len(self.stored.get(window, ())) == len(self.layout.names):
                self.done = window if self.done is None else max(self.done, window)
        if self.done is not None:
            for window in [window for window in self.stored if window <= self.done]:
                del self.stored[window]

    def newest(self, n: int) -> Value:
        """Returns the value of an operator now, however long ago it ended a window."""
        if n not in self.window:
            return _UNKNOWN
        window = self.window[n]
        if window in self.stored:
            return self._value(n, window)
        estimate = self._estimate(n, window)
        if self.done is None or window > self.done or self.layout.is_root[n]:
            return estimate
        # Its window was complete, so that the value from then is as good as any, until others are
        # further away than the timeout.
        before = self.values[n][window]
        late = max(before.latency, self.settings.heartbeat_timeout_ms)
        return estimate if estimate.latency > late else before

    def _readers(self, window: int, n: int) -> Iterator[int]:
        """Yields the operators that have ended a window before its row of an upstream operator
        came in.
        """
        for reader in self.stored.get(window, ()):
            if n in self.layout.upstream[reader]:
                yield reader

    def _value(self, n: int, window: int) -> Value:
        ends = self.stored.get(window)
        if window <= 0:
            return _UNKNOWN
        if self.layout.is_root[n]:
            return Value(0, UNKNOWN, MEASURED)
        if ends is None:
            return self._estimate(n, window)
        best = _UNKNOWN
        for source in self.layout.upstream[n]:
            if source not in ends:
                continue
            share = Value(max(0, ends[n] - ends[source]), source, MEASURED)
            distance_ms = (self.window[source] - window) * self.layout.width_ms
            if distance_ms > max(share.latency, self.settings.heartbeat_timeout_ms):
                share = Value(distance_ms, source, CAPPED)
            if best.slowest == UNKNOWN or share.latency < best.latency:
                best = share
        return best

    def _estimate(self, n: int, window: int) -> Value:
        """Returns the least distance to an upstream operator that is not behind (L20)."""
        if self.layout.is_root[n]:
            return Value(0, UNKNOWN, MEASURED)
        best = _UNKNOWN
        for source in self.layout.upstream[n]:
            ahead = self.window.get(source, window - 1) - window
            distance_ms = ahead * self.layout.width_ms
            if ahead >= 0 and (best.slowest == UNKNOWN or distance_ms < best.latency):
                best = Value(distance_ms, source, ESTIMATED)
        return best


def live(
    rows: pa.Table,
    graph: LatencyGraph,
    at_ms: int,
    settings: LatencyConfig | None = None,
) -> LiveLatency:
    """Returns the latencies that were known at a moment.

    Args:
        rows: `operator, partition, window_id, ended_at_ms, container, sent_at_ms, received_at_ms`.
        graph: the operators of the run.
        at_ms: the moment, in milliseconds since 1970; rows received later do not count.
        settings: by default those of `[latency]`.

    Raises:
        InputError: nothing was received by then; the rows are wrong, see `read_statistics`.
    """
    settings = settings or LatencyConfig()
    every = read_statistics(rows, graph, settings)
    found = every.take(every.received_ms <= at_ms)
    if not len(found.node):
        when = format_time(at_ms * 1000)
        hint = ""
        if len(every.node):
            first = format_time(int(every.received_ms.min()) * 1000)
            last = format_time(int(every.received_ms.max()) * 1000)
            hint = f"The first row was received at {first}, the last at {last}."
        raise InputError(f"no statistics were received up to {when}", hint=hint)
    layout = found.layout
    planner = _Planner(layout, settings)
    for heartbeat in _heartbeats(_recent(found, settings)):
        planner.receive(heartbeat)
    newest = []
    slowest = []
    average = []
    for n in range(len(layout.names)):
        value = planner.newest(n)
        values = planner.values.get(n, {})
        if n in planner.window:
            values[planner.window[n]] = value
        known = []
        source = UNKNOWN
        for window in sorted(values):
            if values[window].latency != UNKNOWN:
                known.append(values[window].latency)
                source = values[window].slowest
        mean = moving_average(np.array(known, dtype=np.int64), settings.average_samples)
        newest.append(value)
        slowest.append(source)
        average.append(UNKNOWN if mean is None else mean)
    paths = find_paths(
        layout,
        np.array(average)[:, None],
        np.array(slowest)[:, None],
    )
    windows = [planner.window.get(n) for n in range(len(layout.names))]
    return LiveLatency(at_ms, layout, windows, newest, average, paths, found.faults)


def _recent(rows: StatisticsRows, settings: LatencyConfig) -> StatisticsRows:
    """Returns the rows that the view depends on.

    Older windows than those that are kept, counted from the operator that is furthest behind,
    decide neither a value nor an average.
    """
    newest = np.full(len(rows.layout.names), rows.window.max())
    present = np.unique(rows.node)
    for n in present:
        newest[n] = rows.window[rows.node == n].max()
    kept = settings.windows_kept + settings.average_samples
    return rows.take(rows.window > int(newest.min()) - kept)


def _heartbeats(rows: StatisticsRows) -> Iterator[list[tuple[int, int, int]]]:
    """Yields the rows of each heartbeat, in order of receipt."""
    order = np.lexsort((rows.window, rows.container, rows.sent_ms, rows.received_ms))
    ordered = rows.take(order)
    listed = zip(
        ordered.received_ms.tolist(),
        ordered.sent_ms.tolist(),
        ordered.container.tolist(),
        ordered.window.tolist(),
        ordered.node.tolist(),
        ordered.end_ms.tolist(),
        strict=True,
    )
    for _, group in groupby(listed, key=lambda row: row[:3]):
        yield [row[3:] for row in group]
