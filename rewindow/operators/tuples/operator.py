"""TupleOperator: the base class of operators that are called for each tuple."""

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
    """An operator that is called for each tuple, in order, between the start and the end of its
    window.

    Each key range has a copy of the operator, which one thread calls: `setup`, then for every
    window of the group, even an empty one, `begin_window`, `process` for each tuple, and
    `end_window`; then `teardown`. A tuple has the columns of its port as attributes; timestamps are
    microseconds since the epoch. With several input ports there is a method `process_PORT` for
    each. In each window, the ports are processed in the order in which they are declared.

    An input port declares the columns by which its tuples are keyed (`InputPort(schema,
    key=("user",))`): all tuples of a key are processed by the same copy, and a `StateField` has a
    value for each key. Without keys there is one copy and one value.

    A faster form is `process_batch(port, rows)`, called with Arrow batches of one window. If it is
    defined, `process` is not called.

    Attributes:
        transient: names of attributes that may be assigned although they are not state; their
            values are lost after the group.
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

    Rules: O33, O34, W59, X41, X49
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
        """Numbers the declared state fields. If the operator has a key, `next_state` returns
        only the rows of changed keys.
        """
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
        """Called once before the first window of a group; properties, attributes and state are set.

        It must not emit. An operator that works only with some attributes raises an error here.

        Rules: O25, O28, O29
        """

    def begin_window(self, window_id: int) -> None:
        """Called at the start of every window, even of an empty one.

        With application windows, it is called at the start of each application window.

        Args:
            window_id: the window that starts.

        Rules: O33, W18
        """

    def process(self, row: Any) -> None:
        """Called for each tuple of the only input port, in the order of the port.

        Args:
            row: the tuple, with the columns of the port as attributes.

        Rules: O33, O39
        """
        raise NotImplementedError

    def end_window(self) -> None:
        """Called at the end of every window, after all ports have ended it.

        With application windows it is called at the end of each application window and at the end
        of the recording. With sliding windows it is called at the end of each pane.

        Rules: O33, W18, W23, W28, W34, W35
        """

    def slide(self) -> None:
        """Called when a sliding window has a result: after `end_window` of the last window that it
        covers.

        Rules: W28, W31
        """

    def partials(self, name: str) -> list[Any]:
        """Returns the partial results of a `SlidingField` for all panes of the window, oldest
        first.

        Args:
            name: name of the field.

        Raises:
            InputError: the operator has no such field.

        Rules: W29
        """
        for field in self.fields:
            if field.name == name and isinstance(field, SlidingField):
                return field.all_of(self)
        raise InputError(f'{type(self).__name__} has no SlidingField "{name}"')

    @property
    def is_partial(self) -> bool:
        """Whether streaming windows of this application or sliding window are missing.

        Windows can be missing for three reasons: a range started inside the application window
        without a state, at-most-once recovery has lost them, or the recording ended before them.

        Rules: R20, W23, X8
        """
        return self.context.is_partial(self.window_id)

    @property
    def windows_to_checkpoint(self) -> int:
        """The number of windows until the next checkpoint is due.

        It is 1 in the window after which the checkpoint is due.

        Rules: W47
        """
        return self.context.next_mark(self.window_id) - self.window_id + 1

    def before_checkpoint(self, window_id: int) -> None:
        """Called after a window whose id makes a checkpoint due.

        Changes to the state are part of the checkpoint. The window has ended, so this method must
        not emit. It is not called at the end of a group unless a checkpoint is due.

        Args:
            window_id: the window that has ended.

        Rules: O36, W53, X42
        """

    def checkpointed(self, window_id: int) -> None:
        """Called after the state of a window has been saved: on the next group's copy, after
        `setup`.

        It must neither emit nor change state. After a crash it is called again for the restored
        checkpoint; after the last group it is not called. A key range without tuples and keys has
        no copy, so it is not called there.

        Args:
            window_id: the last window that is in the saved state.

        Rules: W78, X42
        """

    def committed(self, window_id: int) -> None:
        """Called after `checkpointed`, when all operators have saved their state in the same
        commit.

        Args:
            window_id: the last window that is in the saved states.

        Rules: W78, X20
        """

    def teardown(self) -> None:
        """Called after the last window of a group, and after an error.

        Rules: O35
        """

    def emit(self, port: str, *values: Any, **named: Any) -> None:
        """Emits a tuple in the current window.

        Args:
            port: an output port.
            values: values in the order of the port's columns.
            named: values of the other columns, by name.

        Raises:
            InputError: the port or a column does not exist, the number of values is wrong, or no
                window is open.
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
        """Emits an error tuple. A failed check on a tuple does not fail the replay; an exception in
        a callback does.

        Args:
            port: an error port.
            row: values in the order of the port's columns.
            reason: one of the built-in list (docs/error_tuples.md), or another name of lower-case
                letters, digits and _.
            detail: the reason in words, with the values.
            position: origin of the tuple.

        Raises:
            InputError: the reason is not such a name, or see `emit`.

        Rules: O62, X14
        """
        check_reasons([reason], port)
        self.__dict__["_range"].emit(
            port,
            (*row, position or None, reason, detail or None),
            {},
            is_error=True,
        )

    def emit_batch(self, port: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Emits rows in the current window.

        Args:
            port: an output port.
            rows: the rows, with the port's columns.
        """
        self.__dict__["_range"].emit_batch(port, rows)

    def keys(self) -> Iterator[Any]:
        """Yields the keys that have state, in their order, and selects the state of each.

        If the key has one column, the value is yielded; otherwise a tuple of values.
        """
        return self.__dict__["_range"].each_key()  # type: ignore[no-any-return]

    def at(self, *key: Any) -> None:
        """Selects the key whose state the operator reads.

        Used in `process_batch`, where a batch has tuples of many keys.

        Args:
            key: a value for each column of the key.
        """
        self.__dict__["_range"].take(key)

    def has(self, *key: Any) -> bool:
        """Returns whether this partition has the state of a key. Use it for tuples of a broadcast
        port, which all partitions receive.

        Args:
            key: a value for each column of the key.

        Rules: O87, O91
        """
        return self.__dict__["_range"].has(key)  # type: ignore[no-any-return]

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the combined state of two instances, by field.

        An operator with state needs this method for `spread`. It must be associative and
        commutative. Merging a state of default values must not change the other state.

        Args:
            one, other: values of the state fields of an instance, by name.

        Rules: O95, R100
        """
        raise NotImplementedError

    def forget(self) -> None:
        """Removes the state of the selected key."""
        self.__dict__["_range"].forget()

    def state_columns(self) -> pa.Schema | None:
        """Returns the key columns and the columns of the declared fields.

        The state has one row per key.
        """
        if not self.fields:
            return None
        columns = self.key_schema()
        for field in self.fields:
            columns = columns.append(pa.field(field.name, field.stored_as))
        return columns

    def state_key_columns(self) -> tuple[str, ...]:
        """Returns the names of the key columns."""
        return tuple(self.key_schema().names)

    def key_schema(self) -> pa.Schema:
        """Returns the key columns that the first port with a key declares; an empty schema without
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
        """Returns errors about properties, ports and callbacks.

        Rules: O22
        """
        return [*super().wrong_properties(), *self._wrong_ports()]

    def wrong_placing(self) -> list[tuple[str, str]]:
        """Returns a message for each rule that the partitions or unifiers violate."""
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
                        f"the port has no column {', '.join(absent)} for its key",
                        port.key,
                    )
                )
            elif not port.is_keyed:
                if port.key:
                    kind = "control" if port.control else "broadcast"
                    found.append(
                        WrongProperty(
                            name,
                            f"a {kind} port cannot have a key: its tuples go to all keys",
                            port.key,
                        )
                    )
            elif pa.schema(map(port.schema.field, port.key)).types != key:
                found.append(
                    WrongProperty(
                        name,
                        "its key must have the same types as the key of the first port",
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
                        f"key {', '.join(odd)} cannot be a float or nested: equal keys could not "
                        "be recognized",
                        port.key,
                    )
                )
            if not self._is_called(name, only=len(ports) == 1):
                method = "process" if len(ports) == 1 else f"process_{name}"
                found.append(
                    WrongProperty(name, f"define a method {method} or process_batch", None)
                )
        taken = sorted({"window_id", *names_of(self.fields)} & set(self.key_schema().names))
        if taken:
            found.append(
                WrongProperty(
                    taken[0],
                    "a state field cannot have the name of a key column",
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
    """Returns whether equal values of a column are the same key.

    A NaN does not equal itself, and a Python list cannot be hashed.
    """
    return not (pa.types.is_floating(field.type) or pa.types.is_nested(field.type))
