"""The state of a key range in the hands of an operator: the values of one key at a time are its
attributes.

Values of plain types lie in the operator's own dict while their key is read: what is read and
assigned most is read and assigned as any attribute. They go into the record of their key when it is
left, if they have changed. Lists, maps and structs, which can be changed in place, stay in the
record where there are keys.
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
"""Stands for the key while none is read: no value of a tuple equals it."""


class KeyedState:
    """The records of all keys of a key range: values of the declared fields, and whether they have
    changed.

    Args:
        shape: of the operator.
        operator: the copy that is called.

    Attributes:
        key: the key that is read; NO_KEY while none is.
        failed_at: the tuple at which `process` has raised.
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
        """Takes the only key of an operator without keys; called once what it begins with is
        loaded.
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
        """Does what `_enter` and `leave` do, without calling them, unless the operator itself has
        read another key.
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
                found = find(key)
                now[name] = value = default if found is None else found[place]
                process(row)
                if self._moved:
                    self.leave()
                    self._has_key = True
                    self._moved = False
                elif (new := now[name]) is not value:
                    if found is None:
                        found = self._record(key)
                    found[place] = new
                    found[-1] = True
        except Exception:
            self.failed_at = row
            raise

    def _enter(self, key: Any) -> None:
        self.key = key
        self._has_key = True
        found = self._states.get(key)
        for field in self._fields_there:
            self._now[field.name] = field.first() if found is None else found[field.place]

    def leave(self) -> None:
        """Puts the values of the key that is read into its record, where they have changed."""
        if not self._has_key:
            return
        found = self._states.get(self.key)
        for field in self._fields_there:
            value = self._now[field.name]
            if value is not (field.default if found is None else found[field.place]) and not (
                found is None and field.changes_in_place and value == field.default
            ):
                found = self._record(self.key)
                found[field.place] = value
                found[-1] = True

    def without_key(self) -> None:
        """Leaves no key to be read, but in an operator without keys the only one.

        Raises:
            InputError: state was assigned though no key was read.
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
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = self._new_record()
        return found

    def _new_record(self) -> list[Any]:
        """Returns the record of a key without state: the defaults, not changed yet."""
        return [*(field.first() for field in self._fields), False]

    def own(self) -> list[Any]:
        """Returns the record of the key that is read, to be changed.

        Raises:
            InputError: no key is read.
        """
        if not self._has_key:
            raise self.unkeyed()
        found = self._record(self.key)
        found[-1] = True
        return found

    def unkeyed(self) -> InputError:
        """Returns the error for state that is used where nothing says of which key."""
        return InputError(
            f"state of {self._name} is used where no tuple says of which key",
            hint="Use `for key in self.keys()`, or `self.at(key)` in process_batch.",
        )

    def read(self, field: StateField) -> Any:
        """Returns a field that can be changed in place, which counts as changed."""
        return self.own()[field.place]

    def peek(self) -> list[Any]:
        """Returns the record of the key that is read, to be read only: that of a key without state
        is a new one.

        Raises:
            InputError: no key is read.
        """
        if not self._has_key:
            raise self.unkeyed()
        found = self._states.get(self.key)
        return self._new_record() if found is None else found

    def copied(self) -> dict[Any, list[Any]]:
        """Returns the values of all keys, which later changes do not touch."""
        self.leave()
        return copy.deepcopy(map_values(lambda values: values[:-1], self._states))

    def take(self, key: tuple[Any, ...]) -> None:
        """Takes a key as the one that is read."""
        self._move(self._one(key))

    def has(self, key: tuple[Any, ...]) -> bool:
        """Returns whether a key has state."""
        self.leave()
        return self._one(key) in self._states

    def _one(self, key: tuple[Any, ...]) -> Any:
        if len(key) != self._keys:
            raise InputError(f"the key has {self._keys} columns, {len(key)} values were given")
        return key[0] if len(key) == 1 else key

    def _move(self, key: Any) -> None:
        self.leave()
        self._moved = True
        self._enter(key)

    def each_key(self) -> Iterator[Any]:
        """Gives the keys with state in their order, each as the one that is read."""
        self.leave()
        for key in sorted(self._states, key=_order):
            if key in self._states:
                self._move(key)
                yield key
        self._moved = True
        self.without_key()

    def forget(self) -> None:
        """Removes the state of the key that is read."""
        if not self._has_key:
            raise self.unkeyed()
        self._states.pop(self.key, None)
        self._gone.add(self.key)
        self._moved = True
        self._enter(self.key)

    def load(self, batch: pa.RecordBatch) -> None:
        """Takes rows of state."""
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
        """Gives the rows of keys that changed, and those of keys that are gone; without a key the
        row, if it says more than the defaults do: whether it does must not depend on where groups
        end (R86).
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
        found = self._states.get(key)
        if found is None:
            return (*own, *[None] * len(self._fields), True)
        values = []
        for field, value in zip(self._fields, found[:-1], strict=True):
            values.append(field.to_stored(value))
        return (*own, *values, False) if self._keys else (*values,)


def merge_states(operator: TupleOperator, rows: pa.Table, name: str) -> pa.Table:
    """Returns the state of all instances of an operator that is spread, one row or none (R100).

    Args:
        rows: the state of each instance.

    Raises:
        InputError: `merge` returns no value for a field.
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
    # Tasks end in any order. The states are sorted, so that a merge which rounds does the same in
    # every run.
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
    """Returns what keys are sorted by: nulls first."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple((part is not None, part) for part in parts)
