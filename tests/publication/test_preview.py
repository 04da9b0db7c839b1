"""What publishing would do: the way of each table, rows, files and room; nothing is changed by
asking.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rewindow.application import Mode
from rewindow.errors import GateError, InputError, ResourceError, TableError
from rewindow.ledger import Ledger
from rewindow.location.local import LocalLocation
from rewindow.publication.preview import (
    PublicationPreview,
    ShownWindows,
    TablePreview,
    Way,
    reasons_for_spark,
)
from rewindow.publication.publish import expected_publication, publish
from rewindow.publication.undo import undo
from rewindow.publication.undo_preview import expected_undo
from rewindow.settings.config import Config
from rewindow.storage import Table, query, snapshots
from tests.publication.staging import StagedReplay, rows_of, simple, state_of

STREAM = "app.ranks"


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> StagedReplay:
    return simple(config, replay_id, first, last, plus, publishable=True, outputs=("ranks",))


def expected(config: Config, replay_id: str) -> TablePreview:
    found = expected_publication(config, replay_id)
    assert isinstance(found, PublicationPreview) and found.seconds > 0
    (table,) = found.tables
    return table


def contents(root: Path) -> dict[str, int]:
    """Returns every file below a folder, but the ledger's, with its size."""
    files = (path for path in Path(root).rglob("*") if path.is_file() and "ledger" not in path.name)
    return {str(path): path.stat().st_size for path in files}


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of replays have one name only, as where published tables lie on another file system."""
    link = os.link

    def refuse(source: str, target: str) -> None:
        if "/replays/" in str(source) and str(source).endswith(".parquet"):
            raise OSError(errno.EXDEV, "Invalid cross-device link", source)
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        yield


def test_preview_changes_nothing_and_equals_the_publication(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    stage(config, "one", 100, 109)
    before = contents(config.state.local())
    table = expected(config, "one")
    assert (
        contents(config.state.local()) == before
        and Ledger.open(config.ledger_url).publications.newest() == []
    )
    assert (table.table, table.way, table.rows, table.files, table.rows_written) == (
        STREAM,
        Way.LINKS,
        20,
        1,
        0,
    )
    assert (table.files_cut, table.files_removed, table.bytes_written) == (0, 0, 0)
    publish(config, "one")
    fix = stage(config, "fix", 105, 112, plus=3)
    table = expected(config, "fix")
    (file,) = Table.open(fix.root / "ranks").files()
    assert (table.files, table.files_cut, table.files_removed, table.bytes) == (1, 1, 1, file.size)
    caplog.clear()
    publish(config, "fix")
    assert f"{STREAM}: 1 files linked, 10 rows written" in caplog.messages


def test_preview_of_a_published_replay_reports_that_it_is_published(config: Config) -> None:
    stage(config, "one", 100, 104)
    number = publish(config, "one").number
    found = expected_publication(config, "one")
    assert not isinstance(found, PublicationPreview) and (found.already, found.number) == (
        True,
        number,
    )


def test_preview_rejects_the_same_replays_as_publish(config: Config) -> None:
    simple(config, "open", 100, 104, publishable=True, outputs=("ranks",), checked=False)
    with pytest.raises(GateError, match="its gate was not run"):
        expected_publication(config, "open")
    assert isinstance(expected_publication(config, "open", accept="known"), PublicationPreview)
    assert Ledger.open(config.ledger_url).checks.acceptances("open") == []
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "two", 105, 109)
    file = Path(Table.open(config.replay_root("two") / "ranks").files()[0].path)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TableError, match="windows 105 to 109 cannot be published"):
        expected_publication(config, "two")


def test_linked_files_need_no_disk_space(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(config, "one", 100, 104)
    monkeypatch.setattr(LocalLocation, "free_bytes", lambda place: 0)
    publish(config, "one")


def test_rewritten_rows_need_disk_space_in_the_folder_of_the_published_tables(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = StagedReplay(config, "twice", 100, 109, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), 1, state=state_of(1))
    replay.group(105, 109, rows_of(range(105, 110), 7), 2, state=state_of(2))
    replay.digest().end(epoch=2)
    table = expected(config, "twice")
    assert (table.files, table.rows, table.rows_written) == (1, 20, 10) and table.bytes_written > 0
    streams = config.stream_table(STREAM).parent
    streams.make_folder()
    monkeypatch.setattr(
        LocalLocation,
        "free_bytes",
        lambda place: table.bytes_written - (place == streams),
    )
    with pytest.raises(
        ResourceError,
        match=r"publishing needs about .* of disk space, but only .* are free",
    ):
        publish(config, "twice")
    assert Ledger.open(config.ledger_url).publications.newest() == []
    monkeypatch.setattr(LocalLocation, "free_bytes", lambda place: table.bytes_written)
    publish(config, "twice")


def test_preview_reports_copies_if_hard_links_are_impossible(
    config: Config, no_links: None, caplog: pytest.LogCaptureFixture
) -> None:
    replay = stage(config, "one", 100, 104)
    table = expected(config, "one")
    assert (
        table.way is Way.COPIES
        and table.bytes_written == table.bytes
        and "files cannot be linked" in table.why
    )
    caplog.clear()
    publish(config, "one")
    assert (
        f"{STREAM}: 1 files linked, 1 of them copied from another file system, 0 rows "
        "written" in caplog.messages
    )
    (file,) = Table.open(config.stream_table(STREAM)).files()
    (source,) = Table.open(replay.root / "ranks").files()
    assert Path(file.path).read_bytes() == Path(source.path).read_bytes() and not os.path.samefile(
        file.path,
        source.path,
    )


def test_disk_that_fills_during_copies_leaves_no_partial_files(
    config: Config,
    no_links: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage(config, "one", 100, 104)

    def fill(source: str, target: str) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", fill)
        with pytest.raises(
            ResourceError,
            match=f'table "{STREAM}" cannot be written: no space left on device',
        ):
            publish(config, "one")
    table = config.stream_table(STREAM).local()
    assert [
        path for path in table.rglob("*") if path.suffix == ".parquet" or "linked" in path.name
    ] == []
    publish(config, "one")
    assert query("select count(*) as n from t", t=config.stream_table(STREAM))["n"].to_pylist() == [
        10
    ]


def test_disk_that_fills_during_links_leaves_no_partial_publication(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A link needs a directory entry, and there is no space for the second one.
    replay = StagedReplay(config, "one", 100, 109, outputs=("ranks",))
    for first in (100, 105):
        replay.group(first, first + 4, rows_of(range(first, first + 5)), state=state_of(first))
    replay.digest().end()
    link = os.link
    linked: list[str] = []

    def fill(source: str, target: str) -> None:
        if "linked-" in str(target) and linked:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        linked.extend([target] if "linked-" in str(target) else [])
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fill)
        with pytest.raises(
            ResourceError,
            match=f'table "{STREAM}" cannot be written: no space left on device',
        ):
            publish(config, "one")
    assert Table.open(config.stream_table(STREAM)).files() == [] and len(linked) == 1
    publish(config, "one")
    assert query("select count(*) as n from t", t=config.stream_table(STREAM))["n"].to_pylist() == [
        20
    ]


def test_preview_and_plan_report_a_slow_publication(config: Config) -> None:
    plan = stage(config, "one", 100, 104).plan
    assert reasons_for_spark(config, plan) == []
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=3)
    Table.open(config.stream_table(STREAM)).delta.alter.add_constraint({"positive": "minutes > 0"})
    table = expected(config, "fix")
    assert (table.way, table.rows_written) == (
        Way.SPARK,
        10,
    ) and table.why == f'table "{STREAM}" has a constraint'
    assert reasons_for_spark(config, plan) == [f'table "{STREAM}" has a constraint']


def expected_of_undo(config: Config, replay_id: str) -> tuple[PublicationPreview, TablePreview]:
    before = contents(config.state.local())
    found = expected_undo(config, replay_id)
    assert contents(config.state.local()) == before
    assert isinstance(found, PublicationPreview) and found.seconds > 0 and found.kind == "undo"
    (table,) = found.tables
    return found, table


def test_undo_preview_changes_nothing_and_equals_the_undo(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    for name, first, last, plus in (
        ("one", 100, 109, 0),
        ("two", 110, 111, 0),
        ("fix", 105, 113, 3),
    ):
        stage(config, name, first, last, plus)
        publish(config, name)
    found, table = expected_of_undo(config, "fix")
    assert found.shows == (
        ShownWindows(105, 109, "one"),
        ShownWindows(110, 111, "two"),
        ShownWindows(112, 113, None),
    )
    assert (table.way, table.rows, table.files, table.rows_written) == (Way.LINKS, 14, 1, 10)
    assert (table.files_cut, table.files_removed) == (0, 1)
    caplog.clear()
    undo(config, "fix")
    assert f"{STREAM}: 1 files linked, 10 rows written" in caplog.messages
    rows = query(
        "select count(*) as n from t where window_id >= 105",
        t=config.stream_table(STREAM),
    )
    assert rows["n"].to_pylist() == [table.rows]
    again = expected_undo(config, "fix")
    assert not isinstance(again, PublicationPreview) and (again.already, again.number) == (True, 4)


def test_preview_of_a_started_undo_shows_the_remaining_steps(config: Config) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    for step, left in (("opened", [STREAM]), ("table_marked", [])):
        with pytest.raises(Died):
            undo(config, "one", crash=die_at(step))
        found = expected_undo(config, "one")
        assert isinstance(found, PublicationPreview) and found.unfinished == (2,)
        assert [table.table for table in found.tables] == left and found.shows == (
            ShownWindows(100, 104, None),
        )


class Died(Exception):
    pass


def die_at(step: str) -> Callable[[str, int], None]:
    def die(reached: str, number: int) -> None:
        if reached == step:
            raise Died

    return die


def test_undo_preview_rejects_the_same_replays_as_undo(config: Config) -> None:
    stage(config, "one", 100, 104)
    with pytest.raises(InputError, match="never published"):
        expected_undo(config, "one")
    publish(config, "one")
    (file,) = Table.open(config.stream_table(STREAM)).files()
    stage(config, "fix", 104, 105, plus=3)
    publish(config, "fix")
    with pytest.raises(InputError, match="later publications overlap it") as refused:
        expected_undo(config, "one")
    assert "rewindow undo fix" in str(refused.value)
    Path(file.path).write_bytes(Path(file.path).read_bytes()[:-1])
    before = contents(config.state.local())
    with pytest.raises(TableError, match="is damaged: windows 100 to 104"):
        expected_undo(config, "fix")
    found = expected_undo(config, "fix", leave_out_damaged=True)
    assert isinstance(found, PublicationPreview) and [table.rows for table in found.tables] == [0]
    assert contents(config.state.local()) == before


def test_undo_preview_reports_a_slow_undo(config: Config) -> None:
    stage(config, "one", 100, 104)
    publish(config, "one")
    stage(config, "two", 105, 106)
    publish(config, "two")
    Table.open(config.stream_table(STREAM)).delta.alter.add_constraint({"positive": "minutes > 0"})
    _, table = expected_of_undo(config, "one")
    assert (table.way, table.rows, table.why) == (
        Way.SPARK,
        0,
        f'table "{STREAM}" has a constraint',
    )


def test_previews_read_the_log_of_each_table_version_once(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(config, "one", 100, 103)
    publish(config, "one")
    stage(config, "two", 100, 103, plus=1)
    read: list[tuple[str, int | None]] = []

    class Counted(DeltaTable):
        def __init__(self, uri: str, version: int | None = None) -> None:
            read.append((uri, version))
            super().__init__(uri, version=version)

    monkeypatch.setattr(snapshots, "DeltaTable", Counted)
    for preview in (expected_publication, expected_undo):
        read.clear()
        preview(config, "two" if preview is expected_publication else "one")
        assert read and len(read) == len(set(read))
