"""Which tick fires a window, looked up where ticks are few, held against a loop over all ticks (E3,
E28).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random, getrandbits
from typing import TYPE_CHECKING

from rewindow.operators.event_time_windows.firing import fired_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 6


def test_window_fires_at_the_first_tick_at_or_after_its_end(spark: SparkSession) -> None:
    for seed in [getrandbits(32) for _ in range(ROUNDS)]:
        random = Random(seed)
        step = random.choice([1, 7, 60])
        phase = random.randrange(step)
        watermark = random.randint(-5_000, 5_000)
        raised = []
        for number in range(random.randint(0, 40)):
            raised.append((number * 10, watermark))
            watermark += random.choice([1, 1, step, 5 * step, 3_000 * step])
        before = [None, *(value for _, value in raised[:-1])] if raised else []
        rows = [(at, value, known) for (at, value), known in zip(raised, before, strict=True)]
        ticks = spark.createDataFrame(rows, "tick_us BIGINT, watermark_us BIGINT, before_us BIGINT")
        near = [value + random.randint(-2, 2) * step for _, value in raised] + [
            -20_000,
            watermark,
            10**9,
        ]
        ends = sorted({value - (value - phase) % step for value in near})
        found = spark.createDataFrame([(end,) for end in ends], "_end_us BIGINT")
        wanted = {end: next((at for at, value in raised if value >= end), None) for end in ends}
        assert all(low < high for (_, low), (_, high) in pairwise(raised))
        found_rows = fired_at(found, ticks, step, phase).collect()
        assert [row["_end_us"] for row in sorted(found_rows)] == ends, f"seed {seed}"
        assert {row["_end_us"]: row["_fired_us"] for row in found_rows} == wanted, f"seed {seed}"
