"""Finds paths through a graph: the critical path along the slowest upstream operators, and the
longest path. All windows are evaluated at once: arrays have a row for each operator and a column
for each window.

Rules: L29 to L39, L42
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.latency.graph import Layout
from rewindow.latency.rows import Bools, Ints

Indices = npt.NDArray[np.signedinteger]
_PART = 1 << 16
UNKNOWN = -1
"""Marks an unknown latency, or a missing operator.

Rules: L4
"""


class Paths(NamedTuple):
    """The critical and the longest path of each window.

    Attributes:
        latency: sum along the critical path, the latency of the application. If all its values are
            measured and no difference was negative, it is the real time from root to leaf.
        on_path: whether an operator is on the critical path.
        is_cut: whether the critical path starts at an operator that has inputs, because no upstream
            end time is known.
        is_incomplete: whether a latency on the critical path is unknown and counts as 0.
        longest: sum along the longest path, an upper bound.
        on_longest: whether an operator is on the longest path.

    Rules: L40
    """

    latency: Ints
    on_path: Bools
    is_cut: Bools
    is_incomplete: Bools
    longest: Ints
    on_longest: Bools

    def describe(self, layout: Layout, column: int) -> dict[str, Any]:
        """Returns the paths of a window as plain values.

        Rules: L41
        """
        return {
            "latency": int(self.latency[column]),
            "criticalPath": layout.path(self.on_path[:, column]),
            "cut": bool(self.is_cut[column]),
            "incomplete": bool(self.is_incomplete[column]),
            "longestLatency": int(self.longest[column]),
            "longestPath": layout.path(self.on_longest[:, column]),
        }


def find_paths(layout: Layout, latency: Ints, slowest: Indices) -> Paths:
    """Returns the paths of each window.

    Args:
        layout: the operators.
        latency: latencies of each operator, UNKNOWN where not known.
        slowest: index of each operator's slowest upstream operator, UNKNOWN without one.
    """
    parts = []
    # In parts, as the sums at every operator would need twice the memory of the latencies.
    for first in range(0, latency.shape[1], _PART):
        part = slice(first, first + _PART)
        parts.append(
            _find(
                layout,
                latency[:, part],
                slowest[:, part],
            )
        )
    columns = []
    for arrays in zip(*parts, strict=True):
        columns.append(np.concatenate(arrays, axis=-1))
    return Paths(*columns)


def _find(layout: Layout, latency: Ints, slowest: Indices) -> Paths:
    shape = latency.shape
    column = np.arange(shape[1])
    total = np.zeros(shape, dtype=np.int64)
    longest = np.zeros(shape, dtype=np.int64)
    largest = np.full(shape, UNKNOWN)
    for n in layout.order:
        # A delay operator adds nothing to a path.
        own = np.maximum(latency[n], 0) * (not layout.delays[n])
        before = total[slowest[n], column]
        before[slowest[n] == UNKNOWN] = 0
        total[n] = own + before
        longest[n] = own
        if layout.upstream[n]:
            most, largest[n] = _largest(longest, layout.upstream[n])
            longest[n] += most
    greedy_sum, leaf = _largest(total, layout.leaves)
    longest_sum, longest_leaf = _largest(longest, layout.leaves)
    on_path = _walk(leaf, slowest)
    is_start = (slowest == UNKNOWN) & ~np.array(layout.is_root)[:, None]
    is_unknown = (latency == UNKNOWN) & ~np.array(layout.delays)[:, None]
    return Paths(
        greedy_sum,
        on_path,
        (on_path & is_start).any(axis=0),
        (on_path & is_unknown).any(axis=0),
        longest_sum,
        _walk(longest_leaf, largest),
    )


def _largest(values: Ints, candidates: Sequence[int]) -> tuple[Ints, Ints]:
    """Returns the largest value of the given operators, and the first operator that has it."""
    which = np.array(candidates)[values[candidates].argmax(axis=0)]
    return values[which, np.arange(len(which))], which


def _walk(leaf: Ints, before: Indices) -> Bools:
    """Returns which operators are on the path that ends at a leaf."""
    on_path = np.zeros(before.shape, dtype=bool)
    column = np.arange(len(leaf))
    current = leaf
    while len(current):
        on_path[current, column] = True
        current = before[current, column]
        goes_on = current != UNKNOWN
        current = current[goes_on]
        column = column[goes_on]
    return on_path


def count_paths(layout: Layout, on_path: Bools) -> list[tuple[list[str], int]]:
    """Returns each path with the number of windows in which it occurs, the most frequent path
    first.

    Rules: L42
    """
    bits = np.ascontiguousarray(np.packbits(on_path, axis=0).T)
    size = pa.binary(bits.shape[1])
    # As bytes of fixed width, paths are counted by their hash, which is faster than sorting.
    keys = pa.FixedSizeBinaryArray.from_buffers(
        size,
        len(bits),
        [None, pa.py_buffer(bits)],
    )
    found = []
    for entry in keys.value_counts().to_pylist():
        marks = np.unpackbits(np.frombuffer(entry["values"], dtype=np.uint8))
        found.append((layout.path(marks), entry["counts"]))
    return sorted(found, key=lambda entry: -entry[1])
