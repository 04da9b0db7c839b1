"""TupleOperator: what a user writes to be called for each tuple (docs/rules/operators.md, section
3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import ConfigDict

from rewindow.application import FrameOperator, OperatorContext
from rewindow.application.error_tuples import check_reasons
from rewindow.application.properties import WrongProperty
from rewindow.errors import InputError
from rewindow.operators.tuples.placing import wrong_placing
from rewindow.operators.tuples.sliding import SlidingField
from rewindow.operators.tuples.state import StateField
from rewindow.sequences import excluding, names_of


class TupleOperator(FrameOperator):
    """An operator that is called for each tuple, in order, between the begin and the end of its
    window (O33).

    Of each key range a copy of the operator is called, by one thread (O34, W59): `setup`, then for
    every window of the group, also an empty one, `begin_window`, `process` for each tuple,
    `end_window`; then `teardown`. A tuple has the columns of its port as attributes; timestamps are
    microseconds since the epoch. With several input ports there is a method `process_PORT` for
    each; they come in the order in which the ports are declared, window by window.

    An input port says by which columns its tuples are keyed (`InputPort(schema, key=("user",))`):
    tuples of a key come to the same copy, and a `StateField` has a value for each key. Without keys
    there is one copy and one value (X41).

    A faster form is `process_batch(port, rows)`, called with Arrow batches of one window; where it
    is defined, no `process` is called.

    Attributes:
        transient: names of attributes that may be assigned though they are no state: lost after the
            group (X49).
        window_id: the window that is computed.
        context: the group's windows, the grid, the recovery mode and the operator's name.

    Example::

        class Totals(TupleOperator):
            inputs = {"clicks": InputPort(CLICKS, key=("user",))}
            outputs = {"out": OutputPort(TOTALS)}
            limit: int = 3
            total = StateField(pa.int64(), 0)

            def process(self, click):
                self.total += 1
                if self.total >= self.limit:
                    self.emit("out", click.user, self.total)
    """

    model_config = ConfigDict(ignored_types=(StateField, SlidingField))

    called_by_tuples: ClassVar[bool] = True
    transient: ClassVar[Sequence[str]] = ()
    fields: ClassVar[tuple[StateField, ...]] = ()
    places: ClassVar[Mapping[str, int]] = {}
    window_id: ClassVar[int]
    context: ClassVar[OperatorContext]

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        """Numbers the declared fields of state; an operator with a key says only what changed."""
        declared: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            declared |= vars(base)
        fields: list[StateField] = []
        places = {}
        for value in declared.values():
            if isinstance(value, StateField):
                value.place = places[value.name] = len(fields)
                fields.append(value)
        cls.fields = tuple(fields)
        cls.places = places
        cls.state_increments = any(port.key for port in cls.inputs.values())

    def setup(self) -> None:
        """Called once before the first window of a group; properties, attributes and state are
        there (O25, O28).

        Nothing is emitted. An operator that works with some attributes only raises here (O29).
        """

    def begin_window(self, window_id: int) -> None:
        """Called at the begin of every window, also of an empty one (O33); with application
        windows, of each (W18).
        """

    def process(self, row: Any) -> None:
        """Called for each tuple of the only input port, in the port's order (O33, O39)."""
        raise NotImplementedError

    def end_window(self) -> None:
        """Called at the end of every window, when all ports have ended it (O33, W34, W35).

        With application windows it is called at the end of each (W18), and where the recording ends
        (W23), with sliding ones at the end of each pane (W28).
        """

    def slide(self) -> None:
        """Called where a sliding window has a result: after `end_window` of the last one it covers
        (W28, W31).
        """

    def partials(self, name: str) -> list[Any]:
        """Returns the partial results of a `SlidingField` in the panes of the window, the oldest
        first (W29).
        """
        for field in self.fields:
            if field.name == name and isinstance(field, SlidingField):
                return field.all_of(self)
        raise InputError(f'{type(self).__name__} has no SlidingField "{name}"')

    @property
    def is_partial(self) -> bool:
        """Whether windows of this application or sliding window are missing (X8).

        They lie before a range that began inside of it without a state, at most once has lost them
        (R20), or the recording has ended before them (W23).
        """
        return self.context.is_partial(self.window_id)

    @property
    def windows_to_checkpoint(self) -> int:
        """Windows until the next checkpoint falls due: 1 in the window after which it does
        (W47).
        """
        return self.context.next_mark(self.window_id) - self.window_id + 1

    def before_checkpoint(self, window_id: int) -> None:
        """Called after a window at which a checkpoint falls due by id; what it changes is in the
        saved state (O36).

        The window has ended, so nothing is emitted (W53). The end of a group alone is no reason to
        call it (X42).
        """

    def checkpointed(self, window_id: int) -> None:
        """Called when the state after a window has been saved: on the next group's copy, after
        `setup` (W78, X42).

        It may neither emit nor change state. After a crash it comes again for the checkpoint that
        was restored; after the last group there is none. A key range without tuples and keys has no
        copy that could be called.
        """

    def committed(self, window_id: int) -> None:
        """Called after `checkpointed`: all operators have saved their state, in the same commit
        (W78, X20).
        """

    def teardown(self) -> None:
        """Called after the last window of a group, and after an error (O35)."""

    def emit(self, port: str, *values: Any, **named: Any) -> None:
        """Emits a tuple in the window that is computed; values in the order of the port's columns,
        or by their names.

        Raises:
            InputError: there is no such port or column, the count of values is wrong, or no window
                is open.
        """
        self.__dict__["_range"].emit(port, values, named)

    def emit_error(
        self,
        port: str,
        row: Sequence[Any],
        reason: str,
        detail: str = "",
        position: str = "",
    ) -> None:
        """Emits an error tuple: a check on data fails no replay, what a callback raises does
        (O62).

        Args:
            port: an error port.
            row: values in the order of the port's columns.
            reason: one of the built-in list (docs/error_tuples.md), or another name of
                lower-case letters, digits and _ (X14).
            detail: the reason in words, with the values.
            position: where the tuple came from.

        Raises:
            InputError: the reason is not such a name, or see `emit`.
        """
        check_reasons([reason], port)
        self.__dict__["_range"].emit(
            port,
            (*row, position or None, reason, detail or None),
            {},
            is_error=True,
        )

    def emit_batch(self, port: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Emits rows in the window that is computed; their columns are those of the port."""
        self.__dict__["_range"].emit_batch(port, rows)

    def keys(self) -> Iterator[Any]:
        """Gives the keys that have state, each as the one whose state the operator reads; in their
        order.

        A key of one column is its value, of several a tuple.
        """
        return self.__dict__["_range"].each_key()  # type: ignore[no-any-return]

    def at(self, *key: Any) -> None:
        """Takes a key as the one whose state the operator reads: for `process_batch`, which gets
        tuples of many.
        """
        self.__dict__["_range"].take(key)

    def has(self, *key: Any) -> bool:
        """Returns whether this partition has the state of a key (O87, O91). Use it for tuples of a
        broadcast port, which go to all partitions.
        """
        return self.__dict__["_range"].has(key)  # type: ignore[no-any-return]

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the combined state of two instances, by field (O95, R100). An operator with state
        needs it for `spread`.

        It must be associative and commutative, and a state of defaults must change nothing.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """Removes the state of the key whose state the operator reads."""
        self.__dict__["_range"].forget()

    def state_columns(self) -> pa.Schema | None:
        """Returns the key's columns and those of the declared fields, a row for each key."""
        if not self.fields:
            return None
        columns = self.key_schema()
        for field in self.fields:
            columns = columns.append(pa.field(field.name, field.stored_as))
        return columns

    def state_key_columns(self) -> tuple[str, ...]:
        """Returns the names of the key's columns."""
        return tuple(self.key_schema().names)

    def key_schema(self) -> pa.Schema:
        """Returns the columns of the key, as the first port with a key declares them; none without
        a key.
        """
        for port in self.input_ports().values():
            if port.is_keyed:
                columns = pa.schema([]) if port.schema is None else port.schema
                return pa.schema(
                    [columns.field(name) for name in port.key if name in columns.names]
                )
        return pa.schema([])

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns what is wrong with properties, ports and callbacks; input ports say what their
        tuples are (O22).
        """
        return [*super().wrong_properties(), *self._wrong_ports()]

    def wrong_placing(self) -> list[tuple[str, str]]:
        """Returns each rule that the partitions or unifiers violate, with a message."""
        return list(wrong_placing(self))

    def defines(self, name: str) -> bool:
        """Returns whether the class of the operator defines a callback."""
        return getattr(type(self), name) is not getattr(TupleOperator, name)

    def _wrong_ports(self) -> list[WrongProperty]:
        found = []
        ports = self.input_ports()
        key = self.key_schema().types
        for name, port in ports.items():
            if port.schema is None:
                found.append(
                    WrongProperty(name, "an input port of a tuple operator needs a schema", None)
                )
                continue
            absent = excluding(port.key, port.schema.names)
            if absent:
                found.append(
                    WrongProperty(
                        name,
                        f"key {', '.join(absent)} is not in the port's columns",
                        port.key,
                    )
                )
            elif not port.is_keyed:
                if port.key:
                    kind = "control" if port.control else "broadcast"
                    found.append(
                        WrongProperty(
                            name,
                            f"a {kind} port has no key: its tuples go to all keys",
                            port.key,
                        )
                    )
            elif pa.schema(map(port.schema.field, port.key)).types != key:
                found.append(
                    WrongProperty(
                        name,
                        "its key has other types than that of the first port",
                        port.key,
                    )
                )
            odd = []
            for column in port.key:
                if column in port.schema.names and not _can_be_key(port.schema.field(column)):
                    odd.append(column)
            if odd:
                found.append(
                    WrongProperty(
                        name,
                        f"key {', '.join(odd)} is a float or nested: it has no one value",
                        port.key,
                    )
                )
            if not self._is_called(name, only=len(ports) == 1):
                method = "process" if len(ports) == 1 else f"process_{name}"
                found.append(
                    WrongProperty(name, f"there is no method {method} and no process_batch", None)
                )
        taken = sorted({"window_id", *names_of(self.fields)} & set(self.key_schema().names))
        if taken:
            found.append(
                WrongProperty(
                    taken[0],
                    "a field of state has the name of a column of the key",
                    taken,
                )
            )
        return found

    def _is_called(self, port: str, *, only: bool) -> bool:
        of_its_own = self.defines("process")
        return (
            hasattr(self, "process_batch")
            or hasattr(self, f"process_{port}")
            or (only and of_its_own)
        )


def _can_be_key(field: pa.Field) -> bool:
    """Returns whether equal values are one key: a NaN is not equal to itself, and a list is none
    for Python.
    """
    return not (pa.types.is_floating(field.type) or pa.types.is_nested(field.type))
