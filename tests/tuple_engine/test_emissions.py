"""What a key range has emitted and not handed on yet."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import InputPort, OutputPort
from rewindow.operators import TupleOperator
from rewindow.testing import run_operator

NUMBERS = pa.schema([("n", pa.int64())])


class Mixed(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(NUMBERS)}
    outputs: ClassVar = {"out": OutputPort(NUMBERS)}

    def process(self, row: Any) -> None:
        self.emit("out", row.n)
        self.emit_batch("out", pa.table({"n": pa.array([row.n + 1, row.n + 2], pa.int64())}))
        self.emit_batch("out", pa.table({"n": pa.array([], pa.int64())}))
        self.emit("out", row.n + 3)


def test_batches_and_single_tuples_keep_the_order_of_emission() -> None:
    # Rules: O39
    found = run_operator(Mixed(), {"rows": {1: [0, 4], 2: [8]}}, group_windows=2)
    assert found["out"] == [(1 + n // 8, n) for n in range(12)]
