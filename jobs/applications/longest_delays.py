"""The ten longest departure delays of each hour: four instances share the flights round robin, and
a unifier merges their results.

flights --> longest --> longest.out.unifier    ten rows per hour
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

DELAYS = pa.schema(
    [
        ("dep_delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
    ]
)
SIZE = 10


class LongestDelays(TupleOperator):
    """Keeps the flights of an hour with the longest delays; it is also its unifier."""

    inputs = {"flights": InputPort(DELAYS)}
    outputs = {"out": OutputPort(DELAYS, unifier="self")}
    size: int = SIZE
    longest = StateField(pa.list_(pa.struct(list(DELAYS))), [])  # type: ignore[pydantic-field]

    def process(self, flight: Any) -> None:
        """Keeps a flight that departed; at most twice the size, so that few sorts are needed."""
        if flight.dep_delay is not None:
            self.longest.append(dict(zip(DELAYS.names, flight, strict=True)))
            if len(self.longest) > 2 * self.size:
                self.longest = self.best(self.longest)

    def end_window(self) -> None:
        """Emits the longest delays of the hour."""
        for flight in self.best(self.longest):
            self.emit("out", **flight)
        self.longest = []

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the flights that two instances keep."""
        return {"longest": self.best([*one["longest"], *other["longest"]])}

    def best(self, flights: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the flights with the longest delays; equal delays are in the order of carrier,
        flight and origin.
        """

        def place(flight: dict[str, Any]) -> tuple[Any, ...]:
            return (-flight["dep_delay"], flight["carrier"], flight["flight"], flight["origin"])

        return sorted(flights, key=place)[: self.size]


def build() -> Application:
    """Returns the application."""
    app = Application("longest_delays", window="1 hour")
    longest = app.add("longest", LongestDelays(), flights=app.input("flights"), spread=4)
    app.output("longest", longest, key=["carrier", "flight", "origin"])
    return app
