"""Parquet files as source: their columns have types of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import parquet_rows, parquet_schema
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.spark_parquet import parquet_frame


@source("parquet")
class ParquetSource(FileSource):
    """Parquet files, those that pandas writes among them."""

    suffixes: ClassVar[frozenset[str]] = frozenset({".parquet", ".pq"})
    settings: ClassVar[frozenset[str]] = frozenset({"new_columns"})

    def look(
        self, position: SourcePosition, declared: Sequence[str] | None, recorded: pa.Schema | None
    ) -> SourceContents:
        """See Source."""
        contents = self.contents(position)
        schemas = [(file.name, parquet_schema(file)) for file in self.looked_at(contents, declared)]
        return choose_columns(self.name, self.stream, contents, schemas, declared, recorded)

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source."""
        return parquet_frame(spark, contents)

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        return parquet_rows(part, contents.schema, contents.optional)
