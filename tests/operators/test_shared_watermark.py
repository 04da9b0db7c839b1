"""Operators over several streams with one watermark, against the reference of lateness, however cut
into groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, OperatorContext
from rewindow.application.error_tuples import REASON
from rewindow.application.validation import validate
from rewindow.errors import ValidationFailed
from rewindow.operators import AggregateWindows, SplitLate
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.lateness_reference import Arrival, Rules, classify
from tests.operators.test_aggregate_windows import Kept
from tests.operators.test_lateness import END_US, UNIT_US, Case, S, make_case, make_rules, new_seed
from tests.operators.tuple_accounting_reference import first_fired, tuple_accounting
from tests.operators.windows_reference import fire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = pa.schema(
    [("arrived_at", pa.int64()), ("ts", pa.int64()), ("key", pa.string()), ("number", pa.int64())]
)
WIDTH_US = 1_000
WINDOWS = END_US // WIDTH_US
Rows = list[tuple[str | None, ...]]
Found = dict[str, Rows]


def make_shared(random: Random) -> Rules:
    """Returns settings of two or three streams, with one timeout for all, or none."""
    rules = make_rules(random)
    streams = random.choice([2, 3])
    timeout = random.choice([None, 2, 9])
    return replace(
        rules,
        streams=streams,
        timeouts_us=(None if timeout is None else timeout * UNIT_US,) * streams,
        aheads_us=(rules.aheads_us[0],) * streams,
        jumps_us=rules.jumps_us[:1] * streams,
    )


def properties_of(rules: Rules) -> dict[str, Any]:
    def duration(value_us: int | None) -> Any:
        return None if value_us is None else value_us / S

    return {
        "columns": COLUMNS,
        "streams": tuple(f"s{number}" for number in range(rules.streams)),
        "event_at": "ts",
        "lag": rules.lag_us / S,
        "watermark_interval": rules.interval_us / S,
        "max_ahead": duration(rules.aheads_us[0]),
        "max_jump": duration((rules.jumps_us or (None,))[0]),
        "idle_timeout": duration(rules.timeouts_us[0]),
        "tie": "tick_first" if rules.tick_first else "tuple_first",
    }


def key_of(number: int) -> str | None:
    return f"k{number % 3}" if number % 3 else None


def frame_of(spark: SparkSession, case: Case) -> DataFrame:
    """Returns the tuples of a recording: `stream`, `window_id`, `offset`, and the columns."""
    rows = [
        (one.stream, one.at_us // WIDTH_US, number, one.at_us, one.ts_us, key_of(number), number)
        for number, one in enumerate(case)
    ]
    kind = (
        "stream INT, window_id BIGINT, offset BIGINT, arrived_at BIGINT, ts BIGINT, key "
        "STRING, number BIGINT"
    )
    return spark.createDataFrame(rows, kind).coalesce(1).cache()


def cuts_of(random: Random) -> list[int]:
    """Returns where a recording is cut into groups: the first window of each, and the end."""
    return [0, *sorted(random.sample(range(1, WINDOWS), random.randrange(3))), WINDOWS]


def run(
    spark: SparkSession,
    operator: FrameOperator,
    case: Case,
    cuts: list[int],
    ends: bool = False,
) -> Found:
    """Returns as text what is emitted by port, sorted; windows between cuts come one group after
    the other.
    """
    tuples = frame_of(spark, case)
    found = Found()
    columns = operator.state_columns()
    assert columns is not None and operator.wrong_properties() == []
    state = to_frame(spark, operator.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(
            Grid(1),
            WindowRange(first, end - 1),
            operator="app.op",
            materialize=Kept(),
            ends={"op": WINDOWS - 1} if ends else {},
        )
        own = tuples.where(f"window_id >= {first} AND window_id < {end}")
        inputs = {
            port: own.where(f"stream = {port[1:]}").drop("stream")
            for port in operator.input_ports()
        }
        ports = operator.transform(inputs, state, context)
        assert isinstance(ports, dict)
        of_ports = [_as_text(port, operator, frame) for port, frame in ports.items()]
        for port, values in reduce(lambda one, other: one.union(other), of_ports).collect():
            found.setdefault(port, []).append(tuple(values))
        state = to_frame(
            spark,
            to_arrow(operator.next_state(inputs, {}, state, context), columns, "state"),
        )
    return {port: sorted(rows, key=repr) for port, rows in found.items()}


def _as_text(port: str, operator: FrameOperator, frame: DataFrame) -> DataFrame:
    """Returns a port's tuples as lists of text; error tuples with their reason."""
    schema = operator.output_ports()[port].schema
    rows = frame if port == "errors" else conform(frame, schema, port)
    names = ["window_id", *schema.names, *([REASON] if port == "errors" else [])]
    return rows.select(F.lit(port), F.array(*(F.col(name).cast("string") for name in names)))


