"""Small staged files that are joined when the last group is committed: rows, seals and readers stay
as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from rewindow.certificate import certify
from rewindow.crash import Step
from rewindow.engine import joining
from rewindow.engine.joining import FILES_MIN, join_files, runs_to_join
from rewindow.errors import FencedError
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.retention.purge import purge
from rewindow.settings.config import Config
from rewindow.storage import FencedTable, Position, Table, data_files, new_files, query
from rewindow.storage.checksums import noted_checksums, with_checksums
from rewindow.storage.delta import create_table
from rewindow.storage.fence import fence
from rewindow.storage.names import open_published
from rewindow.storage.new_files import write_file
from tests.engine.conftest import Crash
from tests.folders import FolderLocation
from tests.recovery.project import FIRST
from tests.recovery.promises import check_promise, raw

if TYPE_CHECKING:
    from rewindow.engine.attempt import Attempt

COLUMNS = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), ("key", pa.string())])
APP_ID = "r/out"
MARK = 99
LARGE = 64_000_000
FEW = 4


def staged(
    folder: Path,
    groups: list[tuple[int, list[int]]],
    keys: list[str] | None = None,
) -> FencedTable:
    """Returns a staged table, fenced by attempt 9, with a file for each group: its attempt, and its
    rows' windows.
    """
    create_table(FolderLocation(folder), COLUMNS)
    table = Table.open(str(folder))
    for number, (attempt, windows) in enumerate(groups, 1):
        named = keys or [f"{window}/{attempt}" for window in windows]
        rows = pa.table([windows, [attempt] * len(windows), named], schema=COLUMNS)
        write_file(table.path, f"{attempt}-{number}", rows)
        files = with_checksums(data_files(table.path / f"{attempt}-{number}"))
        table.commit_files(files, app_id=APP_ID, version=Position(attempt, MARK).version)
    return fence(table.path, APP_ID, 9)


def held(table: Table) -> list[dict[str, Any]]:
    return query("select * from t order by window_id, attempt, key", t=table).to_pylist()


def bounds(runs: list[list[Any]]) -> list[list[tuple[int, int]]]:
    return [[(file.first, file.last) for file in run] for run in runs]


def test_neighbouring_files_are_joined_with_statistics_and_checksum(tmp_path: Path) -> None:
    fenced = staged(tmp_path, [(1, [2 * n, 2 * n + 1]) for n in range(FILES_MIN)])
    before = held(Table.open(fenced.path))
    assert join_files(fenced, "9-99", LARGE) == FILES_MIN - 1

    table = Table.open(fenced.path)
    (file,) = table.files()
    assert (file.first, file.last, file.rows) == (0, 2 * FILES_MIN - 1, 2 * FILES_MIN)
    assert held(table) == before
    assert table.single_values("attempt") == {file.path: 1}
    name = FolderLocation(file.path).relative_to(table.path)
    assert noted_checksums(table)[name] == with_checksums([file])[0].checksum
    assert table.txn(APP_ID) == Position(9, MARK).version
    assert join_files(fenced, "9-99", LARGE) == 0


def test_rows_of_a_joined_file_are_sorted_by_the_columns_of_the_output(tmp_path: Path) -> None:
    fenced = staged(tmp_path, [(1, [FILES_MIN - n]) for n in range(FILES_MIN)])
    join_files(fenced, "9-99", LARGE, ["key"])
    table = Table.open(fenced.path)
    (file,) = table.files()
    keys = table.read(file, ["key"])["key"].to_pylist()
    assert keys == sorted(keys) and len(keys) == FILES_MIN


@pytest.mark.parametrize(("by", "opened"), [((), (1, FILES_MIN)), (("key",), (FILES_MIN, 1))])
def test_readers_skip_row_groups_of_a_joined_file(
    by: tuple[str, ...],
    opened: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(new_files, "ROW_GROUP", FILES_MIN)
    groups = [(n, [f"{key:03}" for key in range(FILES_MIN)]) for n in range(FILES_MIN)]
    fenced = staged(tmp_path, [(1, [window] * len(keys)) for window, keys in groups], groups[0][1])
    join_files(fenced, "9-99", LARGE, by)
    (file,) = Table.open(fenced.path).files()
    (fragment,) = ds.dataset(file.path).get_fragments()
    assert fragment.num_row_groups == FILES_MIN
    replay_options = (pc.field("window_id") == 3, pc.field("key") == "003")
    assert tuple(len(fragment.split_by_row_group(wish)) for wish in replay_options) == opened


def test_windows_of_several_attempts_are_not_joined(tmp_path: Path) -> None:
    # Readers read all rows of a joined file or none, so repeated windows stay separate.
    first = [(1, [n]) for n in range(FILES_MIN)]
    twice = [(1, [50, 51]), (2, [50, 51])]
    later = [(2, [100 + n]) for n in range(FILES_MIN)]
    fenced = staged(tmp_path, [*first, *twice, *later])
    table = Table.open(fenced.path)
    runs = bounds(runs_to_join(table, LARGE))
    assert runs == [
        [(n, n) for n in range(FILES_MIN)],
        [(100 + n, 100 + n) for n in range(FILES_MIN)],
    ]
    join_files(fenced, "9-99", LARGE)
    assert len(Table.open(fenced.path).files()) == 4


def test_files_of_two_attempts_are_never_joined(tmp_path: Path) -> None:
    groups = [(1, [n]) for n in range(FILES_MIN)] + [(2, [20 + n]) for n in range(FILES_MIN)]
    runs = runs_to_join(Table.open(staged(tmp_path, groups).path), LARGE)
    assert [len(run) for run in runs] == [FILES_MIN, FILES_MIN]


def test_few_or_large_files_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = staged(tmp_path, [(1, [n]) for n in range(2 * FILES_MIN)])
    table = Table.open(fenced.path)
    size = max(file.size for file in table.files())
    assert runs_to_join(table, 2 * size - 2) == []
    assert [len(run) for run in runs_to_join(table, FILES_MIN * size)] == [FILES_MIN, FILES_MIN]
    monkeypatch.setattr(joining, "ROWS_MAX", FILES_MIN + 1)
    assert [len(run) for run in runs_to_join(table, LARGE)] == [FILES_MIN + 1]
    assert runs_to_join(table, 0) == []


def test_damaged_file_is_not_joined(tmp_path: Path) -> None:
    fenced = staged(tmp_path, [(1, [n]) for n in range(FILES_MIN)])
    file = Path(Table.open(fenced.path).files()[3].path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert join_files(fenced, "9-99", LARGE) == 0


def test_superseded_attempt_does_not_join_files(tmp_path: Path) -> None:
    fenced = staged(tmp_path, [(1, [n]) for n in range(FILES_MIN)])
    before = held(Table.open(fenced.path))
    made = fenced.table.replace_files

    def overtaken(*files: Any, **how: Any) -> None:
        fence(fenced.path, APP_ID, 10)
        made(*files, **how)

    fenced.table.replace_files = overtaken  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        join_files(fenced, "9-99", LARGE)
    fenced.table.replace_files = made  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        join_files(fenced, "9-99", LARGE)
    assert held(Table.open(fenced.path)) == before
    assert len(Table.open(fenced.path).files()) == FILES_MIN


def test_concurrent_commit_is_kept_and_cancels_the_file_join(tmp_path: Path) -> None:
    fenced = staged(tmp_path, [(1, [n]) for n in range(FILES_MIN)])
    before = held(Table.open(fenced.path))
    made = fenced.table.replace_files

    def compacted(*files: Any, **how: Any) -> None:
        Table.open(fenced.path).delta.optimize.compact()
        made(*files, **how)

    fenced.table.replace_files = compacted  # type: ignore[method-assign]
    assert join_files(fenced, "9-99", LARGE) == 0
    assert held(Table.open(fenced.path)) == before
    fenced.table.replace_files = made  # type: ignore[method-assign]
    fenced.commit(MARK, [])


@pytest.mark.jvm
@pytest.mark.long
def test_replay_with_joined_files_can_be_read_certified_undone_and_purged(
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(joining, "FILES_MIN", FEW)
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options: dict[str, Any] = {
        "group_windows": 1,
        "last": FIRST + 2 * FEW - 1,
        "mode": "at_least_once",
    }
    whole = attempt("totals", "whole", **replay_options | {"group_windows": 99})
    whole.run()
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.AFTER_FACTS, 3), **replay_options).run()
    last = attempt("totals", "one", **replay_options)
    last.run()
    check_promise(config, last.plan, whole.plan)
    root = config.replay_root("one")
    for output in last.plan.outputs:
        table = Table.open(root / output.name)
        assert len(table.files()) < 2 * FEW - 3, "small files were not joined"
        assert len(table.single_values("attempt")) == len(table.files()), (
            "a file has rows of several attempts"
        )
    rows = [raw(config, last.plan, output.name) for output in last.plan.outputs]
    ledger = Ledger.open(config.ledger_url)
    for done in (whole, last):
        ledger.attempts.end(done.plan.replay_id, done.epoch, AttemptEnd.DONE)
    assert certify(config, "one", "whole").equal
    caplog.clear()
    publish(config, "one", accept="a test")
    assert [line for line in caplog.messages if "files linked, 0 rows written" in line], (
        caplog.messages
    )
    assert rows == [raw(config, last.plan, output.name) for output in last.plan.outputs]
    names = [f"totals.{output.name}" for output in last.plan.outputs]
    assert all(open_published(config, name).files() for name in names)
    undo(config, "one")
    assert not any(open_published(config, name).files() for name in names)
    purge(config, timedelta(0), delete=True)
    assert [path.name for path in root.folders()] == ["facts"]
