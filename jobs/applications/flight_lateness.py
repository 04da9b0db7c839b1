"""Flights that departed so late that a live report by schedule would already have closed their
hour.

    flights --> split --+--> output late_flights   every late flight, and by how much
                        +--> output lateness       flights by airport and outcome: a row per hour

A flight is recorded when it departs, with its scheduled time. The watermark is the latest scheduled
time of the departed flights, minus half an hour. A flight whose scheduled time is before the
watermark is late.
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
