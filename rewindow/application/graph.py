"""The application: a graph of operators and streams that a replay runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from rewindow.application.cycles import cycles_of
from rewindow.application.error_tuples import error_columns
from rewindow.application.modes import Mode
from rewindow.application.module import Build, PartInstance, place
from rewindow.application.node import End, Node, PortHandle, end_of
from rewindow.application.operator import FrameOperator, InputPort, OutputPort
from rewindow.application.overrides import PropertyOverride
from rewindow.application.violations import Violation
from rewindow.sequences import excluding, map_values, names_of, not_named
from rewindow.windows import Grid, parse_duration

CHECKPOINT_WINDOWS = 60
UNREAD = "none of its output ports is connected or marked optional"
TOLERANCE = 1e-9
"""Default tolerance of floating-point values: the difference at which they count as equal (R85)."""


@dataclass(frozen=True)
class Output:
    """A stream that a replay writes and a publication makes visible.

    Attributes:
        key: columns that identify a tuple within its window; a published window is ordered by them.
        suite: name of the suite of expectations that checks it.
        suite_parameters: values that its expectations and measures use by name; several outputs may
            share a suite.
        tolerance: two floating-point values are equal if |a - b| <= tolerance * max(1, |a|, |b|).
        sorted_by: columns by which the rows of each file are sorted, so that readers can skip row
            groups; the result does not depend on it.
        is_error: whether it is the table of an error port, which exists without a declaration.

    Rules: O69, R85
    """

    name: str
    source: PortHandle
    key: tuple[str, ...]
    suite: str | None
    tolerance: float = TOLERANCE
    is_error: bool = False
    suite_parameters: tuple[tuple[str, str | int | float], ...] = ()
    sorted_by: tuple[str, ...] = ()

    @property
    def direction(self) -> str:
        """The value of the column `direction` in the output's facts."""
        return "error" if self.is_error else "out"


