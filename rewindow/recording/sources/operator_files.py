"""A Python file with an input operator as source: it is asked for the tuples of each window (X45).

Nothing of a sealed window is asked for again; what a run that died had emitted for later ones is
asked for anew.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pydantic import ValidationError

from rewindow.application.properties import wrong_properties
from rewindow.errors import InputError
from rewindow.operators.tuples.input_operator import InputOperator, input_rows
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.readers import with_numbers
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.typed_rows import schema_for_spark
from rewindow.settings.config import StreamConfig
from rewindow.windows import WindowRange, parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWN = ("operator", "begin", "end")


@source("operator")
class OperatorSource:
    """An `InputOperator`; `source_settings` say from when to when it is called, the others are its
    properties.
    """

    suffixes: ClassVar[frozenset[str]] = frozenset({".py"})
    settings: ClassVar[frozenset[str]] = frozenset({"source_settings"})

    def __init__(self, name: str, stream: StreamConfig, place: str) -> None:
        self.name = name
        self.stream = stream
        self.path = Path(place)
        self._operator: InputOperator | None = None
        self._windows = WindowRange(0, 0)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """See Source: its name tells."""
        return False

    def check(self) -> None:
        """See Source: it builds the operator, with its properties."""
        self._operator = self._built()
        if "begin" not in self.stream.source_settings:
            raise self._wrong(
                "begin",
                "is not set",
                'Say from when on it is called: begin = "2026-01-01".',
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
        """See Source: one part, the windows behind what is sealed, up to `end` or the last whole
        one by the clock.
        """
        grid = self.stream.grid
        end_us = (
            self._time_us("end") if "end" in self.stream.source_settings else time.time_ns() // 1000
        )
        last = (
            grid.window(end_us - 1)
            if "end" in self.stream.source_settings
            else grid.window(end_us) - 1
        )
        first = (
            grid.window(self._time_us("begin"))
            if position.sealed_last is None
            else position.sealed_last + 1
        )
        parts = []
        if first <= last:
            self._windows = WindowRange(first, last)
            parts = [
                SourceFile(
                    f"windows {first} to {last}", self.path, lambda: self.path.open("rb"), size=0
                )
            ]
        complete = min(grid.end_us(last), time.time_ns() // 1000)
        contents = SourceContents(
            parts,
            version=max(last, first - 1, 0),
            whole=False,
            complete_to_us=complete,
        )
        schema = schema_for_spark(self._made().columns)
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
        for table in input_rows(self._made(), self.stream.grid, self._windows):
            chosen = table.select(contents.schema.names).cast(contents.schema)
            yield with_numbers(chosen, pa.array(range(row, row + chosen.num_rows), pa.int64()))
            row += chosen.num_rows

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source: Spark cannot call it."""
        return None

    def _made(self) -> InputOperator:
        if self._operator is None:
            self._operator = self._built()
        return self._operator

    def _built(self) -> InputOperator:
        kind = self._kind()
        given = {
            key: value for key, value in self.stream.source_settings.items() if key not in _OWN
        }
        if (
            not isinstance(getattr(kind, "columns", None), pa.Schema)
            or kind.arrival not in kind.columns.names
        ):
            raise InputError(
                f'input operator {kind.__name__} of stream "{self.name}" needs `columns`, a '
                "pyarrow schema with the "
                f'column "{getattr(kind, "arrival", "at")}"'
            )
        try:
            return kind(**given)
        except ValidationError as error:
            wrong = wrong_properties(error, given, kind.model_fields)[0]
            raise self._wrong(wrong.path, f"is {wrong.value!r}: {wrong.message}", "") from error

    def _kind(self) -> type[InputOperator]:
        found: dict[str, type[InputOperator]] = {}
        # An operator that the file only imports belongs to another file.
        for name, kind in vars(_module(self.path, self.name)).items():
            is_operator = isinstance(kind, type) and issubclass(kind, InputOperator)
            if is_operator and kind.__module__ == _name(self.path):
                found[name] = kind
        wanted = self.stream.source_settings.get(
            "operator",
            next(iter(found)) if len(found) == 1 else None,
        )
        if wanted not in found:
            raise InputError(
                f'source "{self.path}" of stream "{self.name}" '
                + (
                    f'has no input operator "{wanted}"'
                    if wanted
                    else f"has {len(found)} input operators"
                ),
                hint=f"Set source_settings.operator to one of: {', '.join(found)}."
                if found
                else "Write a class that derives from rewindow.operators.InputOperator.",
            )
        return found[wanted]

    def _time_us(self, key: str) -> int:
        value = self.stream.source_settings[key]
        try:
            return parse_time(str(value))
        except InputError as error:
            raise self._wrong(
                key,
                f'is "{value}", not a time',
                'Write it in ISO 8601, such as "2026-01-01".',
            ) from error

    def _wrong(self, key: str, words: str, hint: str) -> InputError:
        return InputError(
            f'setting "source_settings.{key}" of stream "{self.name}" {words}',
            hint=hint,
        )


def _name(path: Path) -> str:
    return f"_rewindow_input_{path.stem}"


def _module(path: Path, stream: str) -> Any:
    if not path.is_file():
        raise InputError(f'source "{path}" of stream "{stream}" is not there')
    spec = importlib.util.spec_from_file_location(_name(path), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f'source "{path}" of stream "{stream}" cannot be imported: {type(error).__name__}: '
            f"{error}",
            hint="Mend it: nothing was recorded.",
        ) from error
    return module
