"""Errors of executors that do not see what the driver sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from rewindow.spark.job import as_rewindow_error
from rewindow.spark.shared_folder import missing_on_executor
from rewindow.spark.transient_errors import spark_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def gone(spark: SparkSession, tmp_path: Path) -> tuple[Path, Exception]:
    """A file, and the error that Spark raised when a task did not find it."""
    file = Path(tmp_path) / "a part" / "part-0.parquet"
    file.parent.mkdir()
    rows = pa.table({"id": [1, 2]})
    pq.write_table(rows, file)
    frame = spark.read.schema("id bigint").parquet(str(file))
    file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError)) as error:
        frame.toArrow()
    pq.write_table(rows, file)
    return file, error.value


def test_file_missing_only_on_an_executor_is_reported_as_a_shared_folder_error(
    gone: tuple[Path, Exception],
) -> None:
    file, error = gone
    text = str(as_rewindow_error(error))
    assert f"does not see file {file}" in text
    assert "same shared file system" in text and "rewindow replay --resume" in text


def test_file_missing_also_on_the_driver_remains_a_spark_error(
    gone: tuple[Path, Exception],
) -> None:
    file, error = gone
    file.unlink()
    assert missing_on_executor(spark_text(error)) is None
    assert "FAILED_READ_FILE" in str(as_rewindow_error(error))
