"""A Python file with an input operator as a source: the operator is called for the tuples of each
window.

The operator is not called again for a sealed window. For later windows it is called again, even if
an interrupted run has already called it.

Rules: X45
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.operators.tuples.input_operator import InputOperator, input_rows
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import with_numbers
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.typed_rows import schema_for_spark
from rewindow.recording.sources.user_classes import (
    class_in_file,
    with_properties,
    wrong_setting,
)
from rewindow.windows import WindowRange, parse_time

_OWN = ("operator", "begin", "end")


@source("operator")
class OperatorSource(FileSource):
    """An `InputOperator` as a source.

    Its `source_settings` have its properties and the time range in which it is called.
    """

    suffixes: ClassVar[frozenset[str]] = frozenset({".py"})
    settings: ClassVar[frozenset[str]] = frozenset({"source_settings"})

    _windows = WindowRange(0, 0)

    def check(self) -> None:
        """See Source. Creates the operator with its properties."""
        kind = class_in_file(self, InputOperator, "input operator")
        self.operator = with_properties(self, kind, _OWN)
        if "begin" not in self.stream.source_settings:
            raise wrong_setting(
                self,
                "begin",
                "is not set",
                'Set the time of the operator\'s first call, such as begin = "2026-01-01".',
            )
        for key in ("begin", "end"):
            if key in self.stream.source_settings:
                self._time_us(key)

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source.

        Returns one part, with the windows after the last sealed one, up to `end` or the last window
        that has ended.
        """
        grid = self.stream.grid
        now_us = time.time_ns() // 1000
        last = grid.window(now_us) - 1
        if "end" in self.stream.source_settings:
            last = grid.window(self._time_us("end") - 1)
        first = (
            grid.window(self._time_us("begin"))
            if position.sealed_last is None
            else position.sealed_last + 1
        )
        parts = []
        if first <= last:
            self._windows = WindowRange(first, last)
            parts = [SourceFile(f"windows {first} to {last}", Path(self.place), BytesIO, size=0)]
        complete = min(grid.end_us(last), now_us)
        contents = SourceContents(
            parts,
            version=max(last, first - 1, 0),
            whole=False,
            complete_to_us=complete,
        )
        schema = schema_for_spark(self.operator.columns)
        return choose_columns(
            self.name,
            self.stream,
            contents,
            schemas=[("", schema)],
            declared=declared,
            recorded=recorded,
        )

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        row = part.begin_row
        for table in input_rows(self.operator, self.stream.grid, self._windows):
            chosen = table.select(contents.schema.names).cast(contents.schema)
            yield with_numbers(chosen, pa.array(range(row, row + chosen.num_rows), pa.int64()))
            row += chosen.num_rows

    def _time_us(self, key: str) -> int:
        value = self.stream.source_settings[key]
        try:
            return parse_time(str(value))
        except InputError as error:
            raise wrong_setting(
                self,
                key,
                f'is "{value}", not a time',
                'Write the time in ISO 8601, such as "2026-01-01".',
            ) from error
