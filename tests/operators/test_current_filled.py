"""What filled rows hold now: made rows are gone where a recorded one has come since (G42)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.errors import InputError
from rewindow.operators import FillSettings, current_filled, fill_gaps
from tests.operators.test_filling import BEGIN, END, STEP, frame_of, make_cases, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = -(-BEGIN // STEP)
LAST = -(-END // STEP) - 1
"""Grid points of the range."""


@pytest.mark.parametrize("max_rows", [pytest.param(1_000_000, marks=pytest.mark.long), 3])
def test_each_grid_point_has_recorded_rows_or_one_filled_row(
    spark: SparkSession, max_rows: int
) -> None:
    # Rules: G42
    seed = 42 + max_rows
    random = Random(seed)
    cases = {place: rows for place, rows in list(make_cases(seed).items())[:200] if rows}
    late = {place: [row for row in rows if random.random() < 0.4] for place, rows in cases.items()}
    in_time = {
        place: [row for row in rows if row not in late[place]] for place, rows in cases.items()
    }
    rules = settings(max_rows=max_rows, expected_keys=[list(place) for place in cases])
    filled = fill_gaps(frame_of(spark, in_time), rules).localCheckpoint()
    more = frame_of(spark, late)
    now = current_filled(
        filled.unionByName(more, allowMissingColumns=True),
        rules,
    ).localCheckpoint()

    assert now.columns == filled.columns
    recorded = now.where("not coalesce(_rw_is_made, false)")
    wanted = frame_of(spark, cases)
    assert (
        recorded.select(*wanted.columns).exceptAll(wanted).isEmpty()
        and recorded.count() == wanted.count()
    )
    made: dict[tuple[int, str], list[Any]] = {place: [] for place in cases}
    for row in now.where("_rw_is_made").collect():
        made[row["case"], row["key"]].append(row)
    for place, rows in cases.items():
        missing = set(range(FIRST, LAST + 1)) - {row.ts // STEP for row in rows}
        stands = [row["ts"] // STEP for row in made[place]]
        assert set(stands) <= missing and len(set(stands)) == len(stands), (
            f"seed {seed}, {place}: {sorted(rows)}"
        )
        assert sum(row["_rw_made_rows"] for row in made[place]) == len(missing), (
            f"seed {seed}, {place}"
        )
        if max_rows == 1_000_000:
            assert set(stands) == missing, f"seed {seed}, {place}"
    many = now.where("_rw_made_rows > 1").count()
    assert many == 0 if max_rows == 1_000_000 else many > 50
    kept = [name for name in now.columns if name not in ("_rw_methods", "_rw_sources")]
    again = current_filled(now, rules)
    assert (
        again.select(*kept).exceptAll(now.select(*kept)).isEmpty() and again.count() == now.count()
    )


def test_filled_row_for_several_points_is_split_around_recorded_rows(spark: SparkSession) -> None:
    # Rules: G33, G42
    rows = "(timestamp'2024-01-01 00:00', 1.0), (timestamp'2024-01-01 09:00', 2.0)"
    for key in ("", "a.key"):
        rules = FillSettings(
            event_at="at",
            step="1 h",
            from_time="2024-01-01",
            to_time="2024-01-02",
            max_rows=5,
            columns={"v": "forward"},
            keys=[key] if key else [],
        )
        frame = spark.sql(
            f"select at, v {f', 1 as `{key}`' if key else ''} from values {rows} as t(at, v)"
        )
        filled = fill_gaps(frame, rules)
        late = frame.selectExpr(
            "at + interval 185 minutes as at",
            "v",
            *([f"`{key}`"] if key else []),
        )
        now = current_filled(filled.unionByName(late, allowMissingColumns=True), rules)
        made = now.where("_rw_is_made").orderBy("at").selectExpr("hour(at)", "v", "_rw_made_rows")
        found = [tuple(row) for row in made.collect()]
        assert found == [(1, 1.0, 2), (4, 1.0, 5), (10, 2.0, 2), (13, 2.0, 11)]
        assert now.schema["at"].dataType == filled.schema["at"].dataType


def test_unfilled_rows_are_rejected_with_the_missing_column(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="filled rows have no column _rw_is_made, _rw_made_rows"):
        current_filled(frame_of(spark, {}), settings())
