"""Runs one key range of a tuple operator: receives and returns Arrow batches, both in Spark and in
tests.

All rows are in one stream of tagged rows. The input has rows of state, then tuples by window, port
and order. The output has a batch per output port, and rows of state at the end. All tags share the
columns of the tagged rows, see `tagged_rows`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.state import StateField
from rewindow.operators.tuples.values import shown
from rewindow.tuple_engine.emissions import Emissions
from rewindow.tuple_engine.emitted import EmittedCopies
from rewindow.tuple_engine.failing import TUPLE_KEY, FailingTuple, error_text
from rewindow.tuple_engine.keyed_state import KeyedState
from rewindow.tuple_engine.running import check_assigned, running_copy
from rewindow.tuple_engine.tagged_rows import (
    PLACEHOLDER,
    SORT_KEY,
    WINDOW_BITS,
    TagShape,
    lists_of,
    tag_of,
    window_of,
)

_CALLBACKS = ("begin_window", "end_window", "slide", "before_checkpoint")
"""Callbacks that are called in every window if the operator defines them. An empty call would cost
2 us per window."""
EVERY_KEY = ()
"""Represents all keys of a port, after a failure that may have affected any of them."""
NO_CONTROLS: Mapping[str, Mapping[int, pa.RecordBatch]] = MappingProxyType({})


class KeyRange:
    """Calls a copy of an operator over the tagged rows of one key range, in one thread.

    The rows are sorted by window and port. A window is opened when the first row of this window or
    a later one is read. All windows of the group are opened and closed, including empty ones.

    Args:
        operator: the operator.
        context: the group's windows.
        shape: columns of the operator's ports; computed unless it is given.
        controls: control port and window to the tuples that are processed before the end of the
            window.
        followed: output ports whose tuples are marked if their key differs from the one under which
            they were emitted.
        tells_changes: whether changing a tuple after it was emitted is an error; otherwise it has
            no effect.
        failing: receives the tuples for which `process` fails; without it the first one ends the
            run.

    Rules: O33, O34, O43
    """

    def __init__(
        self,
        operator: TupleOperator,
        context: OperatorContext,
        shape: TagShape | None = None,
        controls: Mapping[str, Mapping[int, pa.RecordBatch]] = NO_CONTROLS,
        *,
        followed: Iterable[str] = (),
        tells_changes: bool = False,
        failing: list[FailingTuple] | None = None,
    ) -> None:
        self._failing = failing
        self._is_set_up = False
        self._failed_keys: set[Any] = set()
        self._windows = context.windows
        self._window = context.first - 1
        self._closes = context.closes
        self._windowing = context.windowing
        self._next_mark = context.next_mark
        self._checkpointed = context.checkpointed
        self._shape = shape or TagShape(operator)
        self._names = list(self._shape.inputs)
        self._controls = controls
        self._out = Emissions(
            type(operator).__name__,
            self._shape,
            EmittedCopies(self._shape.outputs, tells=tells_changes),
            before=self._window,
        )
        self.emit = self._out.emit
        self.emit_batch = self._out.emit_batch
        self._operator = running_copy(
            operator,
            self._shape,
            self,
            context=context,
            emit=self._out.emitter(),
        )
        self._assigned = dict(self._operator.__dict__)
        self._state = KeyedState(self._shape, self._operator)
        self._out.follow(followed, self._state)
        self.has = self._state.has
        self.each_key = self._state.each_key
        self.forget = self._state.forget
        self.load = self._state.load
        self.flush = self._out.flush
        self.own = self._state.own
        self.peek = self._state.peek
        self.unkeyed = self._state.unkeyed
        self._in_batches = hasattr(operator, "process_batch")
        self._defined = set()
        for name in _CALLBACKS:
            if operator.defines(name):
                self._defined.add(name)
        self._broadcast = set()
        for name, port in operator.input_ports().items():
            if port.broadcast:
                self._broadcast.add(name)
        self._takes_broadcast = False
        by_default = self._operator.process if len(self._names) == 1 else None
        self._process = {}
        for name in self._names:
            self._process[name] = getattr(self._operator, f"process_{name}", None) or by_default

    def take(self, key: tuple[Any, ...]) -> None:
        """Selects the key whose state is read.

        Raises:
            InputError: a broadcast tuple is processed, and another partition may have the key.
        """
        if self._takes_broadcast and not self.has(key):
            raise InputError(
                f"the key {shown(key)} has no state in this partition",
                detail="A tuple of a broadcast port goes to all partitions, and another may have "
                "the key.",
                hint="Check first: if self.has(*key): self.at(*key)",
            )
        self._state.take(key)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the emitted tuples, batch by batch, then the state.

        Raises:
            InputError: the operator's code broke a rule.
            Exception: an exception of the operator's code, with a note about callback, window and
                tuple.
        """
        try:
            for batch in map(_without_mark, batches):
                states = int(np.searchsorted(batch[SORT_KEY].to_numpy(), 1 << WINDOW_BITS))
                self.load(batch.slice(0, states))
                if states < batch.num_rows:
                    yield from self.push(batch.slice(states))
            yield from self.finish()
        except BaseException as error:
            self.tear_down_after(error)
            raise
        self.tear_down()
        yield from self.states()

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Processes tuples, sorted by window, and yields full batches of emitted tuples."""
        self.set_up()
        for port, window, rows, stretch in self._runs(batch):
            yield from self._go_on(window)
            if self._failing is None or self._in_batches:
                self._take(port, rows)
            else:
                self._take_reporting(self._failing, port, rows, stretch)
        if self._out.is_full():
            yield from self._out.flush()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Ends all windows, and yields the remaining emitted tuples."""
        self.set_up()
        yield from self._go_on(self._windows.last)
        self.end()
        yield from self._out.flush()

    def states(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of state."""
        for arrays in self._state.rows():
            yield self._out.tagged(
                self._shape.state,
                [(self._windows.last, len(arrays[0]))],
                arrays,
            )

    def set_up(self) -> None:
        """Calls `setup` after the state is loaded. Later calls have no effect."""
        if not self._is_set_up:
            self._state.begin()
            self._call("setup", self._operator.setup)
            self._is_set_up = True

    def tear_down(self) -> None:
        """Calls `teardown`."""
        self._call("teardown", self._operator.teardown)

    def _tell(self) -> None:
        """Calls `checkpointed` and `committed` of the operator with the window of the saved state.

        Rules: W78, X42
        """
        for name in ("checkpointed", "committed"):
            callback = getattr(self._operator, name)
            by_default = getattr(TupleOperator, name)
            if self._checkpointed is None or callback.__func__ is by_default:
                continue
            before = self._state.copied()
            called = f"{name}({self._checkpointed})"
            self._call(called, callback, self._checkpointed)
            if self._state.copied() != before:
                error = InputError(
                    f"{type(self._operator).__name__} changes its state in {name}",
                    detail="That state has already been saved, so a replay after a crash would "
                    "compute another state.",
                    hint="Change it in process, end_window or before_checkpoint.",
                )
                self._note(called, error)
                raise error

    def tear_down_after(self, error: BaseException) -> None:
        """Calls `teardown` after an error.

        If `teardown` fails too, a note about that is added to the first error. Does nothing if
        `setup` was not called.

        Rules: O35
        """
        if not self._is_set_up:
            return
        try:
            self._call("teardown", self._operator.teardown)
        except Exception as further:  # noqa: BLE001 - the caller raises the first error
            error.add_note(f"teardown failed too: {type(further).__name__}: {further}")

    def _go_on(self, window: int) -> Iterator[pa.RecordBatch]:
        """Closes the open window and opens the following windows, up to the given one."""
        while self._window < window:
            self.end()
            self.begin(self._window + 1)
            if self._out.is_full():
                yield from self._out.flush()

    def begin(self, window: int) -> None:
        """Opens a window."""
        if self._window < self._windows.first:
            self._tell()
        self._window = window
        self._operator.__dict__["window_id"] = window
        self._out.begin(window)
        if "begin_window" in self._defined and self._windowing.begins(window):
            self._call("begin_window", self._operator.begin_window, window)

    def end(self) -> None:
        """Closes the open window, if there is one."""
        if self._window >= self._windows.first:
            self._take_controls()
            if "end_window" in self._defined and self._closes(self._window):
                self._call("end_window", self._operator.end_window)
            if "slide" in self._defined and self._windowing.slides(self._window):
                self._call("slide", self._operator.slide)
            self._out.end()
            if (
                "before_checkpoint" in self._defined
                and self._next_mark(self._window) == self._window
            ):
                self._call(
                    "before_checkpoint",
                    self._operator.before_checkpoint,
                    self._window,
                )

    def _take_controls(self) -> None:
        """Calls `process` for the control tuples of the open window.

        No key is selected during these calls.

        Rules: O132, O133
        """
        for port, by_window in self._controls.items():
            if (batch := by_window.get(self._window)) is None:
                continue
            if self._in_batches:
                self._take(port, self._declared(port, batch))
                continue
            process = self._process[port]
            for row in self._tuples(port, batch)[0]:
                self._call(f"process of port {port}", process, row)

    def _call(self, name: str, callback: Any, *arguments: Any) -> None:
        self._state.without_key()
        try:
            callback(*arguments)
            self._state.without_key()
            check_assigned(self._operator, self._assigned)
        except Exception as error:
            # Once a tuple has failed, the results of this run are not used.
            if not self._failing:
                self._note(name, error)
                raise

    def _note(self, name: str, error: Exception, row: Any = None) -> None:
        """Adds a note with callback, window and tuple to an exception."""
        window = self._operator.__dict__.get("window_id")
        where = f"{name} of {type(self._operator).__name__}" + (
            f", window {window}" if window is not None else ""
        )
        error.add_note(f"in {where}" + (f", at the tuple {shown(row)}" if row is not None else ""))

    def _runs(self, batch: pa.RecordBatch) -> Iterator[tuple[str, int, Any, pa.RecordBatch]]:
        """Yields port, window, rows and tagged rows for each run of tuples with the same window and
        port. Rows are converted to Python once per batch.
        """
        # Rows are sorted, so a new run starts when the first column changes. The tuples of a port
        # are created once for the whole batch, as an iterator, and each run consumes its part.
        # Creating them run by run would be slow for short windows.
        places = batch[SORT_KEY].to_numpy()
        begins = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist()]
        firsts = places[begins]
        stretches = zip(
            begins,
            [*begins[1:], len(places)],
            tag_of(firsts).tolist(),
            strict=True,
        )
        rows: dict[str, Any] = {}
        for (begin, end, tag), window in zip(
            stretches,
            window_of(firsts, self._windows.first - 1).tolist(),
            strict=True,
        ):
            port = self._names[tag - 1]
            if port not in rows:
                is_only = len(self._names) == 1
                of_port = (
                    batch
                    if is_only or self._in_batches
                    else batch.filter(pa.array(tag_of(places) == tag))
                )
                chosen = of_port.select(self._shape.inputs[port].names)
                rows[port] = (
                    self._declared(port, chosen) if self._in_batches else self._tuples(port, chosen)
                )
            if self._in_batches:
                part = rows[port].slice(begin, end - begin)
            else:
                part = islice(rows[port][0], end - begin), rows[port][1]
            yield port, window, part, batch.slice(begin, end - begin)

    def _tuples(
        self,
        port: str,
        batch: pa.RecordBatch,
    ) -> tuple[Iterator[Any], Iterator[Any]]:
        """Returns iterators over the tuples of a batch and over their keys; both are created on
        demand.
        """
        lists = lists_of(batch)
        make = self._shape.rows[port]
        key_of = self._shape.key_of[port]
        values: Iterator[Any] = zip(*lists, strict=True) if lists else repeat((), batch.num_rows)
        keys: Iterator[Any]
        if len(key_of) == 1:
            keys = iter(lists[key_of[0]])
        else:
            keys = zip(*map(lists.__getitem__, key_of), strict=True)
        return map(make, values), keys

    def receive(self, port: str, batch: pa.RecordBatch) -> None:
        """Processes tuples of the open window, with the columns of a port in the tagged rows."""
        self._take(
            port,
            self._declared(port, batch) if self._in_batches else self._tuples(port, batch),
        )

    def _declared(self, port: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._shape.inputs[port].schema
        columns = []
        for column, field in zip(batch.columns, schema, strict=True):
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _take_broadcast(self, port: str, rows: Any) -> None:
        """Processes tuples that every partition receives. No key is selected until the operator
        selects one, and each partition emits for its own keys only.

        Rules: O87, O101
        """
        # All partitions process the same tuple. An emission without a key would be repeated in each
        # of them, and a new key would get state in each of them.
        self._takes_broadcast = True
        self._out.require_key(self._state)
        if self._in_batches:
            self._call("process_batch", self._operator.process_batch, port, rows)  # type: ignore[attr-defined]
        else:
            for row in rows[0]:
                try:
                    self._call(f"process of port {port}", self._process[port], row)
                except Exception:
                    self._state.failed_at = row
                    raise
        self._out.require_key(None)
        self._takes_broadcast = False

    def _take(self, port: str, rows: Any) -> None:
        if port in self._broadcast:
            return self._take_broadcast(port, rows)
        if self._in_batches:
            return self._call("process_batch", self._operator.process_batch, port, rows)  # type: ignore[attr-defined]
        process = self._process[port]
        assert process is not None, "checked at launch"
        try:
            self._state.process(process, *rows)
            check_assigned(self._operator, self._assigned)
        except Exception as error:
            self._note(f"process of port {port}", error, self._state.failed_at)
            raise
        return None

    def _take_reporting(
        self,
        failing: list[FailingTuple],
        port: str,
        rows: Any,
        stretch: pa.RecordBatch,
    ) -> None:
        """Processes tuples, and reports the first failing tuple of each key.

        Later tuples of such a key are not processed. Only a run without the first failing tuple
        shows whether they fail, too.
        """
        while stretch.num_rows and EVERY_KEY not in self._failed_keys:
            if self._failed_keys:
                is_left = [key not in self._failed_keys for key in self._keys_of(port, stretch)]
                stretch = stretch.filter(pa.array(is_left, pa.bool_()))
                rows = self._tuples(port, stretch.select(self._shape.inputs[port].names))
            try:
                return self._take(port, rows)
            except Exception as error:
                if self._state.failed_at is None:
                    raise
                self._state.failed_at = None
                place = stretch.num_rows - 1 - len(list(rows[0]))
                key = stretch[TUPLE_KEY][place].as_py()
                text = error_text(f"{type(error).__name__}: {error}")
                failing.append(FailingTuple(port, self._window, key, text))
                self._failed_keys.add(self._keys_of(port, stretch)[place])
                stretch = stretch.slice(place + 1)
        return None

    def _keys_of(self, port: str, rows: pa.RecordBatch) -> list[Any]:
        """Returns the keys of tuples, or EVERY_KEY for all tuples if a failure of one key can
        affect others.

        This is the case if the failed call may have changed attributes that are not keyed state.
        """
        if not self._shape.keys or self._operator.transient or port in self._broadcast:
            return [EVERY_KEY] * rows.num_rows
        return list(self._tuples(port, rows.select(self._shape.inputs[port].names))[1])

    def read(self, field: StateField) -> Any:
        """Returns the value of a mutable field for the selected key."""
        return self._state.read(field)


def _without_mark(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1) if batch.num_rows and batch[SORT_KEY][0].as_py() == PLACEHOLDER else batch


@contextmanager
def torn_down(ranges: Collection[KeyRange]) -> Iterator[None]:
    """Calls `teardown` of the operators of a pass after the pass has run, even after an error.

    Rules: O35
    """
    try:
        yield
    except BaseException as error:
        for key_range in ranges:
            key_range.tear_down_after(error)
        raise
    for key_range in ranges:
        key_range.tear_down()
