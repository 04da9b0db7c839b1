"""What a commit group does with each port of an application: write it, count it, or leave it to who reads it."""

from __future__ import annotations

from collections import Counter

from rewindow.application import Application, Node, PortHandle


def ports_to_write(app: Application) -> set[PortHandle]:
    """Returns the ports whose frame is used more than once: it must come from one run of the operator."""
    uses: Counter[PortHandle] = Counter(output.source for output in app.outputs.values())
    for node in app.nodes.values():
        for end in node.feeds.values():
            uses[end] += 2 if node.operator.is_stateful else 1
    found = {handle for handle, count in uses.items() if handle.operator and count > 1}
    found |= {output.source for output in app.outputs.values()}
    found |= {
        node[port] for node in app.nodes.values() if node.operator.is_stateful for port in node.operator.output_ports()
    }
    return found


def ports_to_count(app: Application) -> set[PortHandle]:
    """Returns the ports whose tuples are counted and read by nobody: neither connected nor read by a state."""
    return {
        handle
        for handle in app.dropped()
        if not (operator := app.nodes[str(handle.operator)].operator).is_stateful or not operator.state_reads_outputs
    }


def levels(order: list[Node]) -> list[list[Node]]:
    """Returns the operators in levels; those of one level do not depend on each other."""
    level: dict[str, int] = {}
    for node in order:
        level[node.name] = 1 + max((level[end.operator] for end in node.feeds.values() if end.operator), default=0)
    return [[node for node in order if level[node.name] == depth] for depth in sorted(set(level.values()))]
