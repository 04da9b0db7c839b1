"""The first rows of a state in files, with what has changed since its base."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.errors import InputError
from rewindow.location import Location, location
from rewindow.state.files import DELETED, StateFile, StateFiles, read_rows, write_rows
from rewindow.state.preview import first_rows

COLUMNS = pa.schema([("user", pa.string()), ("seen", pa.int64()), ("marks", pa.list_(pa.int64()))])


def rows_of(users: dict[str, int]) -> pa.Table:
    rows = [{"user": user, "seen": seen, "marks": [seen]} for user, seen in users.items()]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def changed(state: StateFiles, users: dict[str, int | None]) -> StateFiles:
    """Writes one step more, in two files: what users have now, None for one that is gone."""
    step = state.steps + 1
    files = []
    for half in (0, 1):
        rows = rows_of({user: seen or 0 for user, seen in users.items()})
        rows = rows.append_column(
            DELETED,
            pa.array([seen is None for seen in users.values()], pa.bool_()),
        )
        rows = rows.filter(
            pa.array([number % 2 == half for number in range(rows.num_rows)], pa.bool_())
        )
        path = f"step-{step}-{half}.parquet"
        pq.write_table(rows, (state.folder / path).uri)
        files.append(StateFile(path, half, rows.num_rows, 0, "0", step))
    return replace(state, files=(*state.files, *files))


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return location(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_preview_shows_rows_of_later_changes_instead_of_earlier_ones(
    folder: Location, seed: int
) -> None:
    chosen = random.Random(seed)
    now = {f"u{number}": number for number in range(chosen.randint(0, 30))}
    state = write_rows(rows_of(now), folder, "base", ("user",), 4)
    for _ in range(chosen.randint(0, 4)):
        changes = {
            f"u{chosen.randint(0, 40)}": chosen.choice([None, chosen.randint(0, 9)])
            for _ in range(chosen.randint(0, 20))
        }
        state = changed(state, changes)
        now = {user: seen for user, seen in (now | changes).items() if seen is not None}
    found = first_rows(state, 1000, {})
    assert {row["user"]: row["seen"] for row in found.to_pylist()} == now
    assert found.num_rows == len(now) == read_rows(state).num_rows
    assert first_rows(state, 3, {}).num_rows == min(3, len(now))
    assert [row["seen"] for row in first_rows(state, 3, {"user": "u5"}).to_pylist()] == [
        seen for user, seen in now.items() if user == "u5"
    ]


def test_preview_of_a_state_in_memory_is_also_truncated_and_filtered() -> None:
    state = rows_of({"ann": 1, "bob": 2, "eve": 2})
    assert first_rows(state, 2, {})["user"].to_pylist() == ["ann", "bob"]
    assert first_rows(state, 9, {"seen": "2"})["user"].to_pylist() == ["bob", "eve"]


def test_unsupported_filter_columns_are_reported() -> None:
    state = rows_of({"ann": 1})
    with pytest.raises(InputError, match='the state has no column "usr"') as error:
        first_rows(state, 9, {"usr": "ann"})
    assert error.value.hint == "It has: user, seen, marks."
    with pytest.raises(InputError, match='column "marks" of the state is list'):
        first_rows(state, 9, {"marks": "1"})
