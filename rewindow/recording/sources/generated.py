"""A source that records the tuples of a generator. Spark tasks compute these tuples.

    [streams.sensors]
    format = "generator"
    source = "sensors"
    arrived_at = "arrived_at"
    source_settings = { rate = 1000, windows = 600 }

A source that ends with ".py" is a Python file with a generator. The number of a row follows from
its window and its position in it, so it does not depend on tasks or on the recording.

Rules: O145 to O147
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from rewindow.operators.generators.by_name import GENERATORS
from rewindow.operators.generators.generator import Generator
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import with_numbers
from rewindow.recording.sources.source import (
    FILE,
    SourceContents,
    SourceFile,
    SourcePosition,
    source,
)
from rewindow.recording.sources.typed_rows import schema_for_spark
from rewindow.recording.sources.user_classes import class_in_file, with_properties
from rewindow.spark.frames import spark_schema
from rewindow.windows import format_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WINDOW_ROWS = 1_000_000_000
"""Row numbers that are reserved for each window of a part."""
_TUPLE_BYTES = 100
"""Assumed size of a tuple, in bytes."""
TUPLES_PER_TASK = 500_000
"""Approximate number of tuples that a Spark task computes."""


@source("generator")
class GeneratorSource(FileSource):
    """A generator of the library or of a Python file. `source_settings` has its properties."""

    settings: ClassVar[frozenset[str]] = frozenset({"source_settings"})
    _windows = range(0)

    def check(self) -> None:
        """See Source. Creates the generator with its properties."""
        kind = GENERATORS.get(self.stream.source) or class_in_file(
            self,
            Generator,
            "generator",
        )
        self.generator = with_properties(
            self,
            kind,
            ("generator",),
        ).on(self.stream.grid)

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source. Returns the windows after the last sealed one, with a `SourceFile` for each
        part.
        """
        grid = self.stream.grid
        every = self.generator.window_range
        sealed = position.sealed_last
        first = every.first if sealed is None else max(every.first, sealed + 1)
        last = min(every.last, grid.window(time.time_ns() // 1000) - 1)
        self._windows = range(first, last + 1)
        parts = []
        size = len(self._windows) * self.generator.rate * _TUPLE_BYTES // self.generator.parts
        for part in range(self.generator.parts if size else 0):
            parts.append(
                SourceFile(
                    f"part {part}",
                    Path(self.place),
                    BytesIO,
                    size,
                )
            )
        ends = last == every.last
        end = format_time(grid.end_us(every.last))
        words = f"the generator ends at {end}: windows after now are not recorded yet"
        contents = SourceContents(
            parts,
            version=max(last, 0),
            warnings=[] if ends else [words],
            whole=sealed is None,
            complete_to_us=grid.end_us(last),
            is_computed=True,
            ends=ends,
        )
        schema = schema_for_spark(self.generator.columns)
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
        number = contents.files.index(part)
        for window in self._windows:
            yield numbered_rows(
                self.generator,
                contents.schema,
                window,
                number,
            )

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source. Each task computes some parts of windows."""
        generator = self.generator
        columns = contents.schema
        parts = generator.parts
        begin = self._windows.start
        # The first part is also computed here, so that errors occur before Spark runs tasks.
        schema = spark_schema(
            numbered_rows(
                generator,
                columns,
                begin,
                0,
            ).schema
        )

        def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for unit in batch.column(0).to_pylist():
                    rows = numbered_rows(
                        generator,
                        columns,
                        *divmod(unit, parts),
                    )
                    yield from rows.to_batches()

        tasks = 1 + len(self._windows) * generator.rate // TUPLES_PER_TASK
        units = spark.range(
            begin * parts,
            self._windows.stop * parts,
            1,
            tasks,
        )
        return units.mapInArrow(rows_of, schema)


def numbered_rows(generator: Generator, columns: pa.Schema, window: int, part: int) -> pa.Table:
    """Returns the rows of a part of a window, as `Source.rows` does, with the column `__file`."""
    rows = pa.Table.from_batches([generator.batch(window, part)])
    chosen = rows.select(columns.names).cast(columns)
    before = (window - generator.window_range.first) * _WINDOW_ROWS
    numbered = with_numbers(chosen, pa.array(np.arange(1, len(chosen) + 1) + before))
    return numbered.append_column(FILE, pa.repeat(pa.scalar(part, pa.int32()), len(chosen)))
