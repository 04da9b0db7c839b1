"""Runs a cycle of operators over one key range, window by window. Each operator receives the tuples
that another one has emitted.

In each window the delay operators first emit the tuples that earlier windows have left in their
state. Then each other operator receives its tuples, in topological order. At last the delay
operators receive the tuples that complete the cycle, and keep them as state. So a window is
complete when its last tuple is processed, and between windows all tuples are in states: all
operators resume from the same window.

Rules: R26, X40
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rewindow.errors import InputError
from rewindow.operators.tuples.values import shown
from rewindow.sequences import excluding, map_values
from rewindow.tuple_engine.emissions import BATCH
from rewindow.tuple_engine.key_range import KeyRange, torn_down
from rewindow.tuple_engine.tagged_rows import (
    PLACEHOLDER,
    SORT_KEY,
    Columns,
    OperatorPort,
    TagShape,
    by_tag,
    in_port_order,
    lists_of,
    tag_of,
    window_of,
)
from rewindow.windows import WindowRange


class PassColumns(Protocol):
    """The columns of a pass that a cycle runs in."""

    inputs: dict[OperatorPort, Columns]
    outputs: dict[OperatorPort, Columns]
    states: dict[str, Columns]
    keys: list[str]
    made: pa.Schema


class CycleRange:
    """Calls the operators of a cycle over the tagged rows of one key range, in one thread.

    Args:
        fused: the columns of the rows that enter and leave the pass.
        ranges: key range of each operator, in the order in which they are called.
        shapes: columns of each operator's ports, by name.
        inner: input port inside the cycle to the output port that feeds it.
        unseen: output ports that only operators of the cycle read.
        delays: names of the delay operators.
        windows: windows of the pass.
        port_order: names of input ports, in the order in which their tuples are processed; by
            default as they are declared.
    """

    def __init__(
        self,
        fused: PassColumns,
        ranges: Mapping[str, KeyRange],
        shapes: Mapping[str, TagShape],
        inner: Mapping[OperatorPort, OperatorPort],
        unseen: set[OperatorPort],
        delays: set[str],
        windows: WindowRange,
        port_order: Iterable[str],
    ) -> None:
        self._fused = fused
        self._ranges = ranges
        self._shapes = shapes
        self._inner = inner
        self._windows = windows
        order = list(port_order)
        self._ports = map_values(lambda shape: in_port_order(shape.inputs, order), shapes)
        self._others = excluding(ranges, delays)
        self._delays = excluding(ranges, self._others)
        self._states = by_tag(fused.states)
        self._inputs = by_tag(fused.inputs)
        self._read = set(inner.values())
        self._unseen = unseen
        self._own_keys: set[Any] | None = set() if fused.keys else None
        self._given: dict[OperatorPort, list[pa.RecordBatch]] = {}
        self._made: dict[int, list[pa.RecordBatch]] = {}
        self._waiting = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the emitted tuples, then the states; see `KeyRange.run`."""
        # Rows arrive sorted by window. A window is computed once the first row of a later one is
        # read, because only then all its tuples are known. The states come first, as rows of the
        # window before the group.
        window = self._windows.first - 1
        with torn_down(self._ranges.values()):
            for at, tag, rows in stretches(batches, self._windows.first - 1):
                if tag in self._states:
                    self._load(self._states[tag], rows)
                    continue
                while window < at:
                    yield from self._go_on(window)
                    window += 1
                self._take(tag, rows)
            while window <= self._windows.last:
                yield from self._go_on(window)
                window += 1
        for name, key_range in self._ranges.items():
            for batch in key_range.states():
                self._keep(batch, self._fused.states[name])
        yield from self._flush()

    def _go_on(self, window: int) -> Iterator[pa.RecordBatch]:
        """Computes a window after all its tuples have been read.

        For the window before the first one, it calls `setup`.
        """
        if window < self._windows.first:
            for key_range in self._ranges.values():
                key_range.set_up()
            return
        for name in self._delays:
            self._ranges[name].begin(window)
            self._hand_on(name)
        for name in self._others:
            self._ranges[name].begin(window)
            self._end(name)
        for name in self._delays:
            self._end(name)
        self._given.clear()
        if self._waiting >= BATCH:
            yield from self._flush()

    def _end(self, name: str) -> None:
        """Passes the tuples of the current window to an operator, ends its window, and passes on
        the tuples that it has emitted.
        """
        for port in self._ports[name]:
            for rows in self._given.get((name, port), ()):
                self._ranges[name].receive(port, rows)
        self._ranges[name].end()
        self._hand_on(name)

    def _load(self, name: str, rows: pa.RecordBatch) -> None:
        shape = self._shapes[name]
        if self._own_keys is not None and shape.fields:
            self._own_keys.update(_keys_of(rows.select(shape.loaded.names), range(shape.keys)))
        self._ranges[name].load(rows)

    def _take(self, tag: int, rows: pa.RecordBatch) -> None:
        name, port = self._inputs[tag]
        own = rows.select(self._shapes[name].inputs[port].names)
        if self._own_keys is not None:
            self._own_keys.update(_keys_of(own, self._shapes[name].key_of[port]))
        self._given.setdefault((name, port), []).append(own)

    def _hand_on(self, name: str) -> None:
        """Stores the tuples that an operator has emitted, both as output of the pass and as input
        of its readers in the cycle.
        """
        for batch in self._ranges[name].flush():
            tag = tag_of(batch[SORT_KEY][0].as_py())
            port = by_tag(self._shapes[name].outputs)[tag]
            if (name, port) not in self._unseen:
                self._keep(batch, self._fused.outputs[name, port])
            if (name, port) in self._read:
                self._feed(name, port, batch)

    def _feed(self, name: str, port: str, batch: pa.RecordBatch) -> None:
        columns = self._shapes[name].outputs[port]
        for (reader, to), end in self._inner.items():
            if end != (name, port):
                continue
            wanted = self._shapes[reader].inputs[to]
            rows = columns.renamed(batch, wanted).select(wanted.names)
            self._check_keys(reader, to, rows, f"{name}.{port}")
            self._given.setdefault((reader, to), []).append(rows)

    def _check_keys(
        self,
        reader: str,
        port: str,
        rows: pa.RecordBatch,
        end: str,
    ) -> None:
        """Raises an error if a tuple has a key that may belong to another key range."""
        if self._own_keys is None:
            return
        foreign = excluding(_keys_of(rows, self._shapes[reader].key_of[port]), self._own_keys)
        if foreign:
            raise InputError(
                f'"{end}" sends a tuple of the key {shown(foreign[0])} around the cycle, from '
                "another key",
                detail="The cycle is divided by keys, because all its ports have one, so the "
                "state of that key may be in another task. The tuple was sent to port "
                f'"{port}" of "{reader}".',
                hint="Leave the key of the delay operator out: the whole cycle then runs in one "
                "range, and tuples may have any key.",
            )

    def _keep(self, batch: pa.RecordBatch, wide: Columns) -> None:
        """Stores the emitted rows of an operator, with the tag and the columns of the pass."""
        self._waiting += batch.num_rows
        self._made.setdefault(wide.tag, []).append(wide.placed(batch, self._fused.made))

    def _flush(self) -> Iterator[pa.RecordBatch]:
        for batches in self._made.values():
            yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
        self._made.clear()
        self._waiting = 0


def stretches(
    batches: Iterable[pa.RecordBatch],
    before: int,
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yields window, tag and rows for each run of consecutive rows with the same window and tag."""
    for batch in batches:
        places = batch[SORT_KEY].to_numpy()
        cuts = (np.flatnonzero(np.diff(places)) + 1).tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(places)], strict=True):
            if end > begin and (place := int(places[begin])) != PLACEHOLDER:
                yield window_of(place, before), tag_of(place), batch.slice(begin, end - begin)


def _keys_of(rows: pa.RecordBatch, places: Iterable[int]) -> list[Any]:
    lists = lists_of(rows.select(list(places)))
    return list(lists[0]) if len(lists) == 1 else list(zip(*lists, strict=True))
