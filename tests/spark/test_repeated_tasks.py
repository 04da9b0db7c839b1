"""Tasks that Spark repeats: the counts by which they are found, and the refusal in the task.

tests/recovery/test_cluster.py shows the effect of a lost executor, on a cluster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from rewindow.application import Mode
from rewindow.errors import InputError, ResourceError
from rewindow.spark.repeated_tasks import JOB_GROUP, each_task_once
from rewindow.spark.transient_errors import describe, is_passing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

RETRYING = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from rewindow.errors import RewindowError
from rewindow.spark.repeated_tasks import each_task_once, refuse_repeated_task

spark = (
    SparkSession.builder.master("local[2, 4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
failed = Path(sys.argv[1])


def fails_once(batches, refuses):
    if refuses:
        refuse_repeated_task("shop.totals")
    if not failed.exists():
        failed.touch()
        raise ValueError("once")
    yield from batches


for refuses in (False, True):
    failed.unlink(missing_ok=True)
    try:
        with each_task_once(spark.sparkContext, "windows [1, 3]"):
            spark.range(4, numPartitions=1).mapInArrow(
                lambda batches: fails_once(batches, refuses), "id bigint"
            ).toArrow()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.long
@pytest.mark.jvm
def test_repeated_task_is_detected_by_its_stage_and_rejected_in_the_task(tmp_path: Path) -> None:
    # Spark counts a failure here. It does not where it has lost an executor.
    script = Path(tmp_path) / "retrying.py"
    script.write_text(RETRYING)
    done = subprocess.run(
        [sys.executable, str(script), str(Path(tmp_path) / "failed")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    counted, _, refused = done.stdout.partition("PythonException")
    assert "ResourceError: Spark may have run tasks of windows [1, 3] twice: stage" in counted
    assert 'Spark started a task of operator "shop.totals" again' in refused, done.stderr[-2000:]


def test_work_without_repeated_tasks_passes_and_restores_thread_properties(
    spark: SparkSession,
) -> None:
    context = spark.sparkContext
    before = context.getLocalProperty(JOB_GROUP)
    with each_task_once(context, "windows [4, 6]"):
        spark.range(100).groupBy().count().collect()
    assert context.getLocalProperty(JOB_GROUP) == before
    assert context.statusTracker().getJobIdsForGroup("windows [4, 6]")


@pytest.mark.parametrize(("kind", "passes"), [(ResourceError, True), (InputError, False)])
def test_rewindow_error_raised_in_a_worker_stays_retryable_or_permanent(
    kind: type[Exception],
    passes: bool,
    spark: SparkSession,
) -> None:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise kind("task was started again")
        yield from batches

    with pytest.raises(PySparkException) as error:
        spark.range(1).mapInArrow(run, "id bigint").toArrow()
    assert is_passing(error.value) == passes
    assert describe(error.value) == "task was started again"


def test_at_most_once_disables_dynamic_allocation_of_executors() -> None:
    assert Mode.AT_MOST_ONCE.spark_settings["spark.dynamicAllocation.enabled"] == "false"
