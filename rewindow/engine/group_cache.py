"""Caches results that are computed once per group: frames, and passes whose tasks write their
emitted tuples to files themselves (decision 0013).

A task writes a Parquet file per part, because a row that Python passes to Spark for writing is
converted twice. The file has the columns of a staged output, so that it can become part of the
output unchanged. A repeated task writes other files. Files that no returned row names are deleted
with the scratch folder.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from rewindow.application import WRITTEN, OperatorContext, PartSink
from rewindow.location import Location, location
from rewindow.spark.frames import arrow_schema, read_files, rows_in_file, spark_schema, write_files
from rewindow.spark.shared_folder import lost_rows
from rewindow.storage.new_files import ROW_GROUP
from rewindow.tuple_engine.chain_range import check_foreign
from rewindow.tuple_engine.failing import check_failing
from rewindow.tuple_engine.frames import EMITTED, FOREIGN_OFFSET
from rewindow.tuple_engine.partition_rows import PartitionRows, partitions_reported
from rewindow.tuple_engine.passes import STATE
from rewindow.tuple_engine.tagged_rows import IS_FOREIGN
from rewindow.windows import Grid

_OFFSET = "offset"
_BYTES = 32 << 20
_TASK_BITS = 33
"""Position of the task in a row number: the task is in the upper bits and the row in the lower
ones, as in Spark's monotonically_increasing_id."""


class Written(NamedTuple):
    """The folder with the files of one part, and the frame that reads these files."""

    folder: Location
    frame: DataFrame


class GroupCache:
    """Computes a frame or a pass once per group, and writes it to files for all callers.

    Args:
        spark: the session.
        root: folder of the replay.
        epoch: the attempt.
        arrange: applied to each frame that reads files.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Location,
        epoch: int,
        arrange: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._spark = spark
        self._root = root
        self._epoch = epoch
        self._arrange = arrange
        self._frames: dict[str, DataFrame] = {}
        self._passes: dict[str, dict[str, Written]] = {}
        self.partitions: dict[str, list[PartitionRows]] = {}
        self.emitted: dict[str, int] = {}

    def clear(self) -> None:
        """Removes the results of the previous group."""
        self._frames.clear()
        self._passes.clear()
        self.partitions.clear()
        self.emitted.clear()

    def context(self, operator: str, context: OperatorContext) -> OperatorContext:
        """Returns the context of an operator with `materialize` and `parts` for this group."""

        def materialize(name: str, make: Callable[[], DataFrame]) -> DataFrame:
            place = f"{operator}+{name}"
            if place not in self._frames:
                frame = make()
                folder = self._folder(place, context)
                write_files(frame, folder)
                self._frames[place] = self._arrange(read_files(self._spark, folder, frame.schema))
            return self._frames[place]

        def parts(
            schemas: Mapping[str, pa.Schema],
            make: Callable[[PartSink], DataFrame],
        ) -> Mapping[str, DataFrame]:
            if operator not in self._passes:
                folder = self._folder(f"{operator}+parts", context)
                self._passes[operator] = self._run(operator, folder, schemas, make, context.grid)
            return {part: written.frame for part, written in self._passes[operator].items()}

        return replace(context, materialize=materialize, parts=parts)

    def run_together(
        self,
        operators: Sequence[str],
        schemas: Mapping[str, pa.Schema],
        make: Callable[[PartSink], DataFrame],
        context: OperatorContext,
    ) -> None:
        """Runs the single pass of several operators and stores the parts of each.

        Parts are named `OPERATOR/PART`.
        """
        written = self._run(
            operators[0],
            self._folder(f"{operators[0]}+parts", context),
            schemas,
            make,
            context.grid,
        )
        name = "+".join(operators)
        self.partitions[name] = self.partitions.pop(operators[0])
        self.emitted[name] = self.emitted.pop(operators[0])
        for operator in operators:
            self._passes[operator] = {}
        for place, frame in written.items():
            operator, _, part = place.partition("/")
            self._passes[operator][part] = frame

    def files_of(self, operator: str, part: str, frame: DataFrame) -> Location | None:
        """Returns the folder with the rows of a frame, if tasks wrote these rows and the frame was
        not changed since; otherwise None.
        """
        written = self._passes.get(operator, {}).get(part)
        return written.folder if written is not None and written.frame is frame else None

    def _folder(self, name: str, context: OperatorContext) -> Location:
        return self._root / f"scratch/{name}" / f"{self._epoch}-{context.last}"

    def _run(
        self,
        operator: str,
        folder: Location,
        schemas: Mapping[str, pa.Schema],
        make: Callable[[PartSink], DataFrame],
        grid: Grid,
    ) -> dict[str, Written]:
        folder.delete_tree()
        tasks = folder / "tasks"
        tasks.make_folder()
        columns = {part: _staged(schema) for part, schema in schemas.items()}
        named = make(_TaskFiles(tasks.uri, columns, self._epoch, grid=grid)).toArrow().to_pylist()
        check_failing(operator, named)
        check_foreign(named)
        # Reports of partitions are rows without a file.
        self.partitions[operator] = partitions_reported(named)
        named = [row for row in named if row["part"] in schemas]
        self.emitted[operator] = sum(
            row["rows"] for row in named if row["part"].rpartition("/")[2] != STATE
        )
        _check_files(tasks, named)
        by_part = {}
        for number, (part, schema) in enumerate(schemas.items()):
            of_part = folder / str(number)
            of_part.make_folder()
            for row in named:
                if row["part"] == part:
                    (tasks / row["file"]).move_to(of_part / row["file"])
            if not any(of_part.entries("*.parquet")):
                pq.write_table(columns[part].empty_table(), (of_part / "part-none.parquet").uri)
            by_part[part] = Written(of_part, self.read(of_part, schema))
        return by_part

    def read(self, folder: Location, events: pa.Schema) -> DataFrame:
        """Returns the rows of a part.

        They have the column `EMITTED`, unless an event column is named `offset`.
        """
        has_offset = _OFFSET not in events.names
        rows = pa.schema([("window_id", pa.int64()), *events])
        if has_offset:
            rows = rows.append(pa.field(_OFFSET, pa.int64()))
        frame = read_files(self._spark, folder, spark_schema(rows))
        return self._arrange(frame.withColumnRenamed(_OFFSET, EMITTED) if has_offset else frame)


def _check_files(folder: Location, named: Sequence[Mapping[str, Any]]) -> None:
    """Compares the row counts that tasks have reported with the files that the driver finds.

    Raises:
        RewindowError: a file is missing, or lacks rows.
    """
    written = existing = 0
    hosts = set()
    for row in named:
        written += row["rows"]
        existing += rows_in_file(folder / row["file"])
        hosts.add(row["host"])
    if existing != written:
        raise lost_rows(folder, written, existing, hosts)


def take_over(folder: Location, target: Location) -> Location:
    """Moves the files of a part to the folder of an output's commit group."""
    target.delete_tree()
    for file in folder.entries("*.parquet"):
        file.move_to(target / file.name)
    return target