@dataclass
class Application:
    """The graph of an application.

    `window` is the width of its streaming windows. All inputs share its grid.

    Example:
        app = Application("clicks_per_page", window="5 seconds")
        clicks = app.input("clicks")
        counts = app.add("counts", CountPerPage(), clicks=clicks)
        app.output("counts", counts, key=["page"])

    Attributes:
        strict_outputs: whether an operator with only unread output ports is a violation; otherwise
            it is a warning.
        given: overrides of properties and attributes, after they were applied.
        whole: the application that this one is a part of, see `part`.
        failing: tables of tuples for which operators fail, with the columns of the input port; only
            a replay that quarantines such tuples has any.

    Rules: O15, R93
    """

    name: str
    window: str
    origin_ms: int = 0
    checkpoint_windows: int = CHECKPOINT_WINDOWS
    strict_outputs: bool = False
    streams: dict[str, pa.Schema | None] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    declared: list[Violation] = field(default_factory=list)
    given: list[PropertyOverride] = field(default_factory=list)
    whole: Application | None = None
    failing: dict[PortHandle, pa.Schema] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        """The window grid that every input must have."""
        return Grid(parse_duration(self.window) // 1000, self.origin_ms)

    @property
    def checkpoint_multiple(self) -> int:
        """The least common multiple K of the operators' `checkpoint_windows`.

        Checkpoints are saved only at multiples of K.
        """
        return math.lcm(*(node.checkpoint_windows for node in self.nodes.values()))

    def input(self, stream: str, schema: pa.Schema | None = None) -> PortHandle:
        """Declares a recorded stream as input. If it has a schema, the recording is checked against
        it at launch.

        A stream may be declared again, with the same schema or none.

        Rules: O48, O49
        """
        known = self.streams.setdefault(stream, schema)
        if known is None:
            self.streams[stream] = schema
        elif schema is not None and schema != known:
            self.declared.append(
                Violation(
                    "O48",
                    "",
                    stream,
                    value=stream,
                    message="stream name is taken by another schema",
                )
            )
        return PortHandle(None, stream)

    def add(  # noqa: PLR0913 - each is an attribute of the operator
        self,
        name: str,
        operator: FrameOperator,
        *,
        mode: Mode | str | None = None,
        container: str | None = None,
        checkpoint_windows: int = 1,
        application_windows: int = 1,
        slide_windows: int | None = None,
        partitions: int | None = None,
        partitioner: str | None = None,
        spread: int | None = None,
        locality: str | None = None,
        **feeds: End,
    ) -> Node:
        """Adds an operator and connects its input ports.

        Adding another operator under an existing name is reported at launch and does not change the
        graph.

        Args:
            name: unique name of the operator.
            operator: the operator.
            mode: limits the damage of a crash (see docs/recovery_modes.md); None: the plan decides.
            container: operators with the same name here recover together; None: the plan decides.
                Operators with another mode or container are computed by another job, which reads
                the staged output of this one.
            checkpoint_windows: checkpoints are saved only at multiples of this number of windows.
            application_windows: number of windows that the operator treats as one.
            slide_windows: makes the application window sliding: the operator has a result every
                `slide_windows` windows, over the last `application_windows`.
            partitions: number of Spark tasks among which the keys of a tuple operator are divided.
                No result depends on it.
            partitioner: maps keys to partitions, see `Placing`.
            spread: number of instances among which the tuples of an operator without a key are
                divided.
            locality: "apart" computes a tuple operator in a separate pass, even next to operators
                with the same key. Results do not depend on it.
            **feeds: input port name to the port that feeds it.

        Rules: O17, O48, O49, O97, O101, O103, W18, W27, X53, X55
        """
        ends = map_values(self._end, feeds)
        known_mode = Mode.parse(mode) if mode else None
        node = Node(
            name,
            operator,
            known_mode,
            checkpoint_windows=checkpoint_windows,
            feeds=ends,
            application_windows=application_windows,
            slide_windows=slide_windows,
            locality=locality,
            container=container,
            partitions=partitions,
            partitioner=partitioner,
            spread=spread,
        )
        known = self.nodes.setdefault(name, node)
        if known.operator is not operator or known != node:
            self.declared.append(
                Violation(
                    "O48", name, "", value=name, message="operator name is taken by another one"
                )
            )
        self.renew_unifiers(name)
        return known

    def renew_unifiers(self, name: str) -> None:
        """Adds the unifiers of an operator, or updates them to the operator's current properties
        and attributes.

        Rules: O73, O78
        """
        writer = self.nodes[name]
        if writer.unifies:
            return
        for port, declared in writer.output_ports().items():
            # A class may declare one instance for all its operators, and each operator needs a
            # separate unifier. So a new instance is built from the given properties.
            own = writer.operator if declared.unifier == "self" else declared.unifier
            if not isinstance(own, FrameOperator):
                continue
            unifier = f"{name}.{port}.unifier"
            known = self.nodes.get(unifier)
            if known:
                known.operator.set_properties(**own.given_properties())
            operator = known.operator if known else type(own)(**own.given_properties())
            given = known or Node(unifier, operator, None, checkpoint_windows=1, feeds={})
            self.nodes[unifier] = replace(
                given,
                mode=writer.mode,
                checkpoint_windows=writer.checkpoint_windows,
                feeds=dict.fromkeys(operator.input_ports(), writer[port]),
                application_windows=writer.windowing.pane,
                container=writer.container,
                unifies=writer[port],
            )

    def _end(self, feed: End) -> PortHandle:
        """Returns the port that emits a stream.

        If the stream has a unifier, this is the unifier's port.

        Rules: O75
        """
        end = end_of(feed)
        unifier = self.nodes.get(f"{end}.unifier")
        return unifier.default_port() if unifier and unifier.unifies == end else end

    def module(self, name: str, build: Build, **feeds: End) -> PartInstance:
        """Adds a part of a graph as if it were one operator, and connects its input ports.

        Args:
            name: prefix of the names of its operators, followed by a full stop.
            build: a function that adds the operators. It receives a `Part`, and the feeds of its
                input ports as keyword arguments; a parameter with a default is optional. It returns
                the streams of its output ports by name, or the stream of its one output port.
            **feeds: input port name to the port that feeds it.

        Rules: O10, X50
        """
        return place(self, name, build, feeds)

    def output(
        self,
        name: str,
        source: End,
        *,
        key: Sequence[str],
        suite: str | None = None,
        suite_parameters: Mapping[str, str | int | float] | None = None,
        tolerance: float = TOLERANCE,
        sorted_by: Sequence[str] = (),
    ) -> None:
        """Declares an output of the application. Declaring the same output again has no effect.

        Sums of floating-point values depend on the order in which Spark adds. If positive and
        negative values nearly cancel out, declare a larger `tolerance`, or sum decimals.

        Args:
            name: name of the output; its published table is APPLICATION.NAME.
            source: the port that emits it.
            key: columns that identify a tuple within its window.
            suite: name of the suite of expectations that checks it.
            suite_parameters: values that the suite uses by name.
            tolerance: relative difference at which floating-point values count as equal.
            sorted_by: columns by which the rows of each file are sorted, such as `window_id`.
                Sorting costs time in every group, but lets readers skip row groups.

        Rules: O48, O49, R85
        """
        handle = self._end(source)
        given = tuple(sorted((suite_parameters or {}).items()))
        output = Output(
            name,
            handle,
            tuple(key),
            suite=suite,
            tolerance=tolerance,
            suite_parameters=given,
            sorted_by=tuple(sorted_by),
        )
        if not 0 <= tolerance < math.inf:
            self.declared.append(
                Violation(
                    "R85",
                    "",
                    name,
                    value=str(tolerance),
                    message="tolerance must be a number, at least 0",
                )
            )
        if self.outputs.setdefault(name, output) != output:
            self.declared.append(
                Violation(
                    "O48", "", name, value=name, message="output name is taken by another one"
                )
            )

    def errors(self) -> dict[str, Output]:
        """Returns an error table for each error port, in the order of port names, followed by the
        tables of failing tuples.

        Error tables exist even if an operator reads the port.

        Rules: O67, O69, R93
        """
        handles = [handle for handle, port in self._output_ports() if port.error]
        tables = {}
        for handle in [*handles, *self.failing]:
            tables[str(handle)] = Output(str(handle), handle, (), suite=None, is_error=True)
        return tables

    def _output_ports(self) -> Iterator[tuple[PortHandle, OutputPort]]:
        """Yields the output ports of all operators."""
        for node in self.nodes.values():
            for name, port in node.output_ports().items():
                yield node[name], port

    def staged(self) -> dict[str, Output]:
        """Returns all tables that a replay writes: the outputs, then the error tables."""
        return self.outputs | self.errors()

    def columns(self, output: Output) -> pa.Schema:
        """Returns the event columns of a table that a replay writes."""
        if output.source in self.failing:
            return error_columns(self.failing[output.source])
        ports = self.nodes[str(output.source.operator)].operator.output_ports()
        schema = ports[output.source.port].schema
        return error_columns(schema) if output.is_error else schema

    def dropped(self) -> set[PortHandle]:
        """Returns the output ports that are not read. Their tuples are only counted.

        Error ports are not included, because their tuples are stored. Report ports are not included
        either, because they are not computed if they are not read.

        Rules: O16, O69
        """
        counted = set()
        for handle, port in self._output_ports():
            if not port.error and not port.report:
                counted.add(handle)
        return counted - self.read()

    def read(self) -> set[PortHandle]:
        """Returns the source ports of all streams that an operator or an output reads."""
        read = {output.source for output in self.outputs.values()}
        for node in self.nodes.values():
            read.update(node.feeds.values())
        return read

    def unread(self) -> list[str]:
        """Returns the operators that have output ports, but none that is connected or marked
        optional.

        Connected error ports do not count. Operators that end streams are never included.

        Rules: O3, O15, X13
        """
        read = self.read()
        unread = []
        for name, node in self.nodes.items():
            ports = node.output_ports()
            if not node.operator.ends_streams and ports and not _is_read(node, read):
                unread.append(name)
        return unread

    def cycles(self) -> list[list[Node]]:
        """Returns the operators of each cycle, in the order in which they are called, see
        `cycles_of`.

        Rules: X40
        """
        return cycles_of(self.nodes)

    def units(self) -> list[list[Node]]:
        """Returns the groups of operators that are computed together, in topological order.

        A group is a single operator, or the operators of a cycle.

        Rules: X40
        """
        units = self.cycles()
        inside = names_of(chain.from_iterable(units))
        units += ([node] for node in not_named(self.nodes.values(), inside))
        # Topological order by repeated selection: all units whose sources are placed come next,
        # in the order in which they were added. The order is stable, since plans store it.
        added = list(self.nodes)
        rest = sorted(units, key=lambda unit: min(map(added.index, names_of(unit))))
        placed: list[list[Node]] = []
        names: set[str] = set()
        while rest:
            # Sources that are not in the graph are in another container, which has ended.
            known = set(self.nodes)
            ready = [unit for unit in rest if _sources(unit) & known <= names]
            if not ready:
                # A cycle without a delay waits for itself. Validation rejects it later.
                ready = rest
            rest = excluding(rest, ready)
            placed += ready
            names.update(names_of(chain.from_iterable(ready)))
        return placed

    def order(self) -> list[Node]:
        """Returns the operators in topological order. The operators of a cycle are adjacent."""
        return list(chain.from_iterable(self.units()))

    def upstream(self, name: str) -> set[str]:
        """Returns the names of an operator and of all operators that feed it, directly or
        indirectly.
        """
        names = set()
        todo = [name]
        while todo:
            current = todo.pop()
            if current in names or current not in self.nodes:
                continue
            names.add(current)
            todo += self.nodes[current].sources
        return names

    def ends(self, of_streams: Mapping[str, int | None]) -> dict[str, int]:
        """Returns, for each operator, the window with which its last upstream stream ends.

        Operators are left out if one of their upstream streams has not ended.

        Args:
            of_streams: the last window of each stream, and of each port of another container.

        Rules: X21
        """
        ends = {}
        for name in self.nodes:
            last = []
            for node in self.upstream(name):
                for end in self.nodes[node].feeds.values():
                    if end.operator not in self.nodes:
                        last.append(of_streams.get(str(end)))
            known = [end for end in last if end is not None]
            if known and len(known) == len(last):
                ends[name] = max(known)
        return ends

    def part(self, operators: Iterable[str]) -> Application:
        """Returns the part of this application that a container computes.

        The operators keep their inputs. Ports of operators outside of the part are sources of the
        part, like recorded streams. A port that an operator outside reads becomes an output with
        the name of the port, unless it is an error port or already an output of the application.

        Rules: X53
        """
        names = set(operators)
        nodes = {}
        read_inside: set[PortHandle] = set()
        read_outside: set[PortHandle] = set()
        for name, node in self.nodes.items():
            if name in names:
                nodes[name] = node
                read_inside.update(node.feeds.values())
            else:
                read_outside.update(node.feeds.values())
        outputs = {}
        known = set()
        for name, output in self.outputs.items():
            if output.source.operator in names:
                # Its files keep the order of emission for the readers in other containers (O39).
                is_cut = output.source in read_outside
                outputs[name] = replace(output, sorted_by=()) if is_cut else output
                known.add(output.source)
        for error in self.errors().values():
            known.add(error.source)
        for end in sorted(read_outside - known, key=str):
            if end.operator in names:
                outputs[str(end)] = Output(str(end), end, (), suite=None)
        streams = {}
        for name, schema in self.streams.items():
            if PortHandle(None, name) in read_inside:
                streams[name] = schema
        failing = {}
        for handle, schema in self.failing.items():
            if handle.operator in names:
                failing[handle] = schema
        return replace(
            self,
            streams=streams,
            nodes=nodes,
            failing=failing,
            outputs=outputs,
            whole=self.whole or self,
        )

    def cut_streams(self) -> list[PortHandle]:
        """Returns the ports of other containers that this part of an application reads."""
        if not self.whole:
            return []
        ports: set[PortHandle] = set()
        for node in self.nodes.values():
            for end in node.feeds.values():
                # A feed without an operator is a recorded stream.
                if end.operator is not None and end.operator not in self.nodes:
                    ports.add(end)
        return sorted(ports, key=str)

    def port(self, handle: PortHandle) -> OutputPort | InputPort | None:
        """Returns the port that emits a stream; None if it does not exist.

        If the operator cannot list its ports, the result is a port without a schema.

        Rules: O60
        """
        if handle.operator is None:
            return InputPort(self.streams.get(handle.port)) if handle.port in self.streams else None
        node = self.nodes.get(handle.operator)
        if node is None:
            return None
        return node.output_ports().get(handle.port) if node.has_known_ports else InputPort()

    def warnings(self) -> list[str]:
        """Returns problems that do not stop a run but are stored with it.

        Operators with invalid properties are left out, because these are violations.

        Rules: O15, O61
        """
        odd = []
        for name, node in self.nodes.items():
            if not node.operator.wrong_properties():
                odd += [f"{name}: {text}" for text in node.operator.warnings()]
        for name, node in self.nodes.items():
            if node.slide_windows == node.application_windows:
                odd.append(
                    f"{name}: a window that slides by its whole length does not slide: leave "
                    "slide_windows out"
                )
        return odd + [f"{name}: {UNREAD}" for name in self.unread()]


def _sources(unit: list[Node]) -> set[str]:
    """Returns the operators that feed an operator or a cycle from outside."""
    sources: set[str] = set()
    for node in unit:
        sources |= node.sources
    return sources.difference(names_of(unit))


def _is_read(node: Node, read: set[PortHandle]) -> bool:
    """Returns whether an output port of an operator is connected or marked optional."""
    for name, port in node.output_ports().items():
        if port.optional or (node[name] in read and not port.error):
            return True
    return False
