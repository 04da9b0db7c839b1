"""The columns that a stream will have, told before it is recorded; no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.recording.column_preview import UNKNOWN, expected_columns
from rewindow.settings.config import Config, StreamConfig

OPERATOR = """
import pyarrow as pa
from rewindow.operators import InputOperator

class Beats(InputOperator):
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.string())])
"""
INSTANT = pa.timestamp("us", "UTC")


def told(folder: Path, **settings: Any) -> dict[str, pa.DataType] | None:
    (folder / "s.csv").write_text("k,n,at\na,1,2026-01-01\n")
    (folder / "beats.py").write_text(OPERATOR)
    pq.write_table(
        pa.table({"k": ["a"], "n": [1], "at": pa.array([0], pa.timestamp("ns"))}),
        folder / "s.parquet",
    )
    stream = StreamConfig(**{"source": str(folder / "s.csv"), "arrived_at": "at", **settings})
    found = expected_columns(Config(state=folder / "state", streams={"s": stream}), "s")
    return None if found is None else {field.name: field.type for field in found}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, {"k": pa.string(), "n": pa.string(), "at": pa.string()}),
        ({"columns": "k STRING, n DECIMAL(10, 2), at TIMESTAMP"},
         {"k": pa.string(), "n": pa.decimal128(10, 2), "at": INSTANT}),
        ({"columns": "k STRING, n INT", "keep": ["k"], "select": {"n": "n + 1", "m": "n"}},
         {"k": pa.string(), "n": UNKNOWN, "m": UNKNOWN}),
        ({"columns": "k STRING, absent INT"}, None),
        ({"columns": "k STRUCT<a: INT>"}, None),
        ({"source": "nowhere.csv"}, None),
        ({"source": "s.parquet"}, {"k": pa.string(), "n": pa.int64(), "at": INSTANT}),
        ({"source": "beats.py", "source_settings": {"begin": "2026-01-01"}},
         {"at": INSTANT, "k": pa.string()}),
    ],
)  # fmt: skip
def test_columns_are_derived_from_settings_and_source_if_types_are_certain(
    tmp_path: Path,
    settings: dict[str, Any],
    wanted: dict[str, pa.DataType] | None,
) -> None:
    # Rules: O13
    if "source" in settings:
        settings = {**settings, "source": str(tmp_path / settings["source"])}
    assert told(tmp_path, **settings) == wanted
