"""The order of tuples between the operators of a commit group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.engine.attempt import Attempt
from rewindow.settings.config import Config
from rewindow.state.row_hash import row_hashes
from rewindow.storage import query
from tests.recovery.project import FIRST, make_stream
from tests.recovery.project import WINDOWS as RECORDED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 6


@pytest.fixture
def outputs(
    attempt: Callable[..., Attempt],
    spark: SparkSession,
) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Returns the rows of an output of a replay whose exchanges have three parts."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("tuple_order", "one", group_windows=WINDOWS, last=FIRST + WINDOWS - 1).run()

    def rows(output: str) -> list[dict[str, Any]]:
        found = query("select * from o", o=config.replay_root("one") / output).to_pylist()
        assert found
        return found

    yield rows
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_tuples_keep_emission_order_only_if_it_does_not_depend_on_key_ranges(
    outputs: Callable[[str], list[dict[str, Any]]],
) -> None:
    # Rules: O39, X43, O133
    for name in ("alone_alone", "alone_errors", "keyed_keyed", "keyed_errors"):
        assert [row for row in outputs(name) if row["read"] != row["emitted"]] == [], name
    for name in ("keyed_alone", "frames_alone"):
        check_hash_order(outputs(name), ("key", "emitted"))
    check_hash_order(outputs("frames_stateless"), ("key", "x"))
    days = outputs("days")
    assert len({row["window_id"] for row in days}) == len(days), "a control tuple is there twice"


def test_tuples_of_a_published_stream_are_ordered_by_row_hash(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: X51
    config: Config = attempt.config  # type: ignore[attr-defined]
    events = query("select * from e", e=config.stream_table("events"))
    offsets = range(events.num_rows, 0, -1)
    events = events.set_column(1, "offset", pa.array(offsets, pa.int64()))
    counts = dict.fromkeys(range(FIRST, FIRST + RECORDED), 0)
    counts |= Counter(events["window_id"].to_pylist())
    make_stream(config, "shop.rows", events, counts, width_ms=3_600_000)
    attempt("tuple_published", "one", group_windows=10).run()
    rows = query("select * from o", o=config.replay_root("one") / "out").to_pylist()
    assert len(rows) == events.num_rows
    check_hash_order(rows, ("key", "x"))


def check_hash_order(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Asserts that the tuples of each window were read in the order of their row hash."""
    by_window: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["read"]):
        by_window.setdefault(row["window_id"], []).append(row)
    for of_window in by_window.values():
        columns = {name: [row[name] for row in of_window] for name in names}
        hashes = row_hashes(pa.table(columns)).view("int64").tolist()
        assert hashes == sorted(hashes)
