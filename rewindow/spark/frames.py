"""Reads windows of a stream as DataFrames, and writes DataFrames to files of a table."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rewindow.errors import InputError
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.recovery import Plan
from rewindow.sequences import excluding, map_values
from rewindow.spark.columns import aliased, column_types, null_of
from rewindow.spark.digests import content_order
from rewindow.spark.shared_folder import executor_hosts, lost_rows
from rewindow.storage import Table, TuplesInPlace, query
from rewindow.storage.inputs import open_input
from rewindow.storage.streams import open_sealed
from rewindow.windows import Grid, WindowRange

_COUNTS = pa.schema([("window_id", pa.int64()), ("tuples", pa.int64())])
_REPORTED_WITHIN = "60 s"


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns a pyarrow schema as a Spark schema. Times are in UTC."""
    return from_arrow_schema(schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns a Spark schema as a pyarrow schema. Times are in UTC."""
    # Spark 4.1 uses UTC by default; Spark 4.2 has no default.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def read_windows(spark: SparkSession, table: Table, windows: WindowRange) -> DataFrame:
    """Returns the tuples of a window range, read at the table's pinned version.

    Tables that Rewindow writes are read by their files, without Delta's snapshot query. Other
    tables are read through Delta. Hidden windows are left out.
    """
    if isinstance(table, TuplesInPlace):
        return _read_in_place(spark, table, windows)
    inside = F.col("window_id").between(windows.first, windows.last)
    hidden = []
    for part in table.hidden:
        if part.overlap(windows):
            hidden.append(f"window_id between {part.first} and {part.last}")
    if hidden:
        inside &= ~F.expr(" or ".join(hidden))
    if not table.is_plain():
        reader = spark.read.format("delta").option("versionAsOf", table.version)
        return reader.load(str(table.path)).where(inside)
    paths = [file.path for file in table.files(windows.first, windows.last)]
    schema = spark_schema(table.schema)
    if not paths:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).parquet(*paths).where(inside)


def _read_in_place(spark: SparkSession, table: TuplesInPlace, windows: WindowRange) -> DataFrame:
    """Returns the tuples of a window range from a table in place.

    Files are skipped by the bounds of their arrivals. The offsets are computed only if they are
    used, because that sorts the tuples of each window by content.

    Rules: X56, X57
    """
    if table.frame is None:
        reader = spark.read.format("delta").option("versionAsOf", table.version)
        table.frame = reader.load(table.columns.source)
    grid = table.columns.grid
    arrived_at = F.col(quoted_column(table.columns.arrived_at))
    inside = arrived_at >= F.timestamp_micros(F.lit(grid.start_us(windows.first)))
    inside &= arrived_at < F.timestamp_micros(F.lit(grid.end_us(windows.last)))
    micros = f"unix_micros({quoted_column(table.columns.arrived_at)})"
    window = F.expr(f"({micros} - {grid.origin_us}) div {grid.width_us}")
    schema = spark_schema(table.schema)
    events = map(quoted_column, table.columns.events)
    tuples = table.frame.where(inside).select(
        window.alias("window_id"),
        arrived_at.alias("arrived_at"),
        *events,
    )
    for part in table.hidden:
        if part.overlap(windows):
            tuples = tuples.where(~F.col("window_id").between(part.first, part.last))
    order = Window.partitionBy("window_id").orderBy(*content_order(schema))
    offset = (F.row_number().over(order) - 1).cast("bigint")
    return tuples.withColumn("offset", offset).select(*map(quoted_column, schema.names))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Returns a frame without rows, created in the JVM because an empty Python list would start
    Python workers.

    The limit tells Spark that the frame is empty before it looks at the columns. Otherwise Spark
    would treat each column as the constant null. An expression of an operator for missing values,
    for example one that raises an error, could then be moved to the other side of a join.
    """
    columns = aliased(map_values(null_of, column_types(schema)))
    return spark.range(1).select(*columns).limit(0)


def window_start(grid: Grid) -> Column:
    """Returns the start of a tuple's window.

    It is used as the arrival time of tuples that have none.
    """
    return F.timestamp_micros(F.lit(grid.origin_us) + F.col("window_id") * F.lit(grid.width_us))


def count_windows(table: Table, windows: WindowRange) -> pa.Table:
    """Counts the tuples of each window of a range that has any, from the files. Returns window_id
    and tuples in any order.

    The rows of a table with deletion vectors or column mapping cannot be counted in its files, so a
    query counts them.
    """
    if table.counts is not None:
        inside = (pc.field("window_id") >= windows.first) & (pc.field("window_id") <= windows.last)
        return table.counts.filter(inside & (pc.field("tuples") > 0))
    counts = (
        _counts_of_files(table, windows) if table.is_plain() else _counts_by_query(table, windows)
    )
    for part in table.hidden:
        if part.overlap(windows):
            counts = counts.filter(
                (pc.field("window_id") < part.first) | (pc.field("window_id") > part.last)
            )
    return counts


def open_inputs(plan: Plan, state: Location) -> dict[str, Table]:
    """Returns the inputs of a replay at their pinned versions, without rows of windows that were
    never sealed. The range of a warm-up is included.

    Args:
        state: the state folder.

    Raises:
        TableError: a planned table was replaced by another one.
    """
    for entry in plan.inputs:
        open_input(entry, state)
    first = plan.first if plan.start.warm_up_first is None else plan.start.warm_up_first
    windows = WindowRange(first, plan.last)
    inputs = {}
    for entry in plan.recorded:
        inputs[entry.stream] = open_sealed(
            entry.table(state),
            entry.version,
            entry.windows_table(state),
            seals_version=entry.windows_version,
            windows=windows,
        )
    return inputs


def _counts_by_query(table: Table, windows: WindowRange) -> pa.Table:
    sql = f"""select window_id, count(*) as tuples from t
              where window_id between {windows.first} and {windows.last} group by window_id"""
    return query(sql, t=table)


def _counts_of_files(table: Table, windows: WindowRange) -> pa.Table:
    """Counts the rows of each file.

    The count comes from the log if the file has a single window, and otherwise from its column.
    """
    inside = (pc.field("window_id") >= windows.first) & (pc.field("window_id") <= windows.last)
    parts = [_COUNTS.empty_table()]
    for file in table.files(windows.first, windows.last):
        if file.first is not None and file.first == file.last:
            parts.append(pa.table([[file.first], [file.rows]], schema=_COUNTS))
        else:
            parts.append(_counts_in(file.path, inside))
    return (
        pa.concat_tables(parts)
        .group_by("window_id")
        .aggregate([("tuples", "sum")])
        .rename_columns(_COUNTS.names)
    )


def _counts_in(path: str, inside: pc.Expression | None = None) -> pa.Table:
    """Returns the number of tuples in each window of a file or a folder.

    Only row groups that may have matching rows are read.
    """
    column = pq.read_table(path, columns=["window_id"], partitioning=None, filters=inside)[
        "window_id"
    ]
    found = pc.value_counts(column)
    return pa.table([found.field("values"), found.field("counts")], schema=_COUNTS)


def count_written(folder: Location) -> pa.Table:
    """Returns window_id and the number of tuples for a folder of Parquet files."""
    return _counts_in(folder.uri)


def write_files(
    frame: DataFrame,
    folder: Location,
    row_group_bytes: int | None = None,
) -> None:
    """Computes a frame once and writes it to Parquet files in a folder. The files replace the
    previous contents of the folder.

    The row groups have the given size, or Spark's 128 MB.

    Raises:
        RewindowError: the driver does not find all rows that the tasks have written.
    """
    options = {} if row_group_bytes is None else {"parquet.block.size": str(row_group_bytes)}
    counted = Observation()
    rows = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    rows.write.mode("overwrite").options(**options).parquet(str(folder))
    written = _observed(frame, counted)
    found = sum(map(rows_in_file, folder.entries("*.parquet")))
    if found != written:
        hosts = executor_hosts(frame.sparkSession.sparkContext)
        raise lost_rows(folder, written, found, hosts)


def _observed(frame: DataFrame, counted: Observation) -> int:
    """Returns the number of rows that the tasks of a write have counted. A repeated task does not
    count twice.
    """
    # Spark reports the count through its listeners, and drops events when their queue is full.
    # Without a timeout this call could then wait forever.
    scala = frame.sparkSession._jvm.scala.concurrent
    scala.Await.ready(counted._jo.future(), scala.duration.Duration.apply(_REPORTED_WITHIN))
    return int(counted.get["rows"])


def rows_in_file(file: Location) -> int:
    """Returns the number of rows in a Parquet file from its footer; 0 if the file is missing or
    damaged.
    """
    try:
        return int(pq.read_metadata(file.uri).num_rows)
    except (OSError, pa.ArrowInvalid):
        return 0


def read_files(spark: SparkSession, folder: Location, schema: StructType) -> DataFrame:
    """Returns the rows that were written to a folder."""
    return spark.read.schema(schema).parquet(str(folder))


def conform(
    frame: DataFrame,
    schema: pa.Schema,
    what: str,
    more: Sequence[str] = (),
) -> DataFrame:
    """Selects `window_id` and the declared columns of a frame, in the declared order.

    If the frame has columns that `more` lists, they follow.

    Raises:
        InputError: a column is missing or has another type; names the operator, the port and both
            types.
    """
    wanted = spark_schema(schema)
    found = column_types(frame.schema)
    for field in [*spark_schema(pa.schema([("window_id", pa.int64())])).fields, *wanted.fields]:
        if field.name not in found:
            raise InputError(f'{what} lacks the column "{field.name}" that it declares')
        if found[field.name].simpleString() != field.dataType.simpleString():
            have = found[field.name].simpleString()
            raise InputError(
                f'column "{field.name}" of {what} must have the declared type '
                f"{field.dataType.simpleString()}, not {have}"
            )
    kept = [name for name in more if name in frame.columns]
    return frame.select("window_id", *map(quoted_column, [*wanted.names, *kept]))


def to_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Converts a small Arrow table to a DataFrame."""
    if not rows.num_rows:
        return empty_frame(spark, spark_schema(rows.schema))
    return spark.createDataFrame(rows)


def check_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Checks that a frame has all columns of a schema, and returns the frame.

    Raises:
        InputError: a column is missing.
    """
    missing: Sequence[str] = excluding(schema.names, frame.columns)
    if missing:
        raise InputError(f'{what} lacks the column "{missing[0]}" that it declares')
    return frame


def to_arrow(frame: DataFrame, schema: pa.Schema, what: str) -> pa.Table:
    """Converts a small DataFrame to an Arrow table with a declared schema.

    Raises:
        InputError: a column is missing or cannot have the declared type.
    """
    check_columns(frame, schema, what)
    try:
        return frame.select(*map(quoted_column, schema.names)).toArrow().cast(schema)
    except pa.ArrowInvalid as error:
        raise InputError(f"{what} does not have the declared schema: {error}") from error
