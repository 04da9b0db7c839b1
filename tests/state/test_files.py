"""Files of states: what is noted of them, and which of them an attempt deletes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.errors import CheckpointError
from rewindow.state.files import RetainedFiles, StateFiles, leaves_in, write_rows, write_state

ROWS = pa.table({"k": ["a", "b", None, "d"], "n": [1, 2, 3, 4]})


def written(folder: Path, place: str) -> StateFiles:
    return write_rows(ROWS, folder, f"{place}/op/state", ("k",), 2)


def test_state_above_the_size_limit_is_written_to_files(tmp_path: Path) -> None:
    assert write_state(ROWS, ROWS.nbytes, tmp_path, "0-0/op/state", (), 2) is ROWS
    assert isinstance(
        write_state(ROWS, ROWS.nbytes - 1, tmp_path, "0-0/op/state", (), 2),
        StateFiles,
    )
    assert isinstance(write_state(ROWS.slice(0, 0), 0, tmp_path, "0-0/op/state", (), 2), pa.Table)


def put_other_rows(path: Path, state: StateFiles) -> None:
    """Puts a good file of the same size in the place of a bucket."""
    other = write_rows(ROWS.set_column(1, "n", [[9, 8, 7, 6]]), path.parent, "x", ("k",), 2)
    path.write_bytes((path.parent / other.files[0].path).read_bytes())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path, state: path.unlink(), "is missing"),
        (lambda path, state: path.write_bytes(path.read_bytes() + b"x"), "bytes, not"),
        (put_other_rows, "its digest differs"),
    ],
)
def test_state_bucket_that_differs_from_its_record_is_reported(
    damage: Callable[[Path, StateFiles], None],
    words: str,
    tmp_path: Path,
) -> None:
    state = written(tmp_path, "1-5")
    state.check()
    damage(state.all_paths()[0], state)
    with pytest.raises(
        CheckpointError,
        match=f'bucket {state.files[0].bucket} of the state in "1-5/op/state.*{words}',
    ):
        state.check()


def test_state_file_links_are_created_once_and_survive_their_source(tmp_path: Path) -> None:
    state = written(tmp_path / "a", "1-5")
    for _ in range(2):
        copied = state.copied_to(tmp_path / "b", "start")
    for path in state.all_paths():
        path.unlink()
    copied.check()
    assert state.copied_to(tmp_path / "b", "start") == copied and copied.digest == state.digest
    with pytest.raises(CheckpointError, match="of a state is missing"):
        state.copied_to(tmp_path / "b", "elsewhere")


def test_attempt_deletes_only_unreferenced_files_of_older_attempts(tmp_path: Path) -> None:
    for place in ("1-5", "1-9", "2-12", "3-12", "start/7/1-5"):
        written(tmp_path, place)
    RetainedFiles(tmp_path, 2).clear({"1-5/op/state"})
    assert list(leaves_in(tmp_path)) == [
        "1-5/op/state",
        "2-12/op/state",
        "3-12/op/state",
        "start/7/1-5/op/state",
    ]


def test_state_files_are_deleted_after_the_next_state_unless_referenced(tmp_path: Path) -> None:
    kept = RetainedFiles(tmp_path, 1)
    first, second, third = (written(tmp_path, place) for place in ("1-1", "1-2", "1-3"))
    grown = replace(third, files=(*second.files, *third.files))
    kept.went_on({"op": first}, {"op": second}, saved=False)
    kept.went_on({"op": second}, {"op": grown}, saved=False)
    assert list(leaves_in(tmp_path)) == ["1-2/op/state", "1-3/op/state"]
    kept.went_on({"op": grown}, {"op": second}, saved=True)
    kept.went_on({"op": second}, {"op": ROWS}, saved=False)
    assert list(leaves_in(tmp_path)) == ["1-2/op/state"]
