"""Finds the cycles of a graph and checks them. A cycle must contain a delay operator, and its
operators are called window by window.

Rules: O51, X40
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rewindow.application.node import Node
from rewindow.application.violations import Violation
from rewindow.sequences import names_of, only_named


def cycles_of(nodes: Mapping[str, Node]) -> list[list[Node]]:
    """Returns the operators of each cycle, which is a set of operators that can all be reached from
    each other.

    The operators are in the order in which they are called in a window. Delay operators come first,
    because they emit tuples of earlier windows. Each other operator comes after the operators that
    feed it. The operators of a cycle without a delay operator remain in the order in which they
    were added.
    """
    # Two operators are in the same cycle if each of them reads from the other, directly or not.
    # Graphs have tens of operators, so that comparing all pairs is fast enough.
    reached = {name: _reached(nodes, name) for name in nodes}
    cycles: list[list[Node]] = []
    placed: set[str] = set()
    for name in nodes:
        if name in reached[name] and name not in placed:
            members = []
            for other, node in nodes.items():
                if other in reached[name] and name in reached[other]:
                    members.append(node)
                    placed.add(other)
            cycles.append(_called(members))
    return cycles


def lacks_delay(cycle: list[Node]) -> bool:
    """Returns whether operators of a cycle wait for each other within a window.

    This includes a delay operator that feeds itself.

    Rules: O51
    """
    for node in cycle:
        if node.name in node.sources:
            return True
    others = [node for node in cycle if not node.operator.delays]
    return len(_in_order(others)) < len(others)


def wrong_members(cycle: list[Node]) -> Iterator[Violation]:
    """Yields violations by the members of a cycle with a delay operator.

    Such a cycle is computed in one pass over its tuples.

    Rules: X40
    """
    names = set(names_of(cycle))
    is_fed = False
    for node in cycle:
        if not node.operator.called_by_tuples:
            message = (
                "it receives all windows of a group at once, so it cannot be in a cycle: "
                "make it a TupleOperator"
            )
            yield Violation(
                "X40", node.name, "", value=type(node.operator).__name__, message=message
            )
        if node.spread is not None:
            message = "an operator in a cycle cannot be spread: its instances run independently"
            yield Violation("X55", node.name, "", value=node.spread, message=message)
        for port, end in node.feeds.items():
            is_fed = is_fed or end.operator not in names
            if (
                end.operator in names
                and (known := node.input_ports().get(port)) is not None
                and not known.is_keyed
            ):
                kind = "control" if known.control else "broadcast"
                message = (
                    f"a {kind} port cannot be fed from its own cycle, whose key ranges run "
                    "independently"
                )
                yield Violation("X44", node.name, port, value=end, message=message)
    if not is_fed:
        yield Violation(
            "X40",
            cycle[0].name,
            "",
            value=", ".join(sorted(names)),
            message="nothing outside of the cycle feeds it",
        )


def _reached(nodes: Mapping[str, Node], name: str) -> set[str]:
    """Returns the operators from which an operator reads, directly or indirectly.

    The operator's own name is included if it is in a cycle.
    """
    upstream: set[str] = set()
    todo = [name]
    while todo:
        for end in nodes[todo.pop()].feeds.values():
            if end.operator in nodes and end.operator not in upstream:
                upstream.add(str(end.operator))
                todo.append(str(end.operator))
    return upstream


def _called(cycle: list[Node]) -> list[Node]:
    delays = [node for node in cycle if node.operator.delays]
    others = [node for node in cycle if not node.operator.delays]
    ordered = _in_order(others)
    return [*delays, *(ordered if len(ordered) == len(others) else others)]


def _in_order(nodes: list[Node]) -> list[Node]:
    """Returns the operators in topological order.

    Operators that wait for each other are left out.
    """
    placed: list[Node] = []
    while True:
        waiting = set(names_of(nodes)) - set(names_of(placed))
        ready = only_named(nodes, waiting)
        ready = [node for node in ready if waiting.isdisjoint(node.sources)]
        if not ready:
            return placed
        placed += ready
