"""Digests of windows from Arrow rows: Spark's, whatever the types; and what is held against
seals.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rewindow.facts.arrow_digests import arrow_digests, differing_windows
from rewindow.spark.digests import window_digests
from tests.state.test_row_hash import VALUES, random_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_FLOATS = [name for name in VALUES if name not in ("single", "double", "struct")]


@pytest.mark.parametrize(
    "names",
    [["single", "double", "struct"], NO_FLOATS, list(VALUES)],
    ids=["floats alone", "no floats", "all"],
)
def test_arrow_digests_equal_spark_digests(names: list[str], spark: SparkSession) -> None:
    rng = random.Random(4)
    frame = random_frame(rng, names, 90)
    place = {
        name: pa.array([rng.randrange(7) for _ in range(90)], pa.int64())
        for name in ("window_id", "offset")
    }
    rows = pa.table({**place, **dict(zip(frame.schema.names, frame.columns, strict=True))})
    there = window_digests(spark.createDataFrame(rows)).orderBy("window_id").toArrow()
    found = arrow_digests(rows, pa.schema([rows.schema.field("offset"), *frame.schema]))
    assert found.to_pylist() == there.to_pylist() and found.num_rows == 7


def test_windows_that_differ_from_their_seals_are_reported() -> None:
    events = pa.schema([("key", pa.int64()), ("share", pa.float64())])
    sealed = pa.table(
        {"window_id": [1, 1, 2, 3, 5], "key": [1, 2, 3, 4, 5], "share": [0.1, 0.2, 0.3, 0.4, 0.5]}
    )
    seals = arrow_digests(sealed, events)
    assert differing_windows(arrow_digests(sealed, events), seals, events).num_rows == 0
    here = pa.table({"window_id": [1, 2, 5, 9], "key": [1, 3, 5, 6], "share": [0.1, 0.4, 0.5, 0.6]})
    wrong = differing_windows(arrow_digests(here, events), seals, events)
    assert [tuple(row.values()) for row in wrong.to_pylist()] == [
        (1, 1, 2),
        (2, 1, 1),
        (3, 0, 1),
        (9, 1, None),
    ]
    nothing = differing_windows(arrow_digests(sealed.slice(0, 0), events), seals, events)
    assert nothing["window_id"].to_pylist() == [1, 2, 3, 5] and set(
        nothing["tuples"].to_pylist()
    ) == {0}


def test_window_sealed_as_empty_matches_an_empty_window() -> None:
    events = pa.schema([("key", pa.int64())])
    rows = pa.table({"window_id": [1], "key": [1]})
    one = arrow_digests(rows, events)
    prefix = one["digest"][0].as_py().split("-")[0]
    empty = {
        "window_id": [2],
        "tuples": [0],
        "digest": [f"{prefix}-{'0' * 16}-{'0' * 16}"],
        "float_digest": [None],
    }
    seals = pa.concat_tables([one, pa.table(empty, schema=one.schema)])
    assert differing_windows(one, seals, events).num_rows == 0
