"""Runs one pass in a test.

It computes a commit group over key ranges, from the states before the group to the states after it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.values import to_array
from rewindow.state.row_hash import row_hashes
from rewindow.testing.partitions import EVERY, partitions_of
from rewindow.tuple_engine.keyed_state import merge_states
from rewindow.tuple_engine.passes import Pass, control_rows
from rewindow.tuple_engine.tagged_rows import (
    FOREIGN,
    SORT_KEY,
    Columns,
    OperatorPort,
    by_tag,
    in_port_order,
    sort_key,
    tag_of,
    window_of,
)
from rewindow.windows import WindowRange

CRASH = object()
"""A marker among the tuples of a port: the process dies there, once. The mode decides which
windows are lost.
"""
PassInputs = Mapping[OperatorPort, Mapping[int, Sequence[Any]]]
"""Tuples by operator, port and window, in the order in which they are processed, with CRASH
among them.
"""
PassStates = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]
"""Rows of state by operator and key, in their stored form."""


@dataclass
class OperatorRun:
    """The result of running an operator.

    Attributes:
        outputs: by port, the tuples as (window, value ...), by window and in the order of emission;
            error tuples have position, reason and detail after the port's columns.
        states: the state after the last window, by key, each a mapping of the declared fields.
        lost: windows that at most once has given up after a crash.
        state_lost: windows that are in the outputs but missing from the state, because at most once
            has restored an older checkpoint.
        crashes: number of crashes that CRASH caused.
    """

    outputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    states: dict[Any, dict[str, Any]] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    state_lost: list[int] = field(default_factory=list)
    crashes: int = 0

    def __getitem__(self, port: str) -> list[tuple[Any, ...]]:
        return self.outputs[port]


class Died(Exception):
    """Raised instead of killing a process."""


class DiedAt(Died):
    """Raised instead of killing a process at a tuple of a port and window."""

    def __init__(self, place: OperatorPort, window: int) -> None:
        super().__init__(place, window)
        self.place = place
        self.window = window


class Emitted(NamedTuple):
    """An emitted tuple.

    Attributes:
        is_own: whether its key is the one under which it was emitted, see `EmissionOrder`.
    """

    window: int
    values: tuple[Any, ...]
    is_own: bool = True


def in_reading_order(
    columns: Columns,
    rows: Sequence[tuple[Any, ...]],
    is_own: Sequence[bool],
) -> list[tuple[Any, ...]]:
    """Returns the tuples of a window in the order in which a port receives them.

    Tuples that have an order come first, then all others by their hash.

    Args:
        columns: columns of the port.
        rows: rows with these columns.
        is_own: whether a row keeps its position.

    Rules: O39, X43
    """
    arrays = []
    for values, declared, sent in zip(
        zip(*rows, strict=True), columns.schema, columns.stored, strict=False
    ):
        arrays.append(
            _array(
                values,
                declared.type,
                sent.type,
            )
        )
    hashes = np.zeros(len(rows), np.int64)
    if arrays:
        hashes = row_hashes(pa.table(arrays, names=columns.schema.names)).view(np.int64)
    # Rows with an order keep it, because sorting is stable and their keys are equal.
    hashes[np.array(is_own, bool)] = 0
    places = np.lexsort((hashes, ~np.array(is_own, bool)))
    return list(map(rows.__getitem__, places))


class PassRun:
    """Runs a pass, group by group.

    Args:
        one: the pass: an operator, or the operators of a cycle.
        key_ranges: number of key ranges.
        batch: largest number of tuples in a batch.
        port_order: names of ports in the order in which their tuples are processed.
    """

    def __init__(
        self,
        one: Pass,
        key_ranges: int,
        batch: int,
        port_order: Sequence[str] = (),
    ) -> None:
        self._pass = one
        self._shapes = one.shapes()
        self._batch = batch
        self._key_ranges = key_ranges
        self._port_order = port_order

    def initial_states(self) -> PassStates:
        """Returns the states before the first window."""
        return {name: {} for name in self._pass.members}

    def compute(
        self,
        context: OperatorContext,
        inputs: PassInputs,
        states: PassStates,
    ) -> tuple[dict[OperatorPort, list[Emitted]], PassStates]:
        """Returns the tuples that a group emits, by window and in the order of emission, and the
        states after it.

        Raises:
            DiedAt: a tuple is CRASH.
        """
        return self._kept(
            list(
                self._made(
                    context,
                    inputs,
                    states,
                )
            ),
            context.first - 1,
            states,
        )

    def _made(
        self,
        context: OperatorContext,
        inputs: PassInputs,
        states: PassStates,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows that the key ranges of a group emit. If a tuple is CRASH, the first
        key range dies there.
        """
        stretches, died = self._stretches(
            context.windows,
            inputs,
            states,
        )
        rows = self._tagged(stretches, context.first - 1)
        placing = self._pass.placing
        count = placing.spread or (
            (placing.partitions or self._key_ranges) if self._pass.keys else 1
        )
        place = partitions_of(self._pass, rows, count)
        controls = self._controls(context.windows, inputs)
        for number in range(count):
            is_own = (place == number) | (place == EVERY)
            own = rows.filter(pa.array(is_own))
            if self._pass.keys and not own.num_rows:
                # As in Spark, the operator is not called for a range without tuples and state.
                continue
            yield from self._pass.run(
                context,
                self._batches(own, died),
                self._shapes,
                controls,
                tells_changes=True,
                port_order=self._port_order,
            )
        if died is not None:
            raise died

    def _controls(
        self,
        windows: WindowRange,
        inputs: PassInputs,
    ) -> dict[OperatorPort, pa.Table]:
        found = {}
        for place, columns in self._pass.controls.items():
            rows = []
            for window in windows:
                for row in without_crash(inputs.get(place, {}).get(window, ())):
                    rows.append(
                        (
                            window,
                            *_tuple(
                                place[1],
                                columns,
                                row,
                            ),
                        )
                    )
            if rows:
                found[place] = _control_table(columns, rows)
        return found

    def _batches(self, rows: pa.RecordBatch, died: DiedAt | None) -> Iterator[pa.RecordBatch]:
        for begin in range(
            0,
            rows.num_rows,
            self._batch,
        ):
            yield rows.slice(begin, self._batch)
        if died is not None:
            raise died

    def _stretches(
        self,
        windows: WindowRange,
        inputs: PassInputs,
        states: PassStates,
    ) -> tuple[list[_Stretch], DiedAt | None]:
        """Returns the states, the tuples by window and port up to the crash, and the place of the
        crash if there is one.
        """
        found = []
        for name in self._pass.members:
            rows = list(states[name].values())
            found.append(
                _Stretch(
                    windows.first - 1,
                    self._pass.states[name].tag,
                    rows,
                )
            )
        ports = in_port_order([port for _, port in self._pass.inputs], self._port_order)
        order = sorted(self._pass.inputs, key=lambda place: ports.index(place[1]))
        for window in windows:
            for place in order:
                given = inputs.get(place, {}).get(window, ())
                columns = self._pass.inputs[place]
                dies = CRASH in given
                before = given[: list(given).index(CRASH)] if dies else given
                rows = list(
                    map(
                        partial(
                            _tuple,
                            place[1],
                            columns,
                        ),
                        before,
                    )
                )
                _check_types(
                    place[1],
                    columns,
                    window,
                    rows=rows,
                )
                found.append(
                    _Stretch(
                        window,
                        columns.tag,
                        rows,
                    )
                )
                if dies:
                    return found, DiedAt(place, window)
        return found, None

    def _tagged(self, stretches: list[_Stretch], before: int) -> pa.RecordBatch:
        """Converts stretches to the tagged rows that a key range reads."""
        states = by_tag(self._pass.loaded)
        of_tag = {}
        for columns in (*self._pass.loaded.values(), *self._pass.inputs.values()):
            of_tag[columns.tag] = columns
        parts = [self._pass.sent.empty_table()]
        for window, tag, rows in filter(_Stretch.has_rows, stretches):
            columns = of_tag[tag]
            kinds = (columns.stored if tag in states else columns.schema).types
            places = pa.repeat(
                pa.scalar(
                    sort_key(
                        window,
                        tag,
                        before,
                    ),
                    pa.int64(),
                ),
                len(rows),
            )
            found = {SORT_KEY: places}
            for values, kind, sent in zip(
                zip(*rows, strict=True), kinds, columns.stored, strict=False
            ):
                found[sent.name] = _array(
                    values,
                    kind,
                    sent.type,
                )
            arrays = []
            for sent in self._pass.sent:
                arrays.append(found.get(sent.name, pa.nulls(len(rows), sent.type)))
            parts.append(pa.table(arrays, schema=self._pass.sent))
        table = pa.concat_tables(parts).combine_chunks()
        return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], self._pass.sent))

    def _kept(
        self,
        made: Iterable[pa.RecordBatch],
        before: int,
        states: PassStates,
    ) -> tuple[dict[OperatorPort, list[Emitted]], PassStates]:
        """Returns the tuples that a group has emitted, and the next states.

        Changed keys are replaced, and removed keys are left out.
        """
        ports = by_tag(self._pass.outputs)
        emitted: dict[OperatorPort, list[Emitted]] = {place: [] for place in self._pass.outputs}
        after = {}
        instances: dict[str, list[tuple[Any, ...]]] = {}
        for name, shape in self._shapes.items():
            after[name] = dict(states[name]) if shape.keys else {}
        members = by_tag(self._pass.states)
        for batch in made:
            at = batch[SORT_KEY].to_numpy()
            tag = int(tag_of(at[0]))
            if tag in members:
                name = members[tag]
                rows = zip(*_lists(batch, self._pass.states[name]), strict=True)
                if self._pass.placing.spread:
                    instances.setdefault(name, []).extend(rows)
                    continue
                self._keep_states(
                    name,
                    after[name],
                    rows,
                )
                continue
            columns = self._pass.outputs[ports[tag]]
            values = zip(*_lists(batch, columns), strict=True) if columns.names else [()] * len(at)
            windows = window_of(at, before).tolist()
            is_own = ((at & FOREIGN) == 0).tolist()
            emitted[ports[tag]] += map(
                Emitted,
                windows,
                values,
                is_own,
            )
        for name, rows_of_instances in instances.items():
            merged = self._merged(name, rows_of_instances)
            self._keep_states(name, after[name], merged)
        for place, rows_of_port in emitted.items():
            rows_of_port.sort(key=attrgetter("window"))
            operator = self._pass.members[place[0]].operator
            if operator.output_ports()[place[1]].control:
                # Each key range may emit the same control tuple, so duplicates are removed.
                emitted[place] = list({repr(one[:2]): one for one in rows_of_port}.values())
        return emitted, after

    def _merged(self, member: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Returns the state of an operator with `spread`, merged from the states of its
        instances.
        """
        operator = self._pass.members[member].operator
        stored = self._shapes[member].state.stored
        arrays = []
        for values, sent in zip(zip(*rows, strict=True), stored, strict=True):
            arrays.append(pa.array(values, sent.type))
        names = operator.state_key_columns() + tuple(field.name for field in operator.fields)
        merged = merge_states(operator, pa.table(arrays, names=names), type(operator).__name__)
        return [tuple(row.values()) for row in merged.to_pylist()]

    def _keep_states(
        self,
        member: str,
        states: dict[tuple[Any, ...], tuple[Any, ...]],
        rows: Iterable[tuple[Any, ...]],
    ) -> None:
        for row in rows:
            key = row[: self._shapes[member].keys]
            if not key:
                states[key] = row
            elif row[-1]:
                states.pop(key, None)
            else:
                states[key] = row[:-1]

    def readable(self, member: str, rows: PassStates) -> dict[Any, dict[str, Any]]:
        """Returns the state of an operator by key and field."""
        shape = self._shapes[member]
        states = rows[member]
        operator = self._pass.members[member].operator
        schema = operator.state_columns()
        stored = shape.state.stored
        if schema is None or not states:
            return {}
        values = zip(*states.values(), strict=True)
        columns = []
        for column, sent, declared in zip(values, stored, schema, strict=False):
            columns.append(pa.array(column, sent.type).cast(declared.type).to_pylist())
        keys = zip(*columns[: shape.keys], strict=True) if shape.keys else [()]
        readable: dict[Any, dict[str, Any]] = {}
        for key, row in zip(keys, zip(*columns[shape.keys :], strict=True), strict=True):
            readable[key[0] if len(key) == 1 else key] = by_field = {}
            for state_field, value in zip(operator.fields, row, strict=True):
                by_field[state_field.name] = copy.deepcopy(state_field.from_stored(value))
        return readable


def without_crash(rows: Iterable[Any]) -> list[Any]:
    """Returns the tuples without CRASH."""
    return [row for row in rows if row is not CRASH]


def _lists(batch: pa.RecordBatch, columns: Columns) -> list[list[Any]]:
    """Returns the values of each column of a tag."""
    return [batch.column(name).to_pylist() for name in columns.names]


class _Stretch(NamedTuple):
    window: int
    tag: int
    rows: list[tuple[Any, ...]]

    def has_rows(self) -> bool:
        return bool(self.rows)


def _control_table(columns: Columns, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    values = list(zip(*rows, strict=True))
    arrays = [pa.array(values[0], pa.int64())]
    for given, declared, sent in zip(values[1:], columns.schema, columns.stored, strict=True):
        arrays.append(
            _array(
                given,
                declared.type,
                sent.type,
            )
        )
    return control_rows(pa.table(arrays, names=["window_id", *columns.names]))


def _array(values: Sequence[Any], kind: pa.DataType, sent: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    return (
        array.cast(pa.timestamp("us", kind.tz)).cast(sent) if pa.types.is_timestamp(kind) else array
    )


def _check_types(
    port: str,
    columns: Columns,
    window: int,
    rows: Sequence[tuple[Any, ...]],
) -> None:
    for values, column in zip(zip(*rows, strict=True), columns.schema, strict=False):
        to_array(
            values,
            column,
            f'input port "{port}", window {window},',
        )


def _tuple(port: str, columns: Columns, given: Any) -> tuple[Any, ...]:
    names = columns.schema.names
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise InputError(
                f'port "{port}" has no column "{unknown[0]}"',
                hint=f"Its columns: {', '.join(names)}.",
            )
        return tuple(map(given.get, names))
    values = tuple(given) if isinstance(given, list | tuple) else (given,)
    if len(values) != len(names):
        raise InputError(
            f'port "{port}" has {len(names)} columns ({", ".join(names)}), but a tuple has '
            f"{len(values)} values"
        )
    return values
