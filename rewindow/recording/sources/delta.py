"""A Delta table as source: what it has gained since a version, read from its log.

Only commits that changed data count, so OPTIMIZE brings nothing new. A commit that took rows away
or wrote them again (DELETE, UPDATE, MERGE, overwrite) is refused by name: a recorded stream only
grows, and its files do not tell which of their rows are new. With `changed_rows = "skip"` such
commits are passed over and reported.

When files that are still needed were compacted and vacuumed, the whole table is read and held
against what is recorded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rewindow.errors import InputError, TableError
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.parquet_files import parquet_rows
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.spark_parquet import parquet_frame
from rewindow.recording.sources.typed_rows import spark_type
from rewindow.storage import Table
from rewindow.storage.fields import retyped


@dataclass(frozen=True)
class DeltaFiles:
    """What is to be read from a Delta table now.

    Attributes:
        version: the table's version that is read.
        schema: its columns.
        files: its files: those that waited, then those added, in the order of the log.
        warnings: what is not taken, or was read otherwise than usual.
        whole: whether these are all rows of the table.
    """

    version: int
    schema: pa.Schema
    files: list[SourceFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    whole: bool = False


@source("delta")
class DeltaSource(FileSource):
    """A Delta table: its files are Parquet, its log says which of them are new."""

    settings: ClassVar[frozenset[str]] = frozenset({"new_columns", "changed_rows"})

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """See Source."""
        return (path / "_delta_log").is_dir()

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source."""
        skip_changes = self.stream.changed_rows == "skip"
        found = find_delta_files(self.name, Path(self.place), position, skip_changes=skip_changes)
        contents = SourceContents(
            found.files,
            version=found.version,
            warnings=found.warnings,
            whole=found.whole,
        )
        chosen = choose_columns(
            self.name,
            self.stream,
            contents,
            schemas=[("", found.schema)],
            declared=declared,
            recorded=recorded,
        )
        return replace(chosen, optional=frozenset(found.schema.names))

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source."""
        return parquet_frame(spark, contents)

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        return parquet_rows(part, contents.schema, contents.optional)


def find_delta_files(
    name: str,
    path: Path,
    position: SourcePosition,
    *,
    skip_changes: bool = False,
) -> DeltaFiles:
    """Returns the files of a Delta table that were added after a position, and those that still
    wait.

    Args:
        name: the stream.
        path: the table's folder.
        position: how far it has been recorded.
        skip_changes: pass over commits that changed rows instead of refusing them.

    Raises:
        InputError: the table is not there, has a feature that its files alone do not show, changed
            rows, or its log no longer reaches back to the position.
    """
    try:
        table = Table.open(str(path))
    except TableError as error:
        raise InputError(
            f'source "{path}" of stream "{name}" is not a Delta table',
            detail=str(error),
        ) from error
    _check_plain(name, table)
    schema = pa.schema(retyped(table.schema, spark_type))
    file_of = partial(_source_file, path)
    if position.version < 0:
        return DeltaFiles(
            table.version,
            schema,
            list(map(file_of, _active(table))),
            whole=True,
        )
    adds, changes = _since(name, table, position.version)
    if changes and not skip_changes:
        raise _changed(name, changes)
    warnings = [
        f"{change} of its Delta source was passed over, with all that it added"
        for change in changes
    ]
    waiting = [
        {"path": file, "partitionValues": values} for file, values in position.waiting.items()
    ]
    gone = [add["path"] for add in [*waiting, *adds] if not (path / add["path"]).is_file()]
    if gone:
        lost = (
            f"{len(gone)} files of its Delta source were compacted and vacuumed before they "
            "were recorded"
        )
        warnings.append(f"{lost}; the whole table was read and compared with what is recorded")
        return DeltaFiles(
            table.version,
            schema,
            list(map(file_of, _active(table))),
            warnings=warnings,
            whole=True,
        )
    files = [*map(partial(file_of, seen=True), waiting), *map(file_of, adds)]
    return DeltaFiles(table.version, schema, files, warnings=warnings)


def _changed(name: str, changes: list[str]) -> InputError:
    return InputError(
        f'{changes[0]} of the Delta source of stream "{name}" changed rows that were there',
        detail="A recorded stream only grows, and the rewritten files do not tell which of their "
        "rows are new."
        + (f" {len(changes) - 1} later commits changed rows too." if len(changes) > 1 else ""),
        hint="Take the windows that differ as the table has them now: rewindow record "
        f"{name} --reopen --replace; or pass such commits over, with all that they added: "
        f'changed_rows = "skip" of stream "{name}".',
    )


def _check_plain(name: str, table: Table) -> None:
    features = set(table.delta.protocol().reader_features or [])
    hidden = features & {"deletionVectors", "columnMapping", "variantType", "typeWidening"}
    if hidden or table.delta.protocol().min_reader_version == 2:
        raise InputError(
            f'Delta source of stream "{name}" uses {sorted(hidden or {"columnMapping"})[0]}',
            detail="Its files alone do not say what its rows are.",
            hint="Copy it into a table without this feature, or export it to Parquet.",
        )


def _active(table: Table) -> list[dict[str, Any]]:
    actions = pa.table(table.delta.get_add_actions(flatten=False)).to_pylist()
    actions.sort(key=lambda action: (action["modification_time"], unquote(action["path"])))
    adds = []
    for action in actions:
        values = _texts(action.get("partition") or {})
        adds.append({"path": unquote(action["path"]), "partitionValues": values})
    return adds


def _texts(values: dict[str, Any]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}


_NO_CHANGE: dict[str, Any] = {"dataChange": False}
"""Stands for an action that a line of the log does not have."""


def _since(name: str, table: Table, version: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the files that commits after a version appended, and the names of commits that
    changed rows.
    """
    adds: list[dict[str, Any]] = []
    changes: list[str] = []
    for number in range(version + 1, table.version + 1):
        appended = []
        operation = None
        is_change = False
        # OPTIMIZE only moves rows to other files, and marks its actions with dataChange = false.
        for action in _commit(name, table.path.local(), number):
            add = action.get("add", _NO_CHANGE)
            if add.get("dataChange", True):
                appended.append({**add, "path": unquote(add["path"])})
            is_change |= action.get("remove", _NO_CHANGE).get("dataChange", True)
            operation = operation or action.get("commitInfo", {}).get("operation")
        if is_change:
            changes.append(f"version {number} ({operation or 'unknown operation'})")
        else:
            adds += appended
    return adds, changes


def _commit(name: str, path: Path, version: int) -> Iterator[dict[str, Any]]:
    file = path / "_delta_log" / f"{version:020}.json"
    try:
        lines: Sequence[str] = file.read_text().splitlines()
    except FileNotFoundError as error:
        raise InputError(
            f'version {version} of the Delta source of stream "{name}" is no longer in its log',
            detail="What was added since the last run cannot be told any more.",
            hint="Record it as a new stream, or keep its log longer than the time between two "
            "runs.",
        ) from error
    yield from map(json.loads, filter(str.strip, lines))


def _source_file(root: Path, add: dict[str, Any], *, seen: bool = False) -> SourceFile:
    path = root / add["path"]
    if not path.is_file():
        raise InputError(
            f'file "{add["path"]}" of Delta source "{root.name}" is gone',
            detail="It was compacted and vacuumed before it was recorded.",
            hint="Record it as a new stream, or vacuum with a longer retention.",
        )
    size = path.stat().st_size
    return SourceFile(
        add["path"],
        path,
        lambda: path.open("rb"),
        size=size,
        constants=add.get("partitionValues") or {},
        seen_rows=sys.maxsize if seen else 0,
    )
