"""Latencies of a million windows of ten operators, compared with a naive reference in plain Python.

    python -m bench.latency [WINDOWS]

The statistics are made in memory, as an Arrow table of ten million rows with three containers.
Seconds are of one call each; memory is the growth of the process above the table, sampled every
5 ms. The reference of the tests evaluates a thousandth of the windows, and its time is multiplied.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from rewindow import latency
from tests.latency.reference import Reference, Row

OPERATORS = 10
REACH_S = 5
REACH_MB = 500
SHARE = 1_000


def graph() -> dict[str, Any]:
    """Returns a graph in which most operators have two upstream operators."""
    operators: list[dict[str, Any]] = [{"name": "o0"}]
    for n in range(1, OPERATORS):
        inputs = [["a", f"o{(n - 1) // 2}"]]
        if n > 3:
            inputs.append(["b", f"o{n - 2}"])
        operators.append({"name": f"o{n}", "inputs": inputs})
    return {"width_ms": 500, "operators": operators}


def statistics(windows: int) -> pa.Table:
    """Returns the rows of a run, in order of receipt."""
    random = np.random.default_rng(1)
    window = np.repeat(np.arange(1, windows + 1), OPERATORS)
    operator = np.tile(np.arange(OPERATORS, dtype=np.int32), windows)
    container = (operator // 4).astype(np.int32)
    received = window * 500 + 1_000
    names = [f"o{n}" for n in range(OPERATORS)]
    columns = {
        "operator": pa.DictionaryArray.from_arrays(operator, names),
        "partition": np.zeros(len(window), dtype=np.int32),
        "window_id": window,
        "ended_at_ms": window * 500 + operator * 20 + random.integers(0, 40, len(window)),
        "container": pa.DictionaryArray.from_arrays(container, ["a", "b", "c"]),
        "sent_at_ms": received - 3 - 50 * container,
        "received_at_ms": received,
    }
    return pa.table(columns)


class Peak:
    """The largest resident size of this process while it is measured, in MB above its begin."""

    def __enter__(self) -> Peak:
        self.begin = psutil.Process().memory_info().rss
        self.most = self.begin
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._ended.wait(0.005):
            self.most = max(self.most, process.memory_info().rss)

    @property
    def mb(self) -> float:
        """The growth."""
        return float(self.most - self.begin) / 1e6


def main() -> None:
    """Measures and prints."""
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    made = graph()
    rows = statistics(windows)
    parsed = latency.parse_graph(made)
    with Peak() as peak:
        begin = time.monotonic()
        found = latency.ended(rows, parsed)
        summary = found.summary()
        seconds = time.monotonic() - begin
    begin = time.monotonic()
    latency.what_if(found, {"o3": 2})
    faster_s = time.monotonic() - begin
    part = rows.slice(0, rows.num_rows // SHARE)
    plain: list[Row] = list(zip(*part.to_pydict().values(), strict=True))
    begin = time.monotonic()
    reference = Reference(made, plain, samples=1)
    expected = [reference.window(window).application for window in reference.windows]
    naive_s = (time.monotonic() - begin) * SHARE
    assert found.paths.latency[: len(expected)].tolist() == expected
    print(
        f"{windows:,} windows of {OPERATORS} operators: {seconds:.2f} s (aim {REACH_S} s), "
        f"{peak.mb:,.0f} MB above the table of {rows.nbytes / 1e6:,.0f} MB (aim {REACH_MB} MB), "
        f"{len(summary['paths'])} paths; what-if {faster_s:.2f} s; naive reference "
        f"{naive_s:,.0f} s, {naive_s / seconds:,.0f} x"
    )


if __name__ == "__main__":
    main()
