"""A tuple operator in a test: the loop of a replay over Arrow batches, its state stored and restored at every group."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Mode, OperatorContext
from rewindow.application.graph import CHECKPOINT_WINDOWS
from rewindow.application.windowing import Windowing
from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.passes import ALONE, Member, Pass
from rewindow.operators.tuples.tagged_rows import Columns, Place
from rewindow.recovery import CheckpointSchedule
from rewindow.state.row_hash import row_hashes
from rewindow.windows import Grid, WindowRange

CRASH = object()
"""Among the tuples of a port: here the process dies, once. What comes of it depends on the mode."""
Tuples = Mapping[str, Mapping[int, Sequence[Any]]]
"""By input port and window: tuples, each as a mapping or in the order of the port's columns, or CRASH."""


@dataclass
class OperatorRun:
    """What an operator has done.

    Attributes:
        outputs: by port, the tuples as (window, value ...), by window and as emitted; error tuples with position,
            reason and detail behind the port's columns.
        states: the state after the last window, by key, each a mapping of the declared fields.
        lost: windows that at most once has given up after a crash.
    """

    outputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    states: dict[Any, dict[str, Any]] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    def __getitem__(self, port: str) -> list[tuple[Any, ...]]:
        return self.outputs[port]


class _Died(Exception):
    """Stands for a process that was killed."""


def run_operator(
    operator: TupleOperator,
    inputs: Tuples,
    *,
    windows: tuple[int, int] | None = None,
    group_windows: int | Sequence[int] = 1,
    key_ranges: int = 1,
    mode: str = "exactly_once",
    width_ms: int = 1000,
    batch: int = 10_000,
    port_order: Sequence[str] = (),
    application_windows: int = 1,
    slide_windows: int | None = None,
    checkpoint_windows: int = CHECKPOINT_WINDOWS,
) -> OperatorRun:
    """Runs an operator over windows and returns what it emitted.

    Args:
        operator: an operator as an application would add it.
        inputs: see Tuples.
        windows: first and last; by default those from the first window with a tuple to the last one.
        group_windows: windows of a commit group, or of each; the state is stored and restored at its end.
        key_ranges: copies of the operator among which keys are divided; an operator without a key has one.
        mode: recovery mode, for CRASH.
        width_ms: width of a window.
        batch: tuples in an Arrow batch at most.
        port_order: the order in which the ports' tuples come in a window; by default as they are declared (X43).

        checkpoint_windows: D, the distance of marks, at which `before_checkpoint` is called (X42).
        application_windows, slide_windows: as in Application.add.

    Raises:
        InputError: an unknown port, a tuple that does not fit it, or what the operator did wrong, such as changing a
            list that it has emitted.
        Exception: what the operator's code has raised, with a note of callback, window and tuple.
    """
    wrong = operator.wrong_properties()
    if wrong:
        raise InputError("; ".join(f"{one.path}: {one.message}" for one in wrong))
    unknown = sorted(set(inputs) - set(operator.input_ports()))
    if unknown:
        raise InputError(
            f'there is no input port "{unknown[0]}"', hint=f"There are: {', '.join(operator.input_ports())}."
        )
    asked = windows_of(inputs, windows)
    windowing = Windowing(application_windows, slide_windows)
    run = PassRun(
        Pass({ALONE: Member(operator, windowing)}),
        {(ALONE, port): by_window for port, by_window in inputs.items()},
        run_context(asked, Mode.parse(mode), width_ms, checkpoint_windows),
        key_ranges, batch, port_order,
    )  # fmt: skip
    for group in groups_of(asked, group_windows):
        run.group(group)
    return run.run_of(ALONE)


def run_context(windows: WindowRange, mode: Mode, width_ms: int, checkpoint_windows: int) -> OperatorContext:
    """Returns what all groups of a run have in common."""
    is_mark = CheckpointSchedule(checkpoint_windows).is_due
    return OperatorContext(Grid(width_ms, 0), windows, mode, "test", is_mark=is_mark)


def check_grouping(
    operator: TupleOperator,
    inputs: Tuples,
    *,
    runs: int = 5,
    seed: int = 0,
    any_port_order: bool = False,
    **how: Any,
) -> OperatorRun:
    """Runs an operator with random cuts into groups, key ranges and batches; every run must come to the same (R86).

    Returns the run in one group. The seed of a run that differs is named.

    Args:
        operator, inputs: see run_operator.
        runs: how many.
        seed: of the first one; each next run has the next one.
        any_port_order: also have the tuples of a window come in another order of the ports.
        how: see run_operator.

    Raises:
        AssertionError: a run emitted something else, or left another state.
    """
    asked = windows_of(inputs, how.pop("windows", None))
    ends = (asked.first, asked.last)
    whole = run_operator(operator, inputs, windows=ends, group_windows=len(asked), **how)
    for number in range(seed, seed + runs):
        cut = random_cut(random.Random(number), len(asked), list(inputs) if any_port_order else [])
        found = run_operator(operator, inputs, windows=ends, **cut, **how)
        what = f"seed {number}: {words_of(cut)}"
        for port, rows in whole.outputs.items():
            assert sorted(map(repr, found[port])) == sorted(map(repr, rows)), f'port "{port}" differs with {what}'
        assert found.states == whole.states, f"the state differs with {what}"
    return whole


