"""Publication by links: which staged files become part of a published table as they are, and which rows are written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.application import Mode
from rewindow.certificate import certify
from rewindow.config import Config
from rewindow.errors import TableError
from rewindow.ledger import Ledger
from rewindow.publication import by_files
from rewindow.publication.publish import publish
from rewindow.publication.take_back import undo
from rewindow.storage import Table, query
from rewindow.storage.delta import DataFile
from tests.publication.staging import StagedReplay, rows_of, simple, state_of

STREAM = "app.ranks"


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> StagedReplay:
    """Stages a replay of one output."""
    return simple(config, replay_id, first, last, plus, publishable=True, outputs=("ranks",))


def published(config: Config) -> list[DataFile]:
    """Returns the files of the published table."""
    return Table.open(config.stream_table(STREAM)).files()


def staged(replay: StagedReplay) -> list[DataFile]:
    """Returns the files of the staged table, by window."""
    return sorted(Table.open(replay.root / "ranks").files(), key=lambda file: (file.first or 0, file.path))


def minutes(config: Config) -> dict[int, int]:
    """Returns window to the sum of its minutes."""
    found = query("select window_id as w, sum(minutes) as m from t group by 1", t=config.stream_table(STREAM))
    return dict(sorted(zip(found["w"].to_pylist(), found["m"].to_pylist(), strict=True)))


def expected(first: int, last: int, plus: int = 0) -> dict[int, int]:
    """Returns what a staged replay publishes, as `minutes` says it."""
    return {w: 20 * w + 1 + 2 * plus for w in range(first, last + 1)}


def is_linked(file: DataFile, sources: list[DataFile]) -> bool:
    """Returns whether a file is one of others under another name."""
    return any(os.path.samefile(file.path, source.path) for source in sources)


def test_a_replay_is_published_by_links(config: Config) -> None:
    """No row is written; readers see windows, offsets and arrival, but no attempt; the certificate is equal."""
    replay = stage(config, "one", 100, 104)
    said: list[str] = []
    publish(config, "one", say=said.append)
    (file,) = published(config)
    assert is_linked(file, staged(replay)) and f"{STREAM}: 1 files linked, 0 rows written" in said
    rows = query('select * from t order by window_id, "offset"', t=config.stream_table(STREAM))
    assert rows.column_names == ["window_id", "offset", "arrived_at", "carrier", "minutes", "share"]
    assert len(set(zip(rows["window_id"].to_pylist(), rows["offset"].to_pylist(), strict=True))) == 10
    assert minutes(config) == expected(100, 104)
    assert certify(config, "one", "published").verdict == "equal"
    assert Path(file.path).stat().st_mtime_ns // 1_000_000 == file.changed_ms == staged(replay)[0].changed_ms


def test_a_superseded_attempt_stays_staged(config: Config) -> None:
    """Files of windows that a later attempt sealed, and of windows that nobody sealed, are left out whole."""
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


def test_of_a_file_that_readers_take_in_part_the_rows_are_written(config: Config) -> None:
    """A file of windows 100 to 109, of which a later attempt sealed the last five: the first five are written."""
    replay = StagedReplay(config, "twice", 100, 109, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), 1, state=state_of(1))
    replay.group(105, 109, rows_of(range(105, 110), 7), 2, state=state_of(2))
    replay.digest().end(epoch=2)
    said: list[str] = []
    publish(config, "twice", say=said.append)
    assert f"{STREAM}: 1 files linked, 10 rows written" in said
    assert minutes(config) == expected(100, 104) | expected(105, 109, 7)
    assert certify(config, "twice", "published").verdict == "equal"


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a file anew with other rows, of the same size where that is asked for."""
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)


def cut(file: Path) -> None:
    """Leaves half of a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda file: rewrite(file, lambda rows: rows.slice(1))])
def test_a_staged_file_that_is_not_as_it_was_written_is_named(damage: Callable[[Path], None], config: Config) -> None:
    """Cut, gone, or with other rows: nothing is begun."""
    (file,) = staged(stage(config, "one", 100, 104))
    damage(Path(file.path))
    with pytest.raises(TableError, match=r"windows 100 to 104 cannot be (published|read)"):
        publish(config, "one")
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.newest() == [] and not Table.exists(config.stream_table(STREAM))


def test_a_file_whose_time_has_changed_is_held_against_its_seals(config: Config) -> None:
    """As in a copy of the folder: published all the same; with a byte changed in place, refused."""
    for name, first in (("one", 100), ("two", 110)):
        (file,) = staged(stage(config, name, first, first + 4))
        os.utime(file.path, (10_000, 10_000))
    publish(config, "one")
    assert minutes(config) == expected(100, 104)
    content = bytearray(Path(file.path).read_bytes())
    content[30] ^= 1
    Path(file.path).write_bytes(content)
    with pytest.raises(TableError, match="is not what was sealed|cannot be read"):
        publish(config, "two")
    assert minutes(config) == expected(100, 104)


def test_a_published_link_survives_its_replay_and_every_vacuum(config: Config) -> None:
    """The replay's folder vacuumed and deleted, the published table vacuumed without retention: all rows are there."""
    replay = stage(config, "one", 100, 104)
    keep_all = {"retention_hours": 0, "dry_run": False, "enforce_retention_duration": False, "full": True}
    Table.open(replay.root / "ranks").delta.vacuum(**keep_all)  # type: ignore[arg-type]
    publish(config, "one")
    Table.open(replay.root / "ranks").delta.vacuum(**keep_all)  # type: ignore[arg-type]
    shutil.rmtree(replay.root)
    Table.open(config.stream_table(STREAM)).delta.vacuum(**keep_all)  # type: ignore[arg-type]
    assert minutes(config) == expected(100, 104)


class Died(Exception):
    """Stands for the end of a publisher."""


def test_a_link_that_is_gone_before_the_end_is_made_again(config: Config) -> None:
    """Somebody removes it between commit and closing; whoever rolls forward restores it from the replay."""
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


def test_a_publisher_that_died_before_its_commit_leaves_links_that_the_next_one_takes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of the staged files are touched then; once it is published, they are as the log has them."""
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


def test_publish_undo_and_publish_again_never_write_a_row(config: Config) -> None:
    """Over and over: names stay short, rows stay equal."""
    stage(config, "one", 100, 104)
    stage(config, "fix", 100, 104, plus=5)
    said: list[str] = []
    publish(config, "one", say=said.append)
    for _ in range(3):
        publish(config, "fix", say=said.append)
        undo(config, "fix", say=said.append)
    assert minutes(config) == expected(100, 104)
    assert [line for line in said if "files linked" in line] == [f"{STREAM}: 1 files linked, 0 rows written"] * 7
    assert max(len(Path(file.path).name) for file in published(config)) < 60
