"""Whether published tables hold what their seals say: foreign commits, altered files, and
certificates on them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from rewindow.certificate.certificate import DIFFERENT, EQUAL, Certificate, certify
from rewindow.certificate.integrity import doubts_of
from rewindow.certificate.snapshots import both_snapshots
from rewindow.errors import TableError
from rewindow.facts.readers import staged_seals
from rewindow.facts.seals import columns_text
from rewindow.ledger import publish_app_id
from rewindow.pages.certificate_page import certificate_page
from rewindow.publication.contents import published_seals
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from rewindow.storage import Table, create_table, query
from rewindow.storage.files import note_files, open_files
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.layout import event_columns
from rewindow.storage.names import open_published
from rewindow.windows import WindowRange
from tests.publication.kills import settings
from tests.publication.staging import lose_last_commit, prepared, simple

APP = "publish/t"
RANGE = WindowRange(100, 119)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of two commits of ours, windows 100 to 109 and 110 to 119."""
    schema = pa.schema([("window_id", pa.int64()), ("x", pa.string())])
    table = create_table(tmp_path / "t", schema)
    for number, first in enumerate((100, 110), start=1):
        rows = [{"window_id": window, "x": "some text"} for window in range(first, first + 10)]
        table.commit_arrow(pa.Table.from_pylist(rows, schema=schema), app_id=APP, version=number)
    return table


def doubts(
    table: Table,
    since: int = 0,
    windows: WindowRange = RANGE,
    **written: str,
) -> list[tuple[object, str]]:
    return [
        (doubt.windows, doubt.why)
        for doubt in doubts_of(table.refresh(), APP, since, windows, written)
    ]


def checksums(table: Table) -> dict[str, str]:
    return {
        Path(file.path).name: hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
        for file in table.refresh().files()
    }


def later(file: Path) -> None:
    os.utime(file, (file.stat().st_atime + 100, file.stat().st_mtime + 100))


def file_of(table: Table, window: int) -> Path:
    return Path(table.refresh().files(window, window)[0].path)


def test_commits_by_rewindow_raise_no_doubt(table: Table) -> None:
    assert doubts(table) == []
    table.delta.optimize.compact()
    told = CommitProperties(
        custom_metadata={
            "userMetadata": json.dumps({"rewindow": "left out", "windows": [[100, 100]]})
        }
    )
    table.refresh().delta.delete("window_id = 100", commit_properties=told)
    assert table.refresh().version == 4 and doubts(table) == []


def test_foreign_commit_that_changes_data_makes_its_windows_doubtful(table: Table) -> None:
    table.delta.delete("window_id = 105")
    ((windows, why),) = doubts(table)
    assert (
        windows == WindowRange(100, 109)
        and 'Version 3 of table "t" (DELETE) was not made by Rewindow.' in why
    )
    assert doubts(table, windows=WindowRange(112, 113)) == [] and doubts(table, since=3) == []
    table.refresh().delta.delete("window_id >= 110")
    assert [found for found, _ in doubts(table, since=3)] == [WindowRange(110, 119)]
    frame = pa.table({"window_id": pa.array([104], pa.int64()), "x": ["foreign"]})
    table.refresh().commit_arrow(frame, app_id="somebody", version=1)
    assert [found for found, _ in doubts(table, since=4)] == [WindowRange(104, 104)]


def test_version_without_a_log_makes_all_windows_doubtful(table: Table) -> None:
    table.delta.create_checkpoint()
    (table.path / "_delta_log" / f"{2:020}.json").unlink()
    assert [found for found, _ in doubts(table)] == [None]


def test_file_changed_in_place_raises_doubt_unless_only_its_timestamp_changed(table: Table) -> None:
    written = checksums(table)
    file = file_of(table, 105)
    later(file)
    assert doubts(table, **written) == []
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    later(file)
    ((windows, why),) = doubts(table, **written)
    assert (
        windows == WindowRange(100, 109)
        and f'File "{file.name}" of table "t" was changed in place.' in why
    )
    file.write_bytes(bytes(content) + b"x")
    assert "does not have the size with which it was written" in doubts(table)[0][1]
    file.unlink()
    assert "does not exist" in doubts(table)[0][1]


def test_file_with_a_changed_timestamp_and_no_recorded_checksum_raises_doubt(table: Table) -> None:
    later(file_of(table, 115))
    assert [found for found, _ in doubts(table)] == [WindowRange(110, 119)]


