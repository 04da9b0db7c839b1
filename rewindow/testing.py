"""Run a tuple operator in a test: in this process, without Spark, in milliseconds.

    from rewindow.testing import CRASH, run_operator

    result = run_operator(Totals(limit=2), {"clicks": {7: [{"user": "ann"}, {"user": "ann"}], 9: [{"user": "ann"}]}})
    assert result["out"] == [(7, "ann", 2), (9, "ann", 3)]

What is called is what a replay calls: the same loop over Arrow batches, with the state stored and restored at every
window unless `group_windows` says otherwise. `check_grouping` holds runs of several cuts and key ranges together.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Mode, OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.key_range import KeyRange
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.tagged_rows import (
    GONE,
    TAG,
    WINDOW,
    Columns,
    input_tags,
    output_tags,
    state_tag,
    tagged_schema,
)
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
    asked = _windows(inputs, windows)
    pending = {port: {window: list(rows) for window, rows in by.items()} for port, by in inputs.items()}
    result, grid = OperatorRun({port: [] for port in operator.output_ports()}), Grid(width_ms, 0)
    state = operator.state_columns()
    rows = state.empty_table() if state is not None else None
    for group in _groups(asked, group_windows):
        context = OperatorContext(grid, group, Mode.parse(mode), "test")
        while True:
            try:
                made = list(_group(operator, pending, rows, context, key_ranges, batch))
            except _Died:
                if context.mode.may_lose:
                    result.lost += range(group.first, group.last + 1)
                    break
                continue
            _keep(result, operator, made)
            rows = _after(operator, rows, made)
            break
    for by_port in result.outputs.values():
        by_port.sort(key=lambda row: row[0])
    result.states = _readable(operator, rows)
    return result


def check_grouping(operator: TupleOperator, inputs: Tuples, *, runs: int = 5, seed: int = 0, **how: Any) -> OperatorRun:
    """Runs an operator with random cuts into groups, key ranges and batches; every run must come to the same (R86).

    Returns the run in one group. The seed of a run that differs is named.

    Raises:
        AssertionError: a run emitted something else, or left another state.
    """
    asked = _windows(inputs, how.pop("windows", None))
    ends = (asked.first, asked.last)
    whole = run_operator(operator, inputs, windows=ends, group_windows=len(asked), **how)
    for number in range(seed, seed + runs):
        chosen = random.Random(number)
        groups, left = [], len(asked)
        while left:
            groups.append(chosen.randint(1, left))
            left -= groups[-1]
        ranges, batch = chosen.randint(1, 8), chosen.choice([1, 3, 10_000])
        found = run_operator(
            operator, inputs, windows=ends, group_windows=groups, key_ranges=ranges, batch=batch, **how
        )
        what = f"seed {number}: groups of {groups} windows, {ranges} key ranges, batches of {batch}"
        for port, rows in whole.outputs.items():
            assert sorted(map(repr, found[port])) == sorted(map(repr, rows)), f'port "{port}" differs with {what}'
        assert found.states == whole.states, f"the state differs with {what}"
    return whole


def _windows(inputs: Tuples, asked: tuple[int, int] | None) -> WindowRange:
    if asked is not None:
        return WindowRange(*asked)
    found = [window for by in inputs.values() for window in by]
    if not found:
        raise InputError(
            "there is no tuple, so the windows cannot be told from them", hint="Give windows=(FIRST, LAST)."
        )
    return WindowRange(min(found), max(found))


def _groups(windows: WindowRange, sizes: int | Sequence[int]) -> Iterator[WindowRange]:
    first, number = windows.first, 0
    while first <= windows.last:
        size = sizes if isinstance(sizes, int) else sizes[number]
        yield WindowRange(first, min(first + size - 1, windows.last))
        first, number = first + size, number + 1


def _group(
    operator: TupleOperator,
    pending: dict[str, dict[int, list[Any]]],
    state: pa.Table | None,
    context: OperatorContext,
    key_ranges: int,
    batch: int,
) -> Iterator[pa.RecordBatch]:
    """Gives what the key ranges of a group make; one of them dies where a tuple is CRASH, which is then gone."""
    rows, dies_at = _rows_of(operator, pending, context.windows)
    tables = [_tagged(columns, *rows[port]) for port, columns in input_tags(operator).items() if port in rows]
    names = tagged_schema([state_tag(operator), *input_tags(operator).values()])
    before = [_tagged_state(operator, state, context)] if state is not None else []
    everything = (
        pa.concat_tables([*before, *tables], promote_options="default") if before or tables else names.empty_table()
    )
    everything = pa.table({name: _column(everything, name, names.field(name).type) for name in names.names})
    order = pa.table({"w": everything[WINDOW], "t": everything[TAG], "n": pa.array(range(everything.num_rows))})
    everything = everything.take(pc.sort_indices(order, [("w", "ascending"), ("t", "ascending"), ("n", "ascending")]))
    keyed = bool(operator.key_schema().names)
    place = _ranges(operator, everything, key_ranges if keyed else 1)
    for number in range(key_ranges if keyed else 1):
        own = everything.filter(pc.equal(place, number))
        if keyed and not own.num_rows:
            continue  # As under Spark: where no tuple and no state of a key is, nothing is called.
        yield from KeyRange(operator, context, tells_changes=True).run(_until(own, batch, dies_at))


def _rows_of(
    operator: TupleOperator, pending: dict[str, dict[int, list[Any]]], windows: WindowRange
) -> tuple[dict[str, tuple[list[int], list[tuple[Any, ...]]]], tuple[int, int] | None]:
    """Returns ids and tuples of each port; where a process dies, window and tag of it."""
    dies_at = None
    found: dict[str, tuple[list[int], list[tuple[Any, ...]]]] = {}
    for port, columns in input_tags(operator).items():
        ids, rows = list[int](), list[tuple[Any, ...]]()
        for window in sorted(set(pending.get(port, {})) & set(windows)):
            for given in list(pending[port][window]):
                if given is CRASH:
                    if dies_at is None:
                        pending[port][window].remove(given)
                        dies_at = (window, columns.tag)
                    continue
                ids.append(window)
                rows.append(_tuple(port, columns, given))
        found[port] = ids, rows
    return found, dies_at


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


def _tagged(columns: Columns, ids: list[int], rows: list[tuple[Any, ...]]) -> pa.Table:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns.names)
    arrays = []
    for given, declared, sent in zip(values, columns.schema, columns.stored, strict=True):
        array = pa.array(given, declared.type)
        arrays.append(
            array.cast(pa.timestamp("us", declared.type.tz)).cast(sent.type)
            if pa.types.is_timestamp(declared.type)
            else array
        )
    tags = pa.repeat(pa.scalar(columns.tag, pa.int32()), len(ids))
    return pa.table([tags, pa.array(ids, pa.int64()), *arrays], names=[TAG, WINDOW, *columns.names])


def _tagged_state(operator: TupleOperator, state: pa.Table, context: OperatorContext) -> pa.Table:
    columns, count = state_tag(operator), state.num_rows
    values = [column.combine_chunks() for column in state.columns]
    values = [
        value.cast(sent.type) if value.type != sent.type else value
        for value, sent in zip(values, columns.stored, strict=False)
    ]
    own = [pa.repeat(pa.scalar(0, pa.int32()), count), pa.repeat(pa.scalar(context.first - 1, pa.int64()), count)]
    gone = pa.repeat(pa.scalar(False), count)
    return pa.table([*own, *values, gone], names=[TAG, WINDOW, *columns.names])


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    return table[name].cast(kind) if name in table.column_names else pa.nulls(table.num_rows, kind)


def _ranges(operator: TupleOperator, rows: pa.Table, key_ranges: int) -> pa.Array:
    """Returns the key range of each row: by a hash of its key, whichever port it came to."""
    if key_ranges == 1:
        return pa.repeat(0, rows.num_rows)
    keys = operator.key_schema()
    columns = []
    for place in range(len(keys)):
        names = [state_tag(operator).names[place]] if operator.fields else []
        for port, columns_of in input_tags(operator).items():
            declared = operator.input_ports()[port]
            names.append(columns_of.names[columns_of.schema.get_field_index(declared.key[place])])
        columns.append(pc.coalesce(*(rows[name] for name in names)))
    hashed = row_hashes(pa.table(columns, names=[str(place) for place in range(len(keys))]))
    return pa.array(hashed % key_ranges)


def _until(rows: pa.Table, size: int, dies_at: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
    """Gives rows in batches; dies behind those of the window and port of a CRASH."""
    if dies_at is None:
        yield from rows.combine_chunks().to_batches(size)
        return
    window, tag = dies_at
    seen = pc.or_(pc.less(rows[WINDOW], window), pc.and_(pc.equal(rows[WINDOW], window), pc.less_equal(rows[TAG], tag)))
    yield from rows.filter(seen).combine_chunks().to_batches(size)
    raise _Died


def _keep(result: OperatorRun, operator: TupleOperator, made: Iterable[pa.RecordBatch]) -> None:
    for batch in made:
        for port, columns in output_tags(operator).items():
            own = batch.filter(pc.equal(batch[TAG], columns.tag))
            values = [own[WINDOW].to_pylist(), *(own[name].to_pylist() for name in columns.names)]
            result.outputs[port] += zip(*values, strict=True)


def _after(operator: TupleOperator, before: pa.Table | None, made: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """Returns the state after a group: changed keys replaced, those gone left out."""
    if before is None:
        return None
    columns, keys = state_tag(operator), operator.key_schema().names
    parts = [batch.filter(pc.equal(batch[TAG], 0)).select(columns.names) for batch in made]
    changed = pa.Table.from_batches(parts, columns.stored) if parts else columns.stored.empty_table()
    changed = changed.rename_columns(columns.schema.names)
    new = changed.filter(pc.invert(changed[GONE])).drop_columns([GONE])
    if not keys:
        return new.cast(before.schema)
    replaced = {_key_of(row, keys) for row in changed.select(keys).to_pylist()}
    kept = [_key_of(row, keys) not in replaced for row in before.select(keys).to_pylist()]
    return pa.concat_tables([before.filter(pa.array(kept, pa.bool_())), new.cast(before.schema)])


def _key_of(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in keys)


def _readable(operator: TupleOperator, rows: pa.Table | None) -> dict[Any, dict[str, Any]]:
    if rows is None:
        return {}
    keys = operator.key_schema().names
    found = {}
    for row in rows.to_pylist():
        key = _key_of(row, keys)
        found[key[0] if len(key) == 1 else key] = {
            field.name: copy.deepcopy(field.from_stored(row[field.name])) for field in operator.fields
        }
    return found
