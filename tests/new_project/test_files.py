"""The settings that `init` writes for a Delta table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.new_project.files import new_files
from rewindow.new_project.sample import read_sample
from rewindow.new_project.stream import propose_stream
from rewindow.recording.in_place import record_in_place
from rewindow.settings.config import Config


def settings_for(folder: Path, times: pa.Array, partitions: list[str] | None = None) -> str:
    """Returns the settings that `init` writes for a table with these arrivals."""
    table = folder / "lake" / "clicks"
    rows = pa.table({"at": times, "page": [f"page-{number % 3}" for number in range(len(times))]})
    write_deltalake(str(table), rows, partition_by=partitions)
    stream = propose_stream(read_sample(table), table)
    [text] = [
        text for path, text in new_files(stream, folder).items() if path.name == "rewindow.toml"
    ]
    return text


TIMES = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=3 * n) for n in range(200)]


def test_table_with_a_timestamp_column_stays_where_it_is(tmp_path: Path) -> None:
    text = settings_for(tmp_path, pa.array(TIMES, pa.timestamp("us", "UTC")))
    assert "\ncopy = false " in text
    (tmp_path / "rewindow.toml").write_text(text)
    result = record_in_place(Config.load(tmp_path / "rewindow.toml"), "clicks", end=True)
    assert result.recorded == len(TIMES)


@pytest.mark.parametrize(
    ("kind", "partitions"),
    [
        (pa.timestamp("us"), None),
        (pa.timestamp("us", "UTC"), ["at"]),
        (pa.string(), None),
    ],
)
def test_table_without_usable_arrivals_is_copied(
    tmp_path: Path, kind: pa.DataType, partitions: list[str] | None
) -> None:
    values = [at.isoformat() if kind == pa.string() else at for at in TIMES[:40]]
    assert "copy = false" not in settings_for(tmp_path, pa.array(values, kind), partitions)
