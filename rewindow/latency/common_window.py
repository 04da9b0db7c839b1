"""Latency of a run that has ended: every operator's value for the same window (L13 to L18, L24,
L33).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout
from rewindow.latency.paths import UNKNOWN, Paths, count_paths, find_paths
from rewindow.latency.report import (
    MEASURED,
    ORIGINS,
    OWN_END_MISSING,
    UNKNOWN_ORIGIN,
    figures,
    moving_average,
)
from rewindow.latency.rows import Bools, ClockFault, Ints, StatisticsRows, read_statistics
from rewindow.settings.config import LatencyConfig

_PART = 1 << 18
PATHS_MAX = 50
"""Paths that a summary lists, the most frequent."""


@dataclass
class EndedLatency:
    """Latencies of the windows of a run, with a row for each operator and a column for each window.

    Attributes:
        windows: window ids, ascending.
        end_ms: corrected end times, 0 where unknown.
        is_known: whether an end time is known.
        has_started: whether the operator has ended this or an earlier window.
        latency: latencies of operators in ms, UNKNOWN where not known.
        slowest: index of the slowest upstream operator, UNKNOWN without one.
        origin: index in ORIGINS of where the latency comes from.
        paths: critical and longest path of each window.
        negative: differences to an upstream operator that were below 0 and count as 0.
        average_samples: values that a moving average covers.
    """

    layout: Layout
    windows: Ints
    end_ms: Ints
    is_known: Bools
    has_started: Bools
    latency: Ints
    slowest: npt.NDArray[np.int16]
    origin: npt.NDArray[np.int8]
    paths: Paths
    faults: list[ClockFault]
    negative: int
    average_samples: int

    def logical_latency(self) -> dict[str, Ints]:
        """Latencies of the operators of the application (L27).

        To each partition's latency the largest sum over the unifiers after it is added, and the
        greatest of these stands for the operator.
        """
        layout = self.layout
        after: dict[int, Ints] = {}
        found: dict[str, Ints] = {}
        for n in reversed(layout.order):
            name = layout.logical[n]
            value = self.latency[n]
            unifiers = layout.unifiers(n)
            most = np.maximum.reduce([after[one] for one in unifiers]) if unifiers else 0
            if layout.is_unifier(n):
                after[n] = np.maximum(value, 0) + most
                continue
            if unifiers:
                value = np.where(value == UNKNOWN, UNKNOWN, value + most)
            found[name] = np.maximum(found[name], value) if name in found else value
        return found

    @property
    def newest(self) -> int:
        """Column of the newest window that every operator has ended; of the newest of all without
        one.
        """
        complete = np.flatnonzero(self.is_known.all(axis=0))
        return int(complete[-1]) if len(complete) else len(self.windows) - 1

    def summary(self) -> dict[str, Any]:
        """Returns the report as plain values (L28, L41, L42), see docs/json.md; times are
        milliseconds.
        """
        layout = self.layout
        on_path = np.count_nonzero(self.paths.on_path, axis=1)
        operators = []
        for n, name in enumerate(layout.names):
            origins = np.bincount(self.origin[n], minlength=len(ORIGINS)).tolist()
            place = {
                "operator": name,
                "logical": layout.logical[n],
                "container": layout.containers[n],
                "origins": dict(zip(ORIGINS, origins, strict=True)),
                "onCriticalPath": int(on_path[n]),
            }
            operators.append(place | self._figures(self.latency[n]))
        logical = []
        for name, values in sorted(self.logical_latency().items()):
            logical.append({"operator": name} | self._figures(values))
        paths = []
        for path, windows in count_paths(layout, self.paths.on_path)[:PATHS_MAX]:
            paths.append({"criticalPath": path, "windows": windows})
        return {
            **self.window(self.newest),
            "first": int(self.windows[0]),
            "last": int(self.windows[-1]),
            "windows": len(self.windows),
            "cutWindows": int(np.count_nonzero(self.paths.is_cut)),
            "incompleteWindows": int(np.count_nonzero(self.paths.is_incomplete)),
            "application": figures(self.paths.latency),
            "operators": operators,
            "logicalOperators": logical,
            "paths": paths,
            "negativeDifferences": self.negative,
            "clockFaults": list(map(vars, self.faults)),
        }

    def _figures(self, latency: Ints) -> dict[str, Any]:
        known = latency[latency != UNKNOWN]
        return {"latencyMA": moving_average(known, self.average_samples)} | figures(known)

    def window(self, column: int) -> dict[str, Any]:
        """Returns the paths of a window as plain values (L41)."""
        return {"window": int(self.windows[column]), **self.paths.describe(self.layout, column)}

    def table(self) -> pa.Table:
        """Returns a row for each window and operator: `window_id, operator, partition, latency_ms,
        origin, slowest_upstream, on_critical_path`; an unknown latency is null (X31).
        """
        layout = self.layout
        parts = []
        for n, (name, partition) in enumerate(layout.keys):
            count = len(self.windows)
            values = {
                "window_id": self.windows,
                "operator": pa.array([name] * count, pa.string()),
                "partition": np.full(count, partition),
                "latency_ms": pa.array(self.latency[n], mask=self.latency[n] == UNKNOWN),
                "origin": pa.array(np.array(ORIGINS)[self.origin[n]]),
                "slowest_upstream": pa.array(
                    np.array([*layout.names, ""])[self.slowest[n]],
                    mask=self.slowest[n] == UNKNOWN,
                ),
                "on_critical_path": self.paths.on_path[n],
            }
            parts.append(pa.table(values))
        return pa.concat_tables(parts).sort_by("window_id")


def ended(
    rows: pa.Table,
    graph: LatencyGraph,
    settings: LatencyConfig | None = None,
    first: int | None = None,
    last: int | None = None,
) -> EndedLatency:
    """Returns the latencies of a run that has ended, from every end time of every window.

    Of several rows of an operator's window the one received last is taken.

    Args:
        rows: `operator, partition, window_id, ended_at_ms, container, sent_at_ms, received_at_ms`;
            times are milliseconds.
        graph: the operators of the run.
        settings: by default those of `[latency]`.
        first, last: closed range of windows; by default all. Rows of other windows correct clocks.

    Raises:
        InputError: the range has no rows, or they are wrong, see `read_statistics`.
    """
    settings = settings or LatencyConfig()
    found = read_statistics(rows, graph, settings)
    layout = found.layout
    faults = found.faults
    windows, end_ms, is_known = _spread(found)
    # The rows are not needed any more, and they are as large as all results.
    del found
    has_started = np.logical_or.accumulate(is_known, axis=1)
    begin = 0 if first is None else int(np.searchsorted(windows, first))
    end = len(windows) if last is None else int(np.searchsorted(windows, last, "right"))
    if begin >= end:
        raise InputError("statistics have no row with an end time in these windows")
    chosen = slice(begin, end)
    return evaluate(
        layout,
        windows[chosen],
        end_ms[:, chosen],
        is_known[:, chosen],
        has_started[:, chosen],
        faults,
        settings.average_samples,
    )


def _spread(rows: StatisticsRows) -> tuple[Ints, Ints, Bools]:
    """Returns the windows, and by operator and window the end time and whether it is known."""
    windows = np.sort(pa.array(rows.window).unique().to_numpy())
    shape = (len(rows.layout.names), len(windows))
    end_ms = np.zeros(shape, dtype=np.int64)
    is_known = np.zeros(shape, dtype=bool)
    if not _fill(rows, windows, end_ms, is_known):
        # An assignment to a place that comes twice keeps the last value.
        order = np.lexsort((rows.end_ms, rows.sent_ms, rows.received_ms))
        _fill(rows.take(order), windows, end_ms, is_known)
    return windows, end_ms, is_known


def _fill(rows: StatisticsRows, windows: Ints, end_ms: Ints, is_known: Bools) -> bool:
    """Enters end times; returns whether each place got one at most."""
    for first in range(0, len(rows.node), _PART):
        part = slice(first, first + _PART)
        node = rows.node[part]
        column = np.searchsorted(windows, rows.window[part])
        end_ms[node, column] = rows.end_ms[part]
        is_known[node, column] = True
    return int(np.count_nonzero(is_known)) == len(rows.node)


def evaluate(
    layout: Layout,
    windows: Ints,
    end_ms: Ints,
    is_known: Bools,
    has_started: Bools,
    faults: list[ClockFault],
    average_samples: int,
) -> EndedLatency:
    """Returns the latencies that follow from corrected end times."""
    shape = (len(layout.names), len(windows))
    latency = np.full(shape, UNKNOWN, dtype=np.int64)
    slowest = np.full(shape, UNKNOWN, dtype=np.int16)
    origin = np.full(shape, ORIGINS.index(UNKNOWN_ORIGIN), dtype=np.int8)
    negative = 0
    for n in layout.order:
        knows_own = is_known[n]
        if layout.is_root[n]:
            least = np.zeros(shape[1], dtype=np.int64)
            is_there = np.ones(shape[1], dtype=bool)
        else:
            least, slowest[n], below = _least_share(layout.upstream[n], n, end_ms, is_known)
            is_there = slowest[n] != UNKNOWN
            negative += below
        # Before an operator has ended a window, it has no latency.
        started = has_started[n] & (windows > 0)
        slowest[n][~started] = UNKNOWN
        measured = knows_own & is_there & started
        latency[n][measured] = least[measured]
        origin[n][measured] = ORIGINS.index(MEASURED)
        origin[n][~knows_own & is_there & started] = ORIGINS.index(OWN_END_MISSING)
    paths = find_paths(layout, latency, slowest)
    return EndedLatency(
        layout,
        windows,
        end_ms,
        is_known,
        has_started,
        latency,
        slowest,
        origin,
        paths,
        faults,
        negative,
        average_samples,
    )


def _least_share(
    upstream: list[int],
    n: int,
    end_ms: Ints,
    is_known: Bools,
) -> tuple[Ints, npt.NDArray[np.int16], int]:
    """Returns the least time since an upstream operator's end, which one it is, and how many
    differences were negative.

    Without the operator's end time every share is 0, so that the first known upstream operator is
    the slowest (L15 to L18).
    """
    count = end_ms.shape[1]
    least = np.full(count, np.iinfo(np.int64).max)
    slowest = np.full(count, UNKNOWN, dtype=np.int16)
    negative = 0
    for source in upstream:
        difference = end_ms[n] - end_ms[source]
        both = is_known[n] & is_known[source]
        negative += int(np.count_nonzero(both & (difference < 0)))
        difference[~is_known[n]] = 0
        np.maximum(difference, 0, out=difference)
        is_less = is_known[source] & (difference < least)
        least[is_less] = difference[is_less]
        slowest[is_less] = source
    return least, slowest, negative
