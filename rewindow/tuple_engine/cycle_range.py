"""One key range of a cycle: its operators are called window by window, what one emits is the next
one's input (X40).

In a window delay operators emit first what windows before have left; then each operator gets what
is there for it, in the order in which they feed each other; at last the delay operators take what
comes around, and keep it as state. So a window is done when its last tuple is, and nothing of it is
anywhere but in states: all go on from one window (R26).
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
    """Calls the operators of a cycle over the tagged rows of one key range, on one thread.

    Args:
        fused: the columns of what comes and goes.
        ranges: a key range of each operator, in the order in which they are called.
        shapes: of the operators.
        inner: by operator and input port, what of the cycle feeds it.
        unseen: output ports whose rows only the cycle reads.
        delays: names of the delay operators.
        port_order: names of input ports, in the order in which their tuples come; by default as
            they are declared.
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
        """Gives what was emitted, then the states; see `KeyRange.run`."""
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
        for name, one in self._ranges.items():
            for batch in one.states():
                self._keep(batch, self._fused.states[name])
        yield from self._flush()

    def _go_on(self, window: int) -> Iterator[pa.RecordBatch]:
        """Computes the window whose tuples are all there; before the first one, sets up."""
        if window < self._windows.first:
            for one in self._ranges.values():
                one.set_up()
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
        """Gives an operator the tuples of its window, ends it, and hands on what it has emitted."""
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
        """Keeps what an operator has emitted, as output of the pass and for those of the cycle that
        read it.
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
        """Refuses a tuple of a key that another key range may have."""
        if self._own_keys is None:
            return
        foreign = excluding(_keys_of(rows, self._shapes[reader].key_of[port]), self._own_keys)
        if foreign:
            raise InputError(
                f'"{end}" sends a tuple of the key {shown(foreign[0])} around the cycle, from '
                "another key",
                detail="The cycle is divided by keys, as all its ports have one, and the state of "
                "that key may be "
                f'elsewhere. It was to come to port "{port}" of "{reader}".',
                hint="Leave the key of the delay operator out: the whole cycle then runs in one "
                "range, and a tuple may "
                "go on under any key.",
            )

    def _keep(self, batch: pa.RecordBatch, wide: Columns) -> None:
        """Keeps rows that an operator has made, with the tag and the columns that they have in the
        pass.
        """
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
    """Gives window, tag and rows for each stretch of rows of one window and tag."""
    for batch in batches:
        places = batch[SORT_KEY].to_numpy()
        cuts = (np.flatnonzero(np.diff(places)) + 1).tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(places)], strict=True):
            if end > begin and (place := int(places[begin])) != PLACEHOLDER:
                yield window_of(place, before), tag_of(place), batch.slice(begin, end - begin)


def _keys_of(rows: pa.RecordBatch, places: Iterable[int]) -> list[Any]:
    lists = lists_of(rows.select(list(places)))
    return list(lists[0]) if len(lists) == 1 else list(zip(*lists, strict=True))
