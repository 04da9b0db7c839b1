"""Passes of several operators on the engine: the operators of a cycle (X40) or of a chain (O97)
share a pass, which has the results of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from rewindow.application import Application, Node, OperatorContext, PortHandle
from rewindow.engine.group_cache import GroupCache
from rewindow.sequences import names_of
from rewindow.tuple_engine.chain_range import ForeignTuples
from rewindow.tuple_engine.chains import units_of
from rewindow.tuple_engine.emission_order import EmissionOrder
from rewindow.tuple_engine.frames import EMITTED, pass_of
from rewindow.tuple_engine.passes import Pass


class SharedPasses:
    """The passes of the cycles and chains of a graph.

    Args:
        without_failing: returns the tuples of an input port that are not quarantined.
        report: receives progress messages.

    Attributes:
        units: operators by pass; each unit comes after the units that feed it.
        unseen: ports whose tuples exist only inside a pass.
    """

    def __init__(
        self,
        app: Application,
        without_failing: Callable[[Node, str, DataFrame], DataFrame],
        report: Callable[[str], None],
    ) -> None:
        self._app = app
        self._without_failing = without_failing
        self._report = report
        self.order = EmissionOrder(app.whole or app)
        self.units = units_of(app)
        self.unseen = inside_units(app, self.units)
        self._passes: dict[str, Pass] = {}
        for unit in self.units:
            if len(unit) > 1 or unit[0].name in unit[0].sources:
                one = Pass.of(unit, self.unseen, self.order.followed)
                self._passes |= dict.fromkeys(names_of(unit), one)

    def of(self, node: Node) -> Pass | None:
        """Returns the pass that an operator shares with others."""
        return self._passes.get(node.name)

    def inputs_of(self, node: Node, frames: Mapping[PortHandle, DataFrame]) -> dict[str, DataFrame]:
        """Returns the tuples that feed an operator, by port; in a shared pass, only those from
        outside of it.

        Only ports that follow the order of emission get the column with that order.
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
        unit: list[Node],
        frames: Mapping[PortHandle, DataFrame],
        states: Mapping[str, DataFrame],
        context: OperatorContext,
        materialize: GroupCache,
    ) -> None:
        """Computes the pass of a unit, and stores the emitted tuples and states of its operators.

        If an operator of a chain emits tuples of other keys, the pass is discarded. From then on,
        the operators of the chain have separate passes.
        """
        one = self._passes[unit[0].name]
        inputs: dict[tuple[str, str], DataFrame] = {}
        own: dict[str, DataFrame] = {}
        for node in unit:
            for port, frame in self.inputs_of(node, frames).items():
                inputs[node.name, port] = frame
            if node.name in states:
                own[node.name] = states[node.name]
        named = replace(context, operator=self._app.name)
        schemas = {part: columns.schema for part, columns in one.parts.items()}
        try:
            materialize.run_together(
                list(one.members),
                schemas,
                lambda sink: pass_of(one, inputs, own, context=named, sink=sink),
                context=context,
            )
        except ForeignTuples as foreign:
            for name in one.members:
                del self._passes[name]
            *names, last = one.members
            self._report(
                f"{', '.join(names)} and {last} run apart: {foreign.operator} emits tuples of "
                "other keys"
            )


def inside_units(app: Application, units: Iterable[list[Node]]) -> set[PortHandle]:
    """Returns the ports that only operators of the same unit read: their tuples exist only inside
    the pass (X40).
    """
    found: set[PortHandle] = set()
    for unit in units:
        names = set(names_of(unit))
        inside: set[PortHandle] = set()
        outside = {output.source for output in app.staged().values()}
        for name, node in app.nodes.items():
            readers = inside if name in names else outside
            readers.update(node.feeds.values())
        found |= {end for end in inside - outside if end.operator in names}
    return found
