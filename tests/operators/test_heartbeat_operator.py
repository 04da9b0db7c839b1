"""The Heartbeat as an operator: what it passes on of a stream's columns (docs/rules/heartbeat.md
H1, H2, H19).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import Application, OperatorContext
from rewindow.errors import InputError
from rewindow.operators.heartbeat.function import heartbeat
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.testing import run_application
from rewindow.windows import Grid, WindowRange, to_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SECOND_US = 1_000_000
COLUMNS = pa.schema(
    [
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
        ("at", pa.int64()),
        ("seq", pa.int64()),
        ("who", pa.string()),
        ("value", pa.float64()),
    ]
)


@pytest.mark.parametrize("order_by", [("seq",), ("arrived_at", "seq")])
def test_timer_rows_have_only_timestamp_keys_and_arrival(
    spark: SparkSession,
    order_by: tuple[str, ...],
) -> None:
    # Rules: H2
    beat = Heartbeat(
        interval=60,
        slack=10,
        event_at="at",
        order_by=order_by,
        key_by=("who",),
        columns=COLUMNS,
    )
    given = [(30, 30, 1, "a"), (65, 61, 3, "a"), (65, 40, 2, "a")]
    rows = [
        {
            "window_id": 0,
            "offset": 9,
            "arrived_at": at * SECOND_US,
            "at": ts * SECOND_US,
            "seq": seq,
            "who": who,
        }
        for at, ts, seq, who in given
    ]
    schema = pa.schema([("window_id", pa.int64()), *COLUMNS])
    frame = to_frame(spark, pa.Table.from_pylist([row | {"value": 1.5} for row in rows], schema))
    context = OperatorContext(Grid(120_000), WindowRange(0, 0))
    state = to_frame(spark, beat.initial_state())
    out = beat.transform({"stream": frame}, state, context)["out"].orderBy("_rw_emission")
    shown = out.selectExpr(
        "unix_seconds(arrived_at)",
        "at DIV 1000000",
        "seq",
        "who",
        "value",
        "_rw_cause",
    )
    assert [tuple(row) for row in shown.collect()] == [
        (30, 30, 1, "a", 1.5, None),
        (65, 40, 2, "a", 1.5, None),
        (65, 60, None, "a", None, "crossing"),
        (65, 61, 3, "a", 1.5, None),
    ]


NAMES = {
    "offset": "off.set",
    "arrived_at": "arrived at",
    "at": "a.t",
    "who": "sensor.id",
    "value": "select",
}


@pytest.mark.parametrize(
    ("keyed", "settings"),
    [
        pytest.param(
            True,
            {"max_jump": 100, "arrival_regression": "clamp"},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(True, {"slack": 10, "slack_restart": "arrival"}, marks=pytest.mark.exhaustive),
        (False, {}),
    ],
    ids=str,
)
def test_heartbeat_supports_any_column_names(
    spark: SparkSession,
    settings: dict[str, Any],
    keyed: bool,
) -> None:
    # Rules: H46, H53, H55
    times = [
        (0, 30, 30, "a"),
        (0, 65, 61, "b"),
        (1, 130, 40, "a"),
        (1, 125, 500, "b"),
        (2, 260, 250, "a"),
    ]
    rows = []
    for offset, (window, arrived, at, who) in enumerate(times):
        given = {"window_id": window, "offset": offset, "value": 1.5, "seq": 0, "who": who}
        rows.append(given | {"arrived_at": arrived * SECOND_US, "at": at * SECOND_US})
    if "arrival_regression" not in settings:
        rows[3]["arrived_at"] = 135 * SECOND_US
    results = []
    for names in ({}, NAMES):
        schema = pa.schema(
            [field.with_name(names.get(field.name, field.name)) for field in COLUMNS]
        )
        called = {name: names.get(name, name) for name in COLUMNS.names}
        beat = Heartbeat(
            interval=60,
            event_at=called["at"],
            arrived_at=called["arrived_at"],
            order_by=(called["offset"],),
            key_by=(called["who"],) if keyed else (),
            columns=schema,
            **settings,
        )
        assert beat.wrong_properties() == []
        whole = pa.schema([("window_id", pa.int64()), *COLUMNS])
        frame = to_frame(spark, pa.Table.from_pylist(rows, whole)).withColumnsRenamed(called)
        state = to_frame(spark, beat.initial_state())
        found = []
        for windows in (WindowRange(0, 0), WindowRange(1, 2)):
            group = frame.where(f"window_id between {windows.first} and {windows.last}")
            context = OperatorContext(Grid(120_000), windows)
            out = beat.transform({"stream": group}, state, context)
            found += [out["out"], out["errors"]]
            state = beat.next_state({"stream": group}, out, state, context)
        lost = beat.state_after_skip(state, WindowRange(3, 3), {"out": out["out"]})
        frames = [*found, state, lost]
        back = {name: column for column, name in called.items()}
        plain = [frame.withColumnsRenamed(back) for frame in frames]
        results.append([sorted(map(repr, frame.collect())) for frame in plain])
    assert results[0] == results[1]
    assert sum(map(len, results[0])) > 10


def test_heartbeat_rejects_columns_that_differ_from_reserved_names_only_by_case(
    spark: SparkSession,
) -> None:
    # Rules: H19
    beat = Heartbeat(interval=60, event_at="at", columns=COLUMNS)
    assert beat.wrong_properties() == []
    frame = to_frame(spark, COLUMNS.empty_table()).selectExpr("*", "'' AS _rw_Cause")
    with pytest.raises(InputError, match="frame has a column _rw_Cause, which the heartbeat adds"):
        heartbeat(frame, beat)
    beat.set_properties(columns=COLUMNS.append(pa.field("_rw_Cause", pa.string())))
    assert "the Heartbeat adds a column _rw_Cause" in beat.wrong_properties()[0].message


@pytest.mark.parametrize("name", ["Offset", "Window_ID", "attempt", "Attempt"])
def test_heartbeat_rejects_columns_reserved_for_tables(name: str) -> None:
    # Rules: O13
    beat = Heartbeat(
        interval=60,
        event_at="at",
        columns=COLUMNS.append(pa.field(name, pa.string())),
    )
    assert (
        f"column {name} has a name that is reserved in the tables of a replay"
        in beat.wrong_properties()[0].message
    )
    beat = Heartbeat(
        interval=60,
        event_at="at",
        columns=COLUMNS.append(pa.field("Value", pa.string())),
    )
    assert (
        "names of columns value and Value differ only in case" in beat.wrong_properties()[0].message
    )


@pytest.mark.parametrize(
    "cuts",
    [
        [0, 2, 3, 5],
        pytest.param([0, 5], marks=pytest.mark.long),
        pytest.param([0, 1, 4, 5], marks=pytest.mark.long),
    ],
)
def test_last_timer_of_an_ended_recording_is_at_its_end(
    spark: SparkSession,
    cuts: list[int],
) -> None:
    # Rules: H13, X23, H56
    beat = Heartbeat(interval=60, slack=0, event_at="at", order_by=("seq",), columns=COLUMNS)
    row = {
        "window_id": 0,
        "offset": 0,
        "arrived_at": 30 * SECOND_US,
        "at": 30 * SECOND_US,
        "seq": 1,
        "who": "a",
    }
    schema = pa.schema([("window_id", pa.int64()), *COLUMNS])

    def timers(ends: dict[str, int]) -> list[tuple[int, int, int]]:
        state = to_frame(spark, beat.initial_state())
        found = []
        for first, end in pairwise(cuts):
            rows = [row | {"value": 1.5}] if first == 0 else []
            inputs = {"stream": to_frame(spark, pa.Table.from_pylist(rows, schema))}
            context = OperatorContext(
                Grid(120_000),
                WindowRange(first, end - 1),
                operator="app.beat",
                ends=ends,
            )
            out = conform(
                beat.transform(inputs, state, context)["out"],
                beat.output_ports()["out"].schema,
                "out",
            )
            shown = out.where("_rw_is_timer").selectExpr(
                "window_id",
                "unix_micros(arrived_at)",
                "at div 1000000",
            )
            found += sorted(map(tuple, shown.collect()))
            if end != cuts[-1]:
                after = beat.next_state(inputs, {}, state, context)
                state = to_frame(spark, to_arrow(after, beat.state_columns(), "s"))
        return found

    assert timers({"beat": 2}) == [
        (0, 60 * SECOND_US, 60),
        (1, 120 * SECOND_US, 120),
        (1, 180 * SECOND_US, 180),
        (2, 240 * SECOND_US, 240),
        (2, 300 * SECOND_US, 300),
        (2, 360 * SECOND_US - 1, 360),
    ]
    assert timers({}) == [(at // 120, at * SECOND_US, at) for at in range(60, 600, 60)]


def test_each_heartbeat_operator_of_an_application_has_separate_clocks(spark: SparkSession) -> None:
    # Rules: H18, H63
    def times(*intervals: int) -> dict[int, list[int]]:
        app = Application("beats", window="2 min")
        for every in intervals:
            beat = Heartbeat(interval=every, event_at="at", order_by=("seq",), columns=COLUMNS)
            app.output(
                f"every_{every}",
                app.add(f"beat_{every}", beat, stream=app.input("clicks")),
                key=["seq"],
            )
        click = {
            "arrived_at": to_datetime(30 * SECOND_US),
            "at": 30 * SECOND_US,
            "seq": 1,
            "who": "a",
            "value": 1.5,
        }
        run = run_application(
            app,
            {"clicks": {0: [click]}},
            windows=(0, 2),
            group_windows=[1, 2],
            spark=spark,
        )
        place = 1 + beat.output_ports()["out"].schema.names.index("at")
        return {
            every: sorted(row[place] // SECOND_US for row in run[f"every_{every}"])
            for every in intervals
        }

    assert times(60, 90) == {60: [30, 60, 120, 180, 240, 300], 90: [30, 90, 180, 270]}
