"""Which flights departed so late that a live report by schedule would have closed their time
before, hour by hour.

    flights --> split --+--> output late_flights   every late flight, and by how much
                        +--> output lateness       flights by airport and outcome: a row per hour

A flight is recorded when it departs and tells when it was scheduled. The watermark follows the
latest schedule among the departed flights, less half an hour: a flight whose schedule lies before
it is late.
"""

from __future__ import annotations

import pyarrow as pa

from rewindow.application import Application
from rewindow.operators import SplitLate

TIME = pa.timestamp("us", tz="UTC")
FLIGHTS = pa.schema([
    ("arrived_at", TIME), ("carrier", pa.string()), ("flight", pa.int32()), ("origin", pa.string()),
    ("dest", pa.string()), ("dep_delay", pa.int32()), ("scheduled_at", TIME),
])  # fmt: skip

app = Application("flight_lateness", window="1 hour")
split = app.add(
    "split",
    SplitLate(
        columns=FLIGHTS,
        event_at="scheduled_at",
        lag="30 min",
        watermark_interval="1 min",
        key_by=["origin"],
    ),
    stream=app.input("flights"),
)
app.output(
    "late_flights",
    split["late"],
    key=["carrier", "flight", "scheduled_at"],
    suite="late_flights",
)
app.output("lateness", split["counts"], key=["origin", "outcome"], suite="lateness")
