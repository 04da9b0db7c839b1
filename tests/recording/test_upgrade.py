"""`rewindow streams upgrade`: damaged seals are made again, files noted, and windows that do not
match named.
"""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import Field, write_deltalake

from rewindow.errors import InputError, TableError
from rewindow.facts.seals import read_seals
from rewindow.recording.upgrade import upgradable, upgrade_stream
from rewindow.settings.config import Config
from rewindow.storage import Table, create_table, query
from rewindow.storage.files import noted_files, open_files
from rewindow.storage.formats import PROPERTY, TableKind, format_property
from rewindow.storage.streams import WINDOWS_SCHEMA
from rewindow.windows import WindowRange
from tests.recording.conftest import Bench

FLOATS: dict[str, Any] = {"columns": "k STRING, at TIMESTAMP, x DOUBLE", "end": True}


@pytest.fixture
def recorded(bench: Bench, at: Any) -> Config:
    """A stream with floats and five windows, of which three are empty."""
    (bench.root / "s.csv").write_text(
        f"k,at,x\na,{at(1)},1.5\nb,{at(2)},2.5\n,{at(3)},\nc,1970-01-01T02:47:05Z,4.5\n"
    )
    bench.record(**FLOATS)
    return bench.config(**{name: value for name, value in FLOATS.items() if name != "end"})


@pytest.fixture
def damaged(recorded: Config) -> Config:
    """The same stream; no seal has the checksum of its other columns, and the table of data files
    is gone.
    """
    windows = Table.open(recorded.windows_table("s"))
    rows = query("select * from w", w=windows).select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)
    of_a_window = pc.is_valid(rows["window_id"])
    checksums = pc.if_else(of_a_window, pc.add(rows["checksum"], 1), rows["checksum"])
    place = WINDOWS_SCHEMA.get_field_index("checksum")
    write_deltalake(windows.delta, rows.set_column(place, "checksum", checksums), mode="overwrite")
    shutil.rmtree(recorded.files_table("s"))
    return recorded


def test_damaged_seals_are_rejected_until_they_are_repaired(bench: Bench, damaged: Config) -> None:
    with pytest.raises(TableError, match=r"5 of 5 seals|seal of window") as raised:
        read_seals(Table.open(damaged.windows_table("s")))
    assert "rewindow streams upgrade s" in raised.value.hint
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.resealed, result.files, result.differing) == (5, 2, [])
    assert result.lines() == ["s: 5 seals repaired, 2 data files registered"]
    again = bench.record(**FLOATS)
    assert (again.recorded, again.late) == (0, 0)


def test_repaired_stream_is_complete_and_a_second_repair_changes_nothing(
    bench: Bench,
    damaged: Config,
) -> None:
    before = Table.open(damaged.windows_table("s"))
    upgrade_stream(bench.spark, damaged, "s")
    data = Table.open(damaged.stream_table("s"))
    windows = Table.open(damaged.windows_table("s"))
    seals = read_seals(windows, table_id=data.id)
    assert seals["tuples"].to_pylist() == [3, 0, 1, 0, 0] and set(
        seals["generation"].to_pylist()
    ) == {1}
    assert (windows.txn("record/s"), windows.properties) == (
        before.txn("record/s"),
        before.properties,
    )
    assert len(noted_files(open_files(data.path))) == len(data.files())
    assert Table.open(windows.path, before.version).schema == before.schema
    again = upgrade_stream(bench.spark, damaged, "s")
    assert again.already and again.lines() == ["s: nothing to repair"]


def test_window_that_does_not_match_its_digest_is_rejected_by_the_repair(
    bench: Bench,
    damaged: Config,
) -> None:
    data = Table.open(damaged.stream_table("s"))
    rows = query("select * from t", t=data).to_pylist()
    changed = [{**row, "x": 9.5} if row["k"] == "c" else row for row in rows]
    shutil.rmtree(data.path)
    create_table(data.path, data.schema, format_property(TableKind.STREAM)).commit_arrow(
        pa.Table.from_pylist(changed, data.schema),
        app_id="record/s",
        version=1,
    )
    for _ in range(2):
        result = upgrade_stream(bench.spark, damaged, "s")
        assert result.differing == [(1002, 1002)]
        assert "[1002, 1002]" in " ".join(result.lines())
        once = query(
            "select count(window_id) as n, count(distinct window_id) as w, max(end_window) as e "
            "from w",
            w=damaged.windows_table("s"),
        )
        assert once.to_pylist() == [{"n": 5, "w": 5, "e": 1004}], (
            "a window has one seal, whether it matches or not"
        )
    windows = Table.open(damaged.windows_table("s"))
    assert read_seals(windows, WindowRange(1000, 1001))["tuples"].to_pylist() == [3, 0]
    with pytest.raises(TableError, match="seal of window 1002"):
        read_seals(windows)


@pytest.mark.parametrize("table", ["s", "s.windows"])
@pytest.mark.parametrize(("number", "words"), [("1", "an older"), ("99", "an unknown, newer")])
def test_stream_of_an_older_or_newer_format_is_rejected_by_name_and_unchanged(
    bench: Bench,
    damaged: Config,
    table: str,
    number: str,
    words: str,
) -> None:
    path = damaged.stream_table(table)
    Table.open(path).set_properties({PROPERTY: number})
    before = Table.open(path).version
    with pytest.raises(TableError, match=f'table "{table}" has format {number}') as raised:
        upgrade_stream(bench.spark, damaged, "s")
    assert f"written by {words} version" in raised.value.detail
    assert (Table.open(path).version, Table.open(path).properties[PROPERTY]) == (before, number)


def test_files_of_another_program_are_recorded_after_verification(
    bench: Bench,
    damaged: Config,
) -> None:
    upgrade_stream(bench.spark, damaged, "s")
    data = Table.open(damaged.stream_table("s"))
    rows = query("select * from t", t=data)
    data.delta.delete()
    data.refresh().append(rows)
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.already, result.resealed, result.files, result.differing) == (False, 0, 1, [])


def test_windows_are_compared_using_the_columns_that_were_sealed(
    bench: Bench, damaged: Config
) -> None:
    upgrade_stream(bench.spark, damaged, "s")
    data = Table.open(damaged.stream_table("s"))
    before = read_seals(Table.open(damaged.windows_table("s")))
    data.delta.alter.add_columns([Field("later", "string")])
    shutil.rmtree(damaged.files_table("s"))
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.resealed, result.files, result.differing) == (0, 2, [])
    assert read_seals(Table.open(damaged.windows_table("s"))).equals(before)


def test_repair_accepts_streams_and_applications_and_rejects_an_unknown_name(
    damaged: Config,
) -> None:
    for name in ("app.a", "app.b"):
        create_table(damaged.windows_table(name), WINDOWS_SCHEMA)
    assert upgradable(damaged, []) == ["app.a", "app.b", "s"]
    assert upgradable(damaged, ["app", "s"]) == ["app.a", "app.b", "s"]
    assert upgradable(damaged, ["app.b"]) == ["app.b"]
    with pytest.raises(InputError, match='"other" does not exist'):
        upgradable(damaged, ["other"])
