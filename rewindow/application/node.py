"""Operators in their places in a graph, and the ends of streams."""

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
    """One end of a stream: an operator's output port, or a recorded stream when `operator` is
    None.
    """

    operator: str | None
    port: str

    def __str__(self) -> str:
        return self.port if self.operator is None else f"{self.operator}.{self.port}"


@dataclass(frozen=True)
class Node:
    """An operator in its place: name, attributes, and what feeds its input ports.

    Attributes:
        container: name of the container that the user has set, None if the plan decides.
        locality: APART keeps a tuple operator out of the passes of its neighbours (O103).
        errors_max: by error port, the bound on the error tuples of a window that is given from
            outside of the code.
        partitions, partitioner, spread: see `Placing`.
        unifies: for a unifier, the port whose partial results it merges; otherwise None.
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
        """Its application or sliding windows."""
        return Windowing(self.application_windows, self.slide_windows)

    @property
    def is_changeable(self) -> bool:
        """Whether `rewindow set` may change some of it while a replay runs (X10, O99)."""
        return bool(type(self.operator).changeable) or bool(self.partitions or self.spread)

    @property
    def has_longer_windows(self) -> bool:
        """Whether it takes windows as one, or slides over them: its state is then of these."""
        return self.windowing != EVERY_WINDOW

    @property
    def is_cut_by_checkpoints(self) -> bool:
        """Whether a checkpoint may fall inside one of its application windows; not at multiples
        (W49, W50, R20).
        """
        return self.application_windows > 1 and self.checkpoint_windows % self.windowing.pane != 0

    def error_bound(self, port: str) -> int | None:
        """Returns how many error tuples a port may emit in a window, None where it does not say
        (O28, O71).
        """
        declared = self.output_ports().get(port)
        return self.errors_max.get(port, declared.errors_max if declared else None)

    @property
    def sources(self) -> set[str]:
        """Names of the operators that feed it; recorded streams are not among them."""
        return {end.operator for end in self.feeds.values() if end.operator}

    @property
    def unordered(self) -> frozenset[str]:
        """The input ports on which a column `offset` names no order: they read an operator, or a
        published stream (X43, X51).
        """
        found = set()
        for port, end in self.feeds.items():
            if end.operator or "." in end.port:
                found.add(port)
        return frozenset(found)

    def default_port(self) -> PortHandle:
        """Returns the one output port that is not an error port."""
        ports = [name for name, port in self.output_ports().items() if not port.error]
        return PortHandle(self.name, ports[0] if len(ports) == 1 else "?")

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the input ports, none where they cannot be told."""
        return (self._ports() or ({}, {}))[0]

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the output ports, none where they cannot be told."""
        return (self._ports() or ({}, {}))[1]

    @property
    def has_known_ports(self) -> bool:
        """Whether the ports can be told: they may depend on properties that are wrong, or raise."""
        return self._ports() is not None

    @property
    def fault(self) -> str | None:
        """What telling ports or state raised, None where nothing did or wrong properties explain
        it.
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
    """An operator or a module in its place."""

    def default_port(self) -> PortHandle:
        """Returns its one output port."""


End = PortHandle | HasDefaultPort
"""What a stream can begin with: a port, or what has one output port only."""


def end_of(feed: End) -> PortHandle:
    """Returns the port at which a stream begins."""
    return feed if isinstance(feed, PortHandle) else feed.default_port()
