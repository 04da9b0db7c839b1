"""Tuples at which `process` of a tuple operator fails, as tasks report them to the driver (R93)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rewindow.application import WRITTEN
from rewindow.tuple_engine.tagged_rows import HASH, ORDER

FAILED = "+failed"
"""Part of the rows of `WRITTEN` that report a failing tuple; no port has this name."""
REPORTED_MAX = 1000
"""Failing tuples that a task reports at once; a later run finds the others."""
_DETAIL_LENGTH_MAX = 300
_ADDRESS = re.compile("0x[0-9a-f]{6,}")


class FailingTuple(NamedTuple):
    """Where a failing tuple is.

    Attributes:
        order: its place in the order of its port; 0 for all tuples of a port without an order.
        row_hash: hash of its columns where the order does not identify it.
        detail: the error.
    """

    port: str
    window: int
    order: int
    row_hash: int | None
    detail: str


class TuplesFailed(Exception):
    """The pass of a tuple operator failed at some tuples."""

    def __init__(self, operator: str, tuples: Sequence[FailingTuple]) -> None:
        super().__init__(f'operator "{operator}" failed: {tuples[0].detail}')
        self.operator = operator
        self.tuples = tuples


class FailingLog:
    """The failing tuples of one task.

    Attributes:
        is_full: whether no further tuple is called.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._tuples: list[FailingTuple] = []
        self._keys: set[Any] = set()

    def __bool__(self) -> bool:
        return bool(self._tuples)

    def has(self, key: Any) -> bool:
        """Returns whether a tuple of a key has failed."""
        return key in self._keys

    def add(
        self,
        port: str,
        window: int,
        tagged: pa.RecordBatch,
        key: Any,
        error: Exception,
    ) -> None:
        """Adds a tuple, given as a tagged row with its order."""
        order = tagged[ORDER][0].as_py()
        row_hash = tagged[HASH][0].as_py() if HASH in tagged.schema.names else None
        self._tuples.append(FailingTuple(port, window, order, row_hash, error_text(error)))
        self._keys.add(key)
        self.is_full = len(self._tuples) >= REPORTED_MAX

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Gives the tuples as rows of `WRITTEN`."""
        rows = []
        for one in self._tuples:
            rows.append({"part": FAILED, "file": json.dumps(one), "rows": 0, "host": ""})
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=WRITTEN)


def reported(rows: Iterable[Mapping[str, Any]]) -> list[FailingTuple]:
    """Returns the tuples that tasks report in rows of `WRITTEN`."""
    tuples = []
    for row in rows:
        if row["part"] == FAILED:
            tuples.append(FailingTuple(*json.loads(row["file"])))
    return tuples


def error_text(error: Exception | str) -> str:
    """Returns an error as the detail of an error tuple, the same in every run: its first line,
    without addresses in memory.
    """
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    first, *_ = text.splitlines() or [""]
    return _ADDRESS.sub("0x...", first)[:_DETAIL_LENGTH_MAX]
