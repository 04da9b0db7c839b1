"""Publication by links: which staged files become part of a published table as they are, and which
rows are written.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.application import Mode
from rewindow.certificate import certify
from rewindow.errors import TableError
from rewindow.ledger import Ledger
from rewindow.publication import by_files
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.retention.purge import purge
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.checksums import noted_checksums
from rewindow.storage.damage import find_damage
from rewindow.storage.delta import DataFile
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import WindowRange
from tests.publication.staging import StagedReplay, rows_of, simple, state_of

STREAM = "app.ranks"


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> StagedReplay:
    return simple(config, replay_id, first, last, plus, publishable=True, outputs=("ranks",))


def published(config: Config) -> list[DataFile]:
    return Table.open(config.stream_table(STREAM)).files()


def staged(replay: StagedReplay) -> list[DataFile]:
    return sorted(
        Table.open(replay.root / "ranks").files(),
        key=lambda file: (file.first or 0, file.path),
    )


def minutes(config: Config) -> dict[int, int]:
    """Returns window to the sum of its minutes."""
    found = query(
        "select window_id as w, sum(minutes) as m from t group by 1",
        t=config.stream_table(STREAM),
    )
    return dict(sorted(zip(found["w"].to_pylist(), found["m"].to_pylist(), strict=True)))


def expected(first: int, last: int, plus: int = 0) -> dict[int, int]:
    return {w: 20 * w + 1 + 2 * plus for w in range(first, last + 1)}


def is_linked(file: DataFile, sources: list[DataFile]) -> bool:
    """Returns whether a file is one of others under another name."""
    return any(os.path.samefile(file.path, source.path) for source in sources)


def test_replay_is_published_by_hard_links(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    replay = stage(config, "one", 100, 104)
    caplog.clear()
    publish(config, "one")
    (file,) = published(config)
    assert (
        is_linked(file, staged(replay))
        and f"{STREAM}: 1 files linked, 0 rows written" in caplog.messages
    )
    rows = query('select * from t order by window_id, "offset"', t=config.stream_table(STREAM))
    assert rows.column_names == ["window_id", "offset", "arrived_at", "carrier", "minutes", "share"]
    assert (
        len(set(zip(rows["window_id"].to_pylist(), rows["offset"].to_pylist(), strict=True))) == 10
    )
    assert minutes(config) == expected(100, 104)
    assert certify(config, "one", "published").verdict == "equal"
    assert (
        Path(file.path).stat().st_mtime_ns // 1_000_000
        == file.changed_ms
        == staged(replay)[0].changed_ms
    )


def test_files_of_a_superseded_attempt_are_not_published(config: Config) -> None:
    replay = StagedReplay(config, "twice", 100, 109, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    replay.group(105, 107, rows_of(range(105, 108), 7), 1)
    replay.write("ranks", 108, 108, rows_of([108])["ranks"], 1)
    replay.group(105, 109, rows_of(range(105, 110)), 2, state=state_of(2))
    replay.digest().end(epoch=2)
    publish(config, "twice")
    assert sorted((file.first, file.last) for file in published(config)) == [(100, 104), (105, 109)]
    assert all(is_linked(file, staged(replay)) for file in published(config))
    assert minutes(config) == expected(100, 109)


def test_file_with_only_some_published_rows_is_rewritten(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    # Of the file of windows 100 to 109, a later attempt sealed the last five.
    replay = StagedReplay(config, "twice", 100, 109, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), 1, state=state_of(1))
    replay.group(105, 109, rows_of(range(105, 110), 7), 2, state=state_of(2))
    replay.digest().end(epoch=2)
    caplog.clear()
    publish(config, "twice")
    assert f"{STREAM}: 1 files linked, 10 rows written" in caplog.messages
    assert minutes(config) == expected(100, 104) | expected(105, 109, 7)
    assert certify(config, "twice", "published").verdict == "equal"


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a file anew with other rows, of the same size where that is asked for."""
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [cut, Path.unlink, lambda file: rewrite(file, lambda rows: rows.slice(1))],
)
def test_changed_staged_file_is_reported_before_the_publication_starts(
    damage: Callable[[Path], None],
    config: Config,
) -> None:
    (file,) = staged(stage(config, "one", 100, 104))
    damage(Path(file.path))
    with pytest.raises(TableError, match=r"windows 100 to 104 cannot be (published|read)"):
        publish(config, "one")
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.newest() == [] and not Table.exists(config.stream_table(STREAM))


