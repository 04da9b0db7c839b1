"""What `sorted_by` costs when rows are written, and what it saves whoever asks for some of them.

    python -m bench.sorted_rows [ROWS_IN_MILLIONS]

The same rows are written by the engine's own function, as they come and sorted by a key; DuckDB
reads one key of each.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from rewindow.engine.group import SORTED_GROUP_BYTES
from rewindow.location import location
from rewindow.settings.config import Config
from rewindow.spark.frames import write_files
from rewindow.spark.session import spark_session


def main(millions: int) -> None:
    """Prints seconds of writing and of reading one key, and the row groups that a reader opens for
    it.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rewindow.toml").write_text(
            f'state = "{folder}/state"\n[spark]\ndriver_memory = "2g"\n'
        )
        spark = spark_session(Config.load(Path(folder) / "rewindow.toml"), "bench")
        rows = spark.range(millions * 1_000_000, numPartitions=2).selectExpr(
            "id div 100000 as window_id",
            "hash(id) % 5000 as key",
            "id as number",
            "rand(1) as value",
        )
        write_files(rows.limit(1000), location(f"{folder}/warm"))
        print(f"{'':16}{'written s':>12}{'a key s':>10}{'row groups opened':>20}")
        for name, frame, size in (
            ("as they come", rows, None),
            ("sorted by key", rows.sortWithinPartitions("key"), SORTED_GROUP_BYTES),
        ):
            print(f"{name:16}{_figures(frame, Path(folder) / name, size)}", flush=True)
        spark.stop()


def _figures(frame: DataFrame, folder: Path, size: int | None) -> str:
    written = []
    for _ in range(3):
        began = time.monotonic()
        write_files(frame, location(str(folder)), size)
        written.append(time.monotonic() - began)
    read = []
    for _ in range(5):
        began = time.monotonic()
        duckdb.execute(
            f"select count(*), sum(value) from '{folder}/*.parquet' where key = 77"
        ).fetchall()
        read.append(time.monotonic() - began)
    parts = list(ds.dataset(folder, format="parquet").get_fragments())
    opened = sum(len(part.split_by_row_group(pc.field("key") == 77)) for part in parts)
    return (
        f"{min(written):12.2f}{min(read):10.3f}{opened:10} of "
        f"{sum(part.num_row_groups for part in parts)}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
