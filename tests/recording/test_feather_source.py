"""Feather files as source: types, batches, and files that only look like Feather; no Spark."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording.sources.source import SourceContents, SourcePosition, open_source
from rewindow.settings.config import StreamConfig

TABLE = pa.table(
    {
        "k": pa.array(["a", "b", None]).dictionary_encode(),
        "n": pa.array([1, 2, 2**32 - 1], pa.uint32()),
        "at": pa.array([1_000, 2_000, None], pa.timestamp("ns")),
        "text": pa.array(["x", "y", "z"], pa.large_string()),
    }
)
ROWS = [(1, "a", 1, "x"), (2, "b", 2, "y"), (3, None, 2**32 - 1, "z")]


def written(path: Path, compression: str | None = None) -> Path:
    """Writes the table as an Arrow IPC file of two batches."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return path


def read(path: Path, kind: str | None = None) -> tuple[SourceContents, pa.Table]:
    source = open_source(
        "s",
        StreamConfig(source=path.name, arrived_at="at", format=kind),
        path.parent,
    )
    contents = source.scan(SourcePosition(), None, None)
    return contents, pa.concat_tables(
        rows for part in contents.files for rows in source.rows(contents, part)
    )


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_have_spark_types_and_are_numbered_across_batches(
    tmp_path: Path,
    compression: str | None,
) -> None:
    contents, rows = read(written(tmp_path / "s.arrow", compression))
    types = {"k": "string", "n": "int64", "at": "timestamp[us]", "text": "string"}
    assert {field.name: str(field.type) for field in contents.schema} == types
    assert [
        tuple(row.values()) for row in rows.select(["__row", "k", "n", "text"]).to_pylist()
    ] == ROWS
    assert rows["at"].cast(pa.int64()).to_pylist() == [1, 2, None]


def test_zip_members_and_files_with_other_suffixes_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "data.bin")
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.write(path, "in/1.feather")
    assert read(tmp_path / "s.zip")[1].num_rows == read(path, "feather")[1].num_rows == 3


def test_invalid_feather_file_is_rejected_by_name(tmp_path: Path) -> None:
    whole = written(tmp_path / "s.feather", "lz4").read_bytes()
    (tmp_path / "packed.feather.gz").write_bytes(gzip.compress(whole))
    (tmp_path / "cut.feather").write_bytes(whole[: len(whole) // 2])
    with pa.ipc.new_stream(tmp_path / "stream.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE)
    for name in ("packed.feather.gz", "cut.feather", "stream.arrow"):
        with pytest.raises(InputError, match=f'source file "{name}" cannot be read as Feather'):
            read(tmp_path / name)
