"""Streams of the first release: lifted without loss, and what does not match its seal is named."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import Field

from rewindow.config import Config
from rewindow.errors import InputError, TableError
from rewindow.facts.seals import read_seals
from rewindow.recording.stream import open_stream_tables
from rewindow.recording.upgrade import upgradable, upgrade_others, upgrade_stream
from rewindow.storage import Table, create_table, query
from rewindow.storage.files import noted_files, open_files
from rewindow.storage.formats import PROPERTY
from rewindow.storage.streams import QUARANTINE_SCHEMA
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.recording.conftest import Bench

FLOATS: dict[str, Any] = {"columns": "k STRING, at TIMESTAMP, x DOUBLE", "end": True}
FIRST_SEALS = pa.schema([
    ("window_id", pa.int64()), ("tuples", pa.int64()), ("digest", pa.string()), ("float_digest", pa.string()),
    ("sealed_at", pa.timestamp("us", tz="UTC")), ("data_version", pa.int64()),
])  # fmt: skip
SALTS = (0x526577696E646F77, 0x776F646E69776552)


@pytest.fixture
def aged(bench: Bench, at: Any) -> Config:
    """A stream with floats, five windows of which three are empty, as the first release would have recorded it."""
    (bench.root / "s.csv").write_text(f"k,at,x\na,{at(1)},1.5\nb,{at(2)},2.5\n,{at(3)},\nc,1970-01-01T02:47:05Z,4.5\n")
    bench.record(**FLOATS)
    config = bench.config(**{name: value for name, value in FLOATS.items() if name != "end"})
    data, windows = Table.open(config.stream_table("s")), Table.open(config.windows_table("s"))
    rows, seals, settings = query("select * from t", t=data), read_seals(windows).to_pylist(), windows.properties
    schema = data.schema
    for path in (data.path, windows.path, config.files_table("s")):
        shutil.rmtree(path)
    settings.pop(PROPERTY)
    floats = first_float_digests(bench.spark, rows)
    zero = f"{name_of_columns()}-{'0' * 16}-{'0' * 16}"
    old = [{**seal, "float_digest": floats.get(seal["window_id"], zero)} for seal in seals]
    create_table(config.stream_table("s"), schema).commit_arrow(rows, app_id="record/s", version=1)
    old_rows = pa.Table.from_pylist([{name: row[name] for name in FIRST_SEALS.names} for row in old], FIRST_SEALS)
    create_table(config.windows_table("s"), FIRST_SEALS, settings).commit_arrow(old_rows, app_id="record/s", version=1)
    return config


def name_of_columns() -> str:
    """Returns the first eight digits of the hash of the columns' names and types."""
    text = "struct<'arrived_at':timestamp,'at':timestamp,'k':string,'x':double>"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def first_float_digests(spark: SparkSession, rows: pa.Table) -> dict[int, str]:
    """Returns window to float digest by the formula of the first release: floats alone, a hash a row, summed."""
    hashes = [f"xxhash64({salt}L, cast(isnull(x) as bigint), x)" for salt in SALTS]
    found: dict[int, list[int]] = {}
    for window, *parts in spark.createDataFrame(rows).selectExpr("window_id", *hashes).collect():
        sums = found.setdefault(window, [0, 0])
        found[window] = [(total + part) % 2**64 for total, part in zip(sums, parts, strict=True)]
    return {
        window: "-".join([name_of_columns(), *(f"{total:016x}" for total in sums)]) for window, sums in found.items()
    }


def test_a_stream_of_the_first_release_is_refused_until_it_is_lifted(bench: Bench, aged: Config) -> None:
    """Recording does not mix formats; after the upgrade it goes on, and finds everything already there."""
    with pytest.raises(TableError, match="has format 1") as raised:
        open_stream_tables(aged, "s")
    assert "rewindow streams upgrade s" in raised.value.hint
    result = upgrade_stream(bench.spark, aged, "s")
    assert (result.lifted, result.files, result.differing) == (5, 1, [])
    again = bench.record(**FLOATS)
    assert (again.already_there, again.recorded, again.late) == (4, 0, 0)