def _staged(events: pa.Schema) -> pa.Schema:
    """Returns the columns of a staged output, with the types that Spark would write."""
    own = {
        "window_id": pa.int64(),
        "attempt": pa.int64(),
        "offset": pa.int64(),
        "arrived_at": pa.timestamp("us", "UTC"),
    }
    placed = [(name, kind) for name, kind in own.items() if name not in events.names]
    return pa.schema([*placed, *arrow_schema(spark_schema(events))])


@dataclass(frozen=True)
class _TaskFiles:
    """Writes the emitted tuples of one task.

    It is sent to Spark's workers.

    Attributes:
        folder: a folder on a file system that all workers reach.
        columns: part name to the columns of its files.
    """

    folder: str
    columns: Mapping[str, pa.Schema]
    attempt: int
    grid: Grid

    def __call__(self, emitted: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.RecordBatch]:
        """Writes all rows, then yields the names of the files."""
        task = TaskContext.get()
        number = task.partitionId() if task else 0
        parts = {part: _PartFile(self, part, number) for part in self.columns}
        for part, rows in emitted:
            parts[part].add(rows)
        host = socket.gethostname()
        named = []
        for part, writer in parts.items():
            if file := writer.close():
                named.append({"part": part, "file": file, "rows": writer.written, "host": host})
        if named:
            yield pa.RecordBatch.from_pylist(named, schema=WRITTEN)


class _PartFile:
    """A file of one task for one part.

    It is created with its first row.

    Attributes:
        written: number of rows in it.
    """

    def __init__(self, files: _TaskFiles, part: str, task: int) -> None:
        self._files = files
        self._schema = files.columns[part]
        self._row = task << _TASK_BITS
        self._name = f"part-{task:05d}-{uuid4().hex}.parquet"
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = self.written = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Adds rows with `window_id` and the columns of the part."""
        self._waiting.append(self._with_own(rows))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROW_GROUP or self._bytes >= _BYTES:
            self._flush()

    def close(self) -> str:
        """Closes the file and returns its name; empty if the file has no row."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            return ""
        self._writer.close()
        return self._name

    def _with_own(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        given = set(rows.column_names)
        grid = self._files.grid
        own = {
            "attempt": lambda: pa.repeat(pa.scalar(self._files.attempt, pa.int64()), count),
            "offset": lambda: self._offsets(rows),
            "arrived_at": lambda: _starts(rows["window_id"], grid),
        }
        columns = [rows[name] if name in given else own[name]() for name in self._schema.names]
        self._row += count
        return pa.table(columns, names=self._schema.names).cast(self._schema)

    def _offsets(self, rows: pa.Table) -> pa.Array:
        """Returns the offsets of rows in the order of emission.

        Foreign rows, whose keys belong to other tasks, get larger offsets.
        """
        offsets = np.arange(self._row, self._row + rows.num_rows)
        if IS_FOREIGN in rows.column_names:
            offsets += rows[IS_FOREIGN].to_numpy() * FOREIGN_OFFSET
        return pa.array(offsets, pa.int64())

    def _flush(self) -> None:
        if self._writer is None:
            # The folder does not exist on an executor with a separate state folder, so it is
            # created. The driver then finds the file missing and reports the executor's host.
            folder = location(self._files.folder)
            folder.make_folder()
            place = (folder / self._name).uri
            self._writer = pq.ParquetWriter(place, self._schema, store_schema=False)
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP)
        self.written += self._rows
        self._waiting.clear()
        self._rows = self._bytes = 0


def _starts(windows: pa.ChunkedArray, grid: Grid) -> pa.Array:
    ids = windows.to_numpy()
    return pa.array(ids * grid.width_us + grid.origin_us).cast(pa.timestamp("us", "UTC"))
