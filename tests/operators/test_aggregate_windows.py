"""AggregateWindows: the function in groups of windows, with the types of Spark; in an application;
what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, OperatorContext
from rewindow.application.validation import validate
from rewindow.errors import ValidationFailed
from rewindow.operators import (
    AggregateWindows,
    CountWindows,
    EventTime,
    EventWindows,
    GlobalWindow,
    SessionWindows,
    StreamTime,
    event_windows,
    lateness,
)
from rewindow.operators.event_time_windows.settings import AnyWindows
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = pa.schema([
    ("arrived_at", pa.int64()), ("ts", pa.int64()), ("key", pa.string()), ("number", pa.int32()),
    ("price", pa.decimal128(9, 2)),
])  # fmt: skip
WINDOWS = 6
WIDTH_US = 1_000
AGGREGATES = {
    "tuples": "count(*)",
    "most": "max(number)",
    "least": "min(price)",
    "mean": "avg(number)",
    "spent": "sum(price)",
    "cost": "avg(price)",
}


def operator(**properties: Any) -> AggregateWindows:
    given = {
        "columns": COLUMNS,
        "event_at": "ts",
        "lag": "500 us",
        "watermark_interval": "250 us",
        "max_ahead": "5 ms",
        "length": "1 ms",
        "slide": "500 us",
        "aggregates": AGGREGATES,
        "keys": ("key",),
    }
    return AggregateWindows(**{**given, **properties})


def tuples(spark: SparkSession, seed: int, first: int, last: int) -> DataFrame:
    """Returns the tuples of some windows, with ties, silences, late, null and far timestamps."""
    random = Random(seed)
    rows = []
    for number, at in enumerate(
        sorted(random.randrange(WINDOWS * WIDTH_US // 125) * 125 for _ in range(60))
    ):
        ts = random.choice([at, at - 300, at - random.randrange(3_000), at + 400, at + 6_000, None])
        key = random.choice(["a", "b", None])
        rows.append((at // WIDTH_US, number, at, ts, key, number))
    rows = [row for row in rows if first <= row[0] <= last]
    kind = "window_id bigint, offset bigint, arrived_at bigint, ts bigint, key string, number int"
    return spark.createDataFrame(rows, kind).withColumn(
        "price",
        F.expr("cast(number / 4 as decimal(9, 2))"),
    )


SHAPES: dict[str, tuple[AnyWindows, list[int]]] = {
    "sliding": (EventWindows(length="1 ms", slide="500 us"), [0, 2, 6]),
    "again": (
        EventWindows(
            length="1 ms",
            slide="500 us",
            early="375 us",
            early_tuples=3,
            allowed_lateness="1 ms",
            late_tuples=2,
        ),
        [0, 3, 6],
    ),
    "sessions": (SessionWindows(gap="300 us"), [0, 2, 6]),
    "changed sessions": (SessionWindows(gap="300 us", allowed_lateness="2 ms"), [0, 2, 3, 6]),
    "tuples": (CountWindows(length=4, slide=2), [0, 2, 6]),
    "global": (
        GlobalWindow(early="1500 us", accumulation="accumulating", only_updated_panes=True),
        [0, 3, 6],
    ),
}
"""Windows, and where the range is cut into groups."""


class Kept:
    """Computes each frame that is asked for once in a group, as a replay does."""

    def __init__(self) -> None:
        self.frames: dict[str, DataFrame] = {}

    def __call__(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        if name not in self.frames:
            self.frames[name] = make().localCheckpoint()
        return self.frames[name]


def properties_of(windows: AnyWindows) -> dict[str, Any]:
    given = {}
    for name, field in type(windows).model_fields.items():
        value = getattr(windows, name)
        is_duration = field.alias is not None and value is not None
        given[field.alias or name] = f"{value} us" if is_duration else value
    if isinstance(windows, SessionWindows):
        return {"length": None, "slide": None, **given}
    if isinstance(windows, CountWindows):
        return {"length": f"{windows.length} tuples", "slide": f"{windows.slide} tuples"}
    if isinstance(windows, GlobalWindow):
        return {"length": "global", "slide": None, **given}
    return {name: value for name, value in given.items() if name != "sampling"}


def _marks(shape: str, ends: bool) -> Any:
    """Every shape runs once, half of them to the end of the recording; the sliding windows of `make
    test` and `make test-long` do both.
    """
    if shape == "sliding":
        return () if ends else pytest.mark.long
    does_end = list(SHAPES).index(shape) % 2 == 0
    return pytest.mark.long if ends == does_end else pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("shape", "ends"),
    [
        pytest.param(shape, ends, marks=_marks(shape, ends))
        for shape in SHAPES
        for ends in (True, False)
    ],
)
def test_operator_fires_the_same_windows_as_the_function_in_any_grouping(
    spark: SparkSession,
    shape: str,
    ends: bool,
) -> None:
    # Rules: E35, E45, E37, E41, E43, E46, E49, E61, X29, X34
    # Pending tuples at a group's end are the state; the end of the recording fires them.
    windows, cuts = SHAPES[shape]
    time = EventTime(
        streams={"stream": StreamTime(event_at="ts", max_ahead="5 ms")},
        lag="500 us",
        watermark_interval="250 us",
    )
    aggregates = {name: tuple(text[:-1].split("(")) for name, text in AGGREGATES.items()}
    classified = lateness(
        {"stream": tuples(spark, 7, 0, 5)},
        time,
        start_us=0,
        end_us=WINDOWS * WIDTH_US,
    )
    ended_us = WINDOWS * WIDTH_US - 1 if ends else None
    whole = event_windows(classified, windows, aggregates, keys=["key"], ended_us=ended_us).fired  # type: ignore[arg-type]
    window = (F.col("fired_us") / WIDTH_US).cast("bigint").alias("window_id")
    rows = whole.select(window, "*").toArrow().to_pylist()
    assert len(rows) > 5
    assert shape != "changed sessions" or {"late", "on_time", "retraction"} == {
        row["kind"] for row in rows
    }
    assert shape != "again" or {"early", "late", "on_time", "retraction"} <= {
        row["kind"] for row in rows
    }
    operated = operator(**properties_of(windows))
    assert operated.wrong_properties() == []
    state = to_frame(spark, operated.initial_state())
    found = list[str]()
    late = 0
    counts: list[dict[str, Any]] = []
    for first, end in pairwise(cuts):
        kept = Kept()
        at_end = {"windows": WINDOWS - 1} if ends else {}
        context = OperatorContext(
            Grid(1),
            WindowRange(first, end - 1),
            operator="app.windows",
            materialize=kept,
            ends=at_end,
        )
        inputs = {"stream": tuples(spark, 7, first, end - 1)}
        ports = operated.transform(inputs, state, context)
        fired = conform(ports["fired"], operated.output_ports()["fired"].schema, "fired").toArrow()
        found += [repr(row) for row in fired.to_pylist()]
        if shape == "sessions":
            late += conform(ports["late"], operated.output_ports()["late"].schema, "late").count()
        if shape == "sliding":
            counted = conform(ports["counts"], operated.output_ports()["counts"].schema, "counts")
            counts += counted.toArrow().to_pylist()
        after = to_arrow(
            operated.next_state(inputs, {}, state, context),
            operated.state_columns(),
            "state",
        )
        state = to_frame(spark, after)
    assert sorted(found) == sorted(map(repr, rows)), f"windows cut at {cuts}"
    assert not ends or state.where("_rw_part = 'pane'").isEmpty()
    assert_balance(counts, 60 if shape == "sliding" else 0)
    assert shape != "sessions" or late == classified.late["stream"].count() > 0


def assert_balance(counts: list[dict[str, Any]], tuples: int) -> None:
    """What waited and came in a window of a key is what left and what waits before its next one
    (E40, X37).
    """
    assert sum(row["tuples"] for row in counts if row["outcome"] == "input") == tuples
    windows: dict[tuple[str, int], Counter[str]] = {}
    for row in counts:
        windows.setdefault((str(row["key"]), row["window_id"]), Counter())[row["outcome"]] += row[
            "tuples"
        ]
    waiting: Counter[str] = Counter()
    for (key, _), found in sorted(windows.items()):
        assert found["pending_before"] == waiting[key]
        assert found.total() == 2 * (found["pending_before"] + found["input"])
        waiting[key] = found["pending_after"]


def test_aggregate_windows_operator_is_valid_and_declares_its_types_without_spark() -> None:
    app = Application("clicks", window="1 s")
    windows = app.add("windows", operator(), stream=app.input("clicks"))
    app.output("by_time", windows["fired"], key=["key", "window_begin_us"])
    app.output("balance", windows["counts"], key=["outcome"])
    validate(app, recorded={"clicks": COLUMNS})
    kinds = {field.name: str(field.type) for field in operator().output_ports()["fired"].schema}
    assert (kinds["mean"], kinds["cost"], kinds["spent"]) == (
        "double",
        "decimal128(13, 6)",
        "decimal128(19, 2)",
    )


def test_reserved_key_column_name_is_rejected_only_for_count_windows() -> None:
    columns = COLUMNS.append(pa.field("outcome", pa.string()))
    app = Application("clicks", window="1 s")
    windows = app.add(
        "windows",
        operator(columns=columns, keys=("outcome",)),
        stream=app.input("clicks"),
    )
    app.output("by_time", windows["fired"], key=["window_begin_us"])
    validate(app, recorded={"clicks": columns})
    app.output("balance", windows["counts"], key=["tuples"])
    with pytest.raises(ValidationFailed, match="column names differ only by case"):
        validate(app, recorded={"clicks": columns})


SESSION = {"length": None, "slide": None, "gap": "1 s"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"slide": "2 ms"}, "slide 2 ms is longer than length 1 ms"),
        ({"aggregates": {}}, "aggregates is empty"),
        (
            {"aggregates": {"x": "median(price)"}},
            'aggregate "x" must be one of avg, count, .* not "median\\(price\\)"',
        ),
        ({"aggregates": {"x": "sum(cost)"}}, "the stream has no column cost"),
        (
            {"aggregates": {"x": "sum(key)"}},
            'sum\\(key\\): column "key" must be a number, not string',
        ),
        ({"aggregates": {"kind": "count(*)"}}, "column kind would appear twice"),
        ({"keys": ("user",)}, "the stream has no column user"),
        ({"gap": "1 s"}, r"session windows \(gap is set\) cannot have length, slide"),
        (
            {**SESSION, "only_updated_panes": True},
            r"session windows \(gap is set\) cannot have only_updated_panes",
        ),
        ({**SESSION, "early": "1 s"}, r"session windows \(gap is set\) cannot have early"),
        ({**SESSION, "accumulation": "discarding"}, "must be retracting, not discarding"),
        (
            {"length": "3 tuples", "slide": "1 tuple", "early": "1 s"},
            "windows with a count of tuples as length cannot have early",
        ),
        ({"length": "0 tuples", "slide": None}, "a count of tuples must be from 1 to .*, not 0"),
        ({"length": "3 tuples"}, "length and slide must both be counts of tuples or both be"),
        ({"length": "global"}, "the global window cannot have slide"),
        ({"length": None}, "windows have neither length nor gap"),
        ({"early": "0 s"}, "early must be above 0"),
        (
            {"late_tuples": 2},
            "late and late_tuples have no effect, because the windows do not accept late tuples",
        ),
        (
            {"length": "global", "slide": None, "late_tuples": 2},
            "the global window cannot have late or late_tuples",
        ),
        (
            {"length": None, "slide": None, "gap": "1 s", "late_tuples": 2},
            "cannot have late_tuples",
        ),
    ],
)
def test_wrong_properties_are_reported_at_launch(properties: dict[str, Any], words: str) -> None:
    # Rules: O53
    app = Application("clicks", window="1 s")
    windows = app.add("windows", operator(**properties), stream=app.input("clicks"))
    app.output("by_time", windows["fired"], key=["window_begin_us"])
    with pytest.raises(ValidationFailed, match=words):
        validate(app)
