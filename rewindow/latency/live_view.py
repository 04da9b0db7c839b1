"""The latency at one moment of a live run, computed from the heartbeats received until then, in the
order of receipt.

An operator's value for a window is computed when its row arrives, and again when a row of that
window arrives later from an upstream operator. The view has the newest value of each operator.

Rules: L19 to L23, L26, L33, L43
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout
from rewindow.latency.paths import UNKNOWN, find_paths
from rewindow.latency.report import Origin, figures
from rewindow.latency.rows import read_statistics
from rewindow.settings.config import LatencyConfig
from rewindow.windows import format_time

_HEARTBEAT = ["received_ms", "sent_ms", "container"]
_ROW = ["window", "node", "end_ms"]


class Value(NamedTuple):
    """An operator's latency, its slowest upstream operator, and the origin of the latency."""

    latency: int = UNKNOWN
    slowest: int = UNKNOWN
    origin: Origin = Origin.UNKNOWN


@dataclass
class _Planner:
    """The state of the planner, which collects the heartbeats of a live run.

    Attributes:
        newest: newest window of each operator that has ended one.
        stored: end times by window and operator.
        values: the values of each operator by window.
        done: newest window that every operator has reported; neither this window nor older ones are
            in `stored`.
    """

    layout: Layout
    settings: LatencyConfig
    newest: dict[int, int] = field(default_factory=dict)
    stored: dict[int, dict[int, int]] = field(default_factory=dict)
    values: dict[int, dict[int, Value]] = field(default_factory=dict)
    done: int = -(1 << 62)

    def receive(self, rows: list[tuple[int, int, int]]) -> None:
        """Adds the rows of one heartbeat: window, operator, end time."""
        for window, n, end_ms in rows:
            self.newest[n] = max(window, self.newest.get(n, window))
            if window > self.done:
                self.stored.setdefault(window, {})[n] = end_ms
        while len(self.stored) > self.settings.windows_kept:
            del self.stored[min(self.stored)]
        for window, n, _ in rows:
            # Downstream operators may have reported the window earlier than this one.
            for one in (n, *self.stored.get(window, ())):
                if one == n or n in self.layout.upstream[one]:
                    self.values.setdefault(one, {})[window] = self.value(one, window)
            if len(self.stored.get(window, ())) == len(self.layout.names):
                self.done = max(self.done, window)
        for window in sorted(self.stored):
            if window > self.done:
                break
            del self.stored[window]

    def value(self, n: int, window: int) -> Value:
        """Returns the value of an operator for a window that it has ended."""
        if window <= 0:
            return Value()
        if self.layout.is_root[n]:
            return Value(0, UNKNOWN, Origin.MEASURED)
        # A window is stored with all rows received for it, or not at all.
        ends = self.stored.get(window)
        best = Value()
        for source in self.layout.upstream[n]:
            ahead = self.newest.get(source, window - 1) - window
            distance_ms = ahead * self.layout.width_ms
            if ends is None:
                share = Value(
                    distance_ms,
                    source,
                    Origin.ESTIMATED,
                )
                is_there = ahead >= 0
            else:
                is_there = source in ends
                measured = max(0, ends[n] - ends[source]) if is_there else 0
                share = Value(
                    measured,
                    source,
                    Origin.MEASURED,
                )
                if distance_ms > max(measured, self.settings.heartbeat_timeout_ms):
                    share = Value(
                        distance_ms,
                        source,
                        Origin.CAPPED,
                    )
            if is_there and (best.slowest == UNKNOWN or share.latency < best.latency):
                best = share
        return best

    def now(self, n: int) -> Value:
        """Returns the newest value of an operator, even if it ended the window long ago."""
        window = self.newest[n]
        value = self.value(n, window)
        before = self.values[n][window]
        # The end times of a complete window are no longer stored. Its value is valid until the
        # distance to the upstream operators exceeds the timeout.
        late = max(before.latency, self.settings.heartbeat_timeout_ms)
        if window <= self.done and value.latency <= late:
            return before
        return value


def live(
    rows: pa.Table,
    graph: LatencyGraph,
    at_ms: int,
    settings: LatencyConfig | None = None,
) -> dict[str, Any]:
    """Returns the latencies that were known at a moment as plain values, see docs/json.md.

    The paths are computed from moving averages. Each operator has its newest value; None if it is
    unknown.

    Args:
        rows: `operator, partition, window_id, ended_at_ms, container, sent_at_ms, received_at_ms`.
        graph: the operators of the run.
        at_ms: the moment, in milliseconds since 1970; rows received later do not count.
        settings: by default those of `[latency]`.

    Raises:
        InputError: no row was received by then, or the rows are wrong, see `read_statistics`.

    Rules: L41, X31
    """
    settings = settings or LatencyConfig()
    layout, every, faults = read_statistics(
        rows,
        graph,
        settings,
        at_ms,
    )
    if not every.num_rows:
        raise InputError("statistics have no row with an end time")
    received = every.filter(pc.field("received_ms") <= at_ms)
    if not received.num_rows:
        span = pc.min_max(every["received_ms"]).as_py()
        raise InputError(
            f"no statistics were received up to {_time(at_ms)}",
            hint=f"The first row was received at {_time(span['min'])}, the last at "
            f"{_time(span['max'])}.",
        )
    planner = _Planner(layout, settings)
    # Only the kept windows affect values and averages. They are counted back from the newest window
    # of the slowest operator.
    newest = received.group_by("node").aggregate([("window", "max")])
    kept = settings.windows_kept + settings.average_samples
    recent = received.filter(pc.field("window") > pc.min(newest["window_max"]).as_py() - kept)
    order = [(name, "ascending") for name in (*_HEARTBEAT, "window")]
    columns = recent.sort_by(order).select(_HEARTBEAT + _ROW).to_pydict().values()
    for _, beat in groupby(zip(*columns, strict=True), key=lambda row: row[:3]):
        planner.receive([row[3:] for row in beat])
    return _summary(planner, at_ms, faults)


def _summary(planner: _Planner, at_ms: int, faults: list[dict[str, Any]]) -> dict[str, Any]:
    layout = planner.layout
    averages = []
    sources = []
    operators = []
    for n, name in enumerate(layout.names):
        values = planner.values.get(n, {})
        value = Value()
        if values:
            value = values[planner.newest[n]] = planner.now(n)
        known = []
        source = UNKNOWN
        for window in sorted(values):
            if values[window].latency != UNKNOWN:
                # A newest value may be unknown because an upstream row is on its way.
                source = values[window].slowest
                known.append(values[window].latency)
        average = figures(np.array(known, dtype=int), planner.settings.average_samples)["latencyMA"]
        averages.append(UNKNOWN if average is None else average)
        sources.append(source)
        operators.append(
            {
                "operator": name,
                "logical": layout.logical[n],
                "window": planner.newest.get(n),
                "latency": None if value.latency == UNKNOWN else value.latency,
                "latencyMA": average,
                "origin": value.origin.name.lower(),
                "slowestUpstream": [*layout.names, None][value.slowest],
            }
        )
    paths = find_paths(
        layout,
        np.array([averages]).T,
        np.array([sources]).T,
    )
    return {
        "at": _time(at_ms),
        **paths.describe(layout, 0),
        "operators": operators,
        "clockFaults": faults,
    }


def _time(at_ms: int) -> str:
    return format_time(at_ms * 1000)
