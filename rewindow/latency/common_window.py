"""The latency of a run that has ended.

All operators are evaluated for the same window.

Rules: L13 to L18, L24, L33
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout
from rewindow.latency.paths import UNKNOWN, Indices, Paths, count_paths, find_paths
from rewindow.latency.report import ORIGINS, Origin, figures
from rewindow.latency.rows import Bools, Ints, read_statistics
from rewindow.settings.config import LatencyConfig

_PART = 1 << 18
PATHS_MAX = 50
"""Largest number of paths in a summary, which lists the most frequent ones."""


@dataclass(frozen=True)
class Ends:
    """End times, with one row for each operator and one column for each window.

    Attributes:
        windows: window ids, ascending.
        end_ms: corrected end times, 0 where unknown.
        is_known: whether an end time is known.
        has_started: whether the operator has ended this or an earlier window.
        faults: containers whose clocks were corrected by more than the timeout.
        average_samples: number of values in a moving average.
    """

    layout: Layout
    windows: Ints
    end_ms: Ints
    is_known: Bools
    has_started: Bools
    faults: list[dict[str, Any]]
    average_samples: int


@dataclass(frozen=True)
class EndedLatency:
    """The latencies of the windows of a run, with one row for each operator and one column for each
    window.

    Attributes:
        latency: latencies of operators in ms, UNKNOWN where not known.
        slowest: index of the slowest upstream operator, UNKNOWN without one.
        origin: where the latency comes from, as an `Origin`.
        negative: differences to an upstream operator that were below 0 and count as 0.
        paths: critical and longest path of each window.
    """

    ends: Ends
    latency: Ints
    slowest: Indices
    origin: Indices
    negative: int
    paths: Paths

    def logical_latency(self) -> dict[str, Ints]:
        """Returns the latencies of the logical operators.

        The latency of a partition includes the largest sum over its downstream unifiers. The
        latency of an operator is the largest one of its partitions.

        Rules: L27
        """
        layout = self.ends.layout
        after: dict[int, Ints] = {}
        found: dict[str, Ints] = {}
        for n in reversed(layout.order):
            name = layout.logical[n]
            value = self.latency[n]
            unified = layout.unified(n)
            unifiers = after.pop(n, None)
            if unifiers is not None:
                value = np.where(
                    value == UNKNOWN,
                    UNKNOWN,
                    value + unifiers,
                )
            for source in unified:
                after[source] = np.maximum(after.get(source, 0), value)
            if not unified:
                found[name] = np.maximum(found[name], value) if name in found else value
        return found

    def summary(self) -> dict[str, Any]:
        """Returns the report as plain values, see docs/json.md. Times are in milliseconds.

        The top level describes the newest window that every operator has ended. If there is none,
        it describes the newest window.

        Rules: L28, L41, L42
        """
        ends = self.ends
        paths = self.paths
        complete = np.flatnonzero(ends.is_known.all(axis=0))
        newest = int(complete[-1]) if len(complete) else len(ends.windows) - 1
        operators = []
        for n, name in enumerate(ends.layout.names):
            counts = np.bincount(self.origin[n], minlength=len(ORIGINS))
            operators.append(
                {
                    "operator": name,
                    "logical": ends.layout.logical[n],
                    **figures(self.latency[n], ends.average_samples),
                    "origins": dict(
                        zip(
                            ORIGINS,
                            counts.tolist(),
                            strict=True,
                        )
                    ),
                    "onCriticalPath": int(np.count_nonzero(paths.on_path[n])),
                }
            )
        logical = []
        for name, values in sorted(self.logical_latency().items()):
            logical.append({"operator": name, **figures(values, ends.average_samples)})
        frequent = []
        for path, windows in count_paths(ends.layout, paths.on_path)[:PATHS_MAX]:
            frequent.append({"criticalPath": path, "windows": windows})
        return {
            **self.window(newest),
            "first": int(ends.windows[0]),
            "last": int(ends.windows[-1]),
            "windows": len(ends.windows),
            "cutWindows": int(np.count_nonzero(paths.is_cut)),
            "incompleteWindows": int(np.count_nonzero(paths.is_incomplete)),
            "application": figures(paths.latency, ends.average_samples),
            "operators": operators,
            "logicalOperators": logical,
            "paths": frequent,
            "negativeDifferences": self.negative,
            "clockFaults": ends.faults,
        }

    def window(self, column: int) -> dict[str, Any]:
        """Returns the paths of a window as plain values.

        Rules: L41
        """
        window = int(self.ends.windows[column])
        return {"window": window, **self.paths.describe(self.ends.layout, column)}


def ended(
    rows: pa.Table,
    graph: LatencyGraph,
    settings: LatencyConfig | None = None,
    first: int | None = None,
    last: int | None = None,
) -> EndedLatency:
    """Returns the latencies of a run that has ended, from the end times of all windows.

    If there are several rows for a window of an operator, the row that was received last counts.

    Args:
        rows: `operator, partition, window_id, ended_at_ms, container, sent_at_ms, received_at_ms`;
            times are milliseconds.
        graph: the operators of the run.
        settings: by default those of `[latency]`.
        first, last: closed range of windows; by default all. Rows of other windows still count for
            the correction of clocks.

    Raises:
        InputError: the range has no rows, or they are wrong, see `read_statistics`.
    """
    ends = _ends(rows, graph, settings or LatencyConfig())
    windows = ends.windows
    begin = 0 if first is None else int(np.searchsorted(windows, first))
    end = (
        len(windows)
        if last is None
        else int(
            np.searchsorted(
                windows,
                last,
                "right",
            )
        )
    )
    if begin >= end:
        known = f"Available windows: {windows[0]} to {windows[-1]}." if len(windows) else ""
        raise InputError("statistics have no row with an end time in these windows", hint=known)
    chosen = slice(begin, end)
    return evaluate(
        replace(
            ends,
            windows=windows[chosen],
            end_ms=ends.end_ms[:, chosen],
            is_known=ends.is_known[:, chosen],
            has_started=ends.has_started[:, chosen],
        )
    )


def _ends(rows: pa.Table, graph: LatencyGraph, settings: LatencyConfig) -> Ends:
    layout, found, faults = read_statistics(
        rows,
        graph,
        settings,
    )
    windows = np.sort(pc.unique(found["window"]).to_numpy())
    shape = (len(layout.names), len(windows))
    end_ms = np.zeros(shape, dtype=np.int64)
    is_known = np.zeros(shape, dtype=bool)
    _fill(found, windows, end_ms, is_known)
    if np.count_nonzero(is_known) < found.num_rows:
        # If an index occurs twice in an assignment, numpy keeps the last value.
        order = [(name, "ascending") for name in ("received_ms", "sent_ms", "end_ms")]
        _fill(
            found.sort_by(order),
            windows,
            end_ms,
            is_known,
        )
    has_started = np.logical_or.accumulate(is_known, axis=1)
    return Ends(
        layout,
        windows,
        end_ms,
        is_known,
        has_started,
        faults,
        settings.average_samples,
    )


def _fill(rows: pa.Table, windows: Ints, end_ms: Ints, is_known: Bools) -> None:
    """Writes each end time to the row of its operator and the column of its window."""
    for first in range(0, rows.num_rows, _PART):
        part = rows.slice(first, _PART)
        node = part["node"].to_numpy()
        column = np.searchsorted(windows, part["window"].to_numpy())
        end_ms[node, column] = part["end_ms"].to_numpy()
        is_known[node, column] = True


def evaluate(ends: Ends) -> EndedLatency:
    """Returns the latencies computed from end times."""
    layout = ends.layout
    shape = (len(layout.names), len(ends.windows))
    latency = np.full(shape, UNKNOWN, dtype=np.int64)
    slowest = np.full(shape, UNKNOWN, dtype=np.int16)
    origin = np.full(shape, Origin.UNKNOWN, dtype=np.int8)
    negative = 0
    for n in layout.order:
        knows_own = ends.is_known[n]
        # Before an operator has ended a window, it has no latency (L19).
        has_value = ends.has_started[n] & (ends.windows > 0)
        least = np.zeros(shape[1], dtype=np.int64)
        if not layout.is_root[n]:
            least[:] = np.iinfo(np.int64).max
            for source in layout.upstream[n]:
                share = ends.end_ms[n] - ends.end_ms[source]
                both = knows_own & ends.is_known[source]
                negative += int(np.count_nonzero(both & (share < 0)))
                # Without an end time of the operator, every share is 0, and its first upstream
                # operator counts as the slowest.
                share = np.maximum(share, 0) * knows_own
                is_less = has_value & ends.is_known[source] & (share < least)
                least[is_less] = share[is_less]
                slowest[n][is_less] = source
            has_value &= slowest[n] != UNKNOWN
        measured = has_value & knows_own
        latency[n][measured] = least[measured]
        origin[n][measured] = Origin.MEASURED
        origin[n][has_value & ~knows_own] = Origin.OWN_END_MISSING
    paths = find_paths(layout, latency, slowest)
    return EndedLatency(
        ends,
        latency,
        slowest,
        origin,
        negative,
        paths,
    )