def flip(file: Path) -> None:
    """Changes a byte in place and keeps the file's time."""
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_changed_byte_in_a_file_is_detected_by_checksum(config: Config) -> None:
    replay = stage(config, "one", 100, 104)
    (file,) = staged(replay)
    flip(Path(file.path))
    with pytest.raises(TableError, match="windows 100 to 104 cannot be published") as refused:
        publish(config, "one")
    assert "its bytes do not match the checksum" in str(refused.value)
    assert Ledger.open(config.ledger_url).publications.newest() == []
    flip(Path(file.path))
    publish(config, "one")
    assert minutes(config) == expected(100, 104)


def test_all_damaged_files_are_reported(config: Config) -> None:
    replay = StagedReplay(config, "one", 100, 109, outputs=("ranks",))
    for first in (100, 105):
        replay.group(first, first + 4, rows_of(range(first, first + 5)), state=state_of(first))
    replay.digest().end()
    for file in staged(replay):
        flip(Path(file.path))
    with pytest.raises(TableError, match="windows 100 to 104") as refused:
        publish(config, "one")
    assert "The same is true for 1 other files, of windows 105 to 109" in str(refused.value)


def test_published_files_have_the_checksums_of_their_staged_files(config: Config) -> None:
    replay = stage(config, "one", 100, 104)
    (noted,) = noted_checksums(Table.open(replay.root / "ranks")).values()

    def damage(step: str, number: int) -> None:
        if step == "prepared":
            flip(Path(staged(replay)[0].path))

    publish(config, "one", crash=damage)
    table = Table.open(config.stream_table(STREAM))
    assert list(noted_checksums(table).values()) == [noted]
    (found,) = find_damage(table, STREAM, WindowRange(100, 104))
    assert found.why.startswith("Its bytes do not match the checksum")
    with pytest.raises(TableError, match="is damaged: windows 100 to 104"):
        undo(config, "one")


