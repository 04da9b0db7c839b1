"""Seals and data files: every change of a seal is seen, an end is no window, files are noted
once.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewindow.errors import TableError
from rewindow.facts.seals import (
    check_seals,
    columns_text,
    end_row,
    read_seals,
    seal_rows,
    sealed_range,
    sealed_windows,
    stream_end,
)
from rewindow.location import Location, location
from rewindow.storage import Table
from rewindow.storage.files import file_checksum, note_files, noted_files, open_files
from rewindow.storage.streams import WINDOWS_SCHEMA, create_stream
from rewindow.windows import WindowRange

TUPLES = pa.schema([("window_id", pa.int64()), ("offset", pa.int64()), ("key", pa.string())])


@pytest.fixture
def data(tmp_path: Location) -> Table:
    """A stream with three sealed windows, the second one empty."""
    path = tmp_path / "s"
    create_stream(path, TUPLES, {"width_ms": 1000, "origin_ms": 0})
    table = Table.open(path)
    table.commit_arrow(
        pa.table([[7, 7, 9], [0, 1, 0], ["a", "b", "c"]], schema=TUPLES),
        app_id="r",
        version=1,
    )
    found = {
        "window_id": [7, 8, 9],
        "tuples": [2, 0, 1],
        "digest": ["x", "y", "z"],
        "float_digest": [None, "", "f"],
    }
    rows = seal_rows(pa.table(found), table, columns_text(TUPLES))
    Table.open(path.with_name("s.windows")).commit_arrow(rows, app_id="r", version=1)
    return table


@pytest.fixture
def windows(data: Table) -> Table:
    return Table.open(data.path.with_name("s.windows"))


@pytest.mark.parametrize("name", [name for name in WINDOWS_SCHEMA.names if name != "window_id"])
def test_checksum_detects_a_change_of_any_column_of_a_seal(
    windows: Table,
    data: Table,
    name: str,
) -> None:
    rows = read_seals(windows, table_id=data.id)
    column = rows[name]
    if pa.types.is_string(column.type):
        other = pc.if_else(
            pc.equal(pc.fill_null(column, "?"), ""),
            pa.scalar(None, pa.string()),
            pa.scalar("", pa.string()),
        )
    elif pa.types.is_timestamp(column.type):
        other = pa.array([1, 2, 3], column.type)
    else:
        other = pc.add(pc.fill_null(column, 0), 1)
    changed = rows.set_column(rows.column_names.index(name), WINDOWS_SCHEMA.field(name), other)
    for row in range(rows.num_rows):
        with pytest.raises(TableError, match="is damaged"):
            check_seals(changed.slice(row, 1), windows)


def test_seal_with_swapped_values_is_reported_as_damaged(windows: Table) -> None:
    rows = read_seals(windows)
    names = {"digest": "float_digest", "float_digest": "digest"}
    swapped = rows.rename_columns([names.get(name, name) for name in rows.column_names]).select(
        rows.column_names
    )
    with pytest.raises(TableError, match="3 of 3|is damaged"):
        check_seals(swapped, windows)


def test_end_of_stream_row_is_not_read_as_a_window(windows: Table, data: Table) -> None:
    # Rules: X21
    assert stream_end(windows) is None
    before = read_seals(windows)
    windows.commit_arrow(end_row(data, 9), app_id="r", version=2)
    assert stream_end(windows) == 9
    assert sealed_range(windows) == WindowRange(7, 9)
    assert read_seals(windows).equals(before)


def test_seals_are_read_only_for_the_given_range_and_table_id(windows: Table, data: Table) -> None:
    assert read_seals(windows, WindowRange(8, 20), table_id=data.id)["tuples"].to_pylist() == [0, 1]
    with pytest.raises(TableError, match="belong to a table that was replaced"):
        read_seals(windows, table_id="another")


def test_files_are_recorded_once_with_size_and_checksum(data: Table) -> None:
    files = open_files(data.path)
    assert (note_files(data, files), note_files(data, files)) == (1, 0)
    data.commit_arrow(pa.table([[9], [1], ["d"]], schema=TUPLES), app_id="r", version=2)
    assert note_files(data, files) == 1
    assert noted_files(files) == {
        location(file.path).relative_to(data.path): (file.size, file_checksum(location(file.path)))
        for file in data.files()
    }


def test_sealed_windows_equal_the_seals_for_any_part_size(
    windows: Table,
    data: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = seal_rows(
        pa.table({"window_id": [3, 5], "tuples": [4, 4], "digest": ["u", "v"]}),
        data,
        "{}",
    )
    windows.commit_arrow(earlier, app_id="r", version=2)
    seals = Table.open(windows.path)
    for size in (1, 2, 100_000):
        monkeypatch.setattr("rewindow.facts.seals._PART", size)
        ids, tuples = sealed_windows(seals, WindowRange(4, 8), table_id=data.id)
        assert (ids.tolist(), tuples) == ([5, 7, 8], 6)
        with pytest.raises(TableError, match="belong to a table that was replaced"):
            sealed_windows(seals, WindowRange(4, 8), table_id="another")
    assert sealed_windows(seals, WindowRange(20, 30))[0].tolist() == []
    damaged = (
        read_seals(seals)
        .slice(0, 1)
        .set_column(1, WINDOWS_SCHEMA.field("tuples"), pa.array([9], pa.int64()))
    )
    assert damaged.schema.names[1] == "tuples"
    seals.commit_arrow(damaged, app_id="r", version=3)
    with pytest.raises(TableError, match="seal of window 3 .* is damaged"):
        sealed_windows(Table.open(windows.path), WindowRange(0, 9))
