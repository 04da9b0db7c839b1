"""Stores tuples that could not be recorded, each only once, no matter how often the source is read.

A source of files is always read as a whole. Of n equal tuples for one window and reason, only those
in excess of the number already in quarantine are new. The files of a Delta source never change, so
a tuple of such a source is identified by its position.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewindow.errors import FencedError, OverlapError
from rewindow.location import Location
from rewindow.recording.sources.source import FILE, ROW, SourceFile
from rewindow.recording.tuples import PAYLOAD, REASON, frame_of
from rewindow.sequences import names_of
from rewindow.spark.columns import named_columns
from rewindow.spark.frames import spark_schema, write_files
from rewindow.storage import Table, data_files, query
from rewindow.storage.delta import paths_of
from rewindow.storage.streams import LATE, QUARANTINE_SCHEMA, create_quarantine

REFUSED = "refused: "
"""Prefix of the reason of rows from a recording that stopped because too many were malformed; the
next recording removes them.
"""
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


def malformed_rows(
    spark: SparkSession,
    bad: DataFrame,
    files: Sequence[SourceFile],
    *,
    are_refused: bool = False,
) -> DataFrame:
    """Returns malformed rows as rows for the quarantine, without a window.

    The reason of rows from a rejected recording starts with `REFUSED`.
    """
    reason = F.concat(F.lit(REFUSED if are_refused else ""), F.col(REASON))
    return _rows(
        spark,
        bad.withColumn("window_id", F.lit(None).cast("bigint")),
        files,
        reason,
        F.col(PAYLOAD),
    )


def release(path: Location, stream: str, reason: str) -> None:
    """Removes from the quarantine the rows of a stream whose reason starts with a text."""
    if not Table.exists(path):
        return
    name = stream.replace("'", "''")
    mine = f"source = '{name}' and reason like '{reason}%'"
    if query(f"select count(*) as n from q where {mine}", q=path)["n"][0].as_py():
        Table.open(path).delta.delete(mine)


def late_rows(
    spark: SparkSession,
    late: DataFrame,
    files: Sequence[SourceFile],
    events: Sequence[str],
    reason: str = LATE,
) -> DataFrame:
    """Returns late tuples as rows for the quarantine.

    The payload has the whole tuple, so that it can be restored.
    """
    return _rows(spark, late, files, F.lit(reason), tuple_text(events))


def tuple_text(events: Sequence[str]) -> Column:
    """Returns the arrival and the event columns of a tuple as JSON."""
    return F.to_json(
        F.struct(*named_columns(("arrived_at", *events))),
        {"ignoreNullFields": "false", "timestampFormat": _MICROSECONDS},
    )


def _rows(
    spark: SparkSession,
    frame: DataFrame,
    files: Sequence[SourceFile],
    reason: Column,
    payload: Column,
) -> DataFrame:
    names = pa.table({FILE: pa.array(range(len(files)), pa.int32()), "__part": names_of(files)})
    position = F.concat_ws(":", F.col("__part"), F.col(ROW).cast("string"))
    return frame.join(F.broadcast(spark.createDataFrame(names)), FILE).select(
        "window_id",
        reason.alias("reason"),
        position.alias("position"),
        payload.alias("payload"),
        FILE,
        ROW,
    )


def quarantine(
    spark: SparkSession,
    path: Location,
    stream: str,
    rows: DataFrame,
    *,
    by_position: bool,
) -> int:
    """Adds the rows that are not in quarantine yet, and returns their number.

    Args:
        spark: the session.
        path: the quarantine table; created if it does not exist.
        stream: the stream that they were meant for.
        rows: `window_id, reason, position, payload`, either all with a window or all without. Then
            no file has both, and the log's statistics of a file apply to all its rows.
        by_position: whether a row is identified by its position.

    Raises:
        OverlapError: another recording of the stream has committed in the meantime.
    """
    table = create_quarantine(path)
    new = _not_there(spark, table, stream, rows, by_position=by_position)
    folder = path / f"{stream}-{uuid.uuid4().hex[:12]}"
    added = new.select(
        "window_id",
        F.lit(stream).alias("source"),
        F.lit(None).cast("string").alias("port"),
        "reason",
        "position",
        "payload",
        F.current_timestamp().alias("recorded_at"),
    )
    write_files(
        added.repartitionByRange(1, "window_id").sortWithinPartitions("window_id"),
        folder,
    )
    files = data_files(folder)
    if not files:
        folder.delete_tree()
        return 0
    app_id = f"record/{stream}"
    try:
        table.commit_files(files, app_id=app_id, version=max(table.txn(app_id), 0) + 1)
    except FencedError as error:
        folder.delete_tree()
        raise OverlapError(
            f'stream "{stream}" is being recorded by another process',
            hint="Run the command again when the other process has finished.",
        ) from error
    return sum(file.rows for file in files)


def holds(spark: SparkSession, path: Location, stream: str, rows: DataFrame) -> bool:
    """Returns whether all of the given rows are already in quarantine."""
    if not Table.exists(path):
        return False
    new = _not_there(spark, Table.open(path), stream, rows, by_position=False)
    return new.isEmpty()


def _not_there(
    spark: SparkSession,
    table: Table,
    stream: str,
    rows: DataFrame,
    *,
    by_position: bool,
) -> DataFrame:
    # Equal rows are counted, not compared one to one: a source may have the same malformed row
    # several times, and each copy must be in quarantine once.
    known = _quarantined(spark, table).where(F.col("source") == stream)
    keys = ["window_id", "reason", "payload", *(["position"] if by_position else [])]
    there = known.groupBy(keys).agg(F.count(F.lit(1)).alias("__there"))
    there = there.select(*(F.col(key).alias(f"__{key}") for key in keys), "__there")
    copy = F.row_number().over(Window.partitionBy(keys).orderBy(FILE, ROW))
    same = [F.col(key).eqNullSafe(F.col(f"__{key}")) for key in keys]
    joined = rows.withColumn("__copy", copy).join(there, same, "left")
    return joined.where(F.col("__copy") > F.coalesce("__there", F.lit(0)))


def _quarantined(spark: SparkSession, table: Table) -> DataFrame:
    return frame_of(spark, spark_schema(QUARANTINE_SCHEMA), paths_of(table.files()))
