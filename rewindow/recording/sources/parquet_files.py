"""Parquet files as a source. Their columns have types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rewindow.errors import InputError
from rewindow.recording.sources.arrow_types import CUT
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.spark_parquet import parquet_frame
from rewindow.recording.sources.typed_rows import columns_inside, rows_as, schema_for_spark

_ROWS = 100_000


@source("parquet")
class ParquetSource(FileSource):
    """Parquet files, including those written by pandas and those in zip files, which Spark cannot
    read directly.
    """

    suffixes: ClassVar[frozenset[str]] = frozenset({".parquet", ".pq"})
    settings: ClassVar[frozenset[str]] = frozenset({"new_columns"})

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source."""
        contents = self.contents(position)
        schemas = [(file.name, parquet_schema(file)) for file in self.typed_files(contents)]
        return choose_columns(
            self.name,
            self.stream,
            contents,
            schemas=schemas,
            declared=declared,
            recorded=recorded,
        )

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source."""
        return parquet_frame(spark, contents)

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        notes = contents.new_notes()
        return parquet_rows(part, contents.schema, contents.optional, self.stream.zone, notes)


def parquet_schema(
    file: SourceFile,
) -> pa.Schema:
    """Returns the schema of a Parquet file in types that Spark can read.

    Raises:
        InputError: the file is not Parquet.
    """
    with _opened(file) as parquet:
        return schema_for_spark(parquet.schema_arrow)


def parquet_rows(
    file: SourceFile,
    schema: pa.Schema,
    optional: Collection[str],
    zone: str = "UTC",
    notes: Counter[str] | None = None,
) -> Iterator[pa.Table]:
    """Yields a Parquet file's rows with the columns of a schema. Rows count from 1.

    An optional column that is missing in the file is null.

    Args:
        file: the file to read.
        schema: schema of the rows.
        optional: columns that may be missing from the file.
        zone: zone of local times that become instants.
        notes: receives counts of values that are changed or chosen.

    Raises:
        InputError: a column is not in the file, or has another type than in the source's first
            file.
    """
    notes = Counter() if notes is None else notes
    with _opened(file) as parquet:
        inside = columns_inside(file, schema, optional, there=parquet.schema_arrow.names)
        notes[CUT] += _count_cut_int96(file, parquet, inside)
        batches = parquet.iter_batches(batch_size=_ROWS, columns=inside)
        yield from rows_as(file, schema, batches, zone, notes)


def _count_cut_int96(
    file: SourceFile,
    parquet: pq.ParquetFile,
    columns: Sequence[str],
) -> int:
    """Returns the number of INT96 timestamps in a file that are more precise than microseconds."""
    names = []
    for column in parquet.schema:
        if column.physical_type == "INT96" and column.path in columns:
            names.append(column.path)
    count = 0
    with _opened(file, "ns") as fine:
        for group in range(parquet.num_row_groups if names else 0):
            whole = parquet.read_row_group(group, names)
            finer = fine.read_row_group(group, names)
            for micros, nanos in zip(whole, finer, strict=True):
                us = micros.cast(pa.int64()).fill_null(0).to_numpy()
                ns = nanos.cast(pa.int64()).fill_null(0).to_numpy()
                # Outside the years 1678 to 2262 both numbers have overflowed 64 bits in the same
                # way.
                count += int(np.count_nonzero(ns - us * 1000))
    return count


@contextmanager
def _opened(file: SourceFile, int96: str = "us") -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(
            file.open() if file.in_zip else str(file.path),
            coerce_int96_timestamp_unit=int96,
        ) as parquet:
            yield parquet
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f'source file "{file.name}" cannot be read as Parquet: {error}',
            hint="The file must be a complete Parquet file. If it was compressed with gzip or "
            "another tool, decompress it first.",
        ) from error
