"""Rows of recorded statistics as arrays, with end times corrected by the skew of clocks
(L3 to L12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout, lay_out
from rewindow.names import did_you_mean
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import LatencyConfig

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
COLUMNS = (
    "operator",
    "partition",
    "window_id",
    "ended_at_ms",
    "container",
    "sent_at_ms",
    "received_at_ms",
)
"""The columns of a row: an operator's end of a window, and the heartbeat that reported it."""
_MAY_BE_NULL = ("partition", "ended_at_ms")
_TEXTS = ("operator", "container")


@dataclass(frozen=True)
class ClockFault:
    """Corrections of a container's clock beyond the timeout (L12).

    Attributes:
        heartbeats: how many had such a correction.
        worst_ms: the largest correction in absolute value, with its sign.
    """

    container: str
    heartbeats: int
    worst_ms: int


@dataclass
class StatisticsRows:
    """The rows that have an end time, one element of each array for each.

    Attributes:
        node: the operator's index in the layout.
        window: window id.
        end_ms: end time on the planner's clock.
        sent_ms, received_ms, container: the heartbeat that reported the row.
        faults: containers whose clocks cannot be right.
        unknown: rows without an end time.
    """

    layout: Layout
    node: npt.NDArray[np.int32]
    window: Ints
    end_ms: Ints
    sent_ms: Ints
    received_ms: Ints
    container: npt.NDArray[np.int32]
    faults: list[ClockFault] = field(default_factory=list)
    unknown: int = 0

    def take(self, rows: Any) -> StatisticsRows:
        """Returns some of the rows, by a mask or by indices in order."""
        return StatisticsRows(
            self.layout,
            self.node[rows],
            self.window[rows],
            self.end_ms[rows],
            self.sent_ms[rows],
            self.received_ms[rows],
            self.container[rows],
            self.faults,
            self.unknown,
        )


def read_statistics(rows: pa.Table, graph: LatencyGraph, settings: LatencyConfig) -> StatisticsRows:
    """Returns the rows of a table of statistics with corrected end times.

    Args:
        rows: with the columns `COLUMNS`; a null `ended_at_ms` is an unknown end time, a null
            `partition` is 0. Other columns are ignored.
        graph: must have every operator of the rows.
        settings: number of samples, and the timeout.

    Raises:
        InputError: a column is missing, has another type, or has nulls; an operator is unknown.
    """
    check_columns(rows.schema)
    for name in excluding(COLUMNS, _MAY_BE_NULL):
        if rows[name].null_count:
            raise InputError(
                f'statistics have {rows[name].null_count:,} rows without "{name}"',
                hint=f"Only {' and '.join(_MAY_BE_NULL)} may be null.",
            )
    layout, node = _nodes(rows, graph)
    containers, code = _codes(rows["container"])
    sent_ms = _integers(rows["sent_at_ms"])
    received_ms = _integers(rows["received_at_ms"])
    ended = rows["ended_at_ms"]
    end_ms = _integers(ended.fill_null(0) if ended.null_count else ended).copy()
    faults = []
    for n, container in enumerate(containers):
        own = np.flatnonzero(code == n)
        skew_ms, beyond = _skews(sent_ms, received_ms, own, settings)
        end_ms[own] += skew_ms
        if len(beyond):
            worst_ms = int(beyond[np.argmax(np.abs(beyond))])
            faults.append(ClockFault(container, len(beyond), worst_ms))
    window = _integers(rows["window_id"])
    found = StatisticsRows(
        layout, node, window, end_ms, sent_ms, received_ms, code, faults, ended.null_count
    )
    if not ended.null_count:
        return found
    return found.take(ended.is_valid().to_numpy())


def check_columns(schema: pa.Schema) -> None:
    """Refuses statistics that lack a column or have one of another type.

    Raises:
        InputError: names the column.
    """
    for name in COLUMNS:
        if name not in schema.names:
            raise InputError(
                f'statistics have no column "{name}"',
                hint=f"{did_you_mean(name, schema.names)}Needed: {', '.join(COLUMNS)}.",
            )
        kind = schema.field(name).type
        text = pa.types.is_dictionary(kind) or pa.types.is_string(kind) or _is_large(kind)
        right = text if name in _TEXTS else pa.types.is_integer(kind)
        if not right and not pa.types.is_null(kind):
            wanted = "text" if name in _TEXTS else "a whole number"
            raise InputError(f'column "{name}" of the statistics is {kind}, it must be {wanted}')


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _integers(column: pa.ChunkedArray) -> Ints:
    array: Ints = column.cast(pa.int64()).to_numpy()
    return array


