"""Passes that several operators share.

The operators of a cycle or a chain are computed in one pass, which has the results of all of them.

Rules: O97, X40
"""

from __future__ import annotations

import logging
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

logger = logging.getLogger(__name__)


class SharedPasses:
    """The passes of the cycles and chains of a graph.

    Args:
        app: the application.
        without_failing: returns the tuples of an input port that are not quarantined.

    Attributes:
        units: operators by pass, in topological order.
        unseen: ports whose tuples exist only inside a pass.
    """

    def __init__(
        self,
        app: Application,
        without_failing: Callable[[Node, str, DataFrame], DataFrame],
    ) -> None:
        self._app = app
        self._without_failing = without_failing
        self.order = EmissionOrder(app.whole or app)
        self.units = units_of(app)
        self.unseen = inside_units(app, self.units)
        self._passes: dict[str, Pass] = {}
        for unit in self.units:
            if len(unit) > 1 or unit[0].name in unit[0].sources:
                shared = Pass.of(unit, self.unseen, self.order.followed)
                self._passes |= dict.fromkeys(names_of(unit), shared)

    def of(self, node: Node) -> Pass | None:
        """Returns the pass that an operator shares with others; None if it has a separate one."""
        return self._passes.get(node.name)

    def inputs_of(self, node: Node, frames: Mapping[PortHandle, DataFrame]) -> dict[str, DataFrame]:
        """Returns the input tuples of an operator by port.

        In a shared pass, only tuples from outside of the pass are returned. The column with the
        order of emission is added for ports that rely on this order.
        """
        shared = self.of(node)
        inside = shared.members if shared else {}
        inputs = {}
        for port, end in node.feeds.items():
            if end.operator in inside:
                continue
            frame = self._without_failing(node, port, frames[end])
            if self.order.has_order(end.operator) and not self.order.follows(node, port):
                frame = frame.drop(EMITTED)
            inputs[port] = frame
        return inputs

    def run(
        self,
        unit: list[Node],
        frames: Mapping[PortHandle, DataFrame],
        states: Mapping[str, DataFrame],
        context: OperatorContext,
        materialize: GroupCache,
    ) -> None:
        """Computes the pass of a unit, and stores the emitted tuples and the states of its
        operators.

        If an operator of a chain emits tuples of other keys, the pass is discarded. From then on,
        the operators of the chain have separate passes.
        """
        shared = self._passes[unit[0].name]
        inputs: dict[tuple[str, str], DataFrame] = {}
        own: dict[str, DataFrame] = {}
        for node in unit:
            for port, frame in self.inputs_of(node, frames).items():
                inputs[node.name, port] = frame
            if node.name in states:
                own[node.name] = states[node.name]
        named = replace(context, operator=self._app.name)
        schemas = {part: columns.schema for part, columns in shared.parts.items()}
        try:
            materialize.run_together(
                list(shared.members),
                schemas,
                lambda sink: pass_of(shared, inputs, own, context=named, sink=sink),
                context=context,
            )
        except ForeignTuples as foreign:
            for name in shared.members:
                del self._passes[name]
            *names, last = shared.members
            logger.info(
                f"{', '.join(names)} and {last} run in separate passes: {foreign.operator} emits "
                "tuples of other keys"
            )


def inside_units(app: Application, units: Iterable[list[Node]]) -> set[PortHandle]:
    """Returns the ports that only operators of the same unit read.

    Their tuples exist only inside the pass.

    Rules: X40
    """
    unseen: set[PortHandle] = set()
    for unit in units:
        names = set(names_of(unit))
        inside: set[PortHandle] = set()
        outside = {output.source for output in app.staged().values()}
        for name, node in app.nodes.items():
            readers = inside if name in names else outside
            readers.update(node.feeds.values())
        unseen |= {end for end in inside - outside if end.operator in names}
    return unseen