def random_cut(chosen: random.Random, windows: int, ports: Sequence[str]) -> dict[str, Any]:
    """Returns group borders, key ranges, size of batches and order of ports, as run_operator takes them."""
    groups, left = [], windows
    while left:
        groups.append(chosen.randint(1, left))
        left -= groups[-1]
    return {
        "group_windows": groups, "key_ranges": chosen.randint(1, 8), "batch": chosen.choice([1, 3, 10_000]),
        "port_order": chosen.sample(ports, len(ports)),
    }  # fmt: skip


def words_of(cut: Mapping[str, Any]) -> str:
    """Returns a cut as a person reads it."""
    ports = f", ports in the order {', '.join(cut['port_order'])}" if cut["port_order"] else ""
    return f"groups of {cut['group_windows']} windows, {cut['key_ranges']} key ranges, batches of {cut['batch']}{ports}"


def windows_of(inputs: Tuples, asked: tuple[int, int] | None) -> WindowRange:
    """Returns the windows to run: those asked for, or from the first with a tuple to the last."""
    if asked is not None:
        return WindowRange(*asked)
    found = [window for by in inputs.values() for window in by]
    if not found:
        raise InputError(
            "there is no tuple, so the windows cannot be told from them", hint="Give windows=(FIRST, LAST)."
        )
    return WindowRange(min(found), max(found))


def groups_of(windows: WindowRange, sizes: int | Sequence[int]) -> Iterator[WindowRange]:
    """Gives the groups of a range."""
    first, number = windows.first, 0
    while first <= windows.last:
        size = sizes if isinstance(sizes, int) else sizes[number]
        yield WindowRange(first, min(first + size - 1, windows.last))
        first, number = first + size, number + 1


