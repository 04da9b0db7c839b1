"""Feather files as a source. They are Arrow IPC files with typed columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.typed_rows import columns_inside, rows_as, schema_for_spark


@source("feather")
class FeatherSource(FileSource):
    """Feather files of version 2, including files in zip files.

    Their buffers may be compressed, but not the files.
    """

    suffixes: ClassVar[frozenset[str]] = frozenset({".feather", ".arrow"})
    settings: ClassVar[frozenset[str]] = frozenset({"new_columns"})

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source."""
        contents = self.contents(position)
        schemas = [(file.name, _schema(file)) for file in self.typed_files(contents)]
        return choose_columns(
            self.name,
            self.stream,
            contents,
            schemas=schemas,
            declared=declared,
            recorded=recorded,
        )

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        with _opened(part) as reader:
            inside = columns_inside(
                part, contents.schema, contents.optional, there=reader.schema.names
            )
        batches = _batches(part, inside)
        notes = contents.new_notes()
        yield from rows_as(part, contents.schema, batches, self.stream.zone, notes)


def _schema(file: SourceFile) -> pa.Schema:
    """Returns the schema of a file in types that Spark can read."""
    with _opened(file) as reader:
        return schema_for_spark(reader.schema)


def _batches(file: SourceFile, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    with _opened(file) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(columns)


@contextmanager
def _opened(file: SourceFile) -> Iterator[pa.RecordBatchFileReader]:
    try:
        with file.open() as stream, pa.ipc.open_file(stream) as reader:
            yield reader
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f'source file "{file.name}" cannot be read as Feather: {error}',
            hint="The file must be in the Arrow IPC file format, not the stream format or Feather "
            "version 1, and must not be compressed as a whole.",
        ) from error
