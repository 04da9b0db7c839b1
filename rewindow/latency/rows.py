"""The rows of recorded statistics.

Their end times are corrected by the skew of clocks.

Rules: L3 to L12
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError
from rewindow.latency.graph import LatencyGraph, Layout, lay_out
from rewindow.names import did_you_mean
from rewindow.sequences import names_of
from rewindow.settings.config import LatencyConfig

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NAME = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("operator", _NAME, nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("window_id", pa.int64(), nullable=False),
        pa.field("ended_at_ms", pa.int64()),
        pa.field("container", _NAME, nullable=False),
        pa.field("sent_at_ms", pa.int64(), nullable=False),
        pa.field(
            "received_at_ms",
            pa.int64(),
            nullable=False,
        ),
    ]
)
"""The columns of a row: the end of a window at an operator, and the heartbeat that reported it."""


class Statistics(NamedTuple):
    """Recorded statistics as numbers.

    Attributes:
        rows: columns `node` (the index in the layout), `window`, `end_ms` (by the planner's clock),
            and `received_ms`, `sent_ms` and `container` of the heartbeat. Rows without an end time
            are omitted.
        faults: containers whose clocks were corrected by more than the timeout, with the number of
            such heartbeats and the worst correction.

    Rules: L12
    """

    layout: Layout
    rows: pa.Table
    faults: list[dict[str, Any]]


def read_statistics(
    rows: pa.Table,
    graph: LatencyGraph,
    settings: LatencyConfig,
    at_ms: int | None = None,
) -> Statistics:
    """Returns statistics with corrected end times.

    Args:
        rows: with the columns of `SCHEMA`; a null `ended_at_ms` is an unknown end time, a null
            `partition` is 0. Other columns are ignored.
        graph: must contain every operator of the rows.
        settings: the number of samples and the timeout.
        at_ms: heartbeats received later are not checked for faults; by default all are.

    Raises:
        InputError: a column is missing, has another type, or has nulls; an operator is unknown.
    """
    given = _checked(rows)
    layout, node = _nodes(given, graph)
    container = given["container"]
    sent_ms = given["sent_at_ms"].to_numpy()
    received_ms = given["received_at_ms"].to_numpy()
    ended = given["ended_at_ms"]
    end_ms = (ended.fill_null(0) if ended.null_count else ended).to_numpy().copy()
    faults = []
    code = container.indices.to_numpy()
    for n, name in enumerate(container.dictionary.to_pylist()):
        own = np.flatnonzero(code == n)
        skew_ms, averages = _skews(
            sent_ms,
            received_ms,
            own,
            settings,
            at_ms,
        )
        end_ms[own] += skew_ms
        beyond = averages[np.abs(averages) > settings.heartbeat_timeout_ms]
        if len(beyond):
            worst_ms = int(beyond[np.argmax(np.abs(beyond))])
            faults.append({"container": name, "heartbeats": len(beyond), "worst_ms": worst_ms})
    numbers = {
        "node": node,
        "window": given["window_id"],
        "end_ms": end_ms,
        "received_ms": received_ms,
        "sent_ms": sent_ms,
        "container": container.indices,
    }
    table = pa.table(numbers)
    if ended.null_count:
        table = table.filter(ended.is_valid())
    return Statistics(layout, table, faults)


def _checked(rows: pa.Table) -> dict[str, Any]:
    """Casts the columns to the types of SCHEMA and returns them. Names are arrays in one chunk."""
    columns = {}
    for field in SCHEMA:
        name = field.name
        if name not in rows.schema.names:
            raise InputError(
                f'statistics have no column "{name}"',
                hint=f"{did_you_mean(name, rows.schema.names)}Needed: {', '.join(SCHEMA.names)}.",
            )
        column = rows[name]
        wanted = "text" if field.type == _NAME else "a whole number"
        try:
            cast = column.cast(field.type)
        except pa.ArrowException as error:
            raise InputError(
                f'column "{name}" of the statistics must be {wanted}, not {column.type}',
                detail=f"{error}.",
            ) from error
        if cast.null_count and not field.nullable:
            raise InputError(f'statistics have {cast.null_count:,} rows without "{name}"')
        if field.type == _NAME:
            cast = cast.unify_dictionaries().combine_chunks()
        columns[name] = cast
    return columns


def _nodes(given: dict[str, Any], graph: LatencyGraph) -> tuple[Layout, npt.NDArray[np.int32]]:
    """Returns the physical operators in the rows, and the operator index of each row.

    Rules: L3
    """
    operators = given["operator"].dictionary.to_pylist()
    known = names_of(graph.operators)
    for name in operators:
        if name not in known:
            raise InputError(
                f'operator "{name}" of the statistics is not in the graph',
                hint=f"{did_you_mean(name, known)}The graph has: {', '.join(known)}.",
            )
    bounds = pc.min_max(given["partition"]).as_py()
    if (bounds["min"] or 0) < 0:
        raise InputError(f"partition {bounds['min']} of the statistics is below 0")
    span = (bounds["max"] or 0) + 1
    key: Any = given["operator"].indices.to_numpy()
    if span > 1:
        key = key.astype(np.int64) * span + given["partition"].fill_null(0).to_numpy()
    used = np.sort(pc.unique(pa.array(key)).to_numpy())
    pairs = []
    partitions: dict[str, list[int]] = {}
    for value in used.tolist():
        name = operators[value // span]
        pairs.append((name, value % span))
        partitions.setdefault(name, []).append(value % span)
    layout = lay_out(graph, partitions)
    index = np.array(list(map(layout.keys.index, pairs)), dtype=np.int32)
    return layout, index[np.searchsorted(used, key)]


def _skews(
    sent_ms: Ints,
    received_ms: Ints,
    own: Ints,
    settings: LatencyConfig,
    at_ms: int | None,
) -> tuple[Ints, Ints]:
    """Returns the correction for each row of a container, and the correction for each heartbeat
    received until `at_ms`.

    Each heartbeat is one sample, independent of its number of rows. The correction is the average
    of the newest samples up to the heartbeat of the row. Heartbeats are in the order of receipt,
    then of sending.

    Rules: L6, L7
    """
    if not settings.skew_samples:
        return np.zeros_like(own), own[:0]
    received = received_ms[own]
    sent = sent_ms[own]
    is_later = (received[1:] > received[:-1]) | (
        (received[1:] == received[:-1]) & (sent[1:] >= sent[:-1])
    )
    # Rows are mostly recorded in order of receipt, and sorting takes longer than the other steps.
    order = slice(None) if is_later.all() else np.lexsort((sent, received))
    received = received[order]
    sent = sent[order]
    is_new = np.ones(len(own), dtype=bool)
    is_new[1:] = (received[1:] != received[:-1]) | (sent[1:] != sent[:-1])
    averages = moving_averages((received - sent)[is_new], settings.skew_samples)
    known = averages if at_ms is None else averages[received[is_new] <= at_ms]
    del received, sent
    skew_ms = np.empty_like(own)
    skew_ms[order] = averages[np.cumsum(is_new, dtype=np.int32) - 1]
    return skew_ms, known


def moving_averages(samples: Ints, count: int) -> Ints:
    """Returns for each sample the average of the last samples up to it, at most `count`, truncated
    toward zero.

    >>> moving_averages(np.array([-3, -4, 10]), 2).tolist()
    [-3, -3, 3]

    Rules: L8
    """
    total = np.cumsum(samples)
    total[count:] = total[count:] - total[:-count]
    size = np.minimum(np.arange(1, len(samples) + 1), count)
    # Python rounds a negative quotient down, so the sign is applied after the division.
    averages: Ints = np.sign(total) * (np.abs(total) // size)
    return averages
