"""An application's graph as plain values.

These values are stored in plans, written as JSON and drawn on pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from rewindow.application.graph import Application
from rewindow.application.node import Node
from rewindow.application.overrides import CODE, DEFAULT
from rewindow.sequences import map_values, names_of


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortDescription(_Value):
    """An output port. `error` is true if its tuples are stored as error tuples."""

    name: str
    error: bool = False


class PropertyDescription(_Value):
    """A property or an attribute, with its value as JSON and the source of the value.

    Rules: O28
    """

    name: str
    value: Any
    source: str


class OperatorDescription(_Value):
    """An operator of a graph.

    Attributes:
        kind: name of its class.
        feeds: input port to its source, as operator.port or the name of a recorded stream; an
            optional port without a source is absent.
        properties: its properties, and the attributes that differ from their defaults.
        ports: its output ports, none if they depend on invalid properties.
        exchange: how the tuples of a tuple operator reach its tasks: "key", "partition id", "round
            robin" or "one task"; None for a frame operator.
    """

    name: str
    kind: str
    feeds: dict[str, str] = Field(default_factory=dict)
    ports: list[PortDescription] = Field(default_factory=list)
    stateful: bool = False
    exchange: str | None = None
    properties: list[PropertyDescription] = Field(default_factory=list)


class GraphDescription(_Value):
    """The graph of an application: recorded streams, operators in topological order, and the source
    port of each output.

    `cycles` has the operators of each cycle, in the order in which they are called in a window.
    """

    application: str
    window: str
    streams: list[str] = Field(default_factory=list)
    operators: list[OperatorDescription] = Field(default_factory=list)
    outputs: dict[str, str] = Field(default_factory=dict)
    cycles: list[list[str]] = Field(default_factory=list)


def describe_graph(app: Application) -> GraphDescription:
    """Returns the graph of an application. An invalid application is described as far
    as possible.
    """
    return GraphDescription(
        application=app.name,
        window=app.window,
        streams=list(app.streams),
        operators=[_operator(node, _given_to(app, node)) for node in app.order()],
        outputs={output.name: str(output.source) for output in app.outputs.values()},
        cycles=[names_of(cycle) for cycle in app.cycles()],
    )


def _given_to(app: Application, node: Node) -> dict[str, str]:
    """Returns the source of each override for an operator or its ports, by the name within the
    operator.
    """
    own = f"{node.name}."
    sources = {}
    for given in app.given:
        if given.path.startswith(own):
            sources[given.path.removeprefix(own)] = given.source
    return sources


def _operator(node: Node, sources: dict[str, str]) -> OperatorDescription:
    ports = []
    for name, port in node.output_ports().items():
        ports.append(PortDescription(name=name, error=port.error))
    return OperatorDescription(
        name=node.name,
        kind=type(node.operator).__name__,
        feeds=map_values(str, node.feeds),
        ports=ports,
        stateful=not (node.operator.wrong_properties() or node.fault) and node.operator.is_stateful,
        exchange=_exchange(node) if node.operator.called_by_tuples else None,
        properties=[*_properties(node, sources), *_attributes(node, sources)],
    )


def _exchange(node: Node) -> str:
    ports = node.input_ports().values()
    if node.spread:
        return "round robin"
    if not any(port.key for port in ports):
        return "one task"
    by_id = node.partitions or any(port.codec or port.broadcast for port in ports)
    return "partition id" if by_id else "key"


def _properties(node: Node, sources: dict[str, str]) -> Iterator[PropertyDescription]:
    """Yields each property with the source of its value: an override, the code, or the default of
    the class.
    """
    for name, info in type(node.operator).model_fields.items():
        names = {name, info.alias or name}
        in_code = CODE if names & node.operator.given_properties().keys() else DEFAULT
        source = next((sources[alias] for alias in names if alias in sources), in_code)
        value = to_jsonable_python(getattr(node.operator, name, None), fallback=str)
        yield PropertyDescription(name=name, value=value, source=source)


def _attributes(node: Node, sources: dict[str, str]) -> Iterator[PropertyDescription]:
    if node.mode is not None:
        yield PropertyDescription(
            name="mode",
            value=node.mode.name,
            source=sources.get("mode", CODE),
        )
    for name, default in (
        ("checkpoint_windows", 1),
        ("application_windows", 1),
        ("slide_windows", None),
        ("partitions", None),
        ("partitioner", None),
        ("spread", None),
        ("locality", None),
    ):
        value = getattr(node, name)
        if value != default:
            yield PropertyDescription(name=name, value=value, source=sources.get(name, CODE))
    for port in node.output_ports():
        bound = node.error_bound(port)
        if bound is not None:
            name = f"{port}.errors_max"
            yield PropertyDescription(name=name, value=bound, source=sources.get(name, CODE))
