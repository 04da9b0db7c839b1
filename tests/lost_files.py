"""Deletes a part file after Spark has written it, as if an executor had written it into another
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameWriter


def lose_part_files(monkeypatch: pytest.MonkeyPatch, below: str) -> list[Path]:
    """Deletes, after each write of Spark below a folder of some name, a part file that has rows;
    returns the list of those deleted.
    """
    written = DataFrameWriter.parquet
    lost: list[Path] = []

    def parquet(writer: DataFrameWriter, path: str, *given: Any, **named: Any) -> None:
        written(writer, path, *given, **named)
        if below not in Path(path).parts[-3:]:
            return
        for part in sorted(Path(path).glob("part-*.parquet")):
            if pq.read_metadata(part).num_rows:
                part.unlink()
                lost.append(part)
                return

    monkeypatch.setattr(DataFrameWriter, "parquet", parquet)
    return lost
