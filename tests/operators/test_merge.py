"""The Merge against an event-by-event reference, on examples, and as an operator
(docs/rules/heartbeat.md H59).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, OperatorContext, validate
from rewindow.errors import InputError, ValidationFailed
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.operators.merge.function import merge
from rewindow.operators.merge.operator import Merge
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.state.checkpoints import frame_digest
from rewindow.windows import Grid, WindowRange
from tests.operators.merge_reference import Merged, Tuple, make_tuples, merge_tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


WINDOWS = 30
PORTS = ("left", "right", "again")
COLUMNS = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
    ]
)


def batches(count: int) -> settings:
    """Returns Hypothesis settings for recordings made from a seed, which cannot be shrunk."""
    phases = [Phase.explicit, Phase.generate]
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )


def frames_of(
    spark: SparkSession,
    tuples: list[Tuple],
    ports: int,
    first: int = 0,
    last: int = WINDOWS,
) -> Any:
    """Returns the inputs of a recording in a range of windows; a note names each tuple."""
    frames = {}
    for port in range(ports):
        mine = [one for one in tuples if one.port == port and first <= one.window <= last]
        arrays = [
            [one.window for one in mine],
            [one.offset for one in mine],
            [one.at_us for one in mine],
            [one.ts_us for one in mine],
            [note_of(one) for one in mine],
        ]
        columns = [
            pa.array(values, field.type) for values, field in zip(arrays, COLUMNS, strict=True)
        ]
        frames[PORTS[port]] = to_frame(spark, pa.table(columns, schema=COLUMNS))
    return frames


def note_of(one: Tuple) -> str:
    return f"{PORTS[one.port]} {one.at_us} {one.offset} {one.ts_us}"


def operator(count: int, **more: Any) -> Merge:
    return Merge(**({"columns": COLUMNS, "ports": PORTS[:count], "event_at": "at"} | more))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Returns (window, emission, release, port, note) in the order of emission."""
    shown = frame.selectExpr(
        "window_id",
        "_rw_emission",
        "unix_micros(_rw_released_at)",
        "_rw_source",
        "note",
    )
    return [tuple(row) for row in shown.orderBy("window_id", "_rw_emission").collect()]


def expected_rows(merged: Merged) -> list[tuple[Any, ...]]:
    return [
        (one.window, one.emission, one.at_us, PORTS[one.tuple.port], note_of(one.tuple))
        for one in merged.released
    ]


def state_rows(state: pa.Table) -> tuple[dict[str, int], set[tuple[int, str]]]:
    """Returns the latest event time of each port, and (window, note) of what waits."""
    times = state["at"].cast(pa.int64()).to_pylist()
    rows = list(
        zip(
            state["window_id"].to_pylist(),
            state["_rw_source"].to_pylist(),
            times,
            state["note"].to_pylist(),
            strict=True,
        )
    )
    shown = {port: time for window, port, time, _ in rows if window is None}
    return shown, {(window, note) for window, _, _, note in rows if window is not None}


