"""The Metronome against counting multiples one by one (docs/rules/heartbeat.md H18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rewindow.application import Application, OperatorContext, validate
from rewindow.errors import ValidationFailed
from rewindow.operators.heartbeat.settings import NOT_POSITIVE, TOO_FINE
from rewindow.operators.metronome import Metronome, metronome
from rewindow.spark.frames import conform
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def timers_one_by_one(grid: Grid, window: int, interval_us: int) -> list[tuple[int, int, int]]:
    """Returns (window, microseconds, index) of a window's timers, looked for one microsecond after
    the other.
    """
    start_us = grid.start_us(window)
    first_us = next(
        t_us for t_us in range(start_us, start_us + interval_us) if t_us % interval_us == 0
    )
    return [
        (window, t_us, t_us // interval_us)
        for t_us in range(first_us, grid.end_us(window), interval_us)
    ]


def rows_of(frame: DataFrame) -> list[tuple[int, ...]]:
    shown = frame.selectExpr("window_id", "unix_micros(at) AS at_us", "timer_index")
    return [tuple(row) for row in shown.orderBy("window_id", "at_us").collect()]


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    grid=st.builds(Grid, st.integers(1, 4), st.integers(-9, 9)),
    interval_us=st.sampled_from([300, 500, 1_000, 1_700, 2_000, 7_300]),
    first=st.integers(-6, 6),
    count=st.integers(1, 8),
    cut=st.integers(1, 7),
)
def test_metronome_ticks_at_every_multiple_in_any_grouping_of_windows(
    spark: SparkSession,
    grid: Grid,
    interval_us: int,
    first: int,
    count: int,
    cut: int,
) -> None:
    # Rules: H18, H56
    last = first + count - 1
    wanted = [
        row
        for window in range(first, last + 1)
        for row in timers_one_by_one(grid, window, interval_us)
    ]
    assert (
        rows_of(metronome(spark, OperatorContext(grid, WindowRange(first, last)), interval_us))
        == wanted
    )
    if cut < count:
        parts = [WindowRange(first, first + cut - 1), WindowRange(first + cut, last)]
        ticks = [
            rows_of(metronome(spark, OperatorContext(grid, part), interval_us)) for part in parts
        ]
        assert ticks[0] + ticks[1] == wanted


def test_metronome_also_ticks_in_empty_windows_and_ignores_tuples(spark: SparkSession) -> None:
    ticks = Metronome(interval="${minutes} * 60", parameters={"minutes": "20"})
    hours = OperatorContext(Grid(3_600_000), WindowRange(100, 101))
    unreadable = spark.range(5).selectExpr("raise_error('read') AS window_id")
    found = conform(
        ticks.transform({"stream": unreadable}, None, hours),
        ticks.output_ports()["out"].schema,
        "out",
    )
    minutes = [
        (row.window_id, row.at.minute, row.timer_index) for row in found.orderBy("at").collect()
    ]
    assert minutes == [
        (100, 0, 300),
        (100, 20, 301),
        (100, 40, 302),
        (101, 0, 303),
        (101, 20, 304),
        (101, 40, 305),
    ]


def test_metronome_validates_its_interval_like_the_heartbeat() -> None:
    # Rules: H20, H25, H26, H21, H18
    app = Application("clicks", window="1 s")
    clicks = app.input("clicks")
    for name, interval in (("fine", "0.009"), ("minutes", "1 minute")):
        app.output(
            f"{name}_ticks",
            app.add(name, Metronome(interval=interval), stream=clicks),
            key=["timer_index"],
        )
    validate(app)
    assert app.warnings() == [f"fine: {TOO_FINE}"]

    wrong = {"zero": 0, "text": "often", "tiny": "0.0000001", "unknown": "${x}"}
    for name, period in wrong.items():
        app.output(
            f"{name}_ticks",
            app.add(name, Metronome(interval=period), stream=clicks),
            key=["timer_index"],
        )
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    told = str(caught.value)
    assert [row.rule for row in caught.value.violations] == ["O53"] * len(wrong)
    for text in (
        f"zero: {NOT_POSITIVE}",
        f"text: {NOT_POSITIVE}",
        "tiny: interval must be a whole number of microseconds, not 1E-7 s",
        "unknown: parameter ${x}",
    ):
        assert text in told
    assert app.warnings() == [f"fine: {TOO_FINE}"]
