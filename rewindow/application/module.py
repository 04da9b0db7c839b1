"""Modules: a part of a graph that is added as if it were one operator, under a name of its own
(O10, X50).

A module is a function. It gets the part of the graph that it fills, and what feeds its input ports
by their names; it returns what its output ports emit, by theirs:

    def cleaned(part, events, limit=None):
        parts = part.add("split", Split(), events=events)
        return {"good": part.add("round", Round(), rows=parts["good"]), "rest": parts["rest"]}

    clean = app.module("clean", cleaned, events=app.input("events"))
    app.output("clean", clean["good"], key=["id"])

Its operators are those of the application, "clean.split" and "clean.round": rules, settings, states
and error tables know nothing of modules.
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
    """An application, as far as a module uses it."""

    declared: list[Violation]

    def add(self, name: str, operator: FrameOperator, **replay_options: Any) -> Node:
        """Adds an operator."""


@dataclass(frozen=True)
class Part:
    """The part of an application's graph that a module fills; names of its operators follow the
    module's.
    """

    name: str
    app: Graph

    def add(self, name: str, operator: FrameOperator, **replay_options: Any) -> Node:
        """Adds an operator, see `Application.add`."""
        return self.app.add(f"{self.name}.{name}", operator, **replay_options)

    def module(self, name: str, build: Build, **feeds: End) -> PartInstance:
        """Adds a module inside of this one, see `Application.module`."""
        return place(self.app, f"{self.name}.{name}", build, feeds)


@dataclass(frozen=True)
class PartInstance:
    """A module in its place: what its output ports emit."""

    name: str
    ports: Mapping[str, PortHandle]

    def __getitem__(self, port: str) -> PortHandle:
        """Returns where the stream of an output port begins; one that is not there is refused at
        launch.
        """
        return self.ports.get(port) or PortHandle(self.name, port)

    def default_port(self) -> PortHandle:
        """Returns the one output port."""
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
    takes = list(inspect.signature(build).parameters.values())[1:]
    needed = [one.name for one in takes if one.default is one.empty]
    lacking = excluding(needed, ends)
    for port in lacking:
        app.declared.append(
            Violation(
                "O14", name, port, value=port, message="an input port of this module is not fed"
            )
        )
    foreign = excluding(ends, names_of(takes))
    for port in foreign:
        known = ", ".join(names_of(takes)) or "none"
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
    made = build(Part(name, app), **ends)
    if isinstance(made, Mapping):
        return PartInstance(name, map_values(end_of, made))
    return PartInstance(name, {"out": end_of(made)})
