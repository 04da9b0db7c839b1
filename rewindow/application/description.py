"""An application's graph as plain values: what a plan keeps, what a program reads, what is drawn."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rewindow.application.graph import Application, Node


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortDescription(_Value):
    """An output port; `error` says that its tuples are stored as error tuples."""

    name: str
    error: bool = False


class OperatorDescription(_Value):
    """An operator in its place.

    Attributes:
        kind: name of its class.
        feeds: where each input port's stream begins, as operator.port or the name of a recorded stream; an optional
            port without one is left out.
        ports: its output ports, none where they depend on properties that are wrong.
    """

    name: str
    kind: str
    feeds: dict[str, str] = Field(default_factory=dict)
    ports: list[PortDescription] = Field(default_factory=list)
    stateful: bool = False


class GraphDescription(_Value):
    """The graph of an application: recorded streams, operators in topological order, and outputs by their source."""

    application: str
    window: str
    streams: list[str] = Field(default_factory=list)
    operators: list[OperatorDescription] = Field(default_factory=list)
    outputs: dict[str, str] = Field(default_factory=dict)


def describe_graph(app: Application) -> GraphDescription:
    """Returns the graph of an application, also of one that breaks rules: as much of it as can be told."""
    return GraphDescription(
        application=app.name,
        window=app.window,
        streams=list(app.streams),
        operators=[_operator(node) for node in app.order()],
        outputs={output.name: str(output.source) for output in app.outputs.values()},
    )


def _operator(node: Node) -> OperatorDescription:
    return OperatorDescription(
        name=node.name,
        kind=type(node.operator).__name__,
        feeds={port: str(end) for port, end in node.feeds.items()},
        ports=[PortDescription(name=name, error=port.error) for name, port in node.output_ports().items()],
        stateful=not (node.operator.wrong_properties() or node.fault) and node.operator.is_stateful,
    )
