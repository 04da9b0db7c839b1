"""FillGaps against the reference of gap filling, in any grouping of windows; wrong properties."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, OperatorContext
from rewindow.application.error_tuples import REASON
from rewindow.application.validation import validate
from rewindow.errors import ValidationFailed
from rewindow.operators import FillGaps
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.filling_reference import Made, Row, fill
from tests.operators.test_filling import BEGIN, END, GIVEN, METHODS, STEP, S, is_same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDTH = 60
WINDOWS = 8
CLOSING = 5
CASES = 250
AHEAD = 40
KINDS = {name: pa.int64() if name == "other" else pa.float64() for name in METHODS}
BOOKKEEPING = [
    ("arrived_at", pa.int64()),
    ("case", pa.int32()),
    ("ts", pa.int64()),
    ("a", pa.float64()),
    ("b", pa.int64()),
]
COLUMNS = pa.schema([*BOOKKEEPING, *KINDS.items()])
BOUNDS = {"from_time": BEGIN * S, "to_time": END * S}


class Tuple(NamedTuple):
    """A tuple of one key: arrival and timestamp in seconds, and two values."""

    at: int
    ts: int | None
    a: float | None
    b: int | None


def operator(**properties: Any) -> FillGaps:
    given = {
        "columns": COLUMNS,
        "event_at": "ts",
        "unit": "s",
        "step": STEP,
        "keys": ("case",),
        "fill": GIVEN,
        "max_ahead": AHEAD,
    }
    return FillGaps(**{**given, **properties})


def make_case(random: Random) -> list[Tuple]:
    """Returns a recording of a key: silences, tuples on time, late by windows, twice, far ahead,
    without a time.
    """
    found = []
    for at in random.sample(range(WIDTH * WINDOWS), random.choice([0, 1, 2, 6, 12, 30])):
        ts = random.choice(
            [at, at, at - 3, at - random.randrange(150), at + 25, at + AHEAD + 60, None]
        )
        # A value by timestamp and window: of several rows of one instant any may be the source
        # within a window.
        known = None if ts is None else ts + 1000 * (at // WIDTH)
        value = None if known is None or known % 7 == 0 else float(known)
        found.append(Tuple(at, ts, value, known))
    return found


def moving(case: list[Tuple]) -> list[Tuple]:
    """Returns the tuples that count: believed, and newer than all of earlier windows that count."""
    found: list[Tuple] = []
    for window in sorted({one.at // WIDTH for one in case}):
        inside = [
            one
            for one in case
            if one.at // WIDTH == window and one.ts is not None and one.ts - one.at <= AHEAD
        ]
        highest = max((one.ts for one in found if one.ts is not None), default=None)
        found += [
            one for one in inside if highest is None or (one.ts is not None and one.ts > highest)
        ]
    return found


def expected(case: list[Tuple], *, bounded: bool) -> list[tuple[int, Made]]:
    """Returns the made rows with their windows, from the reference of one pass over all that
    counts.
    """
    if bounded:
        first = -(-BEGIN // STEP)
        last = -(-END // STEP) - 1
        case = [one for one in case if one.ts is not None and first <= one.ts // STEP <= last]
        case = [one for one in case if one.at // WIDTH <= CLOSING]
    tuples = [(one.ts, one) for one in moving(case) if one.ts is not None]
    if not tuples and not bounded:
        return []
    times = [ts for ts, _ in tuples]
    begin, end = (
        (BEGIN, END) if bounded else (min(times) // STEP * STEP, max(times) // STEP * STEP + STEP)
    )
    made = fill(
        [Row(ts, one.a, one.b) for ts, one in tuples],
        list(METHODS.values()),
        STEP,
        begin,
        end,
    )
    closers = sorted((ts, one.at // WIDTH) for ts, one in tuples)
    return [(next((window for ts, window in closers if ts > row.ts), CLOSING), row) for row in made]


def frame_of(spark: SparkSession, cases: dict[int, list[Tuple]], windows: WindowRange) -> DataFrame:
    rows = [
        (
            one.at // WIDTH,
            one.at * S,
            case,
            *one[1:],
            *(getattr(one, method.source) for method in METHODS.values()),
        )
        for case, tuples in cases.items()
        for one in tuples
        if one.at // WIDTH in windows
    ]
    kinds = ", ".join(
        f"{name} {'bigint' if KINDS[name] == pa.int64() else 'double'}" for name in METHODS
    )
    names = f"window_id bigint, arrived_at bigint, case int, ts bigint, a double, b bigint, {kinds}"
    return spark.createDataFrame(rows, names)


def run(
    spark: SparkSession,
    fills: FillGaps,
    cases: dict[int, list[Tuple]],
    cuts: list[int],
) -> tuple[dict[int, list[tuple[int, Made]]], list[tuple[int, str]]]:
    """Returns the made rows of each case and what is reported; windows between cuts come one group
    after the other.
    """
    found: dict[int, list[tuple[int, Made]]] = {}
    reported = []
    state = to_frame(spark, fills.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(Grid(WIDTH * 1000), WindowRange(first, end - 1))
        stream = frame_of(spark, cases, context.windows)
        ports = fills.transform({"stream": stream}, state, context)
        out = conform(ports["out"], fills.output_ports()["out"].schema, "out")
        methods = F.from_json("_rw_methods", "map<string,string>")
        recorded = []
        for row in out.withColumn("methods", methods).collect():
            assert row["arrived_at"] // (WIDTH * S) == row["window_id"], (
                "every row arrives in its window"
            )
            if not row["_rw_is_made"]:
                recorded.append(
                    (row["case"], Tuple(row["arrived_at"] // S, row["ts"], row["a"], row["b"]))
                )
                continue
            values = tuple((row[name], row["methods"][name]) for name in METHODS)
            made = Made(row["ts"], row["_rw_made_rows"], row["_rw_gap_is_open"], values)
            found.setdefault(row["case"], []).append((row["window_id"], made))
        inside = [
            (case, one)
            for case, tuples in cases.items()
            for one in tuples
            if one.at // WIDTH in context.windows
        ]
        assert sorted(recorded, key=repr) == sorted(inside, key=repr), (
            "what is recorded passes as it is (G40)"
        )
        reported += [
            (row["case"], row[REASON]) for row in ports["errors"].select("case", REASON).collect()
        ]
        after = fills.next_state({"stream": stream}, {}, state, context)
        state = to_frame(spark, to_arrow(after, fills.state_columns(), "state"))
    return {case: sorted(rows) for case, rows in found.items()}, reported


@pytest.mark.long
@pytest.mark.parametrize(("bounded", "cuts"), [(True, [0, 3, 8]), (False, [0, 2, 8])], ids=str)
def test_filling_in_groups_of_windows_equals_one_pass(
    spark: SparkSession,
    *,
    bounded: bool,
    cuts: list[int],
) -> None:
    # Rules: G34 to G38, G16, X34
    random = Random(5)
    cases = {case: make_case(random) for case in range(CASES)}
    expects = {"expected_keys": tuple((case,) for case in cases), **BOUNDS} if bounded else {}
    found, reported = run(spark, operator(**expects), cases, cuts)
    for case, tuples in cases.items():
        wanted = expected(tuples, bounded=bounded)
        mine = found.get(case, [])
        assert [(window, row.ts) for window, row in mine] == [
            (window, row.ts) for window, row in sorted(wanted)
        ], f"case {case}: {sorted(tuples)}"
        for (_, one), (_, want) in zip(mine, sorted(wanted), strict=True):
            assert is_same(one, want), f"case {case}: {sorted(tuples)}\nwanted {want}\nfound  {one}"
    wrong = [
        (case, "null_ts") for case, tuples in cases.items() for one in tuples if one.ts is None
    ]
    wrong += [
        (case, "far_future")
        for case, tuples in cases.items()
        for one in tuples
        if one.ts is not None and one.ts - one.at > AHEAD
    ]
    assert sorted(reported) == sorted(wrong) and len(wrong) > CASES


def test_timestamp_in_a_wrong_unit_is_an_error_tuple_and_does_not_close_a_gap(
    spark: SparkSession,
) -> None:
    # Rules: X14
    # Milliseconds read as microseconds are a time in 1970.
    now = 1_767_225_600 * S
    columns = pa.schema([("arrived_at", pa.int64()), ("case", pa.int32()), ("ts", pa.int64())])
    fills = operator(columns=columns, unit="us", fill={}, max_ahead="1 day")
    seconds = [(0, 0, 0), (0, 30, 10), (0, 31, 30), (1, 0, 0), (1, 1, 1)]
    units = [1, 1_000, 1, 1_000_000, 1]
    rows = [
        (0, now + at * S, case, (now + ts * S) // unit)
        for (case, at, ts), unit in zip(seconds, units, strict=True)
    ]
    frame = spark.createDataFrame(rows, "window_id bigint, arrived_at bigint, case int, ts bigint")
    context = OperatorContext(Grid(1000 * WIDTH), WindowRange(0, 0))
    ports = fills.transform({"stream": frame}, to_frame(spark, fills.initial_state()), context)
    made = ports["out"].where("_rw_is_made").select("case", "ts").collect()
    assert sorted((row["case"], row["ts"] - now) for row in made) == [(0, 10 * S), (0, 20 * S)]
    errors = ports["errors"].select("case", "_rw_reason", "_rw_detail").collect()
    assert sorted((row["case"], row["_rw_reason"]) for row in errors) == [
        (0, "bad_type"),
        (1, "bad_type"),
    ]
    assert all(": check the unit" in row["_rw_detail"] for row in errors)


def test_gap_continues_after_the_rows_emitted_before_a_skip(spark: SparkSession) -> None:
    # Rules: R79
    fills = operator(fill={"before": "forward"})
    cases = {0: [Tuple(5, 5, 1.0, 1), Tuple(70, 70, 2.0, 2), Tuple(130, 110, 3.0, 3)]}
    contexts = [
        OperatorContext(Grid(WIDTH * 1000), WindowRange(window, window)) for window in range(3)
    ]
    frames = [frame_of(spark, cases, context.windows) for context in contexts]
    empty = to_frame(spark, fills.initial_state())
    state = fills.next_state({"stream": frames[0]}, {}, empty, contexts[0])
    emitted = fills.transform({"stream": frames[1]}, state, contexts[1])
    for outputs, first in (({}, 10), ({"out": emitted["out"]}, 80)):
        after = fills.state_after_skip(state, contexts[1].windows, outputs)
        out = fills.transform({"stream": frames[2]}, after, contexts[2])["out"]
        made = [row["ts"] for row in out.where("_rw_is_made").select("ts").collect()]
        assert sorted(made) == list(range(first, 110, STEP))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown method": (
        {"fill": {"a": "lineal"}},
        'method "lineal" of column a is unknown. Did you mean "linear"',
    ),
    "an absent column": ({"fill": {"gone": "null"}}, "frame has no column gone"),
    "a line through text": (
        {"columns": COLUMNS.append(pa.field("word", pa.string())), "fill": {"word": "linear"}},
        'column "word" cannot be interpolated',
    ),
    "no step": ({"step": 0}, "step must be above 0, not 0"),
    "keys that are expected at no time": (
        {"expected_keys": ((1,),)},
        "expected_keys needs from_time and to_time",
    ),
    "a limit that is no duration": ({"max_ahead": "soon"}, 'duration "soon" cannot be read'),
    "the arrival as event timestamp": (
        {"event_at": "arrived_at"},
        "column arrived_at is the arrival",
    ),
    "an unknown arrival": ({"arrived_at": "came"}, "the stream has no column came"),
    "a filled stream": (
        {"columns": COLUMNS.append(pa.field("_rw_is_made", pa.bool_()))},
        "FillGaps adds a column _rw_is_made, but the input already has this column",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_properties_are_reported_at_launch(case: str) -> None:
    # Rules: O53
    properties, message = WRONG[case]
    app = Application("readings", window="1 min")
    app.output(
        "filled",
        app.add("fill", operator(**properties), stream=app.input("readings")),
        key=[],
    )
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert message in str(caught.value)
