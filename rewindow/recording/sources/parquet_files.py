"""Parquet files as source: their columns have types of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from rewindow.recording.sources.columns import choose_columns, takes_what_appears
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import parquet_rows, parquet_schema
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source


@source("parquet")
class ParquetSource(FileSource):
    """Parquet files, those that pandas writes among them."""

    suffixes: ClassVar[frozenset[str]] = frozenset({".parquet", ".pq"})
    settings: ClassVar[frozenset[str]] = frozenset({"new_columns"})

    def look(
        self, position: SourcePosition, declared: Sequence[str] | None, recorded: pa.Schema | None
    ) -> SourceContents:
        """See Source."""
        files = self.files()
        looked_at = files if takes_what_appears(self.stream, declared) else files[:1]
        schemas = [(file.name, parquet_schema(file)) for file in looked_at]
        return choose_columns(self.name, self.stream, SourceContents(files), schemas, declared, recorded)

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        return parquet_rows(part, contents.schema, contents.optional)
