"""AggregateWindows: the function in groups of windows, with the types of Spark; in an application; what is wrong."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, OperatorContext
from rewindow.application.validation import validate
from rewindow.errors import ValidationFailed
from rewindow.operators import AggregateWindows, EventTime, EventWindows, StreamTime, event_windows, lateness
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = pa.schema([
    ("arrived_at", pa.int64()), ("ts", pa.int64()), ("key", pa.string()), ("number", pa.int32()),
    ("price", pa.decimal128(9, 2)),
])  # fmt: skip
WINDOWS, WIDTH_US = 6, 1_000
AGGREGATES = {
    "tuples": "count(*)", "most": "max(number)", "least": "min(price)", "mean": "avg(number)", "spent": "sum(price)",
    "cost": "avg(price)",
}  # fmt: skip


def operator(**properties: Any) -> AggregateWindows:
    """Returns the operator of these tests, some of its properties exchanged."""
    given = {
        "columns": COLUMNS, "event_at": "ts", "lag": "500 us", "watermark_interval": "250 us", "max_ahead": "5 ms",
        "length": "1 ms", "slide": "500 us", "aggregates": AGGREGATES, "keys": ("key",),
    }  # fmt: skip
    return AggregateWindows(**{**given, **properties})


def tuples(spark: SparkSession, seed: int, first: int, last: int) -> DataFrame:
    """Returns the tuples of some windows, with ties, silences, late, null and far timestamps."""
    random = Random(seed)
    rows = []
    for number, at in enumerate(sorted(random.randrange(WINDOWS * WIDTH_US // 125) * 125 for _ in range(60))):
        ts = random.choice([at, at - 300, at - random.randrange(3_000), at + 400, at + 6_000, None])
        key = random.choice(["a", "b", None])
        rows.append((at // WIDTH_US, number, at, ts, key, number))
    rows = [row for row in rows if first <= row[0] <= last]
    kind = "window_id bigint, offset bigint, arrived_at bigint, ts bigint, key string, number int"
    return spark.createDataFrame(rows, kind).withColumn("price", F.expr("cast(number / 4 as decimal(9, 2))"))


def test_windows_fire_as_those_of_the_function_in_groups(spark: SparkSession) -> None:
    """Each in the streaming window of its tick; what waits at a group's end is the state (E37, E41, E43, E46, X34)."""
    time = EventTime(
        streams={"stream": StreamTime(event_at="ts", max_ahead="5 ms")}, lag="500 us", watermark_interval="250 us"
    )
    aggregates = {name: tuple(text[:-1].split("(")) for name, text in AGGREGATES.items()}
    judged = lateness({"stream": tuples(spark, 7, 0, 5)}, time, start_us=0, end_us=WINDOWS * WIDTH_US)
    sliding = EventWindows(length="1 ms", slide="500 us")
    whole = event_windows(judged, sliding, aggregates, keys=["key"]).fired  # type: ignore[arg-type]
    wanted = sorted(map(repr, whole.select((F.col("fired_us") / WIDTH_US).cast("bigint"), "*").toArrow().to_pylist()))
    assert len(wanted) > 10
    operated = operator()
    for cuts in ([0, 2, 6],):
        state, found = to_frame(spark, operated.initial_state()), list[str]()
        late = 0
        for first, end in pairwise(cuts):
            context = OperatorContext(Grid(1), WindowRange(first, end - 1))
            inputs = {"stream": tuples(spark, 7, first, end - 1)}
            ports = operated.transform(inputs, state, context)
            fired = conform(ports["fired"], operated.output_ports()["fired"].schema, "fired").toArrow()
            assert all(first <= window < end for window in fired["window_id"].to_pylist())
            found += [repr(row) for row in fired.to_pylist()]
            late += ports["late"].count()
            after = to_arrow(operated.next_state(inputs, {}, state, context), operated.state_columns(), "state")
            state = to_frame(spark, after)
        assert sorted(_named(found)) == sorted(_named(wanted)), f"windows cut at {cuts}"
        assert late == judged.late["stream"].count() > 0


def _named(rows: list[str]) -> list[str]:
    return [row.split(", ", 1)[1] for row in rows]


def test_it_has_its_place_in_an_application() -> None:
    """And its types are known before Spark is there."""
    app = Application("clicks", window="1 s")
    windows = app.add("windows", operator(), stream=app.input("clicks"))
    app.output("by_time", windows["fired"], key=["key", "window_begin_us"])
    validate(app, recorded={"clicks": COLUMNS})
    kinds = {field.name: str(field.type) for field in operator().output_ports()["fired"].schema}
    assert (kinds["mean"], kinds["cost"], kinds["spent"]) == ("double", "decimal128(13, 6)", "decimal128(19, 2)")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"slide": "2 ms"}, "slide 0.002 s is longer than length 0.001 s"),
        ({"aggregates": {}}, "windows have no aggregate"),
        ({"aggregates": {"x": "median(price)"}}, 'aggregate "x" is "median\\(price\\)": write one of avg, count'),
        ({"aggregates": {"x": "sum(cost)"}}, "column cost is not in the stream's columns"),
        ({"aggregates": {"x": "sum(key)"}}, 'sum\\(key\\) needs numbers, "key" is string'),
        ({"aggregates": {"kind": "count(*)"}}, "column kind would come twice"),
        ({"keys": ("user",)}, "column user is not in the stream's columns"),
    ],
)
def test_wrong_properties_are_reported_at_launch(properties: dict[str, Any], words: str) -> None:
    """Building it raises nothing (O53)."""
    app = Application("clicks", window="1 s")
    windows = app.add("windows", operator(**properties), stream=app.input("clicks"))
    app.output("by_time", windows["fired"], key=["window_begin_us"])
    with pytest.raises(ValidationFailed, match=words):
        validate(app)