def published_by_hand(config: Config) -> Path:
    """Stages a replay and publishes it as a publication would leave it; returns its one file of
    tuples.
    """
    replay = simple(config, "r", 100, 107, outputs=("ranks",))
    plan = replay.plan
    name = "app.ranks"
    prepared(config, plan)
    table = open_published(config, name)
    rows = query("select * from t", t=Table.open(replay.root / "ranks"))
    table.commit_arrow(
        rows.select(table.schema.names).cast(table.schema),
        app_id=publish_app_id(name),
        version=1,
    )
    note_files(table, open_files(table.path))
    staged = staged_seals(Table.open(replay.root / "facts"), "ranks", plan.range)
    columns = columns_text(
        event_columns(Table.open(config.replay_root(plan.replay_id) / plan.outputs[0].name))
    )
    seals = published_seals(config, name, staged, columns, AT, table.version)
    open_published(config, f"{name}.windows").commit_arrow(
        seals,
        app_id=publish_app_id(f"{name}.windows"),
        version=1,
    )
    return Path(table.files()[0].path)


@pytest.fixture
def published(config: Config) -> Config:
    """A state folder in which two replays of 100 to 107 were published, one after the other."""
    for plus, name in enumerate(("first", "r")):
        simple(config, name, 100, 107, plus, publishable=True, outputs=("ranks",))
        publish(config, name)
    return config


TABLES = ("app.ranks", "app.ranks.windows", "app.checkpoints")


@pytest.mark.parametrize("name", TABLES)
def test_lost_commit_of_a_published_table_is_reported_with_a_solution(
    published: Config,
    name: str,
) -> None:
    lose_last_commit(published.stream_table(name))
    with pytest.raises(TableError, match=f'table "{name}" lacks publication 2') as error:
        certify(published, "r", "published")
    assert "rewindow publish r" in error.value.hint


def test_foreign_commit_does_not_hide_the_lost_commit_that_it_replaced(published: Config) -> None:
    path = published.stream_table("app.ranks")
    version = Table.open(path).version
    lose_last_commit(path)
    Table.open(path).delta.delete("window_id = 100")
    assert Table.open(path).version == version
    with pytest.raises(TableError, match='table "app.ranks" lacks publication 2'):
        certify(published, "r", "published")


def test_recreated_table_is_not_accepted_as_the_published_table(
    published: Config,
) -> None:
    path = published.stream_table("app.ranks")
    schema = Table.open(path).schema
    shutil.rmtree(path)
    create_table(path, schema, format_property(TableKind.STREAM)).commit_arrow(
        schema.empty_table(), app_id=publish_app_id("app.ranks"), version=2
    )
    with pytest.raises(TableError, match='table "app.ranks" lacks publication 2'):
        certify(published, "r", "published")


def test_seals_with_a_later_version_are_an_error_without_a_ledger_entry(
    config: Config,
) -> None:
    published_by_hand(config)
    lose_last_commit(config.stream_table("app.ranks"))
    with pytest.raises(TableError, match="is at version 0, but its seals refer to version 1"):
        certify(config, "r", "published")


def test_different_row_counts_in_log_and_seals_raise_doubt(config: Config) -> None:
    # The lost version was written again under its own number and transaction, with fewer rows.
    published_by_hand(config)
    path = config.stream_table("app.ranks")
    rows = query("select * from t where window_id > 101", t=Table.open(path))
    lose_last_commit(path)
    table = Table.open(path)
    frame = rows.select(table.schema.names).cast(table.schema)
    table.commit_arrow(frame, app_id=publish_app_id("app.ranks"), version=1)
    note_files(table, open_files(table.path))
    ((doubt,),) = both_snapshots(config, "r", "published", None)[1].doubts.values()
    assert (doubt.windows, doubt.why) == (
        WindowRange(100, 107),
        'The log of table "app.ranks" has 12 rows in windows [100, 107], but its seals have 16.',
    )
    for windows in (WindowRange(102, 107), WindowRange(104, 105)):
        later = both_snapshots(config, "r", "published", windows)[1].doubts
        assert list(later.values()) == [[]], "these windows share no file with 100 and 101"


def lose_state(checkpoints: Table) -> None:
    checkpoints.delta.delete("window_id = 107")


