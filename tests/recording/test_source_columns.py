"""A source before its rows are read: columns that appear later; no Spark."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError
from rewindow.recording.sources.source import SourceContents, SourcePosition, open_source
from rewindow.settings.config import StreamConfig

RECORDED = pa.schema(
    [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", pa.timestamp("us", "UTC"))]
)
RECORDED = RECORDED.append(pa.field("k", pa.string())).append(pa.field("at", pa.string()))


def inspect(root: Path, recorded: pa.Schema | None = None, **settings: Any) -> SourceContents:
    stream = StreamConfig(**{"source": "src", "arrived_at": "at", **settings})
    return open_source("s", stream, root).scan(SourcePosition(), None, recorded)


def write_source(root: Path, kind: str) -> None:
    """Writes a source whose later file has a column more."""
    folder = root / "src"
    folder.mkdir()
    if kind == "csv":
        (folder / "1.csv").write_text("k,at\na,1\n")
        (folder / "2.csv").write_text("k,at,n\nb,2,3\n")
    elif kind == "parquet":
        pq.write_table(pa.table({"k": ["a"], "at": ["1"]}), folder / "1.parquet")
        pq.write_table(pa.table({"k": ["b"], "at": ["2"], "n": [3]}), folder / "2.parquet")
    elif kind == "feather":
        feather.write_feather(pa.table({"k": ["a"], "at": ["1"]}), folder / "1.feather")
        feather.write_feather(pa.table({"k": ["b"], "at": ["2"], "n": [3]}), folder / "2.feather")
    else:
        write_deltalake(str(folder), pa.table({"k": ["a"], "at": ["1"], "n": [3]}))


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "delta"])
def test_column_that_appears_in_a_later_file_is_reported(tmp_path: Path, kind: str) -> None:
    write_source(tmp_path, kind)
    found = inspect(tmp_path, RECORDED)
    assert found.columns == ["k", "at"]
    assert len(found.warnings) == 1
    assert '"n"' in found.warnings[0]
    assert 'new_columns = "take"' in found.warnings[0]


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "delta"])
def test_column_that_appears_in_a_later_file_is_added_on_request(tmp_path: Path, kind: str) -> None:
    write_source(tmp_path, kind)
    found = inspect(tmp_path, RECORDED, new_columns="take")
    assert (found.columns, list(found.warnings)) == (["k", "at", "n"], [])
    assert "n" in found.optional


def test_first_recording_reports_columns_present_only_in_later_files(tmp_path: Path) -> None:
    write_source(tmp_path, "csv")
    found = inspect(tmp_path)
    assert found.columns == ["k", "at"]
    assert 'not recorded: "n" (first in "2.csv")' in found.warnings[0]


@pytest.mark.parametrize("settings", [{"keep": ["k"]}, {"new_columns": "take", "keep": ["k"]}])
def test_additional_columns_are_not_reported_if_settings_list_the_columns(
    tmp_path: Path,
    settings: dict[str, Any],
) -> None:
    write_source(tmp_path, "csv")
    found = inspect(tmp_path, **settings)
    assert (found.columns, list(found.warnings)) == (["k", "at"], [])


def test_added_column_is_kept_after_its_files_are_deleted(tmp_path: Path) -> None:
    write_source(tmp_path, "csv")
    (tmp_path / "src" / "2.csv").unlink()
    found = inspect(tmp_path, RECORDED.append(pa.field("n", pa.string())), new_columns="take")
    assert found.columns == ["k", "at", "n"]
    assert "n" in found.optional


@pytest.mark.parametrize(
    "kind",
    [pa.duration("us"), pa.time64("us"), pa.list_(pa.duration("s"))],
    ids=["duration", "time", "nested"],
)
def test_column_with_an_unsupported_type_is_reported_before_anything_is_read(
    tmp_path: Path,
    kind: pa.DataType,
) -> None:
    feather.write_feather(pa.table({"at": ["1"], "d": pa.nulls(1, kind)}), tmp_path / "s.feather")
    source = open_source("s", StreamConfig(source="s.feather", arrived_at="at"), tmp_path)
    with pytest.raises(
        InputError,
        match='column "d" of the source of stream "s" cannot be recorded: its type is',
    ):
        source.scan(SourcePosition(), None, None)
    assert source.scan(SourcePosition(), ["at"], None).columns == ["at"]


def test_parquet_is_accepted_in_a_zip_file_and_rejected_in_gzip(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": ["1", "2"]}), tmp_path / "p.parquet")
    whole = (tmp_path / "p.parquet").read_bytes()
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("in/p.parquet", whole)
    source = open_source("s", StreamConfig(source="s.zip", arrived_at="at"), tmp_path)
    contents = source.scan(SourcePosition(), None, None)
    assert pa.concat_tables(source.rows(contents, contents.files[0]))["at"].to_pylist() == [
        "1",
        "2",
    ]
    (tmp_path / "z.parquet.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(InputError, match="cannot be read as Parquet") as caught:
        open_source("s", StreamConfig(source="z.parquet.gz", arrived_at="at"), tmp_path).scan(
            SourcePosition(),
            None,
            None,
        )
    assert "decompress it first" in str(caught.value.hint)


def test_nested_nanosecond_times_are_recorded_as_microseconds(tmp_path: Path) -> None:
    nested = pa.struct([("t", pa.timestamp("ns", "UTC")), ("n", pa.list_(pa.uint32()))])
    table = pa.table(
        {"at": ["1"], "d": pa.array([[{"t": 1_500, "n": [2**32 - 1]}]], pa.list_(nested))}
    )
    feather.write_feather(table, tmp_path / "s.feather")
    source = open_source("s", StreamConfig(source="s.feather", arrived_at="at"), tmp_path)
    contents = source.scan(SourcePosition(), None, None)
    (rows,) = source.rows(contents, contents.files[0])
    assert (
        str(contents.schema.field("d").type.value_type.field("t").type) == "timestamp[us, tz=UTC]"
    )
    assert [one["n"] for one in rows["d"].to_pylist()[0]] == [[2**32 - 1]]
