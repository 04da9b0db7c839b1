"""What a commit group does with each port of an application: write it, count it, or leave it to who
reads it.
"""

from __future__ import annotations

from collections import Counter

from rewindow.application import Application, FrameOperator, Node, PortHandle
from rewindow.sequences import names_of


def ports_to_write(app: Application) -> set[PortHandle]:
    """Returns the ports whose frame is used more than once: it must come from one run of the
    operator.
    """
    read = app.read()
    sources = [output.source for output in app.outputs.values()]
    uses = Counter(sources)
    found = set(sources)
    # An operator with state reads its inputs twice, for its outputs and for its next state, and the
    # next state may read its outputs.
    for node in app.nodes.values():
        for end in node.feeds.values():
            uses[end] += 2 if node.operator.is_stateful else 1
        if not node.operator.is_stateful:
            continue
        for name, port in node.operator.output_ports().items():
            if not port.report or node[name] in read:
                found.add(node[name])
    return found | {handle for handle, count in uses.items() if handle.operator and count > 1}


def stateful_operators(app: Application) -> dict[str, FrameOperator]:
    """Returns the operators of an application that have state, by name."""
    nodes = app.nodes.values()
    return {node.name: node.operator for node in nodes if node.operator.is_stateful}


def ports_to_count(app: Application) -> set[PortHandle]:
    """Returns the ports whose tuples are counted and read by nobody: neither connected nor read by
    a state.
    """
    found = set()
    for handle in app.dropped():
        operator = app.nodes[str(handle.operator)].operator
        if not (operator.is_stateful and operator.state_reads_outputs):
            found.add(handle)
    return found


def levels(units: list[list[Node]]) -> list[list[list[Node]]]:
    """Returns what is computed in one, operators and cycles, in levels; those of one level do not
    depend on each other.

    Args:
        units: each after what feeds it, see `Application.units`.
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