class PassRun:
    """A run of an operator or a cycle: groups one after the other, and the states between, as checkpoints hold them.

    Args:
        one: what is computed in one.
        inputs: by operator and port; CRASH among the tuples of any.
        context: what the runs of all groups have in common; its windows are of no account.
        port_order: names of ports in the order in which they come.
    """

    def __init__(
        self,
        one: Pass,
        inputs: Mapping[Place, Mapping[int, Sequence[Any]]],
        context: OperatorContext,
        key_ranges: int,
        batch: int,
        port_order: Sequence[str] = (),
    ) -> None:
        self._pass, self._shapes, self._context, self._batch = one, one.shapes(), context, batch
        self._key_ranges = key_ranges if one.keys else 1
        self._pending = {place: {window: list(rows) for window, rows in by.items()} for place, by in inputs.items()}
        self._states: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {name: {} for name in one.members}
        self._port_order = port_order
        order = [place for place in one.inputs if self._pending.get(place)]
        self._order = sorted(order, key=lambda place: port_order.index(place[1]) if place[1] in port_order else -1)
        self._saved: int | None = None
        self.outputs: dict[Place, list[tuple[Any, ...]]] = {place: [] for place in one.outputs}
        self.lost: list[int] = []

    def group(self, windows: WindowRange) -> None:
        """Runs a group, again where it has died and the mode goes back to what was saved."""
        context = replace(self._context, windows=windows, checkpointed=self._saved)
        while True:
            try:
                made = list(self._made(context))
            except _Died:
                if not context.mode.may_lose:
                    continue
                self.lost += windows
                return
            self._keep(made)
            self._saved = windows.last
            return

    def run_of(self, member: str) -> OperatorRun:
        """Returns what an operator has done."""
        outputs = {
            port: sorted(rows, key=lambda row: row[0]) for (name, port), rows in self.outputs.items() if name == member
        }
        return OperatorRun(outputs, self._readable(member), self.lost)

    def _made(self, context: OperatorContext) -> Iterator[pa.RecordBatch]:
        """Gives what the key ranges of a group make; one of them dies where a tuple is CRASH, which is then gone."""
        stretches, dies = self._stretches(context.windows)
        rows = self._tagged(stretches)
        place = _ranges(self._pass, rows, self._key_ranges)
        for number in range(self._key_ranges):
            own = rows if place is None else rows.filter(pc.equal(place, number))
            if self._pass.keys and not own.num_rows:
                continue  # As under Spark: where no tuple and no state of a key is, nothing is called.
            batches = self._batches(own, dies)
            yield from self._pass.run(context, batches, self._shapes, tells_changes=True, port_order=self._port_order)

    def _batches(self, rows: pa.RecordBatch, dies: bool) -> Iterator[pa.RecordBatch]:
        for begin in range(0, rows.num_rows, self._batch):
            yield rows.slice(begin, self._batch)
        if dies:
            raise _Died

    def _stretches(self, windows: WindowRange) -> tuple[list[_Stretch], bool]:
        """Returns the states, then the tuples by window and port, up to where a process dies; and whether it does."""
        found = [
            _Stretch(windows.first - 1, self._pass.states[name].tag, [(*values, False) for values in states.values()])
            for name, states in self._states.items()
        ]
        for window in windows:
            for place in self._order:
                columns = self._pass.inputs[place]
                given = self._pending[place].get(window, [])
                dies = CRASH in given
                if dies:
                    given.remove(CRASH)
                rows = [_tuple(place[1], columns, one) for one in given if one is not CRASH]
                found.append(_Stretch(window, columns.tag, rows))
                if dies:
                    return found, True
        return found, False

    def _tagged(self, stretches: list[_Stretch]) -> pa.RecordBatch:
        """Returns stretches as the rows that go through a key range."""
        stretches = [one for one in stretches if one.rows]
        tags = [one.tag for one in stretches for _ in one.rows]
        ids = [one.window for one in stretches for _ in one.rows]
        arrays = [pa.array(tags, pa.int32()), pa.array(ids, pa.int64())]
        states = {columns.tag for columns in self._pass.states.values()}
        for columns in (*self._pass.states.values(), *self._pass.inputs.values()):
            empty = (None,) * len(columns.schema)
            rows = [
                row for one in stretches for row in (one.rows if one.tag == columns.tag else [empty] * len(one.rows))
            ]
            values = zip(*rows, strict=True) if rows else [()] * len(columns.schema)
            for given, declared, sent in zip(values, columns.schema, columns.stored, strict=True):
                arrays.append(_array(given, sent.type if columns.tag in states else declared.type, sent.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._pass.sent)

    def _keep(self, made: Iterable[pa.RecordBatch]) -> None:
        """Keeps what a group has emitted, and its states: changed keys replaced, those gone left out."""
        outputs = {columns.tag: (place, columns) for place, columns in self._pass.outputs.items()}
        states = {columns.tag: (name, columns) for name, columns in self._pass.states.items()}
        for name, shape in self._shapes.items():
            if not shape.keys:
                self._states[name].clear()
        for batch in made:
            tag = batch.column(0)[0].as_py()
            if tag in outputs:
                place, columns = outputs[tag]
                values = [batch.column(name).to_pylist() for name in columns.names]
                self.outputs[place] += zip(batch.column(1).to_pylist(), *values, strict=True)
            else:
                name, columns = states[tag]
                self._keep_states(name, zip(*(batch.column(one).to_pylist() for one in columns.names), strict=True))

    def _keep_states(self, member: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            key = row[: self._shapes[member].keys]
            if row[-1]:
                self._states[member].pop(key, None)
            else:
                self._states[member][key] = row[:-1]

    def _readable(self, member: str) -> dict[Any, dict[str, Any]]:
        shape, states = self._shapes[member], self._states[member]
        operator = self._pass.members[member].operator
        schema, stored = operator.state_columns(), shape.state.stored
        if schema is None or not states:
            return {}
        values = zip(*states.values(), strict=True)
        columns = [
            pa.array(column, sent.type).cast(field.type).to_pylist()
            for column, sent, field in zip(values, stored, schema, strict=False)
        ]
        keys = zip(*columns[: shape.keys], strict=True) if shape.keys else [()]
        found = {}
        for key, row in zip(keys, zip(*columns[shape.keys :], strict=True), strict=True):
            found[key[0] if len(key) == 1 else key] = {
                field.name: copy.deepcopy(field.from_stored(value))
                for field, value in zip(operator.fields, row, strict=True)
            }
        return found


class _Stretch(NamedTuple):
    """Rows of one window and one tag."""

    window: int
    tag: int
    rows: list[tuple[Any, ...]]


def _array(values: Sequence[Any], kind: pa.DataType, sent: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    return array.cast(pa.timestamp("us", kind.tz)).cast(sent) if pa.types.is_timestamp(kind) else array


def _tuple(port: str, columns: Columns, given: Any) -> tuple[Any, ...]:
    names = columns.schema.names
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise InputError(f'port "{port}" has no column "{unknown[0]}"', hint=f"Its columns: {', '.join(names)}.")
        return tuple(given.get(name) for name in names)
    values = tuple(given) if isinstance(given, list | tuple) else (given,)
    if len(values) != len(names):
        raise InputError(
            f'port "{port}" has {len(names)} columns ({", ".join(names)}), a tuple has {len(values)} values'
        )
    return values


def _ranges(one: Pass, rows: pa.RecordBatch, key_ranges: int) -> pa.Array | None:
    """Returns the key range of each row: by a hash of its key, whichever port it came to; None where there is one."""
    if key_ranges == 1:
        return None
    columns = []
    for place in range(one.keys):
        names = [one.states[name].names[place] for name, member in one.members.items() if member.operator.fields]
        for (name, port), sent in one.inputs.items():
            names.append(sent.names[sent.schema.get_field_index(one.key_of(name, port)[place])])
        columns.append(pc.coalesce(*(rows[name] for name in names)))
    hashed = row_hashes(pa.table(columns, names=[str(place) for place in range(one.keys)]))
    return pa.array(hashed % key_ranges)
