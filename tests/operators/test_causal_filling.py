"""Causal gap filling against a reference that looks only at what had arrived: in one pass, and in groups of windows."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators import FillGaps, FillSettings, fill_gaps
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.causal_reference import Arrived, Emitted, fill_causally
from tests.operators.test_filling import S
from tests.operators.test_filling_sources import method_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEP, WIDTH, WINDOWS, CASES, AHEAD = 10, 60, 6, 400, 40
FIRST, END = 1, 33
"""Grid points of a bounded range."""
GIVEN: dict[str, dict[str, Any]] = {
    "same": {"method": "constant", "value": 7.5},
    "before": {"method": "forward"},
    "near": {"method": "forward", "max_carry": 45},
    "sane": {"method": "forward", "max_value": 500},
    "again": {"method": "seasonal", "periods": (50, 100), "fallback": "forward"},
}
METHODS = [method_of(given) for given in GIVEN.values()]
COLUMNS = pa.schema([
    ("arrived_at", pa.int64()), ("case", pa.int32()), ("ts", pa.int64()), *((name, pa.float64()) for name in GIVEN),
])  # fmt: skip
RULES = {"event_at": "ts", "unit": "s", "step": STEP, "keys": ("case",), "time": "causal"}


def make_case(random: Random) -> list[Arrived]:
    """Returns a recording of a key: on time, at the very end of a step, late by little or much, ahead, silent."""
    found: dict[int, Arrived] = {}
    for at in random.sample(range(WIDTH * WINDOWS), random.choice([0, 1, 2, 6, 12, 40])):
        at = random.choice([at, at // STEP * STEP])
        ts = random.choice([at, at - 1, at - 3, at - STEP, at - random.randrange(150), at + 25])
        found[ts] = Arrived(at, ts, random.choice([None, float(ts), 1000.0 + ts]))
    return list(found.values())


def frame_of(spark: SparkSession, cases: list[list[Arrived]], windows: WindowRange) -> DataFrame:
    """Returns the rows of some windows."""
    rows = [
        (one.at // WIDTH, one.at * S, case, one.ts, *[one.a] * len(GIVEN))
        for case, listed in enumerate(cases)
        for one in listed
        if one.at // WIDTH in windows
    ]
    kinds = ", ".join(f"{name} double" for name in GIVEN)
    return spark.createDataFrame(rows, f"window_id bigint, arrived_at bigint, case int, ts bigint, {kinds}")


def emitted(rows: list[Any], ids: dict[tuple[int, str], int]) -> list[list[Emitted]]:
    """Returns the made rows of each case, the begins of their gaps from the first rows of each."""
    found: list[list[Emitted]] = [[] for _ in range(CASES)]
    for row in sorted(rows, key=lambda row: row["ts"]):
        begin = ids.setdefault((row["case"], row["_rw_gap_id"]), row["ts"])
        values = tuple((row[name], row["methods"][name]) for name in GIVEN)
        made = Emitted(row["arrived_at"] // S, row["ts"], begin, values, row["_rw_made_rows"])
        found[row["case"]].append(made)
        assert row["_rw_gap_is_open"] and row["_rw_after_us"] is None, "nobody knew an end"
    return found


@pytest.mark.parametrize(("wait", "max_rows", "expects"), [(0, 10**6, False), (15, 4, True)])
def test_causal_filling_is_that_of_the_reference(
    spark: SparkSession, wait: int, max_rows: int, *, expects: bool
) -> None:
    """Rows come when their points are due, from what had arrived by then, inclusive (G28, G33, G39)."""
    random = Random(wait)
    cases = [make_case(random) for _ in range(CASES)]
    settings = FillSettings(
        **RULES, from_time=FIRST * STEP * S, to_time=END * STEP * S, columns=GIVEN, wait=wait, max_rows=max_rows,
        expected_keys=[[case] for case in range(CASES)] if expects else [],
    )  # fmt: skip
    filled = fill_gaps(frame_of(spark, cases, WindowRange(0, WINDOWS)), settings)
    found = emitted(filled.where("_rw_is_made").withColumn("methods", F.col("_rw_methods")).collect(), {})
    for case, rows in enumerate(cases):
        wanted = fill_causally(rows, METHODS, STEP, (FIRST, END), wait, max_rows, is_expected=expects)
        assert found[case] == wanted, f"case {case}: {sorted(rows)}"
    assert sum(map(len, found)) > 10 * CASES / (1 if max_rows > 4 else 4)


def test_what_comes_later_changes_nothing(spark: SparkSession) -> None:
    """Without the rows that came after a time, what had been made by then is the same (G28)."""
    random = Random(3)
    cases = [make_case(random) for _ in range(CASES)]
    settings = FillSettings(**RULES, from_time=FIRST * STEP * S, to_time=END * STEP * S, columns=GIVEN)
    until = 170
    frame = frame_of(spark, cases, WindowRange(0, WINDOWS))
    columns = ["case", "ts", "arrived_at", "_rw_gap_id", "_rw_before_us", *GIVEN]
    made = [
        fill_gaps(rows, settings).where(f"_rw_is_made and arrived_at <= {until * S}").select(columns)
        for rows in (frame, frame.where(f"arrived_at <= {until * S}"))
    ]
    assert made[0].exceptAll(made[1]).count() == 0 == made[1].exceptAll(made[0]).count()
    assert made[0].count() > CASES


def cuttings() -> list[list[int]]:
    """Returns every splitting of the windows into groups."""
    return [
        [0, *(cut for cut in range(1, WINDOWS) if number >> (cut - 1) & 1), WINDOWS]
        for number in range(1 << (WINDOWS - 1))
    ]


def run(spark: SparkSession, fills: FillGaps, cases: list[list[Arrived]], cuts: list[int]) -> list[list[Emitted]]:
    """Returns the made rows of each case."""
    rows: list[Any] = []
    state = to_frame(spark, fills.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(Grid(WIDTH * 1000), WindowRange(first, end - 1))
        stream = frame_of(spark, cases, context.windows)
        out = conform(
            fills.transform({"stream": stream}, state, context)["out"], fills.output_ports()["out"].schema, "o"
        )
        rows += (
            out.where("_rw_is_made").withColumn("methods", F.from_json("_rw_methods", "map<string,string>")).collect()
        )
        assert all(row["window_id"] in context.windows for row in rows if row["arrived_at"] >= first * WIDTH * S)
        after = fills.next_state({"stream": stream}, {}, state, context)
        state = to_frame(spark, to_arrow(after, fills.state_columns(), "state"))
    assert all(row["arrived_at"] // (WIDTH * S) == row["window_id"] for row in rows)
    return emitted(rows, {})


@pytest.mark.parametrize(
    ("cuts", "wait", "bounded", "max_rows"),
    [pytest.param([0, 1, 4, 6], 0, False, 10**6, marks=pytest.mark.long), ([0, 2, 3, 6], 15, True, 4)]
    + [pytest.param([0, 1, 2, 3, 4, 5, 6], 0, False, 2, marks=pytest.mark.long)]
    + [pytest.param([0, 2, 3, 6], 15, True, 10**6, marks=pytest.mark.long)]
    + [
        pytest.param(cuts, wait, wait > 0, 3, marks=pytest.mark.exhaustive if number % 7 else pytest.mark.long)
        for number, (cuts, wait) in enumerate(zip(cuttings(), [0, 15, 15, 0] * 8, strict=True))
    ],
)
def test_rows_come_while_a_silence_lasts_in_whatever_groups(
    spark: SparkSession, cuts: list[int], wait: int, max_rows: int, *, bounded: bool
) -> None:
    """Each in the window in which its point is due, also where that window has no tuple (G28, G33, G34, G38, X34)."""
    random = Random(17)
    cases = [make_case(random) for _ in range(CASES)]
    bounds: dict[str, Any] = {"from_time": FIRST * STEP * S, "to_time": END * STEP * S} if bounded else {}
    if bounded:
        bounds["expected_keys"] = tuple((case,) for case in range(CASES))
    fills = FillGaps(columns=COLUMNS, fill=GIVEN, max_ahead=AHEAD, wait=wait, max_rows=max_rows, **RULES, **bounds)
    found = run(spark, fills, cases, cuts)
    points = (FIRST, END) if bounded else (-1000, 1000)
    for case, rows in enumerate(cases):
        wanted = fill_causally(rows, METHODS, STEP, points, wait, max_rows, is_expected=bounded)
        inside = [one for one in wanted if 0 <= one.at < WINDOWS * WIDTH]
        begun = {one.begin: one.ts for one in reversed(inside)}
        assert found[case] == [one._replace(begin=begun[one.begin]) for one in inside], f"case {case}: {sorted(rows)}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"columns": {"sane": "linear"}},
            "column sane has linear, which needs later rows, but time is causal",
        ),
        ({"columns": {"sane": "backward"}}, "column sane has backward, which needs later rows"),
        ({"columns": {"sane": "nearest"}}, "column sane has nearest, which needs later rows"),
        (
            {"columns": {"sane": {"method": "forward", "max_gap": 60}}},
            "column sane has max_gap, which needs later rows",
        ),
        ({"columns": {"sane": {"method": "expression", "sql": "previous.sane + Next.sane"}}}, "next in sql"),
        ({"columns": {"sane": {"method": "forward", "treat_null_as_missing": True}}}, "is for time hindsight"),
        ({"columns": {"arrived_at": "forward"}}, "column arrived_at is the arrival"),
        ({"wait": -1}, "out of range"),
        ({"time": "hindsight", "wait": 5}, "wait is for time causal alone"),
        ({"time": "causally"}, 'time is "causally". Did you mean "causal"?'),
    ],
)
def test_what_would_need_later_rows_is_refused(given: dict[str, Any], words: str) -> None:
    """At once, with what there is (G28)."""
    with pytest.raises(InputError) as caught:
        FillSettings(**{**RULES, "from_time": 0, "to_time": 100, **given})
    assert words in str(caught.value)


def test_behind_a_skip_points_are_filled_from_what_it_had_emitted(spark: SparkSession) -> None:
    """At most once: points of skipped windows are not made later, later ones know the tuples that came out (R79)."""
    fills = FillGaps(columns=COLUMNS, fill=GIVEN, max_ahead=AHEAD, **RULES)
    cases = [[Arrived(5, 5, 1.0), Arrived(70, 62, 2.0), Arrived(130, 125, 3.0)]]
    contexts = [OperatorContext(Grid(WIDTH * 1000), WindowRange(window, window)) for window in range(3)]
    frames = [frame_of(spark, cases, context.windows) for context in contexts]
    empty = to_frame(spark, fills.initial_state())
    state = to_frame(
        spark, to_arrow(fills.next_state({"stream": frames[0]}, {}, empty, contexts[0]), fills.state_columns(), "state")
    )
    emitted_rows = fills.transform({"stream": frames[1]}, state, contexts[1])["out"]
    for outputs, value in (({}, 1.0), ({"out": emitted_rows}, 2.0)):
        after = fills.state_after_skip(state, contexts[1].windows, outputs)
        made = fills.transform({"stream": frames[2]}, after, contexts[2])["out"].where("_rw_is_made")
        rows = sorted((row["ts"], row["before"]) for row in made.select("ts", "before").collect())
        assert rows == [(110, value), (130, 3.0), (140, 3.0), (150, 3.0), (160, 3.0)]
