"""Published ranges replaced by files: what is cut, what others commit meanwhile, and what needs
Spark.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.certificate import certify
from rewindow.errors import ResourceError, TableError
from rewindow.ledger import Ledger
from rewindow.location import local
from rewindow.publication import by_files, staged_output
from rewindow.publication.publish import publish
from rewindow.publication.spark_needed import SparkNeeded, reason_for_spark
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.storage import Table, new_files, query
from tests.publication.staging import simple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "app.ranks"


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> None:
    simple(config, replay_id, first, last, plus, publishable=True, outputs=("ranks",))


def rows(config: Config, name: str = STREAM) -> list[str]:
    return sorted(
        map(repr, query("select * from t", t=Table.open(config.stream_table(name))).to_pylist())
    )


def windows(config: Config) -> dict[int, int]:
    """Returns window to the sum of its minutes."""
    found = query(
        "select window_id as w, sum(minutes) as m from t group by 1",
        t=config.stream_table(STREAM),
    )
    return dict(sorted(zip(found["w"].to_pylist(), found["m"].to_pylist(), strict=True)))


def expected(first: int, last: int, plus: int = 0) -> dict[int, int]:
    return {w: 20 * w + 1 + 2 * plus for w in range(first, last + 1)}


def actions(config: Config, name: str, version: int) -> list[dict[str, Any]]:
    log = config.stream_table(name) / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_neighbouring_rows_in_a_compacted_file_are_unchanged_by_an_undo(config: Config) -> None:
    stage(config, "one", 100, 104)
    stage(config, "two", 105, 109)
    publish(config, "one")
    publish(config, "two")
    Table.open(config.stream_table(STREAM)).delta.optimize.compact()
    (both,) = Table.open(config.stream_table(STREAM)).files()
    assert (both.first, both.last) == (100, 109)
    undo(config, "one")
    assert windows(config) == expected(105, 109)
    assert certify(config, "two", "published").verdict == "equal"
    publish(config, "one")
    assert windows(config) == expected(100, 109)


def test_undo_restores_whole_files_and_splits_files_at_the_range_boundary(config: Config) -> None:
    stage(config, "one", 100, 109)
    publish(config, "one")
    stage(config, "fix", 103, 106, plus=50)
    before = rows(config)
    publish(config, "fix")
    assert windows(config) == expected(100, 109) | expected(103, 106, 50)
    undo(config, "fix")
    assert rows(config) == before
    undo(config, "one")
    assert rows(config) == []


def test_undo_links_restored_files_without_writing_rows(config: Config) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    (old,) = Table.open(config.stream_table(STREAM)).files()
    publish(config, "fix")
    undo(config, "fix")
    (new,) = Table.open(config.stream_table(STREAM)).files()
    assert new.path != old.path and os.path.samefile(new.path, old.path)
    assert (new.changed_ms, new.size, new.rows) == (old.changed_ms, old.size, old.rows)
    assert Path(new.path).stat().st_mtime_ns // 1_000_000 == old.changed_ms
    assert certify(config, "one", "published").verdict == "equal"


def test_log_has_file_statistics_and_a_publication_number_for_each_commit(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staged_output, "TUPLES_PER_FILE", 4)
    simple(config, "one", 100, 103, publishable=True, outputs=("ranks",), linkable=False)
    result = publish(config, "one")
    commit = actions(config, STREAM, result.versions[STREAM] or 0)
    (first, second) = [one["add"] for one in commit if "add" in one]
    found = json.loads(first["stats"])
    assert found["numRecords"] == 4
    assert found["minValues"] == {
        "window_id": 100,
        "offset": 0,
        "arrived_at": "1970-01-05T04:00:00.000000Z",
        "carrier": "AA",
        "minutes": 1000,
    }
    assert (
        found["maxValues"]["window_id"] == 101
        and json.loads(second["stats"])["minValues"]["window_id"] == 102
    )
    assert found["nullCount"]["share"] == 0
    (told,) = [
        one["commitInfo"]
        for one in actions(config, STREAM, result.versions[STREAM] or 0)
        if "commitInfo" in one
    ]
    assert (
        told["isBlindAppend"] is False
        and json.loads(told["userMetadata"])["publication"] == result.number
    )


def append(table: DeltaTable) -> None:
    """Somebody else's rows in the range."""
    row = {"window_id": 102, "offset": 9, "carrier": "XX", "minutes": 1, "share": 0.5}
    frame = pa.Table.from_pylist([row], schema=pa.schema(table.schema().to_arrow()))
    write_deltalake(table, frame, mode="append")


