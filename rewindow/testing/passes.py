"""A run of one pass in a test: groups one after the other, through crashes, with the states stored
between them.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.values import to_array
from rewindow.sequences import map_values
from rewindow.state.row_hash import row_hashes
from rewindow.tuple_engine.passes import Pass, control_rows
from rewindow.tuple_engine.tagged_rows import (
    SORT_KEY,
    Columns,
    OperatorPort,
    by_tag,
    sort_key,
    tag_of,
    window_of,
)
from rewindow.windows import WindowRange

CRASH = object()
"""Among the tuples of a port: here the process dies, once. What comes of it depends on the mode."""


@dataclass
class OperatorRun:
    """What an operator has done.

    Attributes:
        outputs: by port, the tuples as (window, value ...), by window and as emitted; error tuples
            with position, reason and detail behind the port's columns.
        states: the state after the last window, by key, each a mapping of the declared fields.
        lost: windows that at most once has given up after a crash.
        crashes: how often it died, as CRASH asked.
    """

    outputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    states: dict[Any, dict[str, Any]] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    crashes: int = 0

    def __getitem__(self, port: str) -> list[tuple[Any, ...]]:
        return self.outputs[port]


class _Died(Exception):
    """Stands for a process that was killed."""


class PassRun:
    """A run of an operator or a cycle: groups one after the other, and the states between, as
    checkpoints hold them.

    Args:
        one: what is computed in one.
        inputs: by operator and port; CRASH among the tuples of any.
        context: what the runs of all groups have in common; its windows are of no account.
        port_order: names of ports in the order in which they come.
    """

    def __init__(
        self,
        one: Pass,
        inputs: Mapping[OperatorPort, Mapping[int, Sequence[Any]]],
        context: OperatorContext,
        key_ranges: int,
        batch: int,
        port_order: Sequence[str] = (),
    ) -> None:
        self._pass = one
        self._shapes = one.shapes()
        self._context = context
        self._batch = batch
        self._key_ranges = key_ranges if one.keys else 1
        self._pending = map_values(lambda by: map_values(list, by), inputs)
        self._before = 0
        self._states: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = defaultdict(dict)
        self._port_order = port_order
        order = filter(self._pending.get, one.inputs)
        self._order = sorted(
            order,
            key=lambda place: port_order.index(place[1]) if place[1] in port_order else -1,
        )
        self._controls = {}
        for place, columns in one.controls.items():
            if self._pending.get(place):
                self._controls[place] = self._control_rows(place, columns)
        self._saved: int | None = None
        self.outputs: dict[OperatorPort, list[tuple[Any, ...]]] = {}
        for place in one.outputs:
            self.outputs[place] = []
        self.lost: list[int] = []
        self.crashes = 0

    def group(self, windows: WindowRange) -> None:
        """Runs a group, again where it has died and the mode goes back to what was saved."""
        unseen = (*self._context.unseen, *((window, window) for window in self.lost))
        context = replace(
            self._context,
            windows=windows,
            unseen=unseen,
            checkpointed=self._saved,
        )
        self._before = windows.first - 1
        while True:
            try:
                made = list(self._made(context))
            except _Died:
                self.crashes += 1
                if not context.mode.may_lose:
                    continue
                self.lost += windows
                return
            self._keep(made)
            self._saved = windows.last
            return

    def run_of(self, member: str) -> OperatorRun:
        """Returns what an operator has done."""
        outputs = {}
        for port, declared in self._pass.members[member].operator.output_ports().items():
            rows = sorted(self.outputs[member, port], key=itemgetter(0))
            if declared.control:
                # Each key range may emit the same control tuple: equal ones are one.
                rows = list(dict(zip(map(repr, rows), rows, strict=True)).values())
            outputs[port] = rows
        return OperatorRun(
            outputs,
            self._readable(member),
            self.lost,
            crashes=self.crashes,
        )

    def _made(self, context: OperatorContext) -> Iterator[pa.RecordBatch]:
        """Gives what the key ranges of a group make; one of them dies where a tuple is CRASH, which
        is then gone.
        """
        stretches, dies = self._stretches(context.windows)
        rows = self._tagged(stretches)
        place = _ranges(self._pass, rows, self._key_ranges)
        for number in range(self._key_ranges):
            own = rows if place is None else rows.filter(pc.equal(place, number))
            if self._pass.keys and not own.num_rows:
                # As under Spark: where no tuple and no state of a key is, nothing is called.
                continue
            batches = self._batches(own, dies)
            yield from self._pass.run(
                context,
                batches,
                self._shapes,
                self._controls,
                tells_changes=True,
                port_order=self._port_order,
            )

    def _control_rows(self, place: OperatorPort, columns: Columns) -> pa.Table:
        rows = []
        for window, of_window in self._pending[place].items():
            for row in without_crash(of_window):
                rows.append((window, *_tuple(place[1], columns, row)))
        values = list(zip(*rows, strict=True)) if rows else [()] * (1 + len(columns.schema))
        arrays = [pa.array(values[0], pa.int64())]
        for given, declared, sent in zip(values[1:], columns.schema, columns.stored, strict=True):
            arrays.append(_array(given, declared.type, sent.type))
        return control_rows(pa.table(arrays, names=["window_id", *columns.names]))

    def _batches(self, rows: pa.RecordBatch, dies: bool) -> Iterator[pa.RecordBatch]:
        for begin in range(0, rows.num_rows, self._batch):
            yield rows.slice(begin, self._batch)
        if dies:
            raise _Died

    def _stretches(self, windows: WindowRange) -> tuple[list[_Stretch], bool]:
        """Returns the states, then the tuples by window and port, up to where a process dies; and
        whether it does.
        """
        found = []
        for name in self._pass.members:
            rows = list(self._states[name].values())
            found.append(_Stretch(windows.first - 1, self._pass.states[name].tag, rows))
        for window in windows:
            for place in self._order:
                columns = self._pass.inputs[place]
                given = self._pending[place].get(window, [])
                dies = CRASH in given
                if dies:
                    given.remove(CRASH)
                rows = [_tuple(place[1], columns, row) for row in without_crash(given)]
                _check_types(place[1], columns, window, rows=rows)
                found.append(_Stretch(window, columns.tag, rows))
                if dies:
                    return found, True
        return found, False

    def _tagged(self, stretches: list[_Stretch]) -> pa.RecordBatch:
        """Returns stretches as the rows that go through a key range."""
        of_tag: dict[int, list[_Stretch]] = {}
        places: dict[int, list[int]] = {}
        count = 0
        for one in stretches:
            if one.rows:
                of_tag.setdefault(one.tag, []).append(one)
                places.setdefault(one.tag, []).extend(range(count, count + len(one.rows)))
                count += len(one.rows)
        # Values of a tag are converted to Arrow together, which is fast. Their places in the
        # sequence of all stretches then bring the rows of all tags into the order of a replay.
        states = by_tag(self._pass.loaded)
        parts = []
        order: list[int] = []
        for columns in (*self._pass.loaded.values(), *self._pass.inputs.values()):
            if columns.tag in of_tag:
                is_state = columns.tag in states
                parts.append(self._of_tag(columns, of_tag[columns.tag], is_state=is_state))
                order += places[columns.tag]
        if len(parts) <= 1:
            return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=self._pass.sent)
        places_of_rows = pa.array(np.argsort(order))
        return pa.Table.from_batches(parts).take(places_of_rows).combine_chunks().to_batches()[0]

    def _of_tag(
        self,
        columns: Columns,
        stretches: list[_Stretch],
        *,
        is_state: bool,
    ) -> pa.RecordBatch:
        rows: list[tuple[Any, ...]] = []
        places: list[int] = []
        for stretch in stretches:
            rows += stretch.rows
            place = sort_key(stretch.window, stretch.tag, self._before)
            places += [place] * len(stretch.rows)
        found = {SORT_KEY: pa.array(places, pa.int64())}
        values = zip(*rows, strict=True)
        for given, name, declared, sent in zip(
            values,
            columns.names,
            columns.schema,
            columns.stored,
            strict=True,
        ):
            found[name] = _array(
                given,
                sent.type if is_state else declared.type,
                sent.type,
            )
        arrays = []
        for sent in self._pass.sent:
            arrays.append(found.get(sent.name, pa.nulls(len(rows), sent.type)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._pass.sent)

    def _keep(self, made: Iterable[pa.RecordBatch]) -> None:
        """Keeps what a group has emitted, and its states: changed keys replaced, those gone left
        out.
        """
        outputs = by_tag(self._pass.outputs)
        states = by_tag(self._pass.states)
        for name, shape in self._shapes.items():
            if not shape.keys:
                self._states[name].clear()
        for batch in made:
            at = batch[SORT_KEY].to_numpy()
            tag = int(tag_of(at[0]))
            if tag in outputs:
                place = outputs[tag]
                values = _lists(batch, self._pass.outputs[place])
                windows = window_of(at, self._before).tolist()
                self.outputs[place] += zip(windows, *values, strict=True)
            else:
                name = states[tag]
                values = _lists(batch, self._pass.states[name])
                self._keep_states(name, zip(*values, strict=True))

    def _keep_states(self, member: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            key = row[: self._shapes[member].keys]
            if not key:
                self._states[member][key] = row
            elif row[-1]:
                self._states[member].pop(key, None)
            else:
                self._states[member][key] = row[:-1]

    def _readable(self, member: str) -> dict[Any, dict[str, Any]]:
        shape = self._shapes[member]
        states = self._states[member]
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
        to_array(values, column, f'input port "{port}", window {window},')


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
            f'port "{port}" has {len(names)} columns ({", ".join(names)}), a tuple has '
            f"{len(values)} values"
        )
    return values


def _ranges(one: Pass, rows: pa.RecordBatch, key_ranges: int) -> pa.Array | None:
    """Returns the key range of each row: by a hash of its key, whichever port it came to; None
    where there is one.
    """
    if key_ranges == 1:
        return None
    return pa.array(row_hashes(pa.Table.from_batches([rows.select(one.keys)])) % key_ranges)
