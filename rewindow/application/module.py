"""Modules: a part of a graph that is added under one name, as if it were one operator.

A module is a function. It receives the `Part` of the graph that it fills, and the feeds of its
input ports by name; it returns the streams of its output ports by name:

    def cleaned(part, events, limit=None):
        parts = part.add("split", Split(), events=events)
        return {"good": part.add("round", Round(), rows=parts["good"]), "rest": parts["rest"]}

    clean = app.module("clean", cleaned, events=app.input("events"))
    app.output("clean", clean["good"], key=["id"])

Its operators become operators of the application, "clean.split" and "clean.round". Rules, settings,
states and error tables use these names and are not aware of modules.

Rules: O10, X50
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rewindow.application.node import End, Node, PortHandle, end_of
from rewindow.application.operator import FrameOperator
from rewindow.application.violations import Violation
from rewindow.sequences import excluding, map_values, names_of

Build = Callable[..., Any]


class Graph(Protocol):
    """The methods of an application that a module uses."""

    declared: list[Violation]

    def add(self, name: str, operator: FrameOperator, **replay_options: Any) -> Node:
        """Adds an operator."""


@dataclass(frozen=True)
class Part:
    """The part of an application's graph that a module adds.

    It prefixes the names of operators with the module's name.
    """

    name: str
    app: Graph

    def add(self, name: str, operator: FrameOperator, **replay_options: Any) -> Node:
        """Adds an operator, see `Application.add`."""
        return self.app.add(f"{self.name}.{name}", operator, **replay_options)

    def module(self, name: str, build: Build, **feeds: End) -> PartInstance:
        """Adds another module inside this one, see `Application.module`."""
        return place(self.app, f"{self.name}.{name}", build, feeds)


@dataclass(frozen=True)
class PartInstance:
    """A module that was added to an application, with the streams of its output ports."""

    name: str
    ports: Mapping[str, PortHandle]

    def __getitem__(self, port: str) -> PortHandle:
        """Returns the source port of the stream from an output port.

        Launch validation reports an unknown port.
        """
        return self.ports.get(port) or PortHandle(self.name, port)

    def default_port(self) -> PortHandle:
        """Returns the only output port."""
        return (
            next(iter(self.ports.values())) if len(self.ports) == 1 else PortHandle(self.name, "?")
        )


def place(
    app: Graph,
    name: str,
    build: Build,
    feeds: Mapping[str, End],
) -> PartInstance:
    """Adds a module to an application, see `Application.module`."""
    ends = map_values(end_of, feeds)
    parameters = list(inspect.signature(build).parameters.values())[1:]
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    lacking = excluding(needed, ends)
    for port in lacking:
        app.declared.append(
            Violation(
                "O14", name, port, value=port, message="an input port of this module is not fed"
            )
        )
    foreign = excluding(ends, names_of(parameters))
    for port in foreign:
        known = ", ".join(names_of(parameters)) or "none"
        app.declared.append(
            Violation(
                "O10",
                name,
                port,
                value=port,
                message=f"this module has no such input port. It has: {known}",
            )
        )
    if lacking or foreign:
        return PartInstance(name, {})
    streams = build(Part(name, app), **ends)
    if isinstance(streams, Mapping):
        return PartInstance(name, map_values(end_of, streams))
    return PartInstance(name, {"out": end_of(streams)})
