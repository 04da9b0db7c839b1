"""A Delta table as a source. It reads the rows that were added since a version, with the help of
the table's log.

Only commits that changed data count, so OPTIMIZE adds nothing new. A commit that removed, rewrote
or restored rows (DELETE, UPDATE, MERGE, overwrite, RESTORE) stops the recording with an error that
names it: a recorded stream only grows, and the table's files do not show which of their rows are
new. With `changed_rows = "skip"` such commits are skipped and reported.

If files that are still needed were compacted and vacuumed, the whole table is read and compared
with the recorded tuples.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rewindow.errors import InputError, TableError
from rewindow.recording.sources.arrow_types import spark_type
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.parquet_files import parquet_rows
from rewindow.recording.sources.source import SourceContents, SourceFile, SourcePosition, source
from rewindow.recording.sources.spark_parquet import parquet_frame
from rewindow.storage import Table
from rewindow.storage.fields import retyped

_SHOWN = 5
_ABSOLUTE = re.compile(r"^(?:[a-z][a-z0-9+.-]+:(?://)?(?=/)|(?=/))")
"""Scheme of the path of a file outside of its table's folder; files in an object store are not
read.
"""

_WITHOUT_ZONE = re.compile(r"\d{4,}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")
_OF_DELTA_RS = re.compile(r"\.\d{6}$")
"""End of a timestamp that delta-rs wrote, always in UTC. Spark omits trailing zeros."""


@dataclass(frozen=True)
class DeltaFiles:
    """The files to read from a Delta table.

    Attributes:
        version: the table's version that is read.
        schema: its columns.
        files: files with waiting tuples, then added files, in the order of the log.
        warnings: texts about rows that are not read, or were read in an unusual way.
        whole: whether the files contain all rows of the table.
    """

    version: int
    schema: pa.Schema
    files: list[SourceFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    whole: bool = False


@source("delta")
class DeltaSource(FileSource):
    """A Delta table. Its files are Parquet, and its log shows which of them are new."""

    settings: ClassVar[frozenset[str]] = frozenset({"new_columns", "changed_rows"})
    ordered_by_content: ClassVar[bool] = True  # OPTIMIZE moves rows to other files.

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
        found = find_delta_files(
            self.name,
            Path(self.place),
            position,
            skip_changes=self.stream.changed_rows == "skip",
            zone=self.stream.zone if "zone" in self.stream.model_fields_set else None,
        )
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
        notes = contents.new_notes()
        return parquet_rows(part, contents.schema, contents.optional, notes=notes)


def find_delta_files(
    name: str,
    path: Path,
    position: SourcePosition,
    *,
    skip_changes: bool = False,
    zone: str | None = None,
) -> DeltaFiles:
    """Returns the files of a Delta table to read after a position.

    Args:
        name: the stream, for messages.
        path: folder of the table.
        position: what was read before.
        skip_changes: whether to skip commits that changed rows.
        zone: zone of partition times that have none; without it such times are an error.

    Raises:
        InputError: the table does not exist, uses a feature that cannot be read from its files
            alone, changed rows, lacks files, or its log no longer contains the commits since the
            position.
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
    times = _times_of_partitions(table)
    file_of = partial(_source_file, name, path, times=times, zone=zone)
    if position.version < 0:
        files = list(map(file_of, _active(name, table, times)))
        return DeltaFiles(table.version, schema, files, whole=True)
    adds, changes = _since(name, table, position)
    if changes and not skip_changes:
        raise _changed(name, changes)
    warnings = [
        f"{change} of its Delta source was skipped, including the rows that it added"
        for change in changes
    ]
    waiting = [
        {"path": file, "partitionValues": values} for file, values in position.waiting.items()
    ]
    gone = [add["path"] for add in [*waiting, *adds] if not _local(path, add["path"]).is_file()]
    if gone:
        lost = (
            f"{len(gone)} files of its Delta source were compacted and vacuumed before they "
            "were recorded"
        )
        warnings.append(f"{lost}; the whole table was read and compared with the recorded tuples")
        files = list(map(file_of, _active(name, table, times)))
        return DeltaFiles(table.version, schema, files, warnings=warnings, whole=True)
    files = [*map(partial(file_of, seen=True), waiting), *map(file_of, adds)]
    return DeltaFiles(table.version, schema, files, warnings=warnings)


def _changed(name: str, changes: list[str]) -> InputError:
    return InputError(
        f'{changes[0]} of the Delta source of stream "{name}" changed existing rows',
        detail="A recorded stream is append-only, and the rewritten files do not show which of "
        "their rows are new."
        + (f" {len(changes) - 1} later commits changed rows too." if len(changes) > 1 else ""),
        hint="Replace the windows that differ with the current contents of the table: rewindow "
        f"record {name} --reopen --replace; or skip such commits, including the rows that they "
        f'added: changed_rows = "skip" of stream "{name}".',
    )


def _check_plain(name: str, table: Table) -> None:
    features = set(table.delta.protocol().reader_features or [])
    hidden = features & {"deletionVectors", "columnMapping", "variantType", "typeWidening"}
    if hidden or table.delta.protocol().min_reader_version == 2:
        raise InputError(
            f'Delta source of stream "{name}" cannot be read: it uses the feature '
            f"{sorted(hidden or {'columnMapping'})[0]}",
            detail="With this feature, the rows of the table differ from the rows in its files.",
            hint="Copy the table into one without this feature, or export it to Parquet.",
        )


