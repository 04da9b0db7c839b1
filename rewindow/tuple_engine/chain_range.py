"""One key range of a chain: operators over the same key, of which each reads the one before in the
same task (O97).

An operator gets each batch as soon as it was emitted, so a chain holds a batch for each operator,
and never a whole window. Its results are those of separate passes: a reader with the key of its
writer follows the order of emission there too (O39). Tuples that were emitted under another key
may belong to another task, and come by their row hash otherwise. They end the pass, and the engine
computes the operators apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.application import WRITTEN
from rewindow.tuple_engine.cycle_range import PassColumns, stretches
from rewindow.tuple_engine.emissions import BATCH
from rewindow.tuple_engine.key_range import KeyRange
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
"""Part of a row of `WRITTEN` that reports foreign tuples; no port has this name."""


class ForeignTuples(Exception):
    """An operator of a chain emits tuples under another key than their own.

    Attributes:
        operator: its name.
    """

    def __init__(self, operator: str) -> None:
        super().__init__(f'operator "{operator}" emits tuples of other keys')
        self.operator = operator

    def rows(self) -> pa.RecordBatch:
        """Returns the report of a task, instead of the names of its files."""
        row = {"part": _PART, "file": self.operator}
        return pa.RecordBatch.from_pylist([row], schema=WRITTEN)


def check_foreign(rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks that rows of `WRITTEN` report no foreign tuples.

    Raises:
        ForeignTuples: they report foreign tuples.
    """
    for row in rows:
        if row["part"] == _PART:
            raise ForeignTuples(row["file"])


def raised_by(operator: str) -> str:
    """Returns the note on an error that names the operator of a chain that raised it."""
    return f'raised by operator "{operator}" of a chain'


class ChainRange:
    """Calls the operators of a chain over the tagged rows of one key range, on one thread.

    Args:
        fused: the columns of the pass.
        ranges: a key range of each operator, each after the one that feeds it.
        shapes: of the operators.
        inner: by operator and input port, the port of the chain that feeds it.
        unseen: output ports that only the chain reads.
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
        """Yields what was emitted, then the states; see `KeyRange.run`.

        Raises:
            ForeignTuples: an operator emits tuples that its reader must not get here.
        """
        first = next(iter(self._ranges))
        try:
            for batch in batches:
                tuples = self._load(batch)
                if tuples.num_rows:
                    yield from self._handed_on(first, self._ranges[first].push(tuples))
            for name, one in self._ranges.items():
                yield from self._handed_on(name, one.finish())
        except BaseException as error:
            for one in self._ranges.values():
                one.tear_down_after(error)
            raise
        for one in self._ranges.values():
            one.tear_down()
        for name, one in self._ranges.items():
            for rows in one.states():
                yield self._fused.states[name].placed(rows, self._fused.made)

    def _load(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Loads the states of a batch, which come first, and returns its tuples."""
        count = int(np.searchsorted(batch[SORT_KEY].to_numpy(), 1 << WINDOW_BITS))
        for _, tag, rows in stretches([batch.slice(0, count)], self._before):
            self._ranges[self._states[tag]].load(rows)
        return batch.slice(count)

    def _handed_on(
        self,
        name: str,
        made: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of an operator that leave the pass, and those of its readers."""
        for batch in _with_name(name, made):
            port = by_tag(self._shapes[name].outputs)[tag_of(batch[SORT_KEY][0].as_py())]
            if (name, port) not in self._unseen:
                yield self._fused.outputs[name, port].placed(batch, self._fused.made)
            for reader, to in self._readers.get((name, port), ()):
                if (batch[SORT_KEY].to_numpy() & FOREIGN).any():
                    raise ForeignTuples(name)
                wanted = self._shapes[reader].inputs[to]
                rows = self._shapes[name].outputs[port].renamed(batch, wanted)
                # An operator that emits many tuples for each would otherwise make batches that
                # grow from operator to operator.
                for begin in range(0, rows.num_rows, BATCH):
                    part = rows.slice(begin, BATCH)
                    yield from self._handed_on(reader, self._ranges[reader].push(part))


def _with_name(name: str, made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of an operator; an error on the way gets its name."""
    try:
        yield from made
    except Exception as error:
        error.add_note(raised_by(name))
        raise
