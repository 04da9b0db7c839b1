"""The order between operators: where a tuple operator gets tuples in the order in which another one
has emitted them (O39, X43).

The tuples of a port come from one key range or from several. Those that were emitted under one key
have an order that no division into key ranges changes, so a reader follows it if its own key
contains the writer's: all that it compares then comes from one key of the writer. A writer with one
key range has the empty key, which every key contains. Elsewhere the order of emission would show
how many ranges there were, and the rows come by their hash.
"""

from __future__ import annotations

from rewindow.application import Application, Node
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.tuple_engine.passes import Pass


class EmissionOrder:
    """Which ports of an application follow the order of emission of the port that feeds them."""

    def __init__(self, app: Application) -> None:
        self._keys: dict[str, tuple[str, ...]] = {}
        for unit in app.units():
            # The instances of an operator that is spread emit side by side.
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
        """Returns whether an operator is called tuple by tuple, so that it emits in an order."""
        return operator in self._keys

    def follows(self, node: Node, port: str) -> bool:
        """Returns whether tuples come to a port in the order in which they were emitted."""
        writer = self._keys.get(str(node.feeds[port].operator))
        is_called = isinstance(node.operator, TupleOperator)
        return is_called and writer is not None and {*writer} <= {*node.input_ports()[port].key}

    def followed(self, operator: str) -> frozenset[str]:
        """Returns the output ports of an operator with several key ranges whose order of emission
        another operator follows.
        """
        return frozenset(self._followed.get(operator, ()))