def delete(table: DeltaTable) -> None:
    """Somebody else's deletion, of a row beside the range."""
    table.delete("window_id = 100 and carrier = 'AA'")


def compact(table: DeltaTable) -> None:
    write_deltalake(table, pa.table({"window_id": [900]}), mode="append", schema_mode="merge")
    DeltaTable(table.table_uri).optimize.compact()


OTHERS: dict[str, Callable[[DeltaTable], None]] = {
    "append": append,
    "delete": delete,
    "OPTIMIZE": compact,
}


@pytest.mark.parametrize("when", ["before it is read", "before the commit"])
@pytest.mark.parametrize("other", OTHERS)
def test_concurrent_commits_are_neither_lost_nor_duplicated(
    other: str,
    when: str,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage(config, "one", 100, 109)
    publish(config, "one")
    stage(config, "fix", 102, 104, plus=50)
    path = str(config.stream_table(STREAM))
    pending = [OTHERS[other]]

    def meddle() -> None:
        if pending:
            pending.pop()(DeltaTable(path))

    def then(step: str, number: int) -> None:
        if (step, when) == ("opened", "before it is read"):
            meddle()

    commit = by_files.Replacement.commit

    def meet(change: by_files.Replacement) -> None:
        if when == "before the commit":
            meddle()
        commit(change)

    monkeypatch.setattr(by_files.Replacement, "commit", meet)
    publish(config, "fix", crash=then)
    assert pending == []
    there = expected(100, 109) | expected(102, 104, 50)
    if other == "delete":
        there[100] = 1001
    found = windows(config)
    found.pop(900, None)
    assert found == there
    numbers = [
        one["txn"]["version"]
        for version in range(DeltaTable(path).version() + 1)
        for one in actions(config, STREAM, version)
        if "txn" in one
    ]
    assert numbers == [1, 2], "one commit for each publication"


def test_concurrent_publishers_of_neighbouring_ranges_wait_for_each_other(config: Config) -> None:
    stage(config, "one", 100, 104)
    stage(config, "two", 105, 109)
    met: list[str] = []

    def second(step: str, number: int) -> None:
        if step == "opened":
            with pytest.raises(Exception, match="is being published by another process"):
                publish(config, "two")
            met.append(step)

    publish(config, "one", crash=second)
    publish(config, "two")
    assert met == ["opened"] and windows(config) == expected(100, 109)


def test_full_disk_leaves_no_partial_files_and_the_next_publisher_completes(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, first in (("one", 100), ("two", 105)):
        stage(config, name, first, first + 4)
        publish(config, name)
    stage(config, "fix", 103, 106, plus=5)
    write = new_files.pq.write_table
    places = iter([True, False])

    def full(*given: Any, **named: Any) -> None:
        if not next(places):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(new_files.pq, "write_table", full)
        with pytest.raises(
            ResourceError,
            match=f'table "{STREAM}" cannot be written: no space left',
        ):
            publish(config, "fix")
    assert windows(config) == expected(100, 109)
    assert list(config.stream_table(STREAM).glob("publication-3/*")) == []
    publish(config, "fix")
    assert windows(config) == expected(100, 109) | expected(103, 106, 5)


def test_files_that_cannot_be_hard_linked_are_copied(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    publish(config, "fix")

    def apart(*given: object, **named: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def half(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local.os, "link", apart)
    with monkeypatch.context() as patch:
        patch.setattr(local.shutil, "copyfile", half)
        with pytest.raises(ResourceError, match="no space left"):
            undo(config, "fix")
        assert list(config.stream_table(STREAM).glob("publication-3/*")) == []
    undo(config, "fix")
    assert windows(config) == expected(100, 104)


def test_file_removed_before_the_publication_is_closed_is_linked_again(config: Config) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    publish(config, "fix")

    def take(step: str, number: int) -> None:
        if (step, number) == ("table_committed", 1):
            (added,) = Table.open(config.stream_table(STREAM)).files()
            Path(added.path).unlink()
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        undo(config, "fix", crash=take)
    assert undo(config, "fix").already
    assert windows(config) == expected(100, 104)


def test_vacuum_keeps_an_old_file_that_an_undo_is_restoring(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its bytes are older than the retention, and no version names the link yet.
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    (old,) = Table.open(config.stream_table(STREAM)).files()
    os.utime(old.path, (0, 0))
    publish(config, "fix")
    commit = by_files.Replacement.commit
    taken = []

    def vacuum(change: by_files.Replacement) -> None:
        delta = Table.open(change.table.path).delta
        taken.append(
            delta.vacuum(
                retention_hours=1,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        )
        commit(change)

    monkeypatch.setattr(by_files.Replacement, "commit", vacuum)
    undo(config, "fix")
    assert len(taken) == 1 and not any("publication-3" in path for path in taken[0])
    assert windows(config) == expected(100, 104)


def test_rows_survive_a_vacuum_and_undo_reports_deleted_files(
    config: Config,
) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    publish(config, "fix")
    undo(config, "fix")
    table = Table.open(config.stream_table(STREAM))
    table.delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert windows(config) == expected(100, 104)
    publish(config, "fix")
    assert windows(config) == expected(100, 104, 5)
    Table.open(table.path).delta.vacuum(
        retention_hours=0,
        dry_run=False,
        enforce_retention_duration=False,
    )
    with pytest.raises(TableError, match="no longer exists"):
        undo(config, "fix")


def test_table_that_requires_spark_is_rejected_early_without_spark(
    config: Config,
) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "fix", 102, 104, plus=5)
    Table.open(config.stream_table(STREAM)).delta.alter.add_constraint({"known": "window_id > 0"})
    with pytest.raises(SparkNeeded, match=f'table "{STREAM}" has a constraint'):
        publish(config, "fix")
    with pytest.raises(SparkNeeded, match="has a constraint"):
        undo(config, "one")
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.unfinished() == [] and ledger.leases.held() == []


@pytest.mark.long
def test_tables_changed_by_other_writers_are_published_and_undone_by_spark(
    spark: SparkSession,
    config: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    path = config.stream_table(STREAM)
    spark.sql(
        f"alter table delta.`{path}` set tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"delete from delta.`{path}` where window_id = 103 and carrier = 'AA'")
    there = expected(100, 104) | {103: 1031}
    stage(config, "fix", 102, 104, plus=5)
    stage(config, "next", 105, 109)
    with pytest.raises(SparkNeeded, match="has a deletion vector"):
        publish(config, "fix")
    caplog.clear()
    publish(config, "fix", spark=spark)
    assert any(
        "has a deletion vector, so Spark writes its rows" in line for line in caplog.messages
    )
    assert windows(config) == there | expected(102, 104, 5)
    publish(config, "next")
    assert windows(config) == there | expected(102, 104, 5) | expected(105, 109)
    with pytest.raises(SparkNeeded, match="has a deletion vector"):
        undo(config, "fix")
    undo(config, "fix", spark=spark)
    assert windows(config) == there | expected(105, 109)
    assert spark.read.format("delta").load(str(path)).count() == 19, "Spark reads the same"


NEEDS_SPARK = {
    "delta.columnMapping.mode' = 'name": "has column mapping",
    "delta.enableRowTracking' = 'true": "has the feature",
    "delta.enableInCommitTimestamps' = 'true": "has the feature inCommitTimestamp",
}


@pytest.mark.parametrize("setting", NEEDS_SPARK)
def test_table_features_unsupported_by_delta_rs_need_spark(
    setting: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    spark.sql(
        f"create table delta.`{tmp_path}` (window_id bigint) using delta tblproperties "
        f"('{setting}')"
    )
    assert NEEDS_SPARK[setting] in reason_for_spark(Table.open(tmp_path), list)


def test_partitions_and_generated_columns_need_spark(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        f"create table delta.`{tmp_path / 'p'}` (window_id bigint, day int) using delta "
        "partitioned by (day)"
    )
    assert "is partitioned" in reason_for_spark(Table.open(tmp_path / "p"), list)
    write_deltalake(tmp_path / "plain", pa.table({"window_id": [1]}))
    assert reason_for_spark(Table.open(tmp_path / "plain"), list) == ""
