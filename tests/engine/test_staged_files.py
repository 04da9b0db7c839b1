"""Staged files as they could be published: where each tuple lies, what the log says of a file,
whose rows it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rewindow.certificate.certificate import EQUAL, certify
from rewindow.crash import Step
from rewindow.engine import group
from rewindow.facts.readers import staged_seals
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.digests import schema_hash
from rewindow.spark.frames import spark_schema, write_files
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, query
from rewindow.storage.checksums import differing, with_noted
from rewindow.storage.layout import CHECKPOINTS, FACTS, bookkeeping, create_staged, event_columns
from rewindow.windows import to_datetime
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, GROUP, WINDOWS

if TYPE_CHECKING:
    from rewindow.engine.attempt import Attempt

LAST = FIRST + 2 * GROUP - 1
EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
STAMPED = pa.schema([*EVENTS, ("arrived_at", pa.timestamp("us", tz="UTC"))])
OUTPUTS = {"stamped": STAMPED, "seen": pa.schema([("key", pa.string()), ("seen", pa.string())])}


def check_rows(plan: Plan, table: Table, own_arrival: bool) -> None:
    """Every tuple of a window has another offset, and without an arrival time of its own the start
    of its window.

    Every file has the checksum that was noted when it was written.
    """
    assert all(file.checksum for file in with_noted(table, table.files()))
    assert differing(with_noted(table, table.files())) == []
    for file in table.files():
        rows = table.read(file, table.schema.names)
        assert len(pc.unique(rows["attempt"])) == 1, "rows of two attempts in one file"
        assert (file.last or 0) - (file.first or 0) < GROUP, "rows of two groups in one file"
        assert rows["offset"].null_count == 0
        if not own_arrival:
            starts = [
                to_datetime(plan.grid.start_us(window)) for window in rows["window_id"].to_pylist()
            ]
            assert rows["arrived_at"].to_pylist() == starts
    every = pa.concat_tables(
        table.read(file, ["window_id", "attempt", "offset"]) for file in table.files()
    )
    assert max(Counter(zip(*every.to_pydict().values(), strict=True)).values()) == 1


def check_statistics(table: Table) -> None:
    """The log tells rows, bounds and nulls of each file as they are in it."""
    told = pa.table(table.delta.get_add_actions(flatten=True)).to_pylist()
    assert told
    for entry in told:
        rows = pq.read_table(table.path / entry["path"], partitioning=None)
        assert entry["num_records"] == rows.num_rows
        for name in table.schema.names:
            assert entry[f"null_count.{name}"] == rows[name].null_count, name
            bounds = pc.min_max(rows[name]).as_py()
            assert (entry[f"min.{name}"], entry[f"max.{name}"]) == (bounds["min"], bounds["max"]), (
                name
            )


@pytest.mark.jvm
def test_staged_files_are_published_unchanged_even_after_a_recomputation(
    attempt: Callable[..., Attempt],
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options: dict[str, Any] = {"last": LAST, "mode": "at_least_once"}
    with pytest.raises(Crash):
        attempt("arrivals", "one", (Step.AFTER_FACTS, 2), **replay_options).run()
    again = attempt("arrivals", "one", **replay_options)
    again.run()
    other = attempt("arrivals", "two", group_windows=2 * GROUP, **replay_options)
    other.run()

    root = config.replay_root("one")
    schemas = {"stamped": STAMPED, "seen": pa.schema([("key", pa.string()), ("seen", pa.string())])}
    for output, events in schemas.items():
        table = Table.open(root / output)
        assert event_columns(table).names == events.names
        check_rows(again.plan, table, output == "stamped")
        check_statistics(table)
        seal = staged_seals(Table.open(root / FACTS), output, again.plan.range).to_pylist()[0]
        assert seal["digest"].startswith(schema_hash(spark_schema(events))), (
            "something else was digested"
        )
    seen = Table.open(root / "seen")
    assert set(seen.read(seen.files()[0], ["seen"])["seen"].to_pylist()) == {
        "window_id,key,x,arrived_at"
    }
    state = stored.load(Table.open(root / CHECKPOINTS), len(again.plan.range)).states["witness"]
    assert state["seen"].to_pylist() == ["window_id,key,seen"]
    assert certify(config, "one", "two").verdict == EQUAL


def test_engine_columns_are_separated_from_the_columns_of_the_output(tmp_path: Path) -> None:
    stamped = create_staged(tmp_path / "stamped", STAMPED)
    plain = create_staged(tmp_path / "plain", EVENTS)
    assert bookkeeping(stamped) == {"window_id", "attempt", "offset"}
    assert event_columns(stamped) == STAMPED
    assert bookkeeping(plain) == {"window_id", "attempt", "offset", "arrived_at"}
    assert event_columns(plain) == EVENTS


def test_sorted_by_attribute_sorts_the_rows_in_each_output_file(
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    sizes: dict[str, int | None] = {}

    def write(frame: Any, folder: Any, size: int | None = None) -> None:
        sizes[folder.parent.name] = size
        write_files(frame, folder, size)

    monkeypatch.setattr(group, "write_files", write)
    attempt("sorted_rows", "one", group_windows=WINDOWS).run()
    assert sizes == {"by_key": group.SORTED_GROUP_BYTES, "as_they_come": None}
    root = config.replay_root("one")
    by_key = [pq.read_table(path) for path in Path(str(root / "by_key")).rglob("*.parquet")]
    assert by_key
    for rows in by_key:
        places = list(zip(rows["key"].to_pylist(), rows["window_id"].to_pylist(), strict=True))
        assert places == sorted(places) and rows["window_id"].to_pylist() != sorted(
            rows["window_id"].to_pylist()
        )
    sql = "select window_id, tuples, digest from f where port = '{}' order by window_id"
    one, other = (
        query(sql.format(port), f=Table.open(root / "facts")).to_pylist()
        for port in ("by_key", "as_they_come")
    )
    assert one == other
