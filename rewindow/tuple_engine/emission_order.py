"""Finds the ports where a tuple operator receives tuples in the order in which another operator has
emitted them.

The tuples of a port come from one key range or from several. Tuples that were emitted under the
same key have an order that does not depend on the division into key ranges. So a reader can rely on
it if its own key contains the writer's: all tuples of one key of the reader then come from one key
of the writer. A writer with one key range has the empty key, which every key contains. For other
ports the order of emission would depend on the number of ranges, so the rows are sorted by their
hash.

Rules: O39, X43
"""

from __future__ import annotations

from rewindow.application import Application, Node
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.tuple_engine.passes import Pass


class EmissionOrder:
    """The ports of an application that rely on the order in which their tuples were emitted."""

    def __init__(self, app: Application) -> None:
        self._keys: dict[str, tuple[str, ...]] = {}
        for unit in app.units():
            # The instances of an operator with `spread` emit in parallel.
            is_called = all(isinstance(node.operator, TupleOperator) for node in unit)
            if is_called and not any(node.spread for node in unit):
                is_divided = bool(Pass.of(unit).keys)
                for node in unit:
                    self._keys[node.name] = node.operator.state_key_columns() if is_divided else ()
        self._followed: dict[str, set[str]] = {}
        for node in app.nodes.values():
            for port, end in node.feeds.items():
                if self._keys.get(str(end.operator)) and self.follows(node, port):
                    self._followed.setdefault(str(end.operator), set()).add(end.port)

    def has_order(self, operator: str | None) -> bool:
        """Returns whether an operator is called for each tuple, so that its tuples have an order of
        emission.
        """
        return operator in self._keys

    def follows(self, node: Node, port: str) -> bool:
        """Returns whether a port receives tuples in the order in which they were emitted."""
        writer = self._keys.get(str(node.feeds[port].operator))
        is_called = isinstance(node.operator, TupleOperator)
        return is_called and writer is not None and {*writer} <= {*node.input_ports()[port].key}

    def followed(self, operator: str) -> frozenset[str]:
        """Returns the output ports of an operator with several key ranges on whose order of
        emission another operator relies.
        """
        return frozenset(self._followed.get(operator, ()))
