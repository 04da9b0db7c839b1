"""One key range of a tuple operator: Arrow batches in, Arrow batches out; the same under Spark and in tests.

Everything travels in one stream of tagged rows. In: rows of state first, then tuples by window, port and order. Out: a
batch of each output port, and rows of state at the end. A column of a tag is named by it, so that no names collide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.emitted import Kept
from rewindow.operators.tuples.operator import TupleOperator, copy_of
from rewindow.operators.tuples.state import StateField
from rewindow.operators.tuples.tagged_rows import (
    NO_TAG,
    TAG,
    WINDOW,
    Columns,
    as_travelling,
    input_tags,
    one_array,
    output_tags,
    row_class,
    shown,
    state_tag,
    tagged_schema,
    to_array,
    tuples_of,
)

BATCH = 10_000
"""Tuples that are made into an Arrow batch at once: more save nothing (measured), and cost memory."""


class KeyRange:
    """Calls a copy of an operator over the tagged rows of one key range, on one thread (O33, O34).

    Args:
        context: its windows are all begun and ended, also without a tuple.
        tells_changes: whether it is an error to change a tuple after it was emitted; it has no effect anyhow (O43).
    """

    def __init__(self, operator: TupleOperator, context: OperatorContext, *, tells_changes: bool = False) -> None:
        self._windows, self._window = context.windows, context.first - 1
        self._fields = operator.fields
        self._keys = len(operator.key_schema())
        self._in, self._out, self._state = input_tags(operator), output_tags(operator), state_tag(operator)
        self._schema = tagged_schema([self._state, *self._out.values()])
        self._rows = {name: row_class(name, columns.schema) for name, columns in self._in.items()}
        self._key_of = {
            name: tuple(port.schema.get_field_index(column) for column in port.key) if port.schema else ()
            for name, port in operator.input_ports().items()
        }
        self._states: dict[Any, list[Any]] = {}
        self._gone: set[Any] = set()
        self._known: set[Any] = set()
        self._key: Any = () if not self._keys else None
        self._has_key, self._is_open = not self._keys, False
        self._made: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._out}
        self._stretches: dict[str, list[tuple[int, int]]] = {name: [] for name in self._out}
        self._batches: dict[str, list[tuple[int, pa.Table]]] = {name: [] for name in self._out}
        self._in_tables = 0
        self._kept = Kept(self._out, tells=tells_changes)
        self._widths = {name: len(columns.schema) for name, columns in self._out.items()}
        self._errors = {name for name, port in operator.output_ports().items() if port.error}
        self._operator = copy_of(operator, self, context, self._quick_emit())
        self._now = self._operator.__dict__
        self._in_batches = hasattr(operator, "process_batch")
        only = len(self._in) == 1
        self._process = {
            name: getattr(self._operator, f"process_{name}", None) or (self._operator.process if only else None)
            for name in self._in
        }

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Gives what was emitted, batch by batch, then the state.

        Raises:
            InputError: the operator's code broke a rule.
            Exception: what the operator's code has raised, with a note of callback, window and tuple.
        """
        is_set_up = False
        try:
            for batch in map(_without_mark, batches):
                states = int(np.searchsorted(batch[TAG].to_numpy() != 0, True)) if batch.num_rows else 0
                self._load(batch.slice(0, states))
                if states < batch.num_rows:
                    is_set_up = is_set_up or self._set_up()
                    yield from self._take_batch(batch.slice(states))
            is_set_up = is_set_up or self._set_up()
            yield from self._begin(self._windows.last)
            self._end()
        finally:
            if is_set_up:
                self._call("teardown", self._operator.teardown)
        yield from self._flush()
        yield from self._state_rows()

    def _set_up(self) -> bool:
        self._call("setup", self._operator.setup)
        return True

    def _take_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        tags, ids = (batch[name].to_numpy() for name in (TAG, WINDOW))
        for port, window, rows in self._runs(batch, tags, ids):
            yield from self._begin(window)
            self._take(port, rows)
        if self._is_full():
            yield from self._flush()

    def _is_full(self) -> bool:
        return self._in_tables + sum(map(len, self._made.values())) >= BATCH

    def _begin(self, window: int) -> Iterator[pa.RecordBatch]:
        """Ends the window that is open and begins the next ones, up to one."""
        while self._window < window:
            self._end()
            self._window += 1
            self._now["window_id"] = self._window
            self._is_open = True
            self._without_tuple()
            self._call("begin_window", self._operator.begin_window, self._window)
            if self._is_full():
                yield from self._flush()

    def _end(self) -> None:
        if self._is_open:
            self._without_tuple()
            self._call("end_window", self._operator.end_window)
            self._kept.check(type(self._operator).__name__, self._window)
            self._note_window()
            self._is_open = False

    def _without_tuple(self) -> None:
        """Leaves no key to be read, but in an operator without keys the only one."""
        self._has_key = not self._keys
        self._now["_values"] = None if self._keys else self._states.get(())

    def _note_window(self) -> None:
        """Notes how many of the tuples that wait on each port are of the window that is open."""
        for port, rows in self._made.items():
            stretches = self._stretches[port]
            more = len(rows) - sum(count for _, count in stretches)
            if more:
                stretches.append((self._window, more))

    def _call(self, name: str, callback: Any, *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._note(name, error)
            raise

    def _note(self, name: str, error: Exception, row: Any = None) -> None:
        """Notes on an error where it was raised: callback, window and tuple."""
        window = self._operator.__dict__.get("window_id")
        where = f"{name} of {type(self._operator).__name__}" + (f", window {window}" if window is not None else "")
        error.add_note(f"in {where}" + (f", at the tuple {shown(row)}" if row is not None else ""))

    def _runs(self, batch: pa.RecordBatch, tags: Any, ids: Any) -> Iterator[tuple[str, int, Any]]:
        """Gives port, window and rows for each stretch of tuples of one window and port; rows are made once a batch."""
        names = list(self._in)
        rows: dict[str, Any] = {}
        places: dict[str, int] = {}
        for tag in np.unique(tags).tolist():
            name = names[tag - 1]
            columns = self._in[name]
            of_port = batch if len(names) == 1 else batch.filter(pa.array(tags == tag))
            chosen = of_port.select(columns.names)
            rows[name] = chosen if self._in_batches else tuples_of(chosen)
            places[name] = 0
        cuts = np.flatnonzero((np.diff(ids) != 0) | (np.diff(tags) != 0)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(ids)], strict=True):
            name = names[int(tags[begin]) - 1]
            count, place = end - begin, places[name]
            places[name] = place + count
            part = rows[name].slice(place, count) if self._in_batches else rows[name][place : place + count]
            yield name, int(ids[begin]), part

    def _take(self, port: str, rows: Any) -> None:
        if self._in_batches:
            batch = pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(rows.columns, self._in[port].schema, strict=True)],
                schema=self._in[port].schema,
            )
            return self._call("process_batch", self._operator.process_batch, port, batch)  # type: ignore[attr-defined]
        process, make = self._process[port], self._rows[port]
        assert process is not None, "checked at launch"
        key_of, new = self._key_of[port], tuple.__new__
        row: Any = None
        try:
            if not key_of:
                for values in rows:
                    row = new(make, values)
                    process(row)
            else:
                pick, find, now, self._has_key = itemgetter(*key_of), self._states.get, self._now, True
                for values in rows:
                    row = new(make, values)
                    self._key = key = pick(values)
                    now["_values"] = find(key)
                    process(row)
        except Exception as error:
            self._note(f"process of port {port}", error, row)
            raise
        return None

    def read(self, field: StateField) -> Any:
        """Returns a field of the key that is read; one that can be changed in place counts as changed."""
        return self.own()[field.place] if field.changes_in_place or not self._has_key else field.default

    def own(self) -> list[Any]:
        """Returns the fields of the key that is read, to be changed; behind them, that they have changed."""
        if not self._has_key:
            raise InputError(
                f"state of {type(self._operator).__name__} is used where no tuple says of which key",
                hint="Use `for key in self.keys()`, or `self.at(key)` in process_batch.",
            )
        found = self._states.get(self._key)
        if found is None:
            first = [field.first() for field in self._fields]
            found = self._states[self._key] = self._now["_values"] = [*first, True]
        found[-1] = True
        return found

    def take(self, key: tuple[Any, ...]) -> None:
        """Takes a key as the one that is read."""
        if len(key) != self._keys:
            raise InputError(f"the key has {self._keys} columns, at() was given {len(key)} values")
        self._at(key[0] if len(key) == 1 else key)

    def _at(self, key: Any) -> None:
        self._key, self._has_key = key, True
        self._now["_values"] = self._states.get(key)

    def each_key(self) -> Iterator[Any]:
        """Gives the keys with state in their order, each as the one that is read."""
        for key in sorted(self._states, key=_order):
            if key in self._states:
                self._at(key)
                yield key
        self._without_tuple()

    def forget(self) -> None:
        """Removes the state of the key that is read."""
        self._states.pop(self._key, None)
        self._now["_values"] = None
        self._gone.add(self._key)

    def emit(self, port: str, values: tuple[Any, ...], named: Mapping[str, Any], *, is_error: bool = False) -> None:
        """Keeps a tuple until its batch is full."""
        if not self._is_open:
            raise InputError(
                f"{type(self._operator).__name__} emits outside of a window",
                hint="Emit in begin_window, process or end_window.",
            )
        if port not in self._made:
            raise InputError(f'there is no output port "{port}"', hint=f"It has: {', '.join(self._made) or 'none'}.")
        if port in self._errors and not is_error:
            raise InputError(f'"{port}" is an error port', hint="Use emit_error, which takes the reason.")
        if named:
            values = self._by_name(port, values, named)
        if len(values) != self._widths[port]:
            names = ", ".join(self._out[port].schema.names)
            raise InputError(
                f'port "{port}" has {self._widths[port]} columns ({names}), {len(values)} values were given'
            )
        self._made[port].append(values if self._kept.is_plain(port) else self._kept.copy_of(port, values))

    def _quick_emit(self) -> Callable[..., None]:
        """Returns `emit` for the most frequent: plain values in the order of the columns, in an open window."""
        ports = {
            port: (rows.append, self._widths[port])
            for port, rows in self._made.items()
            if port not in self._errors and self._kept.is_plain(port)
        }

        def emit(port: str, *values: Any, **named: Any) -> None:
            append, width = ports.get(port, (None, -1))
            if append is None or named or len(values) != width or not self._is_open:
                self.emit(port, values, named)
            else:
                append(values)

        return emit

    def _by_name(self, port: str, values: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = self._out[port].schema.names
        rest = names[len(values) :]
        wrong = sorted(set(named) ^ set(rest))
        if wrong:
            what = "is given twice or is none of its columns" if wrong[0] in named else "is not given"
            raise InputError(f'column "{wrong[0]}" of port "{port}" {what}', hint=f"Its columns: {', '.join(names)}.")
        return (*values, *(named[name] for name in rest))

    def emit_batch(self, port: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Keeps rows of a port as a batch of their own."""
        if not self._is_open:
            raise InputError(f"{type(self._operator).__name__} emits outside of a window")
        columns = self._out[port].schema
        if rows.schema.names != columns.names:
            raise InputError(
                f'port "{port}" has the columns {", ".join(columns.names)}, a batch had {", ".join(rows.schema.names)}'
            )
        found = rows if rows.schema == columns else rows.cast(columns)
        table = found if isinstance(found, pa.Table) else pa.Table.from_batches([found])
        self._kept.note_batch(port, table)
        self._batches[port].append((self._window, table))
        self._in_tables += table.num_rows

    def _flush(self) -> Iterator[pa.RecordBatch]:
        self._note_window()
        self._in_tables = 0
        for port, columns in self._out.items():
            if tables := self._batches[port]:
                table = pa.concat_tables([table for _, table in tables]).combine_chunks()
                arrays = [one_array(column) for column in table.columns]
                yield self._tagged(columns, _ids([(window, rows.num_rows) for window, rows in tables]), arrays)
                tables.clear()
            if rows := self._made[port]:
                ids, what = _ids(self._stretches[port]), f'port "{port}" of {type(self._operator).__name__}'
                values = zip(zip(*rows, strict=True), columns.schema, strict=True)
                arrays = [to_array(column, field, what) for column, field in values]
                rows.clear()
                self._stretches[port].clear()
                yield self._tagged(columns, ids, arrays)

    def _tagged(self, columns: Columns, ids: pa.Array, values: Sequence[pa.Array]) -> pa.RecordBatch:
        count, given = len(ids), dict(zip(columns.names, map(as_travelling, values), strict=True))
        arrays = [
            pa.repeat(pa.scalar(columns.tag, pa.int32()), count),
            ids,
            *(
                given.get(field.name) if field.name in given else pa.nulls(count, field.type)
                for field in list(self._schema)[2:]
            ),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _load(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = [column.to_pylist() for column in batch.select(self._state.names).columns]
        for values in zip(*columns, strict=True):
            key = values[: self._keys]
            fields = zip(self._fields, values[self._keys : -1], strict=True)
            found = key[0] if self._keys == 1 else key
            self._states[found] = [*(field.from_stored(value) for field, value in fields), False]
            self._known.add(found)

    def _state_rows(self) -> Iterator[pa.RecordBatch]:
        """Gives the rows of keys that changed, and those of keys that are gone; all rows where there is no key."""
        if not self._fields:
            return
        if not self._keys:
            keys: list[Any] = list(self._states)
        else:
            changed = (key for key, values in self._states.items() if values[-1])
            keys = sorted([*changed, *(self._gone & self._known - self._states.keys())], key=_order)
        schema = self._state.schema
        for begin in range(0, len(keys), BATCH):
            rows = [self._state_row(key) for key in keys[begin : begin + BATCH]]
            what = f"state of {type(self._operator).__name__}"
            arrays = [
                to_array(column, field, what) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            yield self._tagged(self._state, pa.repeat(pa.scalar(self._windows.last, pa.int64()), len(rows)), arrays)

    def _state_row(self, key: Any) -> tuple[Any, ...]:
        own = (key,) if self._keys == 1 else key
        found = self._states.get(key)
        if found is None:
            return (*own, *(None for _ in self._fields), True)
        return (*own, *(field.to_stored(value) for field, value in zip(self._fields, found[:-1], strict=True)), False)


def _ids(stretches: Sequence[tuple[int, int]]) -> pa.Array:
    windows, counts = zip(*stretches, strict=True)
    return pa.array(np.repeat(np.array(windows, np.int64), counts))


def _without_mark(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1) if batch.num_rows and batch[TAG][0].as_py() == NO_TAG else batch


def _order(key: Any) -> Any:
    """Returns what keys are sorted by: nulls first."""
    return tuple((part is not None, part) for part in (key if isinstance(key, tuple) else (key,)))
