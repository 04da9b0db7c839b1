"""A project small enough to replay in a test: one stream of clicks in a CSV file, one stateful
application.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from rewindow.settings.config import Config
from tests.recovery.project import make_stream
from tests.small_frames import small_frames_toml

FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 3
PAGES = ("home", "shop")
SILENT_HOURS = range(30, 34)
"""Hours since the first day in which the shop has no click."""

SETTINGS = """
state = "state"
applications = ["applications"]
expectations = "{root}/expectations"

[spark]
driver_memory = "1g"
jars = "{root}/.rewindow/jars"

{small_frames}

[replay]
drills = true

[streams.clicks]
source = "clicks.csv"
columns = "page STRING, clicked_at TIMESTAMP, amount INT"
arrived_at = "clicked_at"
event_at = "clicked_at"
keys = ["page"]
interval = "1 hour"
width = "1 hour"
sealed_to = "{sealed_to}"
"""

APPLICATION = '''
"""Amounts per page so far."""

import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OutputPort


class Totals(FrameOperator):
    """Total amount of each page, carried from window to window."""

    inputs = {"clicks": InputPort(pa.schema([("page", pa.string()), ("amount", pa.int32())]))}
    outputs = {"out": OutputPort(pa.schema([("page", pa.string()), ("total", pa.int64())]))}
    state_schema = pa.schema([("page", pa.string()), ("total", pa.int64())])

    def transform(self, inputs, state, windows):
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        sums = inputs["clicks"].groupBy("window_id", "page").agg(F.sum("amount").alias("amount"))
        running = F.sum("amount").over(Window.partitionBy("page").orderBy("window_id"))
        before = state.select("page", F.col("total").alias("before"))
        rows = sums.withColumn("running", running).join(before, "page", "left")
        total = (F.col("running") + F.coalesce("before", F.lit(0))).cast("long")
        return rows.select("window_id", "page", total.alias("total"))

    def next_state(self, inputs, outputs, state, windows):
        from pyspark.sql import functions as F

        last = outputs["out"].groupBy("page").agg(F.max("total").alias("total"))
        return last.unionByName(state).groupBy("page").agg(F.max("total").alias("total"))


app = Application("clicks_by_page", window="1 hour", checkpoint_windows=12)
clicks = app.input("clicks")
app.output("totals", app.add("totals", Totals(), clicks=clicks), key=["page"])
'''

CONTAINERS = """
import pyarrow as pa

from clicks_by_page import Totals
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

ROW = pa.schema([("page", pa.string()), ("total", pa.int64())])


class Multiplied(FrameOperator):
    factor: int = 1
    inputs = {"rows": InputPort(ROW)}
    outputs = {"out": OutputPort(ROW)}

    def transform(self, inputs, state, windows):
        rows = inputs["rows"]
        return rows.select("window_id", "page", (rows.total * self.factor).alias("total"))


app = Application("containers", window="1 hour", checkpoint_windows=12)
totals = app.add("totals", Totals(), clicks=app.input("clicks"), mode="at_least_once")
for name, factor in (("doubled", 2), ("negated", -1)):
    operator = Multiplied(factor=factor)
    rows = app.add(name, operator, rows=totals, mode="exactly_once", container=name)
    app.output(name, rows, key=["page"])
"""
"""An application of three containers: two of them read the first one."""


def make_project(folder: Path, root: Path) -> Path:
    end = FIRST_DAY + timedelta(days=DAYS)
    (folder / "applications").mkdir(parents=True)
    (folder / "applications" / "clicks_by_page.py").write_text(APPLICATION)
    lines = ["page,clicked_at,amount"]
    for hour in range(24 * DAYS):
        for number, page in enumerate(PAGES):
            if page == "home" or hour not in SILENT_HOURS:
                moment = FIRST_DAY + timedelta(hours=hour, minutes=10 * number)
                lines.append(f"{page},{moment:%Y-%m-%dT%H:%M:%SZ},{hour % 7 + number}")
    (folder / "clicks.csv").write_text("\n".join(lines) + "\n")
    for name in ("dags", "plugins"):
        (folder / name).symlink_to(root / name)
    settings = folder / "rewindow.toml"
    settings.write_text(
        SETTINGS.format(
            root=root,
            small_frames=small_frames_toml(),
            sealed_to=f"{end:%Y-%m-%dT%H:%M:%SZ}",
        )
    )
    return settings


def record(config: Config) -> None:
    """Records a project's stream without Spark, in the order of its source."""
    types = {"page": pa.string(), "clicked_at": pa.timestamp("us", "UTC"), "amount": pa.int32()}
    clicks = csv.read_csv(
        config.root / "clicks.csv",
        convert_options=csv.ConvertOptions(column_types=types),
    )
    windows = pc.divide(clicks["clicked_at"].cast(pa.int64()), 3_600_000_000)
    counts: dict[int, int] = {}
    offsets = []
    for window in windows.to_pylist():
        offsets.append(counts.get(window, 0))
        counts[window] = offsets[-1] + 1
    begin = {
        "window_id": windows,
        "offset": pa.array(offsets, pa.int64()),
        "arrived_at": clicks["clicked_at"],
    }
    rows = pa.table(begin | {name: clicks[name] for name in types})
    make_stream(config, "clicks", rows, counts, width_ms=3_600_000)