def test_files_without_checksums_are_reported_and_verified_against_their_seals(
    config: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replay = simple(config, "one", 100, 104, publishable=True, outputs=("ranks",), noted=False)
    (file,) = staged(replay)
    flip(Path(file.path))
    with pytest.raises(TableError, match="differs from its seal|cannot be read"):
        publish(config, "one")
    flip(Path(file.path))
    caplog.clear()
    publish(config, "one")
    assert [line for line in caplog.messages if "checksum" in line] == [
        "one/ranks: 1 files have no recorded checksum, for example because the log of their "
        "table was cleaned, so their rows are read and compared with the seals"
    ]
    assert minutes(config) == expected(100, 104)


def test_checksums_survive_log_cleanup(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    replay = stage(config, "one", 100, 104)
    for name in ("ranks", FACTS, CHECKPOINTS):
        table = Table.open(replay.root / name)
        long_ago = time.time() - 60 * 86_400
        logs = sorted((replay.root / name / "_delta_log").local().glob("*.json"))
        for log in logs:
            os.utime(log, (long_ago, long_ago))
        table.delta.create_checkpoint()
        table.delta.cleanup_metadata()
        assert all(log.exists() for log in logs), name
    (file,) = staged(replay)
    assert list(noted_checksums(Table.open(replay.root / "ranks"))) == [
        Path(file.path).relative_to(replay.root / "ranks").as_posix()
    ]
    caplog.clear()
    publish(config, "one")
    assert not [line for line in caplog.messages if "checksum" in line]


@pytest.mark.parametrize("noted", [True, False])
def test_file_with_a_changed_timestamp_is_verified_by_checksum_or_seals(
    noted: bool,
    config: Config,
) -> None:
    for name, first in (("one", 100), ("two", 110)):
        replay = simple(
            config,
            name,
            first,
            first + 4,
            publishable=True,
            outputs=("ranks",),
            noted=noted,
        )
        (file,) = staged(replay)
        os.utime(file.path, (10_000, 10_000))
    publish(config, "one")
    assert minutes(config) == expected(100, 104)
    flip(Path(file.path))
    with pytest.raises(
        TableError, match="differs from its seal|cannot be read|do not match the checksum"
    ):
        publish(config, "two")
    assert minutes(config) == expected(100, 104)


def test_published_link_is_kept_after_purging_its_replay_and_every_vacuum(config: Config) -> None:
    replay = stage(config, "one", 100, 104)
    keep_all = {
        "retention_hours": 0,
        "dry_run": False,
        "enforce_retention_duration": False,
        "full": True,
    }
    Table.open(replay.root / "ranks").delta.vacuum(**keep_all)  # type: ignore[arg-type]
    publish(config, "one")
    Table.open(replay.root / "ranks").delta.vacuum(**keep_all)  # type: ignore[arg-type]
    shutil.rmtree(replay.root)
    Table.open(config.stream_table(STREAM)).delta.vacuum(**keep_all)  # type: ignore[arg-type]
    assert minutes(config) == expected(100, 104)
    stage(config, "fix", 103, 106, plus=3)
    publish(config, "fix")
    Table.open(config.stream_table(STREAM)).delta.vacuum(**keep_all)  # type: ignore[arg-type]
    shown = expected(100, 102) | expected(103, 106, 3)
    assert minutes(config) == shown
    with pytest.raises(TableError, match="no longer exists, so it cannot be restored"):
        undo(config, "fix")
    assert (
        minutes(config) == shown and Ledger.open(config.ledger_url).publications.unfinished() == []
    )


def test_purge_removes_staged_files_and_keeps_published_rows(config: Config) -> None:
    replay = stage(config, "one", 100, 104)
    publish(config, "one")
    deleted = purge(config, timedelta(0), delete=True).deleted
    assert {entry.replay_id for entry in deleted} == {"one"} and not (
        replay.root / "ranks"
    ).exists()
    assert minutes(config) == expected(100, 104)
    assert find_damage(Table.open(config.stream_table(STREAM)), STREAM, WindowRange(100, 104)) == []
    stage(config, "fix", 100, 104, plus=5)
    publish(config, "fix")
    undo(config, "fix")
    assert minutes(config) == expected(100, 104)


class Died(Exception):
    pass


def test_link_removed_before_the_publication_is_closed_is_restored(config: Config) -> None:
    replay = stage(config, "one", 100, 104)

    def take(step: str, number: int) -> None:
        if (step, number) == ("table_committed", 1):
            Path(published(config)[0].path).unlink()
            Ledger.open(config.ledger_url)
            raise Died

    with suppress(Died):
        publish(config, "one", crash=take)
    assert publish(config, "one").already
    (file,) = published(config)
    assert minutes(config) == expected(100, 104) and is_linked(file, staged(replay))


def test_links_of_a_publisher_killed_before_its_commit_are_reused(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = stage(config, "one", 100, 104)

    def die(change: by_files.Replacement) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(by_files.Replacement, "commit", die)
        with pytest.raises(Died):
            publish(config, "one")
    os.utime(staged(replay)[0].path)
    publish(config, "one")
    (file,) = published(config)
    assert minutes(config) == expected(100, 104)
    assert Path(staged(replay)[0].path).stat().st_mtime_ns // 1_000_000 == file.changed_ms


def test_repeated_publish_and_undo_never_rewrite_a_row(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    stage(config, "one", 100, 104)
    caplog.clear()
    publish(config, "one")
    stage(config, "fix", 100, 104, plus=5)
    for _ in range(3):
        publish(config, "fix")
        undo(config, "fix")
    assert minutes(config) == expected(100, 104)
    assert [line for line in caplog.messages if "files linked" in line] == [
        f"{STREAM}: 1 files linked, 0 rows written"
    ] * 7
    assert max(len(Path(file.path).name) for file in published(config)) < 60
