"""Computes the output `ranks` of flight_delays with an operator that is called for each flight. The
digests are the same.

flights --> ranks    a row per carrier and hour: the season so far
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

FLIGHTS = pa.schema([("carrier", pa.string()), ("dep_delay", pa.int32())])
COUNTS = pa.map_(pa.string(), pa.int64())
TOTALS = [("flights", pa.int64()), ("departed", pa.int64()), ("delay_minutes", pa.int64())]
RANKS = pa.schema(
    [("carrier", pa.string()), *TOTALS, ("mean_delay", pa.decimal128(9, 4)), ("rank", pa.int32())]
)


class SeasonRanks(TupleOperator):
    """Ranks carriers by mean delay at the end of every window. It has no key, because a rank
    compares all carriers.
    """

    inputs = {"flights": InputPort(FLIGHTS)}
    outputs = {"out": OutputPort(RANKS)}
    flights = StateField(COUNTS, {})  # type: ignore[pydantic-field]
    departed = StateField(COUNTS, {})  # type: ignore[pydantic-field]
    minutes = StateField(COUNTS, {})  # type: ignore[pydantic-field]

    def process(self, flight: Any) -> None:
        """Adds a flight to its carrier's season; a cancelled one has no delay."""
        for counts, more in (
            (self.flights, 1),
            (self.departed, flight.dep_delay is not None),
            (self.minutes, flight.dep_delay),
        ):
            counts[flight.carrier] = counts.get(flight.carrier, 0) + int(more or 0)

    def end_window(self) -> None:
        """Emits a row for each carrier. Equal means rank by carrier, and carriers without a
        departure are last.
        """
        means = {carrier: self.mean(carrier) for carrier in self.flights}
        order = sorted(
            means,
            key=lambda carrier: (means[carrier] is None, means[carrier] or 0, carrier),
        )
        for rank, carrier in enumerate(order, 1):
            mean = means[carrier]
            shown = mean.quantize(Decimal("0.0001"), ROUND_HALF_UP) if mean is not None else None
            self.emit(
                "out",
                carrier,
                self.flights[carrier],
                self.departed[carrier],
                self.minutes[carrier],
                shown,
                rank,
            )

    def mean(self, carrier: str) -> Decimal | None:
        """Returns minutes per departure to 19 decimal places."""
        with localcontext(prec=60):
            count = self.departed[carrier]
            return (
                (Decimal(self.minutes[carrier]) / count).quantize(Decimal(10) ** -19, ROUND_HALF_UP)
                if count
                else None
            )


app = Application("flight_ranks", window="1 hour")
app.output(
    "ranks",
    app.add("ranks", SeasonRanks(), flights=app.input("flights")),
    key=["carrier"],
    suite="ranks",
)
