"""Runs a chain of operators over one key range: operators with the same key, called one after the
other in the same task.

An operator receives each batch as soon as it is emitted, so memory contains one batch per operator
and never a whole window. The results are equal to those of separate passes, where a reader with the
key of its writer also receives tuples in the order of emission. Tuples that an operator emits under
another key may belong to another task, and separate passes order them by their row hash. Such a
tuple stops the pass, and the engine runs the operators in separate passes.

Rules: O39, O97
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.application import WRITTEN
from rewindow.tuple_engine.cycle_range import PassColumns, stretches
from rewindow.tuple_engine.emissions import BATCH
from rewindow.tuple_engine.key_range import KeyRange, torn_down
from rewindow.tuple_engine.tagged_rows import (
    FOREIGN,
    SORT_KEY,
    WINDOW_BITS,
    OperatorPort,
    TagShape,
    by_tag,
    tag_of,
)
from rewindow.windows import WindowRange

_PART = "+foreign"
"""Value of `part` in a row of `WRITTEN` that reports foreign tuples; no port has this name."""


class ForeignTuples(Exception):
    """An operator of a chain emitted a tuple with another key than the key for which it was called.

    Attributes:
        operator: name of the operator.
    """

    def __init__(self, operator: str) -> None:
        super().__init__(f'operator "{operator}" emits tuples of other keys')
        self.operator = operator

    def rows(self) -> pa.RecordBatch:
        """Returns the row that a task reports instead of the names of its files."""
        row = {"part": _PART, "file": self.operator}
        return pa.RecordBatch.from_pylist([row], schema=WRITTEN)


def check_foreign(rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks that no task reported foreign tuples in rows of `WRITTEN`.

    Raises:
        ForeignTuples: a task reported foreign tuples.
    """
    for row in rows:
        if row["part"] == _PART:
            raise ForeignTuples(row["file"])


def raised_by(operator: str) -> str:
    """Returns the note that is added to an error raised by an operator of a chain."""
    return f'raised by operator "{operator}" of a chain'


class ChainRange:
    """Calls the operators of a chain over the tagged rows of one key range, in one thread.

    Args:
        fused: the columns of the pass.
        ranges: key range of each operator, by name, in topological order.
        shapes: columns of each operator's ports, by name.
        inner: input port inside the chain to the output port that feeds it.
        unseen: output ports that only operators of the chain read.
        windows: windows of the pass.
    """

    def __init__(
        self,
        fused: PassColumns,
        ranges: Mapping[str, KeyRange],
        shapes: Mapping[str, TagShape],
        inner: Mapping[OperatorPort, OperatorPort],
        unseen: set[OperatorPort],
        windows: WindowRange,
    ) -> None:
        self._fused = fused
        self._ranges = ranges
        self._shapes = shapes
        self._unseen = unseen
        self._before = windows.first - 1
        self._states = by_tag(fused.states)
        self._readers: dict[OperatorPort, list[OperatorPort]] = {}
        for reader, writer in inner.items():
            self._readers.setdefault(writer, []).append(reader)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the emitted tuples, then the states; see `KeyRange.run`.

        Raises:
            ForeignTuples: an operator emitted a tuple of another key to a reader in the chain.
        """
        first = next(iter(self._ranges))
        with torn_down(self._ranges.values()):
            for batch in batches:
                tuples = self._load(batch)
                if tuples.num_rows:
                    yield from self._handed_on(first, self._ranges[first].push(tuples))
            for name, key_range in self._ranges.items():
                yield from self._handed_on(name, key_range.finish())
        for name, key_range in self._ranges.items():
            for rows in key_range.states():
                yield self._fused.states[name].placed(rows, self._fused.made)

    def _load(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Loads the states at the start of a batch, and returns the tuples of the batch."""
        count = int(np.searchsorted(batch[SORT_KEY].to_numpy(), 1 << WINDOW_BITS))
        for _, tag, rows in stretches([batch.slice(0, count)], self._before):
            self._ranges[self._states[tag]].load(rows)
        return batch.slice(count)

    def _handed_on(
        self,
        name: str,
        emitted: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """Passes the rows of an operator to its readers, and yields the rows that leave the pass.

        It calls the readers recursively, depth first. So a batch and all rows that follow from it
        have left the chain before the next batch is processed.
        """
        for batch in _with_name(name, emitted):
            port = by_tag(self._shapes[name].outputs)[tag_of(batch[SORT_KEY][0].as_py())]
            if (name, port) not in self._unseen:
                yield self._fused.outputs[name, port].placed(batch, self._fused.made)
            for reader, to in self._readers.get((name, port), ()):
                if (batch[SORT_KEY].to_numpy() & FOREIGN).any():
                    raise ForeignTuples(name)
                wanted = self._shapes[reader].inputs[to]
                rows = self._shapes[name].outputs[port].renamed(batch, wanted)
                # Batches are split, because they would otherwise grow with every operator that
                # emits several tuples for each one that it receives.
                for begin in range(0, rows.num_rows, BATCH):
                    part = rows.slice(begin, BATCH)
                    yield from self._handed_on(reader, self._ranges[reader].push(part))


def _with_name(name: str, emitted: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of an operator.

    If the operator raises an error, its name is added to the error.
    """
    try:
        yield from emitted
    except Exception as error:
        error.add_note(raised_by(name))
        raise