def _codes(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Returns the values of a column of text, and the index of each row's value."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    # An empty column, or one of a single chunk, may be combined to either kind of array.
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) and array.num_chunks else array
    if isinstance(array, pa.ChunkedArray):
        return [], np.zeros(0, dtype=np.int32)
    return array.dictionary.to_pylist(), array.indices.cast(pa.int32()).to_numpy()


def _nodes(rows: pa.Table, graph: LatencyGraph) -> tuple[Layout, npt.NDArray[np.int32]]:
    """Returns the physical operators that rows name, and the one of each row (L3)."""
    operators, code = _codes(rows["operator"])
    known = names_of(graph.operators)
    for name in operators:
        if name not in known:
            raise InputError(
                f'operator "{name}" of the statistics is not in the graph',
                hint=f"{did_you_mean(name, known)}The graph has: {', '.join(known)}.",
            )
    partitions = pc.min_max(rows["partition"]).as_py()
    least, largest = partitions["min"] or 0, partitions["max"] or 0
    if least < 0 or largest >= 1 << 31:
        raise InputError("partitions of the statistics must be from 0 to 2147483647")
    span = largest + 1
    key: Any = code
    if largest:
        key = code.astype(np.int64) * span + _integers(rows["partition"].fill_null(0))
    used = np.sort(pc.unique(pa.array(key)).to_numpy())
    numbers: dict[str, list[int]] = {}
    pairs = []
    for value in used.tolist():
        name, number = operators[value // span], value % span
        numbers.setdefault(name, []).append(number)
        pairs.append((name, number))
    layout = lay_out(graph, numbers)
    index = np.array(list(map(layout.keys.index, pairs)), dtype=np.int32)
    return layout, index[np.searchsorted(used, key)] if len(used) else code


def _skews(
    sent_ms: Ints,
    received_ms: Ints,
    own: Ints,
    settings: LatencyConfig,
) -> tuple[Ints, Ints]:
    """Returns the correction of each row of a container, and of its heartbeats those beyond the
    timeout.

    A sample is a heartbeat, however many rows it has. The correction is the average of the newest
    samples up to a row's own heartbeat, in order of receipt, then of sending (L6 to L8, L12).
    """
    if not settings.skew_samples:
        return np.zeros(len(own), dtype=np.int64), own[:0]
    received = received_ms[own]
    sent = sent_ms[own]
    order = None
    later = (received[1:] > received[:-1]) | (
        (received[1:] == received[:-1]) & (sent[1:] >= sent[:-1])
    )
    if not later.all():
        order = np.lexsort((sent, received))
        received = received[order]
        sent = sent[order]
    is_new = np.ones(len(own), dtype=bool)
    is_new[1:] = (received[1:] != received[:-1]) | (sent[1:] != sent[:-1])
    samples = (received - sent)[is_new]
    number = np.cumsum(is_new, dtype=np.int32) - 1
    del received, sent
    average = moving_averages(samples, settings.skew_samples)
    beyond = average[np.abs(average) > settings.heartbeat_timeout_ms]
    if order is None:
        return average[number], beyond
    skew_ms = np.empty(len(own), dtype=np.int64)
    skew_ms[order] = average[number]
    return skew_ms, beyond


def moving_averages(samples: Ints, count: int) -> Ints:
    """Returns the average of each sample and those before it, `count` at most, cut off toward zero
    (L8).

    >>> moving_averages(np.array([-3, -4, 10]), 2).tolist()
    [-3, -3, 3]
    """
    # Python's // rounds down, so the sign is taken out before the division.
    total = np.cumsum(samples)
    total[count:] = total[count:] - total[:-count]
    size = np.minimum(np.arange(1, len(samples) + 1), count)
    average: Ints = np.sign(total) * (np.abs(total) // size)
    return average