def test_a_lifted_stream_is_whole_and_lifting_may_be_repeated(bench: Bench, aged: Config) -> None:
    """Seals are whole, files are noted, the versions from before stay; a second run does nothing."""
    before = Table.open(aged.windows_table("s")).version
    upgrade_stream(bench.spark, aged, "s")
    data, windows = Table.open(aged.stream_table("s")), Table.open(aged.windows_table("s"))
    assert read_seals(windows, table_id=data.id)["tuples"].to_pylist() == [3, 0, 1, 0, 0]
    assert windows.txn("record/s") == 1
    assert len(noted_files(open_files(data.path))) == len(data.files())
    assert Table.open(windows.path, before).schema.names == FIRST_SEALS.names
    assert upgrade_stream(bench.spark, aged, "s").already


def test_a_window_that_does_not_match_is_named_and_refused(bench: Bench, aged: Config) -> None:
    """One flipped float of the recording is found by the old digest; other windows can be used, and no run hides it."""
    data = Table.open(aged.stream_table("s"))
    rows = query("select * from t", t=data).to_pylist()
    changed = [{**row, "x": 9.5} if row["k"] == "c" else row for row in rows]
    shutil.rmtree(data.path)
    create_table(data.path, data.schema).commit_arrow(
        pa.Table.from_pylist(changed, data.schema), app_id="record/s", version=1
    )
    for _ in range(2):
        result = upgrade_stream(bench.spark, aged, "s")
        assert result.differing == [(1002, 1002)]
        assert "[1002, 1002]" in " ".join(result.lines())
        once = query("select count(*) as n, count(distinct window_id) as w from w", w=aged.windows_table("s"))
        assert once.to_pylist() == [{"n": 5, "w": 5}], "a window has one seal, whether it matches or not"
    windows = Table.open(aged.windows_table("s"))
    assert read_seals(windows, WindowRange(1000, 1001))["tuples"].to_pylist() == [3, 0]
    with pytest.raises(TableError, match="seal of window 1002"):
        read_seals(windows)


@pytest.mark.parametrize("table", ["s", "s.windows"])
def test_a_stream_of_a_newer_version_is_not_touched(bench: Bench, aged: Config, table: str) -> None:
    """What this version does not know it does not lift either."""
    path = aged.stream_table(table)
    Table.open(path).set_properties({PROPERTY: "99"})
    before = Table.open(path).version
    with pytest.raises(TableError, match="newer version"):
        upgrade_stream(bench.spark, aged, "s")
    assert (Table.open(path).version, Table.open(path).properties[PROPERTY]) == (before, "99")


def test_files_that_another_program_wrote_are_noted_once_they_match(bench: Bench, aged: Config) -> None:
    """After a compaction the files have no row; the upgrade reads all windows, then notes them."""
    upgrade_stream(bench.spark, aged, "s")
    data = Table.open(aged.stream_table("s"))
    rows = query("select * from t", t=data)
    data.delta.delete()
    data.refresh().append(rows)
    result = upgrade_stream(bench.spark, aged, "s")
    assert (result.already, result.lifted, result.files, result.differing) == (False, 0, 1, [])


def test_windows_are_compared_over_the_columns_that_they_were_sealed_with(bench: Bench, aged: Config) -> None:
    """A column that came later changes no older window; a seal keeps the columns that it names."""
    upgrade_stream(bench.spark, aged, "s")
    data = Table.open(aged.stream_table("s"))
    before = read_seals(Table.open(aged.windows_table("s")))
    data.delta.alter.add_columns([Field("later", "string")])
    shutil.rmtree(aged.files_table("s"))
    result = upgrade_stream(bench.spark, aged, "s")
    assert (result.lifted, result.files, result.differing) == (0, 1, [])
    assert read_seals(Table.open(aged.windows_table("s"))).equals(before)


def test_what_is_lifted_is_chosen_by_stream_or_application(aged: Config) -> None:
    """Names are those of streams, or of applications for all their outputs; an unknown one is refused."""
    for name in ("app.a", "app.b"):
        create_table(aged.windows_table(name), FIRST_SEALS)
    assert upgradable(aged, []) == ["app.a", "app.b", "s"]
    assert upgradable(aged, ["app", "s"]) == ["app.a", "app.b", "s"]
    assert upgradable(aged, ["app.b"]) == ["app.b"]
    with pytest.raises(InputError, match='"other" is not there'):
        upgradable(aged, ["other"])


def test_published_checkpoints_and_quarantine_are_lifted_too(bench: Bench, aged: Config) -> None:
    """They keep their rows; columns that they lack are null."""
    create_table(aged.quarantine_table, QUARANTINE_SCHEMA)
    upgrade_others(aged, [])
    upgrade_others(aged, [])
    assert Table.open(aged.quarantine_table).properties[PROPERTY] == "2"
