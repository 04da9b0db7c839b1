"""`rewindow streams upgrade`: damaged seals are made again, files noted, and windows that do not match named."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import Field, write_deltalake

from rewindow.config import Config
from rewindow.errors import InputError, TableError
from rewindow.facts.seals import read_seals
from rewindow.recording.upgrade import upgradable, upgrade_stream
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
    (bench.root / "s.csv").write_text(f"k,at,x\na,{at(1)},1.5\nb,{at(2)},2.5\n,{at(3)},\nc,1970-01-01T02:47:05Z,4.5\n")
    bench.record(**FLOATS)
    return bench.config(**{name: value for name, value in FLOATS.items() if name != "end"})


@pytest.fixture
def damaged(recorded: Config) -> Config:
    """The same stream; no seal has the checksum of its other columns, and the table of data files is gone."""
    windows = Table.open(recorded.windows_table("s"))
    rows = query("select * from w", w=windows).select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)
    of_a_window = pc.is_valid(rows["window_id"])
    checksums = pc.if_else(of_a_window, pc.add(rows["checksum"], 1), rows["checksum"])
    place = WINDOWS_SCHEMA.get_field_index("checksum")
    write_deltalake(windows.delta, rows.set_column(place, "checksum", checksums), mode="overwrite")
    shutil.rmtree(recorded.files_table("s"))
    return recorded


def test_damaged_seals_are_made_again_and_the_stream_can_be_used(bench: Bench, damaged: Config) -> None:
    """Until then they are refused; afterwards recording resumes, and finds nothing new."""
    with pytest.raises(TableError, match=r"5 of 5 seals|seal of window") as raised:
        read_seals(Table.open(damaged.windows_table("s")))
    assert "rewindow streams upgrade s" in raised.value.hint
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.resealed, result.files, result.differing) == (5, 2, [])
    assert result.lines() == ["s: 5 seals repaired, 2 data files noted"]
    again = bench.record(**FLOATS)
    assert (again.recorded, again.late) == (0, 0)


def test_a_repaired_stream_is_whole_and_a_repair_can_be_repeated(bench: Bench, damaged: Config) -> None:
    """Seals are whole, files are noted, the versions from before stay; a second run does nothing."""
    before = Table.open(damaged.windows_table("s"))
    upgrade_stream(bench.spark, damaged, "s")
    data, windows = Table.open(damaged.stream_table("s")), Table.open(damaged.windows_table("s"))
    seals = read_seals(windows, table_id=data.id)
    assert seals["tuples"].to_pylist() == [3, 0, 1, 0, 0] and set(seals["generation"].to_pylist()) == {1}
    assert (windows.txn("record/s"), windows.properties) == (before.txn("record/s"), before.properties)
    assert len(noted_files(open_files(data.path))) == len(data.files())
    assert Table.open(windows.path, before.version).schema == before.schema
    again = upgrade_stream(bench.spark, damaged, "s")
    assert again.already and again.lines() == ["s: nothing to repair"]


def test_a_window_that_does_not_match_is_named_and_refused(bench: Bench, damaged: Config) -> None:
    """One flipped float of the recording is found by its digest; other windows can be used, and no run hides it."""
    data = Table.open(damaged.stream_table("s"))
    rows = query("select * from t", t=data).to_pylist()
    changed = [{**row, "x": 9.5} if row["k"] == "c" else row for row in rows]
    shutil.rmtree(data.path)
    create_table(data.path, data.schema, format_property(TableKind.STREAM)).commit_arrow(
        pa.Table.from_pylist(changed, data.schema), app_id="record/s", version=1
    )
    for _ in range(2):
        result = upgrade_stream(bench.spark, damaged, "s")
        assert result.differing == [(1002, 1002)]
        assert "[1002, 1002]" in " ".join(result.lines())
        once = query(
            "select count(window_id) as n, count(distinct window_id) as w, max(end_window) as e from w",
            w=damaged.windows_table("s"),
        )
        assert once.to_pylist() == [{"n": 5, "w": 5, "e": 1004}], "a window has one seal, whether it matches or not"
    windows = Table.open(damaged.windows_table("s"))
    assert read_seals(windows, WindowRange(1000, 1001))["tuples"].to_pylist() == [3, 0]
    with pytest.raises(TableError, match="seal of window 1002"):
        read_seals(windows)


@pytest.mark.parametrize("table", ["s", "s.windows"])
@pytest.mark.parametrize(("number", "words"), [("1", "an older"), ("99", "an unknown, newer")])
def test_a_stream_of_another_format_is_refused_and_not_touched(
    bench: Bench, damaged: Config, table: str, number: str, words: str
) -> None:
    """A repair does not convert a table: an older format and a newer one are both refused by name."""
    path = damaged.stream_table(table)
    Table.open(path).set_properties({PROPERTY: number})
    before = Table.open(path).version
    with pytest.raises(TableError, match=f'table "{table}" has format {number}') as raised:
        upgrade_stream(bench.spark, damaged, "s")
    assert f"written by {words} version" in raised.value.detail
    assert (Table.open(path).version, Table.open(path).properties[PROPERTY]) == (before, number)


def test_files_that_another_program_wrote_are_noted_once_they_match(bench: Bench, damaged: Config) -> None:
    """After a compaction the files have no row; the upgrade reads all windows, then notes them."""
    upgrade_stream(bench.spark, damaged, "s")
    data = Table.open(damaged.stream_table("s"))
    rows = query("select * from t", t=data)
    data.delta.delete()
    data.refresh().append(rows)
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.already, result.resealed, result.files, result.differing) == (False, 0, 1, [])


def test_windows_are_compared_over_the_columns_that_they_were_sealed_with(bench: Bench, damaged: Config) -> None:
    """A column that came later changes no older window; a seal keeps the columns that it names."""
    upgrade_stream(bench.spark, damaged, "s")
    data = Table.open(damaged.stream_table("s"))
    before = read_seals(Table.open(damaged.windows_table("s")))
    data.delta.alter.add_columns([Field("later", "string")])
    shutil.rmtree(damaged.files_table("s"))
    result = upgrade_stream(bench.spark, damaged, "s")
    assert (result.resealed, result.files, result.differing) == (0, 2, [])
    assert read_seals(Table.open(damaged.windows_table("s"))).equals(before)


def test_streams_to_repair_are_chosen_by_stream_or_application(damaged: Config) -> None:
    """Names are those of streams, or of applications for all their outputs; an unknown one is refused."""
    for name in ("app.a", "app.b"):
        create_table(damaged.windows_table(name), WINDOWS_SCHEMA)
    assert upgradable(damaged, []) == ["app.a", "app.b", "s"]
    assert upgradable(damaged, ["app", "s"]) == ["app.a", "app.b", "s"]
    assert upgradable(damaged, ["app.b"]) == ["app.b"]
    with pytest.raises(InputError, match='"other" is not there'):
        upgradable(damaged, ["other"])