def run_groups(
    spark: SparkSession,
    tuples: list[Tuple],
    ports: int,
    cuts: list[int],
) -> tuple[list[Any], pa.Table]:
    """Returns the rows of all groups and the last state; every state goes through a checkpoint's
    form.
    """
    merge_all = operator(ports)
    rows = []
    state = merge_all.initial_state()
    for first, end in pairwise([0, *cuts, WINDOWS]):
        context = OperatorContext(Grid(1), WindowRange(first, end - 1))
        inputs = frames_of(spark, tuples, ports, first, end - 1)
        before = to_frame(spark, state)
        out = conform(
            merge_all.transform(inputs, before, context),
            merge_all.output_ports()["out"].schema,
            "out",
        )
        rows += rows_of(out)
        state = to_arrow(
            merge_all.next_state(inputs, {"out": out}, before, context),
            merge_all.state_columns(),
            "state",
        )
    return rows, state


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of windows in a short recording."""
    monkeypatch.setattr("rewindow.operators.merge.function.BLOCK_WINDOWS", 4)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_blocks")
@batches(2)
@given(seed=st.integers(0, 2**32), ports=st.integers(2, 3))
def test_merge_equals_a_state_machine_in_any_grouping_of_windows(
    spark: SparkSession,
    seed: int,
    ports: int,
) -> None:
    # Rules: H59, R79, R86
    random = Random(seed)
    tuples = make_tuples(random, ports, 220, WINDOWS)
    wanted = merge_tuples(tuples, ports)
    whole, state = run_groups(spark, tuples, ports, [])
    assert whole == expected_rows(wanted)
    known = {PORTS[port]: time for port, time in enumerate(wanted.shown) if time is not None}
    assert state_rows(state) == (known, {(one.window, note_of(one)) for one in wanted.waiting})

    cuts = sorted(random.sample(range(1, WINDOWS), random.randint(1, 4)))
    pieces, state_of_pieces = run_groups(spark, tuples, ports, cuts)
    assert pieces == whole, f"cut before windows {cuts}"
    assert frame_digest(state_of_pieces) == frame_digest(state), f"cut before windows {cuts}"


@pytest.mark.parametrize("seed", [3, 11])
def test_merge_emits_pending_tuples_in_the_last_window_of_ended_inputs(
    spark: SparkSession,
    seed: int,
) -> None:
    # Rules: X34
    tuples = make_tuples(Random(seed), 2, 220, WINDOWS)
    frames = frames_of(spark, tuples, 2)
    how: dict[str, Any] = {"event_at": "at"}
    before = {row["note"] for row in merge(frames, **how).tuples.collect()}
    result = merge(frames, **how, ended=(WINDOWS, 10**12))
    rows = result.tuples.collect()
    assert sorted(row["note"] for row in rows) == sorted(note_of(one) for one in tuples)
    late = sorted(
        (row for row in rows if row["note"] not in before), key=lambda row: row["_rw_emission"]
    )
    assert late and {row["window_id"] for row in late} == {WINDOWS}
    assert [row["at"] for row in late] == sorted(row["at"] for row in late)
    assert result.state.where("window_id IS NOT NULL").isEmpty()


def test_merge_emits_tuples_up_to_the_time_covered_by_every_input(spark: SparkSession) -> None:
    # Rules: H59
    rows = [
        *[
            ("left", 0, 0, 10, 5),
            ("left", 0, 1, 20, 7),
            ("left", 0, 2, 30, None),
            ("left", 5, 0, 5_500, 9),
        ],
        *[
            ("right", 0, 0, 40, 7),
            ("right", 2, 0, 2_100, 6),
            ("right", 5, 0, 5_500, 9),
            ("right", 5, 1, 5_600, 12),
        ],
    ]
    frame = spark.createDataFrame(
        rows,
        "port STRING, window_id BIGINT, offset INT, arrived_at BIGINT, at BIGINT",
    )
    inputs = {port: frame.where(f"port = '{port}'").drop("port") for port in ("left", "right")}
    merged = merge(inputs, event_at="at")
    columns = ("window_id", "_rw_emission", "_rw_released_at", "_rw_source", "at")
    assert [tuple(row) for row in merged.tuples.select(*columns).orderBy(*columns).collect()] == [
        (0, 0, 30, "left", None),
        (0, 1, 40, "left", 5),
        (0, 2, 40, "left", 7),
        (0, 3, 40, "right", 7),
        (2, 0, 2_100, "right", 6),
        (5, 0, 5_500, "left", 9),
        (5, 1, 5_500, "right", 9),
    ]
    state = merged.state.select("window_id", "_rw_source", "at", "arrived_at").orderBy(
        "window_id",
        "_rw_source",
    )
    assert [tuple(row) for row in state.collect()] == [
        (None, "left", 9, None),
        (None, "right", 12, None),
        (5, "right", 12, 5_600),
    ]


@pytest.mark.long
def test_merge_continues_despite_a_silent_input_if_it_has_a_heartbeat(spark: SparkSession) -> None:
    # Rules: H59
    # Without timers, all tuples after the start of the silence stay pending.
    tuples = [Tuple(0, at_us, 0, at_us) for at_us in range(200, 3_000, 500)] + [
        Tuple(1, 300, 0, 300)
    ]
    inputs = frames_of(spark, tuples, 2)
    context = OperatorContext(Grid(1), WindowRange(0, 2))
    bare = operator(2)
    beat = Heartbeat(interval="500 us", slack="100 us", event_at="at", columns=COLUMNS)
    beats = {
        port: beat.transform({"stream": frame}, empty_state(spark, beat), context)["out"]
        for port, frame in inputs.items()
    }
    beating = operator(2, columns=beat.output_ports()["out"].schema, order_by=("_rw_emission",))

    starved = rows_of(bare.transform(inputs, empty_state(spark, bare), context))
    assert [(at_us, note) for _, _, at_us, _, note in starved] == [
        (300, "left 200 0 200"),
        (700, "right 300 0 300"),
    ]
    carried = to_arrow(
        bare.next_state(inputs, {}, empty_state(spark, bare), context),
        bare.state_columns(),
        "state",
    )
    waiting = {
        (at_us // 1_000, f"left {at_us} 0 {at_us}") for at_us in (700, 1_200, 1_700, 2_200, 2_700)
    }
    assert state_rows(carried) == ({"left": 2_700, "right": 300}, waiting)

    merged = rows_of(
        beating.transform(beats, empty_state(spark, beating), context).where("NOT _rw_is_timer")
    )
    assert [(window, at_us, note) for window, _, at_us, _, note in merged] == [
        (0, 300, "left 200 0 200"),
        (0, 600, "right 300 0 300"),
        (1, 1_100, "left 700 0 700"),
        (1, 1_600, "left 1200 0 1200"),
        (2, 2_100, "left 1700 0 1700"),
        (2, 2_600, "left 2200 0 2200"),
    ]


@pytest.mark.long
def test_merge_of_merges_equals_one_merge_of_all_inputs(spark: SparkSession) -> None:
    tuples = make_tuples(Random(9), 3, 150, WINDOWS)
    inputs = frames_of(spark, tuples, 3)
    context = OperatorContext(Grid(1), WindowRange(0, WINDOWS - 1))
    inner = operator(2)
    columns = pa.schema(
        [field for field in inner.output_ports()["out"].schema if field.name != "_rw_source"]
    )
    outer = operator(2, columns=columns, arrived_at="_rw_released_at", order_by=("_rw_emission",))
    pair = inner.transform(inputs, empty_state(spark, inner), context)
    third = (
        inputs["again"]
        .withColumnsRenamed({"offset": "_rw_emission"})
        .withColumn("_rw_released_at", inputs["again"]["arrived_at"])
    )
    nested = rows_of(
        outer.transform({"left": pair, "right": third}, empty_state(spark, outer), context)
    )
    wanted = expected_rows(merge_tuples(tuples, 3))
    assert len(wanted) > 50
    assert sorted((at_us, note) for _, _, at_us, _, note in nested) == sorted(
        (row[2], row[4]) for row in wanted
    )


def test_merge_drops_pending_tuples_after_skipped_windows(spark: SparkSession) -> None:
    # Rules: H58
    tuples = [Tuple(0, 10, 0, 10), Tuple(0, 20, 1, 20), Tuple(1, 30, 0, 10)]
    waits = operator(2)
    context = OperatorContext(Grid(1), WindowRange(0, 0))
    state = waits.next_state(frames_of(spark, tuples, 2), {}, empty_state(spark, waits), context)
    assert state_rows(to_arrow(state, waits.state_columns(), "state"))[1] == {(0, "left 20 1 20")}
    after = to_arrow(
        waits.state_after_skip(state, WindowRange(1, 4), {}),
        waits.state_columns(),
        "state",
    )
    assert state_rows(after) == ({"left": 20, "right": 10}, set())
    passed_on = state.where("window_id IS NOT NULL").withColumn("window_id", F.lit(3))
    for emitted, dropped in (({}, [(0, 1)]), ({"out": passed_on}, [])):
        counted = waits.dropped_by_skip(state, WindowRange(1, 4), emitted)
        assert [tuple(row) for row in counted.collect()] == dropped


def test_merge_accepts_columns_with_dots_in_their_names(spark: SparkSession) -> None:
    names = {"note": "a.b", "at": "x.at", "offset": "x.offset"}
    columns = pa.schema([field.with_name(names.get(field.name, field.name)) for field in COLUMNS])
    both = operator(2, columns=columns, event_at="x.at", order_by=("x.offset",))
    found = []
    tuples = [Tuple(0, 10, 0, 10), Tuple(0, 20, 1, 20), Tuple(1, 30, 0, 15), Tuple(1, 1_010, 0, 20)]
    state = empty_state(spark, both)
    for window in (0, 1):
        inputs = frames_of(spark, tuples, 2, window, window)
        inputs = {port: frame.withColumnsRenamed(names) for port, frame in inputs.items()}
        context = OperatorContext(Grid(1), WindowRange(window, window))
        out = conform(
            both.transform(inputs, state, context),
            both.output_ports()["out"].schema,
            "out",
        )
        found += [row["a.b"] for row in out.orderBy("_rw_emission").collect()]
        after = both.next_state(inputs, {"out": out}, state, context)
        state = to_frame(spark, to_arrow(after, both.state_columns(), "state"))
    assert found == ["left 10 0 10", "right 30 0 15", "left 20 1 20", "right 1010 0 20"]


def test_merge_fails_on_a_tuple_without_an_arrival(spark: SparkSession) -> None:
    inputs = frames_of(spark, [Tuple(0, 10, 0, 10), Tuple(1, 30, 0, 10)], 2)
    inputs["right"] = inputs["right"].withColumn("arrived_at", F.lit(None).cast("timestamp"))
    with pytest.raises(Exception, match="merge: a tuple has no arrival in input right, window 0"):
        merge(inputs, event_at="at").tuples.collect()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one port": ({"ports": ("left",)}, "ports must be two or more different names, not left"),
    "no port": ({"ports": ()}, "ports must be two or more different names, not none"),
    "a port twice": (
        {"ports": ("a", "b", "a")},
        "ports must be two or more different names, not a, b, a",
    ),
    "unknown columns": (
        {"event_at": "when", "order_by": ("seq",)},
        "the streams have no column when, seq",
    ),
    "a column's name": (
        {"columns": COLUMNS.append(pa.field("_rw_source", pa.string()))},
        "column _rw_source has a name that Merge adds",
    ),
    "its case": (
        {"columns": COLUMNS.append(pa.field("_rw_Source", pa.string()))},
        "column _rw_Source has a name that Merge adds",
    ),
    "that of the order": (
        {
            "columns": COLUMNS.append(pa.field("_rw_Emission", pa.int64())),
            "order_by": ("_rw_Emission",),
        },
        "column _rw_Emission has a name that Merge adds",
    ),
    "that of the window": (
        {"columns": COLUMNS.append(pa.field("Window_Id", pa.int64()))},
        "column Window_Id has a",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_merge_reports_wrong_properties_at_launch(case: str) -> None:
    # Rules: O53
    properties, message = WRONG[case]
    app = Application("clicks", window="1 s")
    both = app.add("both", operator(2, **properties), left=app.input("a"), right=app.input("b"))
    app.output("merged", both, key=["_rw_emission"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert "both: " + message in str(caught.value)


def test_merge_accepts_heartbeats_and_rejects_mismatched_columns(spark: SparkSession) -> None:
    # Rules: O13
    first, second = (Heartbeat(interval=1, event_at="at", columns=COLUMNS) for _ in range(2))
    columns = first.output_ports()["out"].schema
    app = Application("clicks", window="1 s")
    beats = {
        port: app.add(f"beat_{port}", beat, stream=app.input(port))
        for port, beat in (("left", first), ("right", second))
    }
    both = app.add(
        "both",
        Merge(columns=columns, event_at="at", order_by=("_rw_emission",)),
        **beats,
    )
    app.output("merged", both, key=["_rw_emission"])
    validate(app, recorded={"left": COLUMNS, "right": COLUMNS})
    bare = app.add("bare", operator(2), left=beats["left"], right=beats["right"])
    app.output("wrong", bare, key=["_rw_emission"])
    with pytest.raises(
        ValidationFailed,
        match='output port "beat_left.out" with column offset absent cannot feed it',
    ):
        validate(app)
    left, right = frames_of(spark, [], 2).values()
    with pytest.raises(
        InputError,
        match='inputs "left" and "right" must both have column at, note',
    ):
        merge({"left": left, "right": right.drop("at").withColumn("note", F.lit(1))}, event_at="at")
    with pytest.raises(
        InputError,
        match="streams cannot be merged: ports must be two or more different names, not left",
    ):
        merge({"left": left}, event_at="at")


def empty_state(spark: SparkSession, stateful: FrameOperator) -> DataFrame:
    return to_frame(spark, stateful.initial_state())
