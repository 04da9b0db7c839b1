"""Windows of a stream as DataFrames, and DataFrames as files of a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rewindow.errors import InputError
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.recovery import Plan
from rewindow.storage import Table, query
from rewindow.storage.inputs import open_input
from rewindow.storage.streams import open_sealed
from rewindow.windows import Grid, WindowRange


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns a pyarrow schema as Spark's; times are in UTC."""
    return from_arrow_schema(schema)


def read_windows(spark: SparkSession, table: Table, windows: WindowRange) -> DataFrame:
    """Returns the tuples of a closed window range, read at the table's pinned version.

    Our own tables are read by their files, without Delta's snapshot query; others through Delta. Hidden windows are
    left out.
    """
    inside = F.col("window_id").between(windows.first, windows.last)
    if hidden := [part for part in table.hidden if part.overlap(windows)]:
        inside &= ~F.expr(" or ".join(f"window_id between {part.first} and {part.last}" for part in hidden))
    if not table.is_plain():
        reader = spark.read.format("delta").option("versionAsOf", table.version)
        return reader.load(str(table.path)).where(inside)
    paths = [file.path for file in table.files(windows.first, windows.last)]
    schema = spark_schema(table.schema)
    if not paths:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).parquet(*paths).where(inside)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Returns a frame without rows. Made in the JVM: an empty Python list would start Python workers."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(0).select(*columns)


def window_start(grid: Grid) -> Column:
    """Returns when a tuple's window begins: the arrival time of a tuple that has none of its own."""
    return F.timestamp_micros(F.lit(grid.origin_us) + F.col("window_id") * F.lit(grid.width_us))


def count_windows(table: Table, windows: WindowRange) -> dict[int, int]:
    """Returns tuples per window of a range, counted in the files themselves; windows without tuples are left out.

    Files of a table with deletion vectors or column mapping are not what they hold: these are counted by a query.
    """
    counts = _counts_of_files(table, windows) if table.is_plain() else _counts_by_query(table, windows)
    hidden = [part for part in table.hidden if part.overlap(windows)]
    return {
        window: count
        for window, count in counts.items()
        if window in windows and not any(window in part for part in hidden)
    }


def open_inputs(plan: Plan, state: Location) -> dict[str, Table]:
    """Returns the inputs of a replay as pinned, without rows of windows that were never sealed, a warm-up's too.

    Args:
        state: the state folder.

    Raises:
        TableError: another table has taken the place of a planned one.
    """
    for entry in plan.inputs:
        open_input(entry, state)
    first = plan.first if plan.start.warm_up_first is None else plan.start.warm_up_first
    windows = WindowRange(first, plan.last)
    return {
        entry.stream: open_sealed(
            entry.table(state), entry.version, entry.windows_table(state), entry.windows_version, windows
        )
        for entry in plan.inputs
    }


def _counts_by_query(table: Table, windows: WindowRange) -> dict[int, int]:
    sql = f"""select window_id, count(*) as tuples from t
              where window_id between {windows.first} and {windows.last} group by window_id"""
    found = query(sql, t=table)
    return dict(zip(found["window_id"].to_pylist(), found["tuples"].to_pylist(), strict=True))


def _counts_of_files(table: Table, windows: WindowRange) -> dict[int, int]:
    counts: dict[int, int] = {}
    for file in table.files(windows.first, windows.last):
        if file.first is not None and file.first == file.last:
            counts[file.first] = counts.get(file.first, 0) + file.rows
            continue
        column = pq.read_table(file.path, columns=["window_id"], partitioning=None)["window_id"]
        for pair in pc.value_counts(column).to_pylist():
            counts[pair["values"]] = counts.get(pair["values"], 0) + pair["counts"]
    return counts


def count_written(folder: Location) -> dict[int, int]:
    """Returns tuples per window of a folder of Parquet files."""
    column = pq.read_table(folder.uri, columns=["window_id"], partitioning=None)["window_id"]
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(column).to_pylist()}


def write_files(frame: DataFrame, folder: Location) -> None:
    """Computes a frame once, into Parquet files of a folder."""
    frame.write.mode("overwrite").parquet(str(folder))


def read_files(spark: SparkSession, folder: Location, schema: StructType) -> DataFrame:
    """Returns what was written into a folder."""
    return spark.read.schema(schema).parquet(str(folder))


def conform(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Returns a frame with `window_id` and the declared columns, in the declared order.

    Raises:
        InputError: a column is absent or has another type; names the operator, the port and both types.
    """
    wanted = spark_schema(schema)
    found = {field.name: field.dataType for field in frame.schema.fields}
    for field in [*spark_schema(pa.schema([("window_id", pa.int64())])).fields, *wanted.fields]:
        if field.name not in found:
            raise InputError(f'{what} lacks the column "{field.name}" that it declares')
        if found[field.name].simpleString() != field.dataType.simpleString():
            have = found[field.name].simpleString()
            raise InputError(
                f'{what} has the column "{field.name}" of type {have}, declared {field.dataType.simpleString()}'
            )
    return frame.select("window_id", *map(quoted_column, wanted.names))


def to_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Returns a small Arrow table as a DataFrame."""
    if not rows.num_rows:
        return empty_frame(spark, spark_schema(rows.schema))
    return spark.createDataFrame(rows)


def check_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Returns a frame that has all columns of a schema.

    Raises:
        InputError: a column is absent.
    """
    missing: Sequence[str] = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(f'{what} lacks the column "{missing[0]}" that it declares')
    return frame


def to_arrow(frame: DataFrame, schema: pa.Schema, what: str) -> pa.Table:
    """Returns a small DataFrame as an Arrow table of a declared schema.

    Raises:
        InputError: a column is absent or cannot have the declared type.
    """
    check_columns(frame, schema, what)
    try:
        return frame.select(*map(quoted_column, schema.names)).toArrow().cast(schema)
    except pa.ArrowInvalid as error:
        raise InputError(f"{what} does not have the declared schema: {error}") from error
