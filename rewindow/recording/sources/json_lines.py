"""Files of JSON lines as a source.

Each row is a line, which Spark parses with the columns in the settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import json_rows
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source


@source("json")
class JsonSource(FileSource):
    """JSON lines, including compressed files and files in zip files."""

    suffixes: ClassVar[frozenset[str]] = frozenset({".json", ".jsonl", ".ndjson"})
    settings: ClassVar[frozenset[str]] = frozenset({"encoding"})
    lines = "each a row"

    def check(self) -> None:
        """See Source. The settings must name columns, because JSON lines have no types."""
        if self.stream.columns is None:
            raise InputError(
                f'setting "columns" of stream "{self.name}" is missing: a JSON source needs it',
                hint='List the columns in rewindow.toml, such as columns = "key STRING, amount '
                'BIGINT, at TIMESTAMP".',
            )

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source."""
        return replace(self.contents(position), columns=list(declared or ()))

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        return json_rows(part, self.stream.encoding)
