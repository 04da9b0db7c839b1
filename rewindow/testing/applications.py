"""A whole application in a test: operator after operator over all windows, what each port emits
collected.

Tuple operators run as in `run_operator`, frame operators on a local session of Spark, in the same
groups.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewindow.application import Application, Mode, Node, OperatorContext, PortHandle, validate
from rewindow.application.error_tuples import GIVEN
from rewindow.errors import InputError
from rewindow.operators import TupleOperator
from rewindow.sequences import excluding, map_values
from rewindow.testing.operators import (
    Tuples,
    groups_of,
    random_cut,
    run_context,
    unseen_before,
    windows_of,
    words_of,
)
from rewindow.testing.passes import CRASH, PassRun, without_crash
from rewindow.tuple_engine.passes import Pass
from rewindow.windows import WindowRange, to_datetime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ByWindow = dict[int, list[dict[str, Any]]]


@dataclass
class ApplicationRun:
    """What an application has done.

    Attributes:
        outputs: by output, and by `operator.port` of each error port, the tuples as (window, value
            ...), by window.
        ports: the same of every port, as `operator.port`.
        states: by operator with a state, that after the last window: see OperatorRun; of a frame
            operator its rows.
        lost: windows that at most once has given up after a crash: all operators lose the group in
            which one dies.
    """

    outputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    ports: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    def __getitem__(self, output: str) -> list[tuple[Any, ...]]:
        return self.outputs[output]


def run_application(  # noqa: PLR0913 - each is an option of the verb
    app: Application,
    inputs: Tuples,
    *,
    windows: tuple[int, int] | None = None,
    group_windows: int | Sequence[int] = 1,
    key_ranges: int = 1,
    mode: str = "exactly_once",
    batch: int = 10_000,
    port_order: Sequence[str] = (),
    spark: SparkSession | None = None,
) -> ApplicationRun:
    """Runs an application over windows and returns what came out of each port.

    Args:
        app: an application, as its file has it.
        inputs: by stream and window the tuples: each a mapping, or values in the order of the
            columns that the first port which reads the stream declares. CRASH is for
            `run_operator`.
        windows, group_windows, key_ranges, mode, batch: see run_operator.
        port_order: names of input ports, in the order in which their tuples come to a tuple
            operator.
        spark: session for frame operators; a local one is started where there is none.

    Raises:
        ValidationFailed: the application breaks rules.
        InputError: an unknown stream, a tuple that does not fit it, or what an operator did wrong.
    """
    validate(app, Mode.parse(mode), is_test=True)
    unknown = sorted(set(inputs) - set(app.streams))
    if unknown:
        raise InputError(
            f'application "{app.name}" reads no stream "{unknown[0]}"',
            hint=f"It reads: {', '.join(app.streams)}.",
        )
    asked = windows_of(inputs, windows)
    rows = {}
    for stream in app.streams:
        rows[PortHandle(None, stream)] = _recorded(app, stream, inputs.get(stream, {}))
    how = _How(
        app,
        asked,
        group_windows,
        mode=Mode.parse(mode),
        spark=spark,
        key_ranges=key_ranges,
        batch=batch,
        port_order=port_order,
    )
    found = ApplicationRun(lost=how.lose(rows))
    for unit in app.units():
        if isinstance(unit[0].operator, TupleOperator):
            made = _run_tuples(unit, rows, how, lost=found.lost)
        else:
            given = map_values(lambda handle: rows[handle], unit[0].feeds)
            made = {unit[0].name: _run_frames(unit[0], given, how, lost=found.lost)}
        for node in unit:
            emitted, state = made[node.name]
            if node.operator.is_stateful:
                found.states[node.name] = state
            for port, of_port in emitted.items():
                found.ports[f"{node.name}.{port}"] = of_port
                rows[node[port]] = _by_window(_names(node, port), of_port)
    found.outputs = map_values(
        lambda output: found.ports[str(output.source)], app.outputs | app.errors()
    )
    return found


def check_application(
    app: Application,
    inputs: Tuples,
    *,
    runs: int = 5,
    seed: int = 0,
    any_port_order: bool = False,
    **how: Any,
) -> ApplicationRun:
    """Runs an application with random cuts into groups, key ranges and batches; all must come to
    the same (R86).

    Returns the run in one group; the arguments are those of `check_grouping`.

    Raises:
        AssertionError: a port of a run emitted something else; names the first one, and the run's
            seed.
    """
    asked = windows_of(inputs, how.pop("windows", None))
    ends = (asked.first, asked.last)
    whole = run_application(
        app,
        inputs,
        windows=ends,
        group_windows=len(asked),
        **how,
    )
    ports = []
    if any_port_order:
        ports = sorted(set().union(*(node.feeds for node in app.nodes.values())))
    for number in range(seed, seed + runs):
        cut = random_cut(random.Random(number), len(asked), ports)
        found = run_application(app, inputs, windows=ends, **cut, **how)
        for port, rows in whole.ports.items():
            same = sorted(map(repr, found.ports[port])) == sorted(map(repr, rows))
            assert same, f'port "{port}" differs with seed {number}: {words_of(cut)}'
        assert found.states == whole.states, f"a state differs with seed {number}: {words_of(cut)}"
    return whole


@dataclass(frozen=True)
class _How:
    """What all operators of a run share."""

    app: Application
    windows: WindowRange
    group_windows: int | Sequence[int]
    mode: Mode
    spark: SparkSession | None
    key_ranges: int
    batch: int
    port_order: Sequence[str]

    def lose(self, rows: Mapping[PortHandle, ByWindow]) -> list[int]:
        """Returns the windows that at most once loses to crashes, which are then taken out of the
        tuples.
        """
        if not self.mode.may_lose:
            return []
        dead = set()
        for by_window in rows.values():
            for window, of_window in by_window.items():
                if CRASH in of_window:
                    dead.add(window)
                    by_window[window] = without_crash(of_window)
        lost: list[int] = []
        for group in groups_of(self.windows, self.group_windows):
            if dead & {*group}:
                lost += group
        return lost

    def groups(self, lost: Sequence[int]) -> Iterator[WindowRange]:
        """Gives the groups that are computed."""
        for group in groups_of(self.windows, self.group_windows):
            if group.first not in lost:
                yield group

    def contexts(self, lost: Sequence[int]) -> Iterator[OperatorContext]:
        """Gives what each group is about."""
        for group in self.groups(lost):
            unseen = (*unseen_before(self.windows), *((window, window) for window in lost))
            yield OperatorContext(
                self.app.grid, group, self.mode, operator=self.app.name, unseen=unseen
            )


Made = tuple[dict[str, list[tuple[Any, ...]]], Any]
"""What an operator emits on each port, and its state after the last window."""


def _run_tuples(
    unit: list[Node],
    rows: Mapping[PortHandle, ByWindow],
    how: _How,
    lost: Sequence[int],
) -> dict[str, Made]:
    one = Pass.of(unit)
    names = dict(zip(one.members, unit, strict=True))
    inputs = {}
    for name, port in (*one.inputs, *one.controls):
        node = names[name]
        if port in node.feeds:
            inputs[name, port] = _projected(node, port, rows[node.feeds[port]])
    context = run_context(
        how.windows,
        how.mode,
        how.app.grid.width_ms,
        checkpoint_windows=how.app.checkpoint_windows,
    )
    run = PassRun(
        one,
        inputs,
        context,
        key_ranges=how.key_ranges,
        batch=how.batch,
        port_order=how.port_order,
    )
    for group in how.groups(lost):
        run.group(group)
    made = {}
    for name, node in names.items():
        of_node = run.run_of(name)
        made[node.name] = (of_node.outputs, of_node.states)
    return made


def _recorded(
    app: Application,
    stream: str,
    by_window: Mapping[int, Sequence[Any]],
) -> ByWindow:
    """Returns the tuples of a stream as mappings, with the columns that every recorded stream
    has.
    """
    names = _declared_names(app, PortHandle(None, stream))
    found: ByWindow = {}
    for window, rows in by_window.items():
        begin = to_datetime(app.grid.start_us(window))
        found[window] = []
        for offset, row in enumerate(rows):
            if row is CRASH:
                found[window].append(CRASH)  # type: ignore[arg-type]
                continue
            values = (
                row
                if isinstance(row, Mapping)
                else dict(zip(names, _as_tuple(row, stream, names), strict=True))
            )
            found[window].append({"offset": offset, "arrived_at": begin, **values})
    return found


def _declared_names(app: Application, stream: PortHandle) -> list[str]:
    """Returns the columns that the first port which reads a stream declares, if one does."""
    for node in app.order():
        for name, port in node.input_ports().items():
            if node.feeds.get(name) == stream and port.schema is not None:
                return list(port.schema.names)
    return []


def _as_tuple(row: Any, stream: str, names: Sequence[str]) -> tuple[Any, ...]:
    values = tuple(row) if isinstance(row, list | tuple) else (row,)
    if len(values) != len(names):
        raise InputError(
            f'a tuple of stream "{stream}" has {len(values)} values, its columns are '
            f"{', '.join(names) or 'not known'}",
            hint="Give mappings from column to value.",
        )
    return values


def _projected(node: Node, port: str, rows: ByWindow) -> ByWindow:
    schema = node.input_ports()[port].schema
    names = schema.names if schema is not None else []
    projected: ByWindow = {}
    for window, of_window in rows.items():
        projected[window] = []
        for row in of_window:
            if row is CRASH:
                projected[window].append(row)
                continue
            absent = excluding(names, row)
            if absent:
                raise InputError(
                    f'input "{port}" of operator "{node.name}" lacks the column "{absent[0]}"'
                )
            projected[window].append({name: row[name] for name in names})
    return projected


def _names(node: Node, port: str) -> list[str]:
    declared = node.output_ports()[port]
    return [*declared.schema.names, *(GIVEN.names if declared.error else ())]


def _by_window(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> ByWindow:
    found: ByWindow = {}
    for window, *values in rows:
        found.setdefault(window, []).append(dict(zip(names, values, strict=False)))
    return found


def _run_frames(
    node: Node,
    given: Mapping[str, ByWindow],
    how: _How,
    lost: Sequence[int],
) -> Made:
    """Returns what a frame operator emits on each port, and the rows of its state after the last
    window.
    """
    from rewindow.engine.operator_errors import frames_of
    from rewindow.spark.frames import conform, to_frame

    spark = how.spark or local_spark()
    operator = node.operator
    emitted: dict[str, list[tuple[Any, ...]]] = {}
    for port in node.output_ports():
        emitted[port] = []
    state = operator.initial_state() if operator.is_stateful else None
    for group in how.contexts(lost):
        context = replace(group, windowing=node.windowing)
        inputs = {}
        for port, by_window in given.items():
            inputs[port] = _frame(
                spark,
                node,
                port,
                by_window,
                context.windows,
            )
        before = to_frame(spark, state) if state is not None else None
        written = {}
        for port, frame in frames_of(node, operator.transform(inputs, before, context)).items():  # type: ignore[arg-type]
            what = f'port "{port}" of operator "{node.name}"'
            rows = conform(frame, node.output_ports()[port].schema, what).toArrow()
            columns = [column.to_pylist() for column in rows.columns]
            emitted[port] += zip(*columns, strict=True)
            written[port] = to_frame(spark, rows)
        if state is not None and before is not None:
            state = _after(
                operator,
                before,
                operator.next_state(inputs, written, before, context),
            ).cast(state.schema)
    for of_port in emitted.values():
        of_port.sort(key=lambda row: (row[0], repr(row)))
    rows_after = state.to_pylist() if state is not None else []
    return emitted, sorted(rows_after, key=repr)


def _after(operator: Any, before: DataFrame, after: DataFrame) -> pa.Table:
    """Returns the state after a group; an operator with increments has given the changed keys
    alone.
    """
    from pyspark.sql import functions as F

    from rewindow.tuple_engine.tagged_rows import DELETED

    if operator.state_increments:
        kept = before.join(after, list(operator.state_key_columns()), "left_anti")
        new = after.where(~F.col(DELETED)).drop(DELETED) if DELETED in after.columns else after
        after = kept.unionByName(new)
    return after.select(*operator.state_columns().names).toArrow()


def _frame(
    spark: SparkSession,
    node: Node,
    port: str,
    rows: ByWindow,
    windows: WindowRange,
) -> DataFrame:
    """Returns the tuples of a group as an operator gets them: `window_id` and the columns."""
    flat = []
    for window in windows:
        for row in without_crash(rows.get(window, [])):
            flat.append({"window_id": window, **row})
    declared = node.input_ports()[port].schema
    own = [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
    ]
    known = pa.schema(own if (flat and "offset" in flat[0]) or not flat else own[:1])
    for column in declared if declared is not None else ():
        if column.name not in known.names:
            known = known.append(column)
    # Columns that the port does not declare pass too: their types are those that Arrow infers.
    more = sorted({*chain.from_iterable(flat)} - set(known.names))
    if more:
        rest = {}
        for name in more:
            rest[name] = pa.array([row.get(name) for row in flat])
        known = pa.schema([*known, *pa.table(rest).schema])
    from rewindow.spark.frames import to_frame

    return to_frame(spark, pa.Table.from_pylist(flat, schema=known))


def local_spark() -> SparkSession:
    """Returns the session of this process for frame operators; a small local one is started where
    there is none.
    """
    import os

    from pyspark.sql import SparkSession

    from rewindow.spark.settings import spark_environment

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ.update(spark_environment())
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.catalogImplementation": "in-memory",
    }
    return (
        SparkSession.builder.master("local[1]")
        .appName("rewindow.testing")
        .config(map=settings)
        .getOrCreate()
    )