def _active(name: str, table: Table, times: Sequence[str]) -> list[dict[str, Any]]:
    """Checks that all files of a table's newest version exist, and returns them.

    Raises:
        InputError: names the missing files.
    """
    actions = pa.table(table.delta.get_add_actions(flatten=False)).to_pylist()
    actions.sort(key=lambda action: (action["modification_time"], unquote(action["path"])))
    root = table.path.local()
    logged = _logged_values(root / "_delta_log") if times else {}
    adds = []
    missing = []
    for action in actions:
        path = unquote(action["path"])
        values = logged.get(path) or _texts(action.get("partition") or {})
        adds.append({"path": path, "partitionValues": values})
        if not _local(root, path).is_file():
            missing.append(path)
    if missing:
        raise InputError(
            f'Delta source of stream "{name}" is incomplete: {len(missing):,} files of its newest '
            f"version do not exist: {', '.join(missing[:_SHOWN])}",
            detail="The files were removed although the table needs them. Absolute paths belong "
            "to a shallow clone, whose files are in another table.",
            hint=f"Restore these files, then: rewindow record {name}",
        )
    return adds


def _times_of_partitions(table: Table) -> list[str]:
    """Returns the partition columns of a table that are instants."""
    times = []
    for column in table.delta.metadata().partition_columns:
        kind = table.schema.field(column).type
        if pa.types.is_timestamp(kind) and kind.tz:
            times.append(column)
    return times


def _logged_values(log: Path) -> dict[str, dict[str, str | None]]:
    """Returns the partition values of a log's files as text.

    The values that delta-rs has parsed cannot be used, because it interprets a time without a zone
    as UTC.
    """
    rows: list[dict[str, Any]] = []
    for file in log.rglob("*.parquet"):
        rows += pq.read_table(file, columns=["add"]).to_pylist()
    for file in log.glob("*.json"):
        rows += map(json.loads, filter(str.strip, file.read_text().splitlines()))
    found = {}
    for row in rows:
        if add := row.get("add"):
            found[unquote(add["path"])] = dict(add["partitionValues"])
    return found


def _texts(values: dict[str, Any]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}


_NO_CHANGE: dict[str, Any] = {"dataChange": False}
"""Replaces an action that a line of the log does not have."""


def _since(
    name: str,
    table: Table,
    position: SourcePosition,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the files that commits after a position have appended, and descriptions of the
    commits that changed rows.
    """
    adds: list[dict[str, Any]] = []
    changes: list[str] = []
    known = set(position.waiting)
    for number in range(position.version + 1, table.version + 1):
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
        # A commit that only adds files may restore older ones.
        if is_change or (operation == "RESTORE" and appended):
            changes.append(f"version {number} ({operation or 'unknown operation'})")
        else:
            adds += filter(lambda add: add["path"] not in known, appended)
        known.update(map(itemgetter("path"), appended))
    return adds, changes


def _commit(name: str, path: Path, version: int) -> Iterator[dict[str, Any]]:
    file = path / "_delta_log" / f"{version:020}.json"
    try:
        lines: Sequence[str] = file.read_text().splitlines()
    except FileNotFoundError as error:
        raise InputError(
            f'version {version} of the Delta source of stream "{name}" is no longer in its log',
            detail="The rows added since the last run can no longer be determined.",
            hint="Record the table as a new stream, and keep its log longer than the time between "
            "two runs.",
        ) from error
    yield from map(json.loads, filter(str.strip, lines))


def _local(root: Path, path: str) -> Path:
    """Returns the path of a table's file. The log of a shallow clone has absolute paths."""
    return root / _ABSOLUTE.sub("", path)


def _source_file(
    name: str,
    root: Path,
    add: dict[str, Any],
    *,
    times: Sequence[str],
    zone: str | None,
    seen: bool = False,
) -> SourceFile:
    path = _local(root, add["path"])
    values = dict(add.get("partitionValues") or {})
    for column in times:
        values[column] = _with_zone(name, column, values.get(column), zone)
    return SourceFile(
        add["path"],
        path,
        lambda: path.open("rb"),
        size=path.stat().st_size,
        constants=values,
        seen_rows=sys.maxsize if seen else 0,
    )


def _with_zone(name: str, column: str, text: str | None, zone: str | None) -> str | None:
    """Adds a time zone to the time value of a partition.

    If the value in the log has no zone and delta-rs wrote it, it is in UTC. Spark writes the value
    in the zone of its session, so the settings must name that zone.

    Raises:
        InputError: no zone is set.
    """
    if not text or not _WITHOUT_ZONE.fullmatch(text):
        return text
    if _OF_DELTA_RS.search(text):
        return f"{text}Z"
    if zone is None:
        raise InputError(
            f'partition column "{column}" of the Delta source of stream "{name}" has times without '
            f'a zone, such as "{text}"',
            detail="The zone is that of the session that wrote the times, which is not in the log.",
            hint=f'Set this zone in stream "{name}", such as zone = "UTC" or zone = '
            '"Europe/Berlin".',
        )
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).isoformat()
