"""The state of a key range as an operator accesses it: the values of the selected key are
attributes of the operator.

Values of immutable types are stored in the operator's `__dict__` while their key is selected, so
that reading and assigning them is as fast as for any attribute. When another key is selected,
changed values are copied to the record of their key. Lists, maps and structs, which are mutable,
stay in the record if there are keys.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.state import StateField, plain_type
from rewindow.operators.tuples.values import to_array
from rewindow.sequences import map_values
from rewindow.tuple_engine.tagged_rows import TagShape, lists_of

ROWS = 10_000
"""Rows of state in a batch."""
NO_KEY = object()
"""Placeholder for the key while none is selected; it differs from all values of tuples."""


class KeyedState:
    """The records of all keys of a key range.

    A record is a list with the values of the declared fields, and whether they have changed.

    Args:
        shape: columns of the operator's ports and state.
        operator: the copy that is called.

    Attributes:
        key: the selected key; NO_KEY if none is.
        failed_at: the tuple for which `process` has raised an exception.
    """

    def __init__(self, shape: TagShape, operator: TupleOperator) -> None:
        self._shape = shape
        self._fields = shape.fields
        self._keys = shape.keys
        self._name = type(operator).__name__
        self._now = operator.__dict__
        self._fields_there = shape.attributes
        self._states: dict[Any, list[Any]] = {}
        self._gone: set[Any] = set()
        self._known: set[Any] = set()
        self.key: Any = NO_KEY if self._keys else ()
        self._has_key = False
        self._moved = False
        self.failed_at: Any = None

    def begin(self) -> None:
        """Selects the only key of an operator without keys.

        It is called once, after the state is loaded.
        """
        if not self._keys:
            self._enter(())

    def process(
        self,
        process: Callable[[Any], None],
        rows: Iterable[Any],
        keys: Iterable[Any],
    ) -> None:
        """Calls `process` for tuples, each with the state of its key."""
        if not self._keys:
            self._without_keys(process, rows)
        elif len(self._fields_there) == 1:
            self._with_one_field(process, rows, keys)
        else:
            row: Any = None
            try:
                for row, key in zip(rows, keys, strict=False):
                    self._enter(key)
                    process(row)
                    self.leave()
            except Exception:
                self.failed_at = row
                raise

    def _without_keys(
        self,
        process: Callable[[Any], None],
        rows: Iterable[Any],
    ) -> None:
        row: Any = None
        try:
            for row in rows:
                process(row)
        except Exception:
            self.failed_at = row
            raise

    def _with_one_field(
        self,
        process: Callable[[Any], None],
        rows: Iterable[Any],
        keys: Iterable[Any],
    ) -> None:
        """Does the same as `_enter` and `leave` in one loop, for speed.

        `leave` is only called if the operator itself has selected another key.
        """
        (field,) = self._fields_there
        name = field.name
        place = field.place
        default = field.default
        find = self._states.get
        now = self._now
        row = None
        self._has_key = True
        self._moved = False
        try:
            for row, key in zip(rows, keys, strict=False):
                self.key = key
                record = find(key)
                now[name] = value = default if record is None else record[place]
                process(row)
                if self._moved:
                    self.leave()
                    self._has_key = True
                    self._moved = False
                elif (new := now[name]) is not value:
                    if record is None:
                        record = self._record(key)
                    record[place] = new
                    record[-1] = True
        except Exception:
            self.failed_at = row
            raise

    def _enter(self, key: Any) -> None:
        self.key = key
        self._has_key = True
        record = self._states.get(key)
        for field in self._fields_there:
            self._now[field.name] = field.first() if record is None else record[field.place]

    def leave(self) -> None:
        """Copies changed values of the selected key to its record."""
        if not self._has_key:
            return
        record = self._states.get(self.key)
        for field in self._fields_there:
            value = self._now[field.name]
            if value is not (field.default if record is None else record[field.place]) and not (
                record is None and field.changes_in_place and value == field.default
            ):
                record = self._record(self.key)
                record[field.place] = value
                record[-1] = True

    def without_key(self) -> None:
        """Stores the changed values of the selected key, and deselects the key.

        In an operator without keys, it does nothing.

        Raises:
            InputError: state was assigned while no key was selected.
        """
        if not self._keys:
            return
        if not self._has_key and any(field.name in self._now for field in self._fields_there):
            raise self.unkeyed()
        self.leave()
        self.key = NO_KEY
        self._has_key = False
        for field in self._fields_there:
            self._now.pop(field.name, None)

    def _record(self, key: Any) -> list[Any]:
        record = self._states.get(key)
        if record is None:
            record = self._states[key] = self._new_record()
        return record

    def _new_record(self) -> list[Any]:
        """Returns the record of a key without state: default values, marked as unchanged."""
        return [*(field.first() for field in self._fields), False]

    def own(self) -> list[Any]:
        """Returns the record of the selected key, and marks it as changed.

        Raises:
            InputError: no key is selected.
        """
        if not self._has_key:
            raise self.unkeyed()
        record = self._record(self.key)
        record[-1] = True
        return record

    def unkeyed(self) -> InputError:
        """Returns the error for an access to state while no key is selected."""
        return InputError(
            f"state of {self._name} is used while no key is selected",
            hint="Use `for key in self.keys()`, or `self.at(key)` in process_batch.",
        )

    def read(self, field: StateField) -> Any:
        """Returns the value of a mutable field for the selected key, and marks it as changed."""
        return self.own()[field.place]

    def peek(self) -> list[Any]:
        """Returns the record of the selected key for reading only.

        A key without state has default values.

        Raises:
            InputError: no key is selected.
        """
        if not self._has_key:
            raise self.unkeyed()
        record = self._states.get(self.key)
        return self._new_record() if record is None else record

    def copied(self) -> dict[Any, list[Any]]:
        """Returns a deep copy of the values of all keys."""
        self.leave()
        return copy.deepcopy(map_values(lambda values: values[:-1], self._states))

    def take(self, key: tuple[Any, ...]) -> None:
        """Selects a key."""
        self._move(self._one(key))

    def has(self, key: tuple[Any, ...]) -> bool:
        """Returns whether a key has state."""
        self.leave()
        return self._one(key) in self._states

    def _one(self, key: tuple[Any, ...]) -> Any:
        if len(key) != self._keys:
            raise InputError(f"the key has {self._keys} columns, but {len(key)} values were passed")
        return key[0] if len(key) == 1 else key

    def _move(self, key: Any) -> None:
        self.leave()
        self._moved = True
        self._enter(key)

    def each_key(self) -> Iterator[Any]:
        """Yields the keys with state in ascending order, and selects each of them."""
        self.leave()
        for key in sorted(self._states, key=_order):
            if key in self._states:
                self._move(key)
                yield key
        self._moved = True
        self.without_key()

    def forget(self) -> None:
        """Removes the state of the selected key."""
        if not self._has_key:
            raise self.unkeyed()
        self._states.pop(self.key, None)
        self._gone.add(self.key)
        self._moved = True
        self._enter(self.key)

    def load(self, batch: pa.RecordBatch) -> None:
        """Loads rows of state."""
        if not batch.num_rows:
            return
        keys = self._keys
        stored = lists_of(batch.select(self._shape.loaded.names))
        of_rows: list[Any] = [()] * batch.num_rows
        if keys == 1:
            of_rows = stored[0]
        elif keys:
            of_rows = list(zip(*stored[:keys], strict=True))
        values = []
        for field, column in zip(self._fields, stored[keys:], strict=True):
            is_map = pa.types.is_map(field.kind)
            values.append(list(map(field.from_stored, column)) if is_map else column)
        values.append([False] * batch.num_rows)
        records = map(list, zip(*values, strict=True))
        self._states.update(zip(of_rows, records, strict=True))
        self._known.update(of_rows)

    def rows(self) -> Iterator[list[pa.Array]]:
        """Yields the rows of changed and removed keys.

        Without a key, it yields the single row if it differs from the default values. Whether it
        differs must not depend on where groups end.

        Rules: R86
        """
        if not self._fields:
            return
        self.leave()
        defaults = [field.first() for field in self._fields]
        keys: list[Any] = []
        for key, values in self._states.items():
            if values[-1] if self._keys else values[:-1] != defaults:
                keys.append(key)
        if self._keys:
            keys += self._gone & self._known - self._states.keys()
            keys.sort(key=_order)
        what = f"state of {self._name}"
        for begin in range(0, len(keys), ROWS):
            columns = zip(*map(self._row, keys[begin : begin + ROWS]), strict=True)
            arrays = []
            for column, field in zip(columns, self._shape.state.schema, strict=True):
                arrays.append(to_array(column, field, what))
            yield arrays

    def _row(self, key: Any) -> tuple[Any, ...]:
        own = (key,) if self._keys == 1 else key
        record = self._states.get(key)
        if record is None:
            return (*own, *[None] * len(self._fields), True)
        values = []
        for field, value in zip(self._fields, record[:-1], strict=True):
            values.append(field.to_stored(value))
        return (*own, *values, False) if self._keys else (*values,)


def merge_states(operator: TupleOperator, rows: pa.Table, name: str) -> pa.Table:
    """Returns the merged state of all instances of an operator with `spread`, as one row or none.

    Args:
        operator: the operator.
        rows: the state of each instance.
        name: name of the operator, for messages.

    Raises:
        InputError: `merge` returns no value for a field.

    Rules: R100
    """
    fields = operator.fields
    states: list[Mapping[str, Any]] = []
    for row in rows.cast(pa.schema(list(map(_travelling, rows.schema)))).to_pylist():
        state = {}
        for field in fields:
            state[field.name] = field.from_stored(row[field.name])
        states.append(state)
    if len(states) < 2:
        return rows
    # Tasks end in any order. The states are sorted, so that a merge with rounding errors has the
    # same result in every run.
    merged = reduce(operator.merge, sorted(states, key=repr))
    missing = sorted({field.name for field in fields} - set(merged))
    if missing:
        raise InputError(f'merge of {name} returns no value for "{missing[0]}"')
    arrays = []
    for field, column in zip(fields, rows.schema, strict=True):
        arrays.append(to_array([field.to_stored(merged[field.name])], column, f"state of {name}"))
    return pa.table(arrays, schema=rows.schema)


def _travelling(column: pa.Field) -> pa.Field:
    return column.with_type(plain_type(column.type))


def _order(key: Any) -> Any:
    """Returns a sort key for keys. Nulls come first."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple((part is not None, part) for part in parts)
