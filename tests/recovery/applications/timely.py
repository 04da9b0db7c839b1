"""An application that fills gaps, fires windows with corrections, and beats, all over one
stream.
"""

from __future__ import annotations

import pyarrow as pa

from rewindow.application import Application
from rewindow.operators import AggregateWindows, FillGaps
from rewindow.operators.heartbeat.operator import Heartbeat

_TIME = pa.timestamp("us", tz="UTC")
READINGS = pa.schema(
    [
        ("offset", pa.int64()),
        ("arrived_at", _TIME),
        ("key", pa.string()),
        ("at", _TIME),
        ("x", pa.float64()),
    ]
)

app = Application("timely", window="1 minute", checkpoint_windows=3)
readings = app.input("readings")
fill = FillGaps(columns=READINGS, event_at="at", step="10 s", keys=("key",), fill={"x": "forward"})
fired = AggregateWindows(
    columns=READINGS,
    event_at="at",
    lag="2 s",
    watermark_interval="10 s",
    length="30 s",
    slide="15 s",
    keys=("key",),
    allowed_lateness="1 min",
    aggregates={"n": "count(*)", "high": "max(x)"},
)
beat = Heartbeat(interval=20, slack=3, event_at="at", key_by=("key",), columns=READINGS)
app.output("filled", app.add("fill", fill, stream=readings)["out"], key=[])
app.output("fired", app.add("windows", fired, stream=readings)["fired"], key=[])
app.output("beats", app.add("beat", beat, stream=readings)["out"], key=[])
