"""Collects the tuples that a key range emits, and returns them as tagged Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rewindow.errors import InputError
from rewindow.operators.tuples.values import to_array
from rewindow.tuple_engine.emitted import EmittedCopies
from rewindow.tuple_engine.keyed_state import NO_KEY
from rewindow.tuple_engine.tagged_rows import (
    FOREIGN,
    Columns,
    TagShape,
    as_travelling,
    one_array,
    sort_key,
)

BATCH = 10_000
"""Tuples that are converted to an Arrow batch at once. Larger batches are not faster (measured),
and need more memory."""


class ReadKey(Protocol):
    """An object with the key that the operator currently reads."""

    key: Any


class Emissions:
    """Collects the tuples that an operator emits in the open window, and returns them as tagged
    batches.

    The values of emitted tuples are in one list per port, tuple after tuple. They are converted to
    an Arrow table when a batch is full, or before a batch that the operator emits itself.
    `_stretches` has pairs of window and count for the rows of a port. `_foreign` has the positions
    of tuples that were emitted under another key.

    Args:
        name: name of the operator's class, for messages.
        shape: columns of the operator's ports.
        kept: copies values that the operator could change later.
        before: the window before the group.
    """

    def __init__(
        self,
        name: str,
        shape: TagShape,
        kept: EmittedCopies,
        before: int,
    ) -> None:
        self._name = name
        self._shape = shape
        self.kept = kept
        self._before = before
        self._window: int | None = None
        self._fields = list(shape.made)[1:]
        self._values: dict[str, list[Any]] = {}
        self._stretches: dict[str, list[tuple[int, int]]] = {}
        self._noted = dict.fromkeys(shape.outputs, 0)
        self._tables: dict[str, list[pa.Table]] = {}
        self._sealed = dict.fromkeys(shape.outputs, 0)
        self._foreign: dict[str, list[int]] = {}
        self._in_tables = 0
        self._required: ReadKey | None = None
        self._append: dict[str, Callable[[Sequence[Any]], None]] = {}
        self._quick: dict[str, tuple[Callable[[Sequence[Any]], None], int]] = {}
        self._plain: dict[str, tuple[Callable[[Sequence[Any]], None], int]] = {}
        for port, width in shape.widths.items():
            self._values[port] = []
            self._stretches[port] = []
            self._tables[port] = []
            self._append[port] = self._values[port].extend
            self._quicken(port, width)

    def _quicken(self, port: str, width: int) -> None:
        """Enables the fast path of `emit` for a port, unless its values must be copied or
        checked.
        """
        if width and port not in self._shape.errors and self.kept.is_plain(port):
            self._plain[port] = (self._append[port], width)

    def follow(self, ports: Iterable[str], reads: ReadKey) -> None:
        """Marks each tuple of the given ports that is emitted under another key than its own.

        Which other tuples precede such a tuple depends on the key ranges, so it has no stable
        position.

        Args:
            ports: ports with the columns of the operator's key.
            reads: has the key under which a tuple is emitted.

        Rules: O39
        """
        for port in ports:
            schema = self._shape.outputs[port].schema
            key_of = itemgetter(*map(schema.get_field_index, self._shape.loaded.key))
            self._foreign[port] = []
            self._append[port] = self._marking(
                port,
                key_of,
                reads,
            )
            self._quicken(port, self._shape.widths[port])

    def _marking(
        self,
        port: str,
        key_of: Callable[[Sequence[Any]], Any],
        reads: ReadKey,
    ) -> Callable[[Sequence[Any]], None]:
        values = self._values[port]
        foreign = self._foreign[port]
        width = self._shape.widths[port]
        sealed = self._sealed

        def append(row: Sequence[Any]) -> None:
            if key_of(row) != reads.key:
                foreign.append(sealed[port] + len(values) // width)
            values.extend(row)

        return append

    def require_key(self, reads: ReadKey | None) -> None:
        """Rejects emitted tuples as long as no key is selected. A call with None ends that."""
        self._required = reads if self._shape.keys else None
        if self._required is None:
            self._quick.update(self._plain)
        else:
            self._quick.clear()

    def _check_key(self) -> None:
        if self._required is not None and self._required.key is NO_KEY:
            raise InputError(
                f"{self._name} emits for a broadcast tuple without selecting a key",
                detail="Each partition gets the tuple, so the result would be emitted once per "
                "partition.",
                hint="Select a key before emitting: if self.has(*key): self.at(*key)",
            )

    def begin(self, window: int) -> None:
        """Opens a window."""
        self._window = window
        self._quick.update(self._plain)

    def end(self) -> None:
        """Closes the open window.

        Raises:
            InputError: a tuple was changed after it was emitted, if changes are reported.
        """
        if self._window is not None:
            self.kept.check(self._name, self._window)
        self._note()
        self._quick.clear()
        self._window = None

    def _note(self) -> None:
        """Records how many of the collected tuples of each port belong to the open window."""
        if self._window is None:
            return
        for port, values in self._values.items():
            count = len(values) // (self._shape.widths[port] or 1)
            if count > self._noted[port]:
                self._stretches[port].append((self._window, count - self._noted[port]))
                self._noted[port] = count

    def is_full(self) -> bool:
        """Returns whether enough tuples for a batch have been collected."""
        waiting = self._in_tables
        for port, values in self._values.items():
            waiting += len(values) // (self._shape.widths[port] or 1)
        return waiting >= BATCH

    def emitter(self) -> Callable[..., None]:
        """Returns the fast path of `emit`: positional values while a window is open."""
        quick = self._quick

        def emit(port: str, *values: Any, **named: Any) -> None:
            try:
                extend, width = quick[port]
            except KeyError:
                return self.emit(
                    port,
                    values,
                    named,
                )
            if named or len(values) != width:
                return self.emit(
                    port,
                    values,
                    named,
                )
            return extend(values)

        return emit

    def emit(
        self,
        port: str,
        values: tuple[Any, ...],
        named: Mapping[str, Any],
        *,
        is_error: bool = False,
    ) -> None:
        """Adds a tuple to the batch of its port."""
        if self._window is None:
            raise InputError(
                f"{self._name} emits outside of a window",
                hint="Emit in begin_window, process or end_window.",
            )
        self._check_key()
        if port not in self._values:
            raise InputError(
                f'unknown output port "{port}"',
                hint=f"It has: {', '.join(self._values) or 'none'}.",
            )
        if port in self._shape.errors and not is_error:
            raise InputError(
                f'"{port}" is an error port',
                hint="Use emit_error, which has a parameter for the reason.",
            )
        if named:
            values = self._by_name(
                port,
                values,
                named,
            )
        width = self._shape.widths[port]
        if len(values) != width:
            names = ", ".join(self._shape.outputs[port].schema.names)
            raise InputError(
                f'port "{port}" has {width} columns ({names}), but {len(values)} values were passed'
            )
        self._append[port](
            (values if self.kept.is_plain(port) else self.kept.copy_of(port, values)) or (None,)
        )

    def _by_name(
        self,
        port: str,
        values: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> tuple[Any, ...]:
        names = self._shape.outputs[port].schema.names
        rest = names[len(values) :]
        wrong = sorted(set(named) ^ set(rest))
        if wrong:
            what = "is passed twice or does not exist" if wrong[0] in named else "is missing"
            raise InputError(
                f'column "{wrong[0]}" of port "{port}" {what}',
                hint=f"Its columns: {', '.join(names)}.",
            )
        return (*values, *map(named.get, rest))

    def emit_batch(self, port: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Adds rows to a port. The keys under which they are emitted are unknown."""
        if self._window is None:
            raise InputError(f"{self._name} emits outside of a window")
        self._check_key()
        columns = self._shape.outputs[port].schema
        if rows.schema.names != columns.names:
            raise InputError(
                f'port "{port}" has the columns {", ".join(columns.names)}, but a batch had '
                f"{', '.join(rows.schema.names)}"
            )
        converted = rows if rows.schema == columns else rows.cast(columns)
        is_table = isinstance(converted, pa.Table)
        table = converted if is_table else pa.Table.from_batches([converted])
        if not table.num_rows:
            return
        self.kept.note_batch(port, table)
        self._note()
        self._seal(port)
        self._stretches[port].append((self._window, table.num_rows))
        if port in self._foreign:
            # A batch has rows of many keys, and it is unknown under which each was emitted.
            first = self._sealed[port]
            self._foreign[port] += range(first, first + table.num_rows)
        self._add(port, table)
        self._in_tables += table.num_rows

    def _seal(self, port: str) -> None:
        """Converts the collected tuples of a port to a table, so that later rows come after
        them.
        """
        values = self._values[port]
        if not values:
            return
        columns = self._shape.outputs[port].schema
        what = f'port "{port}" of {self._name}'
        width = self._shape.widths[port]
        # The values of all columns are in one list, tuple after tuple, so a column is every
        # width-th value. This is faster than appending to one list per column.
        arrays = []
        for place, field in enumerate(columns):
            arrays.append(
                to_array(
                    values[place::width],
                    field,
                    what,
                )
            )
        values.clear()
        self._noted[port] = 0
        self._add(port, pa.table(arrays, names=columns.names))

    def _add(self, port: str, table: pa.Table) -> None:
        self._tables[port].append(table)
        self._sealed[port] += table.num_rows

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields the collected tuples, one batch per port."""
        self._note()
        self._in_tables = 0
        for port, columns in self._shape.outputs.items():
            self._seal(port)
            if tables := self._tables[port]:
                arrays = list(map(one_array, pa.concat_tables(tables).combine_chunks().columns))
                foreign = self._foreign.get(port, [])
                yield self.tagged(
                    columns,
                    self._stretches[port],
                    arrays,
                    foreign=foreign,
                )
                for waiting in (tables, self._stretches[port], foreign):
                    waiting.clear()
                self._sealed[port] = 0

    def tagged(
        self,
        columns: Columns,
        stretches: Sequence[tuple[int, int]],
        values: Sequence[pa.Array],
        foreign: Sequence[int] = (),
    ) -> pa.RecordBatch:
        """Returns the rows of one tag, with the columns of all tags.

        Args:
            columns: columns of the tag.
            stretches: windows, and the number of rows of each.
            values: the values of each column.
            foreign: positions of rows that were emitted under another key than their own.
        """
        places = []
        counts = []
        for window, count in stretches:
            places.append(
                sort_key(
                    window,
                    columns.tag,
                    self._before,
                )
            )
            counts.append(count)
        count = sum(counts)
        given = dict(zip(columns.names, map(as_travelling, values), strict=True))
        of_rows = np.repeat(np.array(places, np.int64), counts)
        of_rows[np.array(foreign, np.int64)] |= FOREIGN
        arrays = [pa.array(of_rows)]
        for field in self._fields:
            arrays.append(given[field.name] if field.name in given else pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._shape.made)
