"""The tables of a stream as they are made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rewindow.location import location
from rewindow.storage import Table
from rewindow.storage.streams import create_stream

SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
    ]
)


def test_stream_table_log_is_read_from_a_recent_log_checkpoint(tmp_path: Path) -> None:
    path = location(tmp_path / "s")
    create_stream(path, SCHEMA, {"width_ms": 1000, "origin_ms": 0})
    table = Table.open(path)
    for version in range(1, 41):
        table.commit_files([], app_id="test", version=version)
    checkpoints = [
        int(entry.name.split(".")[0])
        for entry in (path / "_delta_log").entries("*.checkpoint.parquet")
    ]
    assert 0 <= table.version - max(checkpoints) <= 16
