"""Finds chains: connected operators that have the same key and run in one pass.

Rules: O97
"""

from __future__ import annotations

from rewindow.application import Application, InputPort, Node, OutputPort
from rewindow.application.node import APART
from rewindow.operators.tuples.operator import TupleOperator


def units_of(app: Application) -> list[list[Node]]:
    """Groups the operators of an application by pass: a cycle, a chain or a single operator.

    Only the first operator of a chain reads from outside of it, so units never wait for each other.
    """
    units = app.units()
    # The search for failing tuples removes tuples from the input of a single operator, so each
    # operator needs a separate pass.
    # Rules: R93
    if app.failing:
        return units
    passes: list[list[Node]] = []
    chains: dict[str, list[Node]] = {}
    for unit in units:
        writer = _fused_writer(app, unit[0]) if len(unit) == 1 else None
        if writer in chains:
            chain = chains[writer]
        else:
            chain = []
            passes.append(chain)
        chain += unit
        if len(unit) == 1:
            chains[unit[0].name] = chain
    return passes


def _fused_writer(app: Application, reader: Node) -> str:
    """Returns the name of the operator with which a reader can share a pass; empty if there is
    none.
    """
    if len(reader.feeds) != 1:
        return ""
    [(port, end)] = reader.feeds.items()
    writer = app.nodes.get(end.operator or "")
    if writer is None or not _same_placing(writer, reader):
        return ""
    emitted = writer.output_ports()[end.port]
    received = reader.input_ports()[port]
    is_control = emitted.control or received.control
    return writer.name if not is_control and _same_key(writer, emitted, received) else ""


def _same_placing(writer: Node, reader: Node) -> bool:
    """Returns whether the attributes of two operators allow one task to call both of them."""
    for node in (writer, reader):
        operator = node.operator
        if not isinstance(operator, TupleOperator) or operator.delays or node.locality == APART:
            return False
        has_broadcast = any(port.broadcast for port in operator.input_ports().values())
        if operator.placing.spread or has_broadcast:
            return False
    return writer.operator.placing == reader.operator.placing


def _same_key(writer: Node, emitted: OutputPort, received: InputPort) -> bool:
    """Returns whether a reader receives the tuples of a key in the writer's task and order."""
    assert isinstance(writer.operator, TupleOperator)
    key = writer.operator.key_schema()
    # The key under which `process_batch` emits a row is unknown.
    if received.key != tuple(key.names) or (
        key.names and hasattr(writer.operator, "process_batch")
    ):
        return False
    # Columns of other types would have to be converted, as Spark does between two passes.
    for column in received.schema or ():
        if emitted.schema.field(column.name).type != column.type:
            return False
    return [emitted.schema.field(name).type for name in key.names] == key.types
