"""Application: the graph of operators and streams that a replay runs."""

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
"""How close floating-point values of an output lie that count as equal, unless it declares
something else (R85)."""


@dataclass(frozen=True)
class Output:
    """A stream that a replay writes and a publication makes visible.

    Attributes:
        key: columns that name a tuple within its window; they order a published window.
        suite: name of the suite of expectations that judges it.
        suite_parameters: values that its expectations and measures use by name; several outputs may
            share a suite.
        tolerance: its floating-point values are equal when |a - b| <= tolerance * max(1, |a|, |b|)
            (R85).
        sorted_by: columns by which rows lie in each of its files, so that readers can pass over row
            groups; no part of the result.
        is_error: whether it is the table of an error port's tuples, which nobody has to declare
            (O69).
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
        """What its rows in the facts are called."""
        return "error" if self.is_error else "out"


@dataclass
class Application:
    """An application graph; `window` is the width of its streaming windows, all inputs share its
    grid.

    `given` are the values of properties and attributes that come from outside of its code, once
    they are put in. With `strict_outputs` an operator of which nothing is read is refused, without
    it there is a warning (O15). `whole` is the application that it is a part of, see `part`.
    `failing` are the tables of tuples at which operators fail, with the columns of the input port;
    only a replay that quarantines such tuples has any (R93).

    Example:
        app = Application("clicks_per_page", window="5 seconds")
        clicks = app.input("clicks")
        counts = app.add("counts", CountPerPage(), clicks=clicks)
        app.output("counts", counts, key=["page"])
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
        """The grid that every input must have."""
        return Grid(parse_duration(self.window) // 1000, self.origin_ms)

    @property
    def checkpoint_multiple(self) -> int:
        """K: checkpoints wait for a multiple of it, the least common one of all operators'."""
        return math.lcm(*(node.checkpoint_windows for node in self.nodes.values()))

    def input(self, stream: str, schema: pa.Schema | None = None) -> PortHandle:
        """Declares a recorded stream as input; a schema is checked against the recording at launch.

        It may be declared again, with the same schema or none (O48, O49).
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
        """Adds an operator and connects its input ports, given by name: each to one port that
        writes its stream (O17).

        `mode` limits what a crash may cost (see docs/recovery_modes.md). Operators with the same
        `container` recover together. Operators with another mode or container are computed by
        another job, which reads the staged output of this one (X53). The plan chooses both if they
        are not given.

        `application_windows` are taken as one by the operator (W18); with `slide_windows` it looks
        back over that many and has a result each time after `slide_windows` windows (W27).

        `partitions` divides the keys of a tuple operator between that many Spark tasks, and
        `partitioner` maps keys to partitions; `spread` divides the tuples of an operator
        without a key between that many instances. No result depends on them (X55, O101).

        `locality="apart"` computes a tuple operator in a separate pass, also next to operators with
        the same key (O97, O103). It does not change any result.

        Another one under a name that is taken is reported at launch and leaves the graph as it was
        (O48, O49).
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
        """Adds the unifiers of an operator, or updates them to its present properties and
        attributes (O73, O78).
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
        """Returns the port that emits a stream: the unifier's port if there is a unifier (O75)."""
        end = end_of(feed)
        unifier = self.nodes.get(f"{end}.unifier")
        return unifier.default_port() if unifier and unifier.unifies == end else end

    def module(self, name: str, build: Build, **feeds: End) -> PartInstance:
        """Adds a part of a graph as if it were one operator, and connects its input ports, given by
        name (O10).

        Args:
            name: begins the names of its operators, before a full stop (X50).
            build: gets a `Part`, to which it adds operators, and by their names what feeds its
                input ports; returns by name what its output ports emit, or its one output port. A
                parameter with a default is optional.
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
        """Declares an output of the application; the same one may be declared again (O48, O49).

        Sums of floating-point values depend on the order in which Spark adds: where positive and
        negative ones nearly cancel out, declare a `tolerance` that allows for it, or sum decimals
        (R85).

        `sorted_by` sorts the rows of each file that is written by columns that readers filter by,
        `window_id` among them: it costs a sort in every group, and readers pass over the row groups
        that hold nothing they ask for.
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
        """Returns a table for each error port, by the port's name, whether anything reads it or not
        (O67, O69); then those of failing tuples (R93).
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
        """Returns everything that a replay writes: the outputs, then the error tuples."""
        return self.outputs | self.errors()

    def columns(self, output: Output) -> pa.Schema:
        """Returns the event columns of something that a replay writes."""
        if output.source in self.failing:
            return error_columns(self.failing[output.source])
        ports = self.nodes[str(output.source.operator)].operator.output_ports()
        schema = ports[output.source.port].schema
        return error_columns(schema) if output.is_error else schema

    def dropped(self) -> set[PortHandle]:
        """Returns the output ports that nothing reads: their tuples are counted all the same (O16).

        Error ports are not among them, as their tuples are stored (O69), nor report ports, which
        are not computed then.
        """
        counted = set()
        for handle, port in self._output_ports():
            if not port.error and not port.report:
                counted.add(handle)
        return counted - self.read()

    def read(self) -> set[PortHandle]:
        """Returns where the streams begin that an operator or an output reads."""
        read = {output.source for output in self.outputs.values()}
        for node in self.nodes.values():
            read.update(node.feeds.values())
        return read

    def unread(self) -> list[str]:
        """Returns the operators none of whose output ports is connected or marked optional; no
        error port counts.

        Rules: O15, X13; where streams end there is nothing to be read (O3).
        """
        read = self.read()
        unread = []
        for name, node in self.nodes.items():
            ports = node.output_ports()
            if not node.operator.ends_streams and ports and not _is_read(node, read):
                unread.append(name)
        return unread

    def cycles(self) -> list[list[Node]]:
        """Returns the operators of each cycle in the order in which they are called, see
        `cycles_of` (X40).
        """
        return cycles_of(self.nodes)

    def units(self) -> list[list[Node]]:
        """Returns what is computed in one: an operator, or those of a cycle; each unit after what
        feeds it (X40).
        """
        units = self.cycles()
        inside = names_of(chain.from_iterable(units))
        units += ([node] for node in not_named(self.nodes.values(), inside))
        places = list(self.nodes)
        rest = sorted(units, key=lambda unit: min(map(places.index, names_of(unit))))
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
        """Returns the operators so that each comes after what feeds it; those of a cycle come
        together.
        """
        return list(chain.from_iterable(self.units()))

    def upstream(self, name: str) -> set[str]:
        """Returns the names of all operators that feed an operator, directly or not, and its
        own.
        """
        found = set()
        todo = [name]
        while todo:
            current = todo.pop()
            if current in found or current not in self.nodes:
                continue
            found.add(current)
            todo += self.nodes[current].sources
        return found

    def ends(self, of_streams: Mapping[str, int | None]) -> dict[str, int]:
        """Returns by operator the window with which all streams have ended that reach it; of others
        nothing (X21).

        Args:
            of_streams: the last window of each stream, and of each port of another container.
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
        """Returns the part of this application that a container computes (X53).

        The operators keep their feeds: ports of operators outside of the part are sources of the
        part, like recorded streams. A port that an operator outside reads becomes an output with
        the name of the port, unless it is an error port or the application has an output there.
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
        found: set[PortHandle] = set()
        for node in self.nodes.values():
            for end in node.feeds.values():
                # A feed without an operator is a recorded stream.
                if end.operator is not None and end.operator not in self.nodes:
                    found.add(end)
        return sorted(found, key=str)

    def port(self, handle: PortHandle) -> OutputPort | InputPort | None:
        """Returns the port that a stream starts from, None when there is no such port.

        Of an operator whose ports cannot be told (O60) it is one without a schema.
        """
        if handle.operator is None:
            return InputPort(self.streams.get(handle.port)) if handle.port in self.streams else None
        node = self.nodes.get(handle.operator)
        if node is None:
            return None
        return node.output_ports().get(handle.port) if node.has_known_ports else InputPort()

    def warnings(self) -> list[str]:
        """Returns what does not stop a run but is kept with it (O15, O61); of wrong properties,
        nothing.
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
