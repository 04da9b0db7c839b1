"""Decides how a commit group handles the tuples of each port: it writes them to files, only counts
them, or passes the frame on.
"""

from __future__ import annotations

from collections import Counter

from rewindow.application import Application, FrameOperator, Node, PortHandle
from rewindow.sequences import names_of


def ports_to_write(app: Application) -> set[PortHandle]:
    """Returns the ports whose frame is used more than once.

    All uses must read the result of the same run.
    """
    read = app.read()
    sources = [output.source for output in app.outputs.values()]
    uses = Counter(sources)
    written = set(sources)
    # An operator with state reads its inputs twice, for its outputs and for its next state, and the
    # next state may read its outputs.
    for node in app.nodes.values():
        for end in node.feeds.values():
            uses[end] += 2 if node.operator.is_stateful else 1
        if not node.operator.is_stateful:
            continue
        for name, port in node.operator.output_ports().items():
            if not port.report or node[name] in read:
                written.add(node[name])
    return written | {handle for handle, count in uses.items() if handle.operator and count > 1}


def stateful_operators(app: Application) -> dict[str, FrameOperator]:
    """Returns the operators of an application that have state, by name."""
    nodes = app.nodes.values()
    return {node.name: node.operator for node in nodes if node.operator.is_stateful}


def ports_to_count(app: Application) -> set[PortHandle]:
    """Returns the ports whose tuples are only counted, because they are not connected and no state
    reads them.
    """
    counted = set()
    for handle in app.dropped():
        operator = app.nodes[str(handle.operator)].operator
        if not (operator.is_stateful and operator.state_reads_outputs):
            counted.add(handle)
    return counted


def levels(units: list[list[Node]]) -> list[list[list[Node]]]:
    """Groups units (operators, cycles and chains) in levels.

    Units of the same level do not depend on each other.

    Args:
        units: the units in topological order, see `Application.units`.
    """
    level: dict[str, int] = {}
    depths: dict[int, list[list[Node]]] = {}
    for unit in units:
        # One level below the deepest operator that feeds the unit. Streams, which have no operator,
        # and members of the same cycle have no level yet.
        depth = 1
        for node in unit:
            for end in node.feeds.values():
                depth = max(depth, 1 + level.get(end.operator or "", 0))
        level |= dict.fromkeys(names_of(unit), depth)
        depths.setdefault(depth, []).append(unit)
    return [depths[depth] for depth in sorted(depths)]
