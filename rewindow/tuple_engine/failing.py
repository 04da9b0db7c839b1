"""Reports the tuples for which `process` of a tuple operator fails, from the tasks to the driver.

Rules: R93
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rewindow.application import WRITTEN

TUPLE_KEY = "_rw_tuple_key"
"""The column that identifies a tuple of a port within its window, see `frames.tuple_key`."""
_PART = "+failing"
"""Part of the rows of `WRITTEN` that report failing tuples; no port has this name."""
_DETAIL_LENGTH_MAX = 300
_ADDRESS = re.compile("0x[0-9a-f]{6,}")


class FailingTuple(NamedTuple):
    """A failing tuple of an input port. `detail` is the error."""

    port: str
    window: int
    key: int
    detail: str


class TuplesFailed(Exception):
    """The pass of a tuple operator failed for some tuples."""

    def __init__(self, operator: str, tuples: Sequence[FailingTuple]) -> None:
        super().__init__(f'operator "{operator}" failed: {tuples[0].detail}')
        self.operator = operator
        self.tuples = tuples


def failing_rows(tuples: Iterable[FailingTuple]) -> Iterator[pa.RecordBatch]:
    """Yields tuples as rows of `WRITTEN`."""
    for failing in tuples:
        row = {"part": _PART, "file": json.dumps(failing)}
        yield pa.RecordBatch.from_pylist([row], schema=WRITTEN)


def check_failing(operator: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks that rows of `WRITTEN` report no failing tuples.

    Raises:
        TuplesFailed: they report failing tuples.
    """
    tuples = []
    for row in rows:
        if row["part"] == _PART:
            tuples.append(FailingTuple(*json.loads(row["file"])))
    # A tuple of a broadcast port fails in several partitions.
    distinct = {failing[:3]: failing for failing in sorted(tuples, reverse=True)}
    if distinct:
        raise TuplesFailed(operator, list(distinct.values()))


def error_text(error: str) -> str:
    """Returns an error as the detail of an error tuple.

    The detail is the first line of the error without memory addresses, so that it is the same in
    every run.
    """
    return _ADDRESS.sub("0x...", error.partition("\n")[0])[:_DETAIL_LENGTH_MAX]
