"""Recording a generator, compared with Spark alone, which writes the same tuples by window.

    python -m bench.generators [ROWS_IN_MILLIONS]

A generator computes any number of rows, so no source has to be written first.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.record import seconds
from bench.report import Row
from rewindow.recording.record import record
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import Config, StreamConfig
from rewindow.spark.session import spark_session

WINDOWS = 1_000


def measure_generators(tuples: int) -> Row:
    """Returns the row of a recording of sensors, after one of a tenth of the tuples that warms the
    JVM up.
    """
    spark = spark_session(Config.load(), "bench generators")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for rows in (tuples // 10, tuples):
            stream = StreamConfig(
                source="sensors",
                format="generator",
                arrived_at="arrived_at",
                width="1 s",
                keys=["sensor"],
                source_settings={"rate": rows // WINDOWS, "windows": WINDOWS, "skew": 1},
            )
            plain_s = seconds(partial(plain, spark, stream, root / f"{rows}"))
            config = Config(state=root / f"state-{rows}", streams={"sensors": stream})
            recorded_s = seconds(partial(record, spark, config, "sensors"))
    return Row(
        f"record, {tuples / 1_000_000:g} M tuples of the generator `sensors`, 1,000 windows",
        f"{recorded_s:.1f} s",
        f"Spark alone generates them and writes them sorted by window {plain_s:.1f} s",
        "",
        None,
    )


def plain(spark: SparkSession, stream: StreamConfig, folder: Path) -> None:
    """Writes the tuples of a generator as Spark alone would."""
    source = open_source("sensors", stream, folder)
    frame = source.frame(spark, source.scan(SourcePosition(), None, None))
    assert frame is not None, "Spark computes generators"
    placed = frame.withColumn("window_id", F.expr("unix_micros(arrived_at) div 1000000"))
    ordered = placed.repartitionByRange("window_id").sortWithinPartitions("window_id", "arrived_at")
    ordered.write.parquet(str(folder))


if __name__ == "__main__":
    print(measure_generators(int(float(sys.argv[1] if len(sys.argv) > 1 else 10) * 1_000_000)))
