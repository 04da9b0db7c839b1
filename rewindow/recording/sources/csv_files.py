"""CSV files as a source: every column is text until the stream's settings assign a type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import csv_columns, csv_rows
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source

_DELIMITERS = (",", ";", "\t", "|")
_SHOWN = 80


@source("csv")
class CsvSource(FileSource):
    """CSV files, including compressed files, files in zip files, and files without a header."""

    suffixes: ClassVar[frozenset[str]] = frozenset({".csv", ".tsv", ".txt"})
    settings: ClassVar[frozenset[str]] = frozenset(
        {
            "delimiter",
            "decimal",
            "header",
            "encoding",
            "null_values",
            "new_columns",
        }
    )
    lines = "rows may be longer in quotes"

    def check(self) -> None:
        """See Source.

        Without a header, the settings must name the columns. A delimiter is a single character.
        """
        if not self.stream.header and self.stream.columns is None:
            raise InputError(
                f'setting "columns" of stream "{self.name}" is missing: its CSV source has no '
                "header",
                hint='List the columns in order in rewindow.toml, such as columns = "key STRING, '
                'at TIMESTAMP".',
            )
        if len(self.stream.delimiter) != 1:
            raise InputError(
                f'setting "delimiter" of stream "{self.name}" is "{self.stream.delimiter}", not '
                "one character",
                hint='Write it like this: delimiter = ";". A tab is "\\t".',
            )

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source."""
        contents = replace(self.contents(position), nulls=self.stream.null_values)
        schemas = [
            (file.name, self._schema(file, declared)) for file in self.looked_at(contents, declared)
        ]
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
        return csv_rows(part, contents.columns, self.stream, optional=contents.optional)

    def _schema(self, file: SourceFile, declared: Sequence[str] | None) -> pa.Schema:
        names = None if self.stream.header else declared
        columns = csv_columns(file, self.stream.delimiter, names, encoding=self.stream.encoding)
        if self.stream.header:
            _check_first_row(file, columns, declared)
        return pa.schema([(column, pa.string()) for column in columns])


def _check_first_row(
    file: SourceFile,
    columns: Sequence[str],
    declared: Sequence[str] | None,
) -> None:
    """Checks that the first row is divided by the configured delimiter and contains names, not
    values.

    Raises:
        InputError: names the setting that is wrong.
    """
    if declared is not None and set(declared) & set(columns):
        return
    other = next((sign for sign in _DELIMITERS if len(columns) == 1 and sign in columns[0]), None)
    if other is not None:
        shown = "\\t" if other == "\t" else other
        raise InputError(
            f'first row of source file "{file.name}" has a single column: {columns[0][:_SHOWN]}',
            hint=f'Set the stream\'s delimiter: delimiter = "{shown}".',
        )
    values = [column for column in columns if column.lstrip("+-")[:1].isdigit()]
    if declared is not None and values:
        raise InputError(
            f'first row of source file "{file.name}" contains none of the declared columns',
            detail=f"The row contains values, such as {values[0][:_SHOWN]}.",
            hint="If the file has no header, set header = false, and list all columns in order in "
            "the setting columns.",
        )
