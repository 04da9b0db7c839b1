"""Writes or links files that a later commit adds to a table: complete, synced to disk, and with
statistics.

A file has a temporary name until it is complete and synced, so that a partial file never has a name
that a table could refer to. If source and target are on different file systems, the file is copied
instead of linked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from rewindow.location import Location

_TEXT_MAX = 64
"""Longer text bounds are left out of the statistics, because they would have to be cut and the
upper bound rounded up."""

ROW_GROUP = 128 * 1024
"""Rows in a row group of a written file. Readers skip row groups whose bounds exclude the requested
rows."""


@dataclass(frozen=True)
class NewFile:
    """A complete Parquet file in the folder of a table that is not yet part of the table.

    Attributes:
        path: path within the table's folder.
        rows, size: number of rows and size in bytes.
        changed_ms: time when its bytes were written, to be stored in the table's log.
        statistics: statistics of its columns for the table's log.
        source: the file that it is a link or copy of; None for one that was written.
        copied: whether it was copied because it could not be linked.
        checksum: recorded checksum of its source, empty if there is none.
    """

    path: str
    rows: int
    size: int
    changed_ms: int
    statistics: str
    source: Location | None = None
    copied: bool = False
    checksum: str = ""

    def action(self) -> AddAction:
        """Returns the action that adds the file to the table."""
        return AddAction(
            self.path,
            self.size,
            {},
            self.changed_ms,
            True,
            self.statistics,
        )


def write_file(root: Location, folder: str, rows: pa.Table) -> NewFile:
    """Writes rows into a new file below a table's folder.

    Args:
        root: the table's folder.
        folder: subfolder for the file, created if missing.
        rows: the rows.
    """
    path = root / folder / f"rows-{uuid4()}.parquet"
    content = pa.BufferOutputStream()
    pq.write_table(rows, content, compression="zstd", row_group_size=ROW_GROUP)
    path.write(content.getvalue().to_pybytes())
    footer = pq.read_metadata(path.uri)
    changed_ms = path.modified_ms()
    return NewFile(
        f"{folder}/{path.name}",
        footer.num_rows,
        path.size(),
        changed_ms=changed_ms,
        statistics=statistics(footer, rows.schema),
    )


def link_file(
    source: Location,
    root: Location,
    path: str,
    changed_ms: int,
    schema: pa.Schema,
    checksum: str = "",
) -> NewFile:
    """Hard-links a file into the table's folder, or copies it if linking is not possible. Can be
    repeated.

    The modification time of the link is set to now, so that VACUUM does not delete it before it is
    part of the table. `changed_ms` is returned in the result. `put_right` sets the file's time to
    it later.
    """
    target = root / path
    copied = source.copy_to(target)
    target.set_modified()
    footer = pq.read_metadata(target.uri)
    column_statistics = statistics(footer, schema)
    return NewFile(
        path,
        footer.num_rows,
        target.size(),
        changed_ms=changed_ms,
        statistics=column_statistics,
        source=source,
        copied=copied,
        checksum=checksum,
    )


def put_right(path: Location, changed_ms: int) -> None:
    """Sets the modification time of a linked file to the time in its table's log.

    This is also the time of its source.
    """
    if path.modified_ms() != changed_ms:
        path.set_modified(changed_ms)


def sync_folders(root: Location, folders: Iterable[str]) -> None:
    """Syncs folders to disk, so that the names of new files survive a power cut."""
    for place in {root, *(root / folder for folder in folders)}:
        place.sync()


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Returns a file's statistics for a table's log as JSON: rows, nulls, and bounds of numbers,
    times and short text.

    Floats have no bounds, because Parquet ignores NaN in them, but Spark sorts NaN after all
    numbers.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(place).path: place for place in range(len(footer.schema))}
    for field in schema:
        place = places.get(field.name)
        if place is None:
            continue
        by_group = [
            footer.row_group(group).column(place).statistics
            for group in range(footer.num_row_groups)
        ]
        if not all(entry is not None and entry.has_null_count for entry in by_group):
            continue
        nulls[field.name] = sum(entry.null_count for entry in by_group)
        bounds = (
            _bounds([entry for entry in by_group if entry.has_min_max], field.type)
            if _is_whole(by_group)
            else None
        )
        if bounds:
            low[field.name], high[field.name] = bounds
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
        }
    )


def _is_whole(by_group: Sequence[Any]) -> bool:
    """Returns whether every row group with a value has bounds."""
    return all(entry.has_min_max or entry.num_values == 0 for entry in by_group)


def _bounds(by_group: Sequence[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    has_bounds = (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )
    if not by_group or not has_bounds:
        return None
    try:
        low = min(entry.min for entry in by_group)
        high = max(entry.max for entry in by_group)
    except OverflowError:
        # Python has no dates before year 1 or after 9999.
        return None
    if isinstance(low, str) and max(len(low), len(high)) > _TEXT_MAX:
        return None
    return _as_json(low, kind), _as_json(high, kind)


def _as_json(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if kind.tz else text
    return value.isoformat() if isinstance(value, date) else value
