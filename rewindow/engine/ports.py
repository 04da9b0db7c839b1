"""What a commit group does with each port of an application: write it, count it, or leave it to who
reads it.
"""

from __future__ import annotations

from collections import Counter

from rewindow.application import Application, Node, PortHandle
from rewindow.sequences import names_of


def ports_to_write(app: Application) -> set[PortHandle]:
    """Returns the ports whose frame is used more than once: it must come from one run of the
    operator.
    """
    read = app.read()
    uses: Counter[PortHandle] = Counter(output.source for output in app.outputs.values())
    for node in app.nodes.values():
        for end in node.feeds.values():
            uses[end] += 2 if node.operator.is_stateful else 1
    found = {handle for handle, count in uses.items() if handle.operator and count > 1}
    found |= {output.source for output in app.outputs.values()}
    found |= {
        node[name]
        for node in app.nodes.values()
        if node.operator.is_stateful
        for name, port in node.operator.output_ports().items()
        if not port.report or node[name] in read
    }
    return found


def ports_to_count(app: Application) -> set[PortHandle]:
    """Returns the ports whose tuples are counted and read by nobody: neither connected nor read by
    a state.
    """
    return {
        handle
        for handle in app.dropped()
        if not (operator := app.nodes[str(handle.operator)].operator).is_stateful
        or not operator.state_reads_outputs
    }


def levels(units: list[list[Node]]) -> list[list[list[Node]]]:
    """Returns what is computed in one, operators and cycles, in levels; those of one level do not
    depend on each other.

    Args:
        units: each after what feeds it, see `Application.units`.
    """
    level: dict[str, int] = {}
    depths: dict[int, list[list[Node]]] = {}
    for unit in units:
        ends = {end.operator for node in unit for end in node.feeds.values() if end.operator}
        depth = 1 + max((level[name] for name in ends - set(names_of(unit))), default=0)
        level.update({node.name: depth for node in unit})
        depths.setdefault(depth, []).append(unit)
    return [depths[depth] for depth in sorted(depths)]
