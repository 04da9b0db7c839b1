"""Spark's settings for frames of a few hundred rows, which would else spend most of their time on
compiling plans.

PySpark's debugging is off as well: it asks the JVM for two settings on every call of a column's
function, so that an error can name the Python line, which the product's errors do not show. A plan
is described in short: Spark makes the text for every query, and no test reads it.

What Spark does by default runs in the demo, which `make test-recovery` goes through, and in every
measurement.
"""

from __future__ import annotations

SMALL_FRAMES = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}

ONE_TASK = {
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
"""Has files, ranges and literal rows read in one task, in the session that tests share. Jobs that a
test submits read them in two."""


def small_frames_toml() -> str:
    """Returns the settings as the table `[spark.conf]` of a rewindow.toml."""
    return "[spark.conf]\n" + "".join(
        f'"{name}" = "{value}"\n' for name, value in SMALL_FRAMES.items()
    )
