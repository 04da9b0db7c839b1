"""Computes the commit groups of a graph in a test.

Tuple operators run as in Spark, and frame operators run on a local session of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewindow.application import Application, Node, OperatorContext, PortHandle
from rewindow.application.error_tuples import GIVEN
from rewindow.errors import InputError
from rewindow.operators import TupleOperator
from rewindow.sequences import excluding, names_of
from rewindow.spark.columns import named_columns
from rewindow.testing.passes import (
    CRASH,
    Died,
    DiedAt,
    Emitted,
    PassRun,
    in_reading_order,
    without_crash,
)
from rewindow.tuple_engine.emission_order import EmissionOrder
from rewindow.tuple_engine.passes import ALONE, Pass
from rewindow.tuple_engine.tagged_rows import Columns, OperatorPort, input_tags
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Recorded = dict[int, list[Any]]
"""Tuples of a stream by window, with CRASH among them."""
States = Mapping[str, Any]


@dataclass(frozen=True)
class PassOptions:
    """Options for the calls of each operator, see `run_operator`."""

    key_ranges: int = 1
    batch: int = 10_000
    port_order: Sequence[str] = ()
    spark: SparkSession | None = None


class GraphComputation:
    """Computes the commit groups of an application, unit after unit.

    Args:
        app: the application.
        streams: tuples by stream and window; a CRASH is removed after it has caused a crash.
        how: options of the calls.
        project: returns recorded tuples with the columns of a port of a tuple operator.
    """

    def __init__(
        self,
        app: Application,
        streams: Mapping[str, Recorded],
        how: PassOptions,
        project: Callable[[Node, str, Sequence[Any]], list[Any]],
    ) -> None:
        self._app = app
        self._how = how
        self._order = EmissionOrder(app)
        self._streams = streams
        self._project = project
        self._passes: dict[str, PassRun] = {}
        self._units = app.units()
        self._columns: dict[OperatorPort, Columns] = {}
        for unit in self._units:
            if isinstance(unit[0].operator, TupleOperator):
                one = Pass.of(unit, followed=self._order.followed)
                for node in unit:
                    self._passes[node.name] = PassRun(
                        one, how.key_ranges, how.batch, how.port_order
                    )
                    for port, columns in input_tags(node.operator).items():  # type: ignore[arg-type]
                        self._columns[node.name, port] = columns

    def initial_states(self) -> States:
        """Returns the states before the first window by operator.

        The states of a cycle have the name of its first operator.
        """
        states: dict[str, Any] = {}
        for unit in self._units:
            run = self._passes.get(unit[0].name)
            if any(node.operator.is_stateful for node in unit):
                states[unit[0].name] = (
                    run.initial_states() if run else unit[0].operator.initial_state()
                )
        return states

    def readable(self, node: Node, states: States) -> Any:
        """Returns the state of an operator in the same form as in the result of a run."""
        run = self._passes.get(node.name)
        if run is None:
            return sorted(states[node.name].to_pylist(), key=repr)
        unit = next(unit for unit in self._units if node.name in names_of(unit))
        return run.readable(ALONE if len(unit) == 1 else node.name, states[unit[0].name])

    def compute(
        self, context: OperatorContext, states: States
    ) -> tuple[dict[str, dict[int, list[Any]]], States]:
        """Returns the tuples that a group emits, by port and window, and the states after it.

        Raises:
            Died: a tuple is CRASH, which is then removed.
        """
        emitted: dict[PortHandle, list[Emitted]] = {}
        after: dict[str, Any] = {}
        for unit in self._units:
            name = unit[0].name
            run = self._run_pass if name in self._passes else self._run_frames
            made, next_state = run(
                unit,
                context,
                emitted,
                states.get(name),
            )
            emitted |= made
            if name in states:
                after[name] = next_state
        for by_window in self._streams.values():
            for window in context.windows:
                if CRASH in by_window.get(window, ()):
                    by_window[window].remove(CRASH)
                    raise Died
        found: dict[str, dict[int, list[Any]]] = {}
        for end, of_port in emitted.items():
            # A window that is computed again replaces its rows, even if it has none now.
            rows: dict[int, list[Any]] = {}
            for window in context.windows:
                rows[window] = []
            found[str(end)] = rows
            for one in of_port:
                rows.setdefault(one.window, []).append((one.window, *one.values))
        return found, after

    def skip(
        self,
        states: States,
        windows: WindowRange,
        tables: Mapping[str, Recorded],
    ) -> States:
        """Returns the states with which an attempt continues after windows that these states lack.

        Args:
            states: the states before these windows.
            windows: the windows that were skipped.
            tables: by output its tuples, including those of these windows.
        """
        from rewindow.spark.frames import to_frame

        found = dict(states)
        for name in excluding(states, self._passes):
            node = self._app.nodes[name]
            outputs = {}
            for output, declared in self._app.outputs.items():
                if declared.source.operator == name:
                    port = declared.source.port
                    names = ["window_id", *_names(node, port)]
                    flat = []
                    for window in windows:
                        for row in tables[output].get(window, ()):
                            flat.append(dict(zip(names, row, strict=True)))
                    schema = pa.schema([("window_id", pa.int64()), *_columns(node, port)])
                    table = pa.Table.from_pylist(flat, schema=schema)
                    outputs[port] = to_frame(self._spark, table)
            state = to_frame(self._spark, states[name])
            after = node.operator.state_after_skip(
                state,
                windows,
                outputs,
            )
            if after is not state:
                found[name] = after.toArrow().cast(states[name].schema)
        return found

    @property
    def _spark(self) -> SparkSession:
        return self._how.spark or local_spark()

    def _run_pass(
        self,
        unit: list[Node],
        context: OperatorContext,
        emitted: Mapping[PortHandle, Sequence[Emitted]],
        state: Any,
    ) -> tuple[dict[PortHandle, list[Emitted]], Any]:
        """Runs an operator or the operators of a cycle."""
        is_alone = len(unit) == 1
        nodes = {ALONE if is_alone else node.name: node for node in unit}
        inside = set(names_of(unit))
        inputs = {}
        for name, node in nodes.items():
            for port, end in node.feeds.items():
                if end.operator not in inside:
                    rows = self._rows_for(
                        node,
                        port,
                        context.windows,
                        emitted,
                    )
                    inputs[name, port] = rows
        if is_alone:
            context = replace(context, operator=f"{self._app.name}.{unit[0].name}")
        run = self._passes[unit[0].name]
        try:
            made, after = run.compute(
                context,
                inputs,
                state or run.initial_states(),
            )
        except DiedAt as died:
            end = nodes[died.place[0]].feeds[died.place[1]]
            self._streams[end.port][died.window].remove(CRASH)
            raise
        of_port = {}
        for (name, port), rows_of_port in made.items():
            of_port[nodes[name][port]] = rows_of_port
        return of_port, after

    def _rows_for(
        self,
        node: Node,
        port: str,
        windows: WindowRange,
        emitted: Mapping[PortHandle, Sequence[Emitted]],
    ) -> dict[int, list[Any]]:
        """Returns the tuples that a port of a tuple operator receives, by window, in their order.

        Rules: O39, X43
        """
        end = node.feeds[port]
        columns = self._columns[node.name, port]
        found: dict[int, list[Any]] = {}
        if end.operator is None:
            for window in windows:
                rows = self._project(
                    node,
                    port,
                    self._streams[end.port].get(window, []),
                )
                if port in node.unordered:
                    known = without_crash(rows)
                    ordered = in_reading_order(
                        columns,
                        known,
                        [False] * len(known),
                    )
                    rows = ordered + [CRASH] * (len(rows) - len(known))
                found[window] = rows
            return found
        follows = self._order.follows(node, port)
        names = _names(self._app.nodes[end.operator], end.port)
        places = list(map(names.index, columns.schema.names))
        is_own: dict[int, list[bool]] = {}
        for one in emitted[end]:
            found.setdefault(one.window, []).append(tuple(map(one.values.__getitem__, places)))
            is_own.setdefault(one.window, []).append(follows and one.is_own)
        for window, rows in found.items():
            found[window] = in_reading_order(
                columns,
                rows,
                is_own[window],
            )
        return found

    def _run_frames(
        self,
        unit: list[Node],
        context: OperatorContext,
        emitted: Mapping[PortHandle, Sequence[Emitted]],
        state: pa.Table | None,
    ) -> tuple[dict[PortHandle, list[Emitted]], pa.Table | None]:
        """Runs a frame operator."""
        from rewindow.engine.operator_errors import frames_of
        from rewindow.spark.frames import conform, to_frame

        (node,) = unit
        context = replace(
            context,
            operator=f"{self._app.name}.{node.name}",
            unordered=node.unordered,
            windowing=node.windowing,
        )
        inputs = {}
        for port, end in node.feeds.items():
            by_window = self._streams[end.port] if end.operator is None else {}
            if end.operator is not None:
                names = _names(self._app.nodes[end.operator], end.port)
                by_window = {window: [] for window in context.windows}
                for one in emitted[end]:
                    values = dict(zip(names, one.values, strict=False))
                    by_window[one.window].append(values)
            inputs[port] = _frame(
                self._spark,
                node,
                port,
                by_window,
                context.windows,
            )
        operator = node.operator
        before = to_frame(self._spark, state) if state is not None else None
        written = {}
        made = {}
        for port, frame in frames_of(
            node,
            operator.transform(
                inputs,
                before,
                context,
            ),
        ).items():
            what = f'port "{port}" of operator "{node.name}"'
            rows = conform(
                frame,
                node.output_ports()[port].schema,
                what,
            ).toArrow()
            columns = [column.to_pylist() for column in rows.columns]
            emissions = []
            for window, *emitted_values in zip(*columns, strict=True):
                emissions.append(Emitted(window, tuple(emitted_values)))
            made[node[port]] = sorted(emissions, key=lambda one: (one.window, repr(one)))
            written[port] = to_frame(self._spark, rows)
        if state is None or before is None:
            return made, None
        after = _after(
            operator,
            before,
            operator.next_state(
                inputs,
                written,
                before,
                context,
            ),
        )
        return made, after.cast(state.schema)


def projected(node: Node, port: str, rows: Sequence[Any]) -> list[Any]:
    """Returns recorded tuples with only the columns that a port declares."""
    schema = node.input_ports()[port].schema
    names = schema.names if schema is not None else []
    projected: list[Any] = []
    for row in rows:
        if row is CRASH:
            projected.append(row)
            continue
        absent = excluding(names, row)
        if absent:
            raise InputError(
                f'input "{port}" of operator "{node.name}" lacks the column "{absent[0]}"'
            )
        projected.append(tuple(map(row.__getitem__, names)))
    return projected


def _columns(node: Node, port: str) -> pa.Schema:
    declared = node.output_ports()[port]
    return pa.schema([*declared.schema, *(GIVEN if declared.error else ())])


def _names(node: Node, port: str) -> list[str]:
    return list(_columns(node, port).names)


def _after(operator: Any, before: DataFrame, after: DataFrame) -> pa.Table:
    """Returns the state after a group.

    With `state_increments`, an operator returns only the changed keys, which replace those of the
    previous state. Keys that it marks as deleted are removed.
    """
    from pyspark.sql import functions as F

    from rewindow.tuple_engine.tagged_rows import DELETED

    if operator.state_increments:
        kept = before.join(
            after,
            list(operator.state_key_columns()),
            "left_anti",
        )
        new = after.where(~F.col(DELETED)).drop(DELETED) if DELETED in after.columns else after
        after = kept.unionByName(new)
    return after.select(*named_columns(operator.state_columns().names)).toArrow()


def _frame(
    spark: SparkSession,
    node: Node,
    port: str,
    rows: Mapping[int, Sequence[Any]],
    windows: WindowRange,
) -> DataFrame:
    """Returns the tuples of a group in the form that an operator receives, with `window_id` and the
    columns.
    """
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
    # Columns that the port does not declare are passed too, with the types that Arrow infers.
    more = sorted({*chain.from_iterable(flat)} - set(known.names))
    if more:
        rest = {}
        for name in more:
            rest[name] = pa.array([row.get(name) for row in flat])
        known = pa.schema([*known, *pa.table(rest).schema])
    from rewindow.spark.frames import to_frame

    return to_frame(spark, pa.Table.from_pylist(flat, schema=known))


def local_spark() -> SparkSession:
    """Returns the Spark session of this process for frame operators.

    If none is active, a small local session is started.
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
