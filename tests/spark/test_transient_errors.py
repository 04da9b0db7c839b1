"""Which errors are worth another attempt; with the errors that Spark really raises."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from rewindow.errors import InputError, ResourceError
from rewindow.spark.transient_errors import describe, hint_on, is_passing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Broken = Callable[["SparkSession", Path], "DataFrame"]


def damaged(change: Callable[[bytes], bytes], *, schema: str = "id bigint") -> Broken:
    """Returns a frame over a Parquet file that was changed behind Spark's back."""

    def make(spark: SparkSession, folder: Path) -> DataFrame:
        path = folder / "in.parquet"
        pq.write_table(pa.table({"id": list(range(1000))}), path)
        frame = spark.read.schema(schema).parquet(str(path))
        changed = change(path.read_bytes())
        path.write_bytes(changed) if changed else path.unlink()
        return frame

    return make


def in_python(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.range(5).mapInArrow(lambda batches: (1 / 0 for _ in batches), "id bigint")


LASTING: dict[str, Broken] = {
    "division": lambda spark, folder: spark.range(5).select((F.lit(1) / F.col("id")).alias("x")),
    "overflow": lambda spark, folder: spark.range(9).select(
        (F.col("id") + F.lit(2**63 - 5)).alias("x")
    ),
    "cast": lambda spark, folder: spark.range(5).select(
        F.concat(F.lit("a"), "id").cast("int").alias("x")
    ),
    "raised by an operator": lambda spark, folder: spark.range(5).select(
        F.assert_true(F.col("id") < 3).alias("x")
    ),
    "python": in_python,
    "file gone": damaged(lambda content: b""),
    "file cut short": damaged(lambda content: content[:-9]),
    "bytes changed": damaged(lambda content: b"PAR1" + bytes(40) + content[44:]),
    "other type": damaged(lambda content: content, schema="id string"),
    "no such column": lambda spark, folder: spark.range(5).select("nope"),
}


@pytest.fixture
def quiet(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.parametrize("name", LASTING)
def test_permanent_spark_errors_are_not_retryable(
    quiet: SparkSession,
    tmp_path: Path,
    name: str,
) -> None:
    with pytest.raises(Exception) as caught:
        LASTING[name](quiet, tmp_path).write.parquet(str(tmp_path / "out"))
    assert not is_passing(caught.value), describe(caught.value)
    assert "\tat org.apache" not in describe(caught.value).split("\n")[0]


@pytest.mark.parametrize(
    ("raised", "message", "hint"),
    [
        (
            "too many timers. Hint: Set max_jump. Or use keep.",
            "too many timers",
            "Set max_jump. Or use keep.",
        ),
        ("no hint here.", "no hint here.", ""),
    ],
)
def test_error_raised_in_a_query_keeps_its_message_and_hint(
    quiet: SparkSession,
    raised: str,
    message: str,
    hint: str,
) -> None:
    with pytest.raises(PySparkException) as caught:
        quiet.range(1).select(F.raise_error(F.concat(F.lit(raised), "id"))).collect()
    assert describe(caught.value) == message + ("" if hint else "0")
    assert hint_on(caught.value) == hint + ("0" if hint else "")


def test_write_rejected_by_the_file_system_is_retryable(quiet: SparkSession) -> None:
    with pytest.raises(Exception) as caught:
        quiet.range(5).write.parquet("/proc/rewindow/out")
    assert is_passing(caught.value)
    assert "Mkdirs failed" in describe(caught.value)


def test_lost_python_worker_is_retryable(quiet: SparkSession, tmp_path: Path) -> None:
    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        os._exit(9)

    with pytest.raises(Exception) as caught:
        quiet.range(5).mapInArrow(die, "id bigint").write.parquet(str(tmp_path / "out"))
    assert is_passing(caught.value)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EROFS, "rename"), True),
        (OSError(errno.ENOSPC, "write"), True),
        (OSError(errno.EMFILE, "open"), True),
        (OSError("Unable to rename file: Read-only file system (os error 30)"), True),
        (ConnectionRefusedError(), True),
        (MemoryError(), True),
        (Py4JNetworkError("the JVM is gone"), True),
        (ResourceError("no disk space"), True),
        (FileNotFoundError(errno.ENOENT, "open", "in.parquet"), False),
        (IsADirectoryError(errno.EISDIR, "open"), False),
        (OSError("Corrupt snappy compressed data."), False),
        (OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"), False),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), False),
        (KeyError("boo"), False),
        (InputError("no such stream"), False),
    ],
    ids=repr,
)
def test_operating_system_errors_are_retryable_and_damaged_files_are_not(
    error: Exception,
    passes: bool,
) -> None:
    assert is_passing(error) is passes


def test_full_disk_is_reported_before_the_error_of_spark() -> None:
    text = (
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/s. SQLSTATE: 58030\n\tat "
        "a.B(C.scala:1)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat a.B(C.scala:1)"
    )
    full = Py4JNetworkError(text)
    other = Py4JNetworkError(text.replace("No space left on device", "too hot"))
    assert describe(full) == "Spark failed: java.io.IOException: No space left on device"
    assert describe(other).startswith("Spark failed: [TASK_WRITE_FAILED]")
    assert "Free disk space" in str(hint_on(full))
    assert "Free disk space" in str(hint_on(OSError(errno.ENOSPC, "No space left on device")))
    assert hint_on(other) == ""