def change_state(checkpoints: Table) -> None:
    checkpoints.delta.update(updates={"digest": "'another'"}, predicate="window_id = 107")


def double_state(checkpoints: Table) -> None:
    rows = query("select * from t", t=checkpoints).select(checkpoints.schema.names)
    write_deltalake(checkpoints.delta, rows.cast(checkpoints.schema), mode="append")


@pytest.mark.parametrize("damage", [lose_state, change_state, double_state])
def test_lost_changed_or_duplicated_state_is_reported_as_a_state_difference(
    published: Config,
    damage: Callable[[Table], None],
) -> None:
    assert certify(published, "r", "published").states == []
    damage(Table.open(published.checkpoints_table("app")))
    found = certify(published, "r", "published")
    assert (found.verdict, found.states) == (DIFFERENT, [107])
    first = found.first_difference
    assert first is not None and (first["window"], first["class"]) == (107, "state")
    assert "The state after window 107 differs from the published one." in found.notes
    assert "First difference: window 107 of state" in certificate_page(found)


def test_certificate_lists_the_compared_versions_of_published_tables(published: Config) -> None:
    found = certify(published, "r", "published")
    assert (found.verdict, found.a.compared) == (EQUAL, None)
    assert found.b.compared == [
        "app.ranks: table id, and publication 2 at version 2",
        "app.ranks.windows: table id, and publication 2 at version 2",
        "app.ranks: rows in its log and in its seals",
        "app.checkpoints: table id, publication and digests of its states, as in the ledger",
    ]
    assert "app.ranks: rows in its log and in its seals" in certificate_page(found)


def test_checksum_clears_a_changed_timestamp_without_reading_other_files(config: Config) -> None:
    file = published_by_hand(config)
    later(file)
    certificate = certify(config, "r", "published")
    assert (certificate.verdict, certificate.contents, certificate.notes) == (EQUAL, "not read", [])
    assert "only Rewindow has changed the published tables" in certificate.contents_words
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(content)
    later(file)
    ((doubt,),) = both_snapshots(config, "r", "published", None)[1].doubts.values()
    assert (
        doubt.windows == WindowRange(100, 107)
        and f'"{file.name}" of table "app.ranks" was changed' in doubt.why
    )


def test_certificate_detects_foreign_changes_in_a_published_table(tmp_path: Path) -> None:
    # Only with --full does it read the contents of files whose metadata is unchanged.
    config = settings(tmp_path)
    simple(config, "r", 100, 107, publishable=True, outputs=("ranks",))
    publish(config, "r")
    path = config.stream_table("app.ranks")
    plain = certify(config, "r", "published")
    assert (plain.verdict, plain.contents, plain.data_read, plain.notes) == (
        EQUAL,
        "not read",
        False,
        [],
    )
    whole = certify(config, "r", "published", full=True)
    assert (whole.verdict, whole.contents, whole.data_read, whole.notes) == (
        EQUAL,
        "read",
        True,
        [],
    )
    file = Path(Table.open(path).files()[0].path)
    alter_silently(file)
    assert certify(config, "r", "published").contents == "not read"
    altered = certify(config, "r", "published", full=True)
    assert altered.verdict == DIFFERENT, (
        "the published file is a link to the staged one, so both sides were altered"
    )
    assert [note for note in altered.notes if "differ from their seals" in note] == [
        f"The rows of ranks in {side} differ from their seals in windows [100, 107]: they were "
        "changed afterwards."
        for side in ("r", "published")
    ]
    Table.open(path).delta.delete("window_id = 103 and carrier = 'AA'")
    found = certify(config, "r", "published")
    assert (changed_by(found), found.contents) == (8, "read where in doubt")
    assert any(
        "(DELETE) was not made by Rewindow. Windows [100, 107] of ranks were read" in n
        for n in found.notes
    )
    file = Path(Table.open(path).files()[0].path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TableError, match=f'file "{file.name}" of table "ranks" is damaged'):
        certify(config, "r", "published")


def alter_silently(file: Path) -> None:
    """Makes another carrier of UA, and leaves size, time and no checksum beside the file."""
    before = file.stat()
    file.write_bytes(file.read_bytes().replace(b"UA", b"UB", 1))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def changed_by(certificate: Certificate) -> int:
    assert certificate.verdict == DIFFERENT
    (output,) = certificate.outputs
    return output.windows - output.classes["equal"]
