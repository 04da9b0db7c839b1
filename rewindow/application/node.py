"""Nodes of a graph: operators with their attributes and inputs, and the ports that emit streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rewindow.application.modes import Mode
from rewindow.application.operator import FrameOperator, InputPort, OutputPort
from rewindow.application.placing import Placing
from rewindow.application.windowing import EVERY_WINDOW, Windowing

APART = "apart"
"""The only value of the attribute `locality`."""


@dataclass(frozen=True)
class PortHandle:
    """The source of a stream: an output port of an operator, or a recorded stream if `operator` is
    None.
    """

    operator: str | None
    port: str

    def __str__(self) -> str:
        return self.port if self.operator is None else f"{self.operator}.{self.port}"


@dataclass(frozen=True)
class Node:
    """An operator in a graph, with its name, attributes and inputs.

    Attributes:
        feeds: input port name to the port that feeds it.
        container: name of the container that the user has set, None if the plan decides.
        locality: APART keeps a tuple operator out of the passes of adjacent operators.
        errors_max: error port name to the most error tuples in a window, as set outside of the
            code.
        partitions, partitioner, spread: see `Placing`.
        unifies: for a unifier, the port whose partial results it merges; otherwise None.

    Rules: O103
    """

    name: str
    operator: FrameOperator
    mode: Mode | None
    checkpoint_windows: int
    feeds: dict[str, PortHandle]
    application_windows: int = 1
    slide_windows: int | None = None
    errors_max: Mapping[str, int] = field(default_factory=dict)
    container: str | None = None
    partitions: int | None = None
    partitioner: str | None = None
    spread: int | None = None
    unifies: PortHandle | None = None
    locality: str | None = None

    def __post_init__(self) -> None:
        self.operator.set_windowing(self.windowing)
        self.operator.set_placing(Placing(self.partitions, self.partitioner, self.spread))

    def __getitem__(self, port: str) -> PortHandle:
        return PortHandle(self.name, port)

    @property
    def windowing(self) -> Windowing:
        """The application windows or sliding windows of the operator."""
        return Windowing(self.application_windows, self.slide_windows)

    @property
    def is_changeable(self) -> bool:
        """Whether `rewindow set` can change one of the operator's properties or attributes while a
        replay runs.

        Rules: O99, X10
        """
        return bool(type(self.operator).changeable) or bool(self.partitions or self.spread)

    @property
    def has_longer_windows(self) -> bool:
        """Whether the operator has application windows or sliding windows longer than one window.

        Its state then refers to these windows.
        """
        return self.windowing != EVERY_WINDOW

    @property
    def is_cut_by_checkpoints(self) -> bool:
        """Whether a checkpoint can be saved inside one of the operator's application windows.

        This is the case if its `checkpoint_windows` are not a multiple of them.

        Rules: R20, W49, W50
        """
        return self.application_windows > 1 and self.checkpoint_windows % self.windowing.pane != 0

    def error_bound(self, port: str) -> int | None:
        """Returns the largest number of error tuples that a port can emit in a window; None if
        there is no limit.

        Settings or code can set a limit.

        Rules: O28, O71
        """
        declared = self.output_ports().get(port)
        return self.errors_max.get(port, declared.errors_max if declared else None)

    @property
    def sources(self) -> set[str]:
        """The names of the operators that feed this one. Recorded streams are not included."""
        return {end.operator for end in self.feeds.values() if end.operator}

    @property
    def unordered(self) -> frozenset[str]:
        """The input ports whose tuples have no recorded order.

        They read from an operator or from a published stream.

        Rules: X43, X51
        """
        ports = set()
        for port, end in self.feeds.items():
            if end.operator or "." in end.port:
                ports.add(port)
        return frozenset(ports)

    def default_port(self) -> PortHandle:
        """Returns the only output port that is not an error port."""
        ports = [name for name, port in self.output_ports().items() if not port.error]
        return PortHandle(self.name, ports[0] if len(ports) == 1 else "?")

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the input ports; none if the operator cannot list them."""
        return (self._ports() or ({}, {}))[0]

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the output ports; none if the operator cannot list them."""
        return (self._ports() or ({}, {}))[1]

    @property
    def has_known_ports(self) -> bool:
        """Whether the operator can list its ports.

        The method can fail, for example because of invalid properties.
        """
        return self._ports() is not None

    @property
    def fault(self) -> str | None:
        """The exception that the operator raised when it listed its ports or its state, as text.

        It is None if the operator raised no exception, or if its properties are invalid, which is
        reported instead.
        """
        try:
            self.operator.input_ports(), self.operator.output_ports(), self.operator.state_columns()
        except Exception as error:  # noqa: BLE001  (code of a user: validation reports it)
            return None if self.operator.wrong_properties() else f"{type(error).__name__}: {error}"
        return None

    def _ports(self) -> tuple[Mapping[str, InputPort], Mapping[str, OutputPort]] | None:
        try:
            return self.operator.input_ports(), self.operator.output_ports()
        except Exception:  # noqa: BLE001  (code of a user: validation reports it)
            return None


class HasDefaultPort(Protocol):
    """An operator or a module that has a default port."""

    def default_port(self) -> PortHandle:
        """Returns the only output port."""


End = PortHandle | HasDefaultPort
"""A source of a stream: a port, or a node or module with only one output port."""


def end_of(feed: End) -> PortHandle:
    """Returns the port that emits a stream."""
    return feed if isinstance(feed, PortHandle) else feed.default_port()