def expected(case: Case, rules: Rules) -> Found:
    outcomes, raised = classify(case, rules, 0, END_US)
    found: dict[str, list[tuple[Any, ...]]] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    most: dict[tuple[Any, ...], int] = {}
    for number, ((stream, at, ts), (outcome, watermark)) in enumerate(
        zip(case, outcomes, strict=True)
    ):
        place = (at // WIDTH_US, f"s{stream}", key_of(number), outcome)
        counts[place] += 1
        row: tuple[Any, ...] = (at // WIDTH_US, f"s{stream}", at, ts, key_of(number), number)
        if outcome == "late" and watermark is not None and ts is not None:
            row = (*row, ts, watermark, watermark - ts)
            most[place] = max(most.get(place, 0), watermark - ts)
        port = outcome if outcome in ("on_time", "late") else "errors"
        found.setdefault(port, []).append(row if port != "errors" else (*row, outcome))
    found["counts"] = [(*place, tuples, most.get(place)) for place, tuples in counts.items()]
    found["ticks"] = [(tick // WIDTH_US, tick, watermark) for tick, watermark in raised]
    return {port: as_text(rows) for port, rows in found.items() if rows}


def as_text(rows: Sequence[tuple[Any, ...]]) -> Rows:
    return sorted(
        (tuple(None if value is None else str(value) for value in row) for row in rows), key=repr
    )


@pytest.mark.long
def test_input_streams_of_an_operator_share_a_watermark(spark: SparkSession) -> None:
    # Rules: E2, E24, E41, E42, E47, X28, X37
    # A stream that has not sent anything is idle from the recording's first tick, not a group's.
    seed = new_seed()
    random = Random(seed)
    rules = make_shared(random)
    case = make_case(random, rules.streams)
    cuts = cuts_of(random)
    found = run(spark, SplitLate(**properties_of(rules), key_by=("key",)), case, cuts)
    assert found == expected(case, rules), f"seed {seed}\n{rules}\n{case}\ncut at {cuts}"


@pytest.mark.long
def test_tuple_counts_of_several_streams_balance_in_each_streaming_window(
    spark: SparkSession,
) -> None:
    # Rules: E28, E40, E42, X37, E45
    seed = new_seed()
    random = Random(seed)
    rules = make_shared(random)
    ends = random.random() < 0.5
    length, slide = (many * UNIT_US for many in random.choice([(4, 4), (8, 2), (7, 3), (20, 20)]))
    case = make_case(random, rules.streams)
    cuts = cuts_of(random)
    operator = AggregateWindows(
        **properties_of(rules),
        length=length / S,
        slide=slide / S,
        keys=("key",),
        aggregates={"n": "count(*)"},
    )
    found = run(spark, operator, case, cuts, ends)
    outcomes, ticks = classify(case, rules, 0, END_US)
    keys = [key_of(number) for number in range(len(case))]
    fired, last = fire(case, keys, outcomes, ticks, length, slide, END_US - 1 if ends else None)
    told = (
        f"seed {seed}\n{rules}\n{case}\nlength {length}, slide {slide}, cut at {cuts}, ends {ends}"
    )
    wanted = [
        (
            one.tick_us // WIDTH_US,
            one.key,
            one.begin_us,
            one.end_us,
            0,
            "on_time",
            one.tick_us,
            len(one.tuples),
        )
        for one in fired
    ]
    assert found.get("fired", []) == as_text(wanted), told
    first = first_fired((one.tick_us, one.tuples) for one in fired)
    counts = tuple_accounting(case, keys, outcomes, last, first, WIDTH_US)
    assert found.get("counts", []) == as_text(
        [(*place, *many) for place, many in counts.items()]
    ), told


def test_stream_without_tuples_is_idle_from_the_first_tick_of_the_recording(
    spark: SparkSession,
) -> None:
    # Rules: E47, X28
    case = [Arrival(0, at_us, at_us - 100) for at_us in range(0, END_US, 500)]
    properties = {
        "columns": COLUMNS,
        "streams": ("s0", "s1"),
        "event_at": "ts",
        "watermark_interval": "1 ms",
    }
    split = SplitLate(**properties, idle_timeout="2500 us")
    tuples = frame_of(spark, case)
    inputs = {
        "s0": tuples.where("stream = 0").drop("stream"),
        "s1": tuples.where("stream = 1").drop("stream"),
    }
    first, then = (
        OperatorContext(Grid(1), WindowRange(*windows)) for windows in ((0, 1), (2, WINDOWS - 1))
    )
    own = {port: frame.where("window_id < 2") for port, frame in inputs.items()}
    after = split.next_state(own, {}, to_frame(spark, split.initial_state()), first)
    state = to_frame(spark, to_arrow(after, split.state_columns(), "state"))
    own = {port: frame.where("window_id >= 2") for port, frame in inputs.items()}
    ticks = split.transform(own, state, then)["ticks"]
    assert min(row["tick_us"] for row in ticks.collect()) == 3_000


OPERATORS: list[Callable[..., Any]] = [
    partial(SplitLate, columns=COLUMNS, event_at="ts"),
    partial(
        AggregateWindows,
        columns=COLUMNS,
        event_at="ts",
        length="1 s",
        aggregates={"n": "count(*)"},
    ),
]


@pytest.mark.parametrize("make", OPERATORS)
def test_each_stream_has_an_input_port_and_its_tuples_contain_its_name(
    make: Callable[..., Any],
) -> None:
    # Rules: E24
    app = Application("both", window="1 s")
    classified = app.add(
        "classified",
        make(streams=("left", "right")),
        left=app.input("a"),
        right=app.input("b"),
    )
    app.output("late", classified["late"], key=["stream", "number"])
    validate(app, recorded={"a": COLUMNS, "b": COLUMNS})
    one = make().output_ports()
    several = make(streams=("left", "right")).output_ports()
    assert [*make().input_ports()] == ["stream"]
    for port, spec in several.items():
        named = [] if port in ("ticks", "fired") else ["stream"]
        assert spec.schema.names == [*named, *one[port].schema.names], port
    assert make().state_columns() == make(streams=("left", "right")).state_columns()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"streams": ("left",)}, "streams must be two or more different names, not left"),
        (
            {"streams": ("left", "right", "left")},
            "streams must be two or more different names, not left, right, left",
        ),
        ({"streams": ("left", "the right")}, 'input port name "the right" is not allowed'),
        (
            {"streams": ("left", "mode")},
            '"mode" cannot be an input port: it is a parameter of `app.add`',
        ),
        ({"streams": ("left", "right"), "idle_timeout": "soon"}, 'duration "soon" cannot be read'),
        ({"idle_timeout": "1 s"}, "idle_timeout needs several streams"),
        (
            {
                "streams": ("left", "right"),
                "columns": COLUMNS.append(pa.field("Stream", pa.string())),
            },
            "the input has a column stream, but the operator adds",
        ),
    ],
)
@pytest.mark.parametrize("make", OPERATORS)
def test_invalid_streams_are_reported_at_launch(
    make: Callable[..., Any],
    properties: dict[str, Any],
    words: str,
) -> None:
    # Rules: O53
    app = Application("both", window="1 s")
    ends = {"left": app.input("a"), "right": app.input("b")}
    classified = app.add("classified", make(**properties), **ends)  # type: ignore[arg-type]
    app.output("late", classified["late"], key=["number"])
    with pytest.raises(ValidationFailed, match=words):
        validate(app)
