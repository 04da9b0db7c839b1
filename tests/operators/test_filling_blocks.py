"""Gap filling in blocks of grid points beside each other: the same as in one order, and no task has
all rows.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from rewindow.operators import FillSettings, fill_gaps
from rewindow.operators.columns import floor_div
from rewindow.operators.filling import blocks, function
from tests.operators import test_filling as plain
from tests.operators import test_filling_sources as sources
from tests.operators.test_filling import S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = 150
COLUMNS: dict[str, Any] = {
    "line": {"method": "linear", "max_gap": "200 s"},
    "before": {"method": "forward", "max_carry": 45},
    "whole": {"method": "linear", "treat_null_as_missing": True},
    "sane": {"method": "nearest", "min_value": 0, "max_value": 700},
    "again": {
        "method": "seasonal",
        "periods": [50, 100],
        "fallback": "backward",
        "treat_null_as_missing": True,
    },
}


def texts(filled: DataFrame) -> list[str]:
    maps = {name: F.to_json(name) for name in ("_rw_methods", "_rw_sources")}
    return sorted(map(repr, filled.withColumns(maps).collect()))


def random_cases(spark: SparkSession, name: str) -> tuple[DataFrame, FillSettings]:
    random = Random(len(name))
    if name == "methods":
        recordings = {(case, "x"): plain.make_rows(random) for case in range(CASES)}
        return plain.frame_of(spark, recordings), plain.settings(max_rows=3)
    chosen = sources.settings(from_time=105 * S, look_back=137)
    return sources.frame_of(spark, [sources.make_rows(random) for _ in range(CASES)]), chosen


@pytest.mark.parametrize(
    "name", ["methods", pytest.param("choosing", marks=pytest.mark.exhaustive)]
)
def test_filling_in_blocks_equals_filling_whole_keys(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    # Rules: G38
    frame, settings = random_cases(spark, name)
    whole = texts(fill_gaps(frame, settings))

    def with_blocks(rows: DataFrame, _: FillSettings, **_more: Any) -> DataFrame:
        return rows.withColumn(blocks.BLOCK, floor_div(F.col("_rw_point"), 4))

    monkeypatch.setattr(function, "with_blocks", with_blocks)
    assert texts(fill_gaps(frame, settings)) == whole and len(whole) > frame.count() + CASES


def one_source(spark: SparkSession) -> DataFrame:
    """Returns rows of one source: some of one instant, outside, without a time or a value; silences
    of many blocks.
    """
    random = Random(4)
    rows = []
    for ts in [*range(-40, 900, 7), *range(2_000, 2_300, 13), 2_900]:
        for _ in range(random.choice([0, 1, 1, 1, 3])):
            value = random.choice([None, float(ts), 5_000.0, -1.0])
            rows.append((ts, *[value] * len(COLUMNS)))
    rows.append((None, *[1.0] * len(COLUMNS)))
    kinds = ", ".join(f"{name} double" for name in COLUMNS)
    return spark.createDataFrame(rows, f"ts bigint, {kinds}")


def settings_of(**more: Any) -> FillSettings:
    given = {
        "event_at": "ts",
        "unit": "s",
        "step": 10,
        "from_time": 55 * S,
        "to_time": 3_005 * S,
        "max_rows": 40,
        "columns": COLUMNS,
    }
    return FillSettings(**{**given, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param(
            {"zone": "UTC", "hours": "00:00-00:20", "step": 20, "look_back": 120},
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["steps", "hours"],
)
def test_filling_one_key_in_blocks_equals_one_pass(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
) -> None:
    # Rules: G5, G8, G16, G27, G38
    frame = one_source(spark)
    found = []
    monkeypatch.setattr(function, "COSTLY", 1)
    for count in (1, 97):
        monkeypatch.setattr(blocks, "BLOCKS", count)
        found.append(texts(fill_gaps(frame, settings_of(**more))))
    assert found[0] == found[1] and len(found[0]) > frame.count()


def test_no_task_receives_all_rows_of_one_key(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(function, "COSTLY", 1)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        fill_gaps(one_source(spark), settings_of()).explain()
    plan = text.getvalue()
    apart = re.findall(r"windowspecdefinition\((?:_rw_counts#\d+, )?(\w+)#\d+L?, ", plan)
    assert set(apart) == {"_rw_block", "_rw_edge"} and "SinglePartition" not in plan
    assert len(apart) == plan.count("windowspecdefinition(")


@pytest.mark.parametrize(
    ("keys", "expected", "cost", "is_cut"),
    [
        ([], [], 1, True),
        ([], [], 2, False),
        (["ts"], [], 1, False),
        (["ts"], [[1]], 1, True),
        (["ts"], [[1], [2]], 1, False),
    ],
)
def test_keys_are_split_into_blocks_if_there_are_fewer_keys_than_cores(
    spark: SparkSession,
    keys: list[str],
    expected: list[list[int]],
    cost: int,
    *,
    is_cut: bool,
) -> None:
    frame = spark.createDataFrame([(1, 2)], "ts bigint, _rw_point bigint")
    given = {
        "event_at": "at",
        "step": 1,
        "from_time": 0,
        "to_time": 9 * S,
        "keys": keys,
        "expected_keys": expected,
    }
    assert (
        blocks.BLOCK in blocks.with_blocks(frame, FillSettings(**given), cost=cost).columns
    ) == is_cut


@pytest.mark.parametrize("cost", [1, 4], ids=["blocks", "one order"])
def test_all_recorded_rows_of_a_nondeterministic_frame_are_kept(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    cost: int,
) -> None:
    # Rules: G40
    monkeypatch.setattr(function, "COSTLY", cost)
    flip = F.udf(
        lambda at: None if os.urandom(1)[0] % 2 else float(at),
        "double",
    ).asNondeterministic()
    frame = spark.range(2_000).select((F.col("id") * 10).alias("ts")).withColumn("v", flip("ts"))
    columns = {"v": {"method": "linear", "treat_null_as_missing": True}}
    settings = FillSettings(
        event_at="ts",
        unit="s",
        step=10,
        from_time=0,
        to_time=15_000 * S,
        columns=columns,
    )
    recorded = fill_gaps(frame, settings).where("not _rw_is_made")
    assert sorted(row["ts"] for row in recorded.select("ts").collect()) == list(
        range(0, 20_000, 10)
    )


def test_look_back_does_not_increase_the_number_of_blocks(spark: SparkSession) -> None:
    # The borders of all blocks come into one task.
    frame = spark.range(-86_400 * 365, 86_400, 1_000).selectExpr("id AS _rw_point")
    given: dict[str, Any] = {"event_at": "at", "step": 1, "from_time": 0, "to_time": 86_400 * S}
    settings = FillSettings(**given, look_back="365 days")
    found = (
        blocks.with_blocks(frame, settings)
        .selectExpr("max(_rw_block) - min(_rw_block) AS apart")
        .head()
    )
    assert found is not None and blocks.BLOCKS - 2 <= found["apart"] <= blocks.BLOCKS
