"""Decides whether a publication needs Spark.

Spark is needed for tables with features that delta-rs does not support correctly, and for columns
whose digest delta-rs cannot compute. All other tables are published by files, without a JVM.
delta-rs rejects commits to tables with unknown features. The features that are checked here are
those that delta-rs would commit to, but handle incorrectly or not check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePath
from urllib.parse import unquote

import pyarrow as pa

from rewindow.storage import Table
from rewindow.storage.delta import DataFile

_KEPT = {
    "appendOnly",
    "invariants",
    "changeDataFeed",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
}
_SEEN_OTHERWISE = {"columnMapping", "generatedColumns", "identityColumns", "checkConstraints"}
"""Features of the protocol that matter only if a property or a column uses them."""
_OF_COLUMNS = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


class SparkNeeded(Exception):
    """Raised if a publication cannot continue without Spark.

    Nothing was committed to the table that needs Spark.
    """


def reason_for_spark(table: Table, touched: Callable[[], Iterable[DataFile]]) -> str:
    """Returns the reason why a table needs Spark for a commit or for reading its files; empty if it
    does not.

    Args:
        table: the table at the version that is read or committed to.
        touched: returns its files that are removed, cut or read; called only if they matter.
    """
    name = table.path.name
    properties = table.properties
    extra = set(table.delta.protocol().writer_features or []) - _KEPT - _SEEN_OTHERWISE
    if extra:
        return f'table "{name}" has the feature {sorted(extra)[0]}'
    if properties.get("delta.columnMapping.mode", "none") != "none":
        return f'table "{name}" has column mapping'
    if table.delta.metadata().partition_columns:
        return f'table "{name}" is partitioned'
    if any(key.startswith("delta.constraints.") for key in properties):
        return f'table "{name}" has a constraint'
    for field in table.delta.schema().fields:
        if any(key in field.metadata for key in _OF_COLUMNS):
            return f'column "{field.name}" of table "{name}" is computed or has a constraint'
    return f'a file of table "{name}" has a deletion vector' if _has_vectors(table, touched) else ""


def _has_vectors(table: Table, touched: Callable[[], Iterable[DataFile]]) -> bool:
    if "deletionVectors" not in (table.delta.protocol().reader_features or []):
        return False
    vectors = pa.table(table.delta.deletion_vectors())["filepath"].to_pylist()
    with_vector = {PurePath(unquote(path)).name for path in vectors}
    return any(PurePath(file.path).name in with_vector for file in touched())
