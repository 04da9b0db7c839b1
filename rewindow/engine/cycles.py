"""Cycles of a graph on the engine: each is one pass, in which all its operators find what is theirs
(X40).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from rewindow.application import Application, Node, OperatorContext, PortHandle
from rewindow.engine.group_cache import GroupCache
from rewindow.sequences import names_of
from rewindow.tuple_engine.emission_order import EmissionOrder
from rewindow.tuple_engine.frames import EMITTED, pass_of
from rewindow.tuple_engine.passes import Pass


class Cycles:
    """The passes of the cycles of a graph.

    Args:
        without_failing: returns the tuples of an input port that are not quarantined.
    """

    def __init__(
        self,
        app: Application,
        without_failing: Callable[[Node, str, DataFrame], DataFrame],
    ) -> None:
        self._app = app
        self._without_failing = without_failing
        self.order = EmissionOrder(app.whole or app)
        self.unseen = inside_cycles(app)
        self._passes: dict[str, Pass] = {}
        for unit in app.cycles():
            one = Pass.of(unit, self.unseen, self.order.followed)
            self._passes |= dict.fromkeys(names_of(unit), one)

    def of(self, node: Node) -> Pass | None:
        """Returns the pass of the cycle that an operator is in."""
        return self._passes.get(node.name)

    def inputs_of(self, node: Node, frames: Mapping[PortHandle, DataFrame]) -> dict[str, DataFrame]:
        """Returns what feeds an operator, by port; in a cycle what comes from outside.

        Only ports that follow the order of emission get the column that has it.
        """
        one = self.of(node)
        inside = one.members if one else {}
        found = {}
        for port, end in node.feeds.items():
            if end.operator in inside:
                continue
            frame = self._without_failing(node, port, frames[end])
            if self.order.has_order(end.operator) and not self.order.follows(node, port):
                frame = frame.drop(EMITTED)
            found[port] = frame
        return found

    def run(
        self,
        cycle: list[Node],
        frames: Mapping[PortHandle, DataFrame],
        states: Mapping[str, DataFrame],
        context: OperatorContext,
        materialize: GroupCache,
    ) -> None:
        """Computes the pass of a cycle; its operators then find there what they emit, and their
        states.
        """
        one = self._passes[cycle[0].name]
        inputs: dict[tuple[str, str], DataFrame] = {}
        own: dict[str, DataFrame] = {}
        for node in cycle:
            for port, frame in self.inputs_of(node, frames).items():
                inputs[node.name, port] = frame
            if node.name in states:
                own[node.name] = states[node.name]
        named = replace(context, operator=self._app.name)
        schemas = {part: columns.schema for part, columns in one.parts.items()}
        materialize.run_together(
            list(one.members),
            schemas,
            lambda sink: pass_of(one, inputs, own, context=named, sink=sink),
            context=context,
        )


def inside_cycles(app: Application) -> set[PortHandle]:
    """Returns the ports that only operators of the same cycle read: their tuples are nowhere but in
    the pass (X40).
    """
    found: set[PortHandle] = set()
    for cycle in app.cycles():
        names = set(names_of(cycle))
        inside: set[PortHandle] = set()
        outside = {output.source for output in app.staged().values()}
        for name, node in app.nodes.items():
            readers = inside if name in names else outside
            readers.update(node.feeds.values())
        found |= {end for end in inside - outside if end.operator in names}
    return found
