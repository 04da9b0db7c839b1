"""Files that a commit adds to a table and that we wrote or linked ourselves: written whole, synced,
with statistics.

A file has a temporary name until it is complete and synced, so that nothing half written ever has a
name that a table could hold. Where the place is on another file system than the source, a link
becomes a copy.
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
"""Longer bounds of text are left out of the statistics: their end would have to be cut and rounded
up."""

ROW_GROUP = 128 * 1024
"""Rows in a row group of a file that we write: readers pass over those whose bounds say that none
is wanted."""


@dataclass(frozen=True)
class NewFile:
    """A complete Parquet file in the folder of a table, not yet part of it.

    Attributes:
        path: within the table's folder.
        rows, size: as its footer and the file system have them.
        changed_ms: when its bytes were written, as the table's log shall have it.
        statistics: of its columns, as the table's log has them.
        source: the file that it is a link or a copy of; None for one that was written.
        copied: it had to be copied, as it could not be linked.
        checksum: of its source, if one was noted.
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
        """Returns what adds it to the table."""
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
        folder: where in it; made if it is not there.
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
    """Makes a file of elsewhere appear below a table's folder too: by a hard link, by a copy where
    that is impossible.

    Its time is set to now, so that no VACUUM takes it before it is part of the table; `changed_ms`
    of the result is what was given, to which `put_right` sets it later. May be repeated.
    """
    target = root / path
    copied = source.copy_to(target)
    target.set_modified()
    footer = pq.read_metadata(target.uri)
    told = statistics(footer, schema)
    return NewFile(
        path,
        footer.num_rows,
        target.size(),
        changed_ms=changed_ms,
        statistics=told,
        source=source,
        copied=copied,
        checksum=checksum,
    )


def put_right(path: Location, changed_ms: int) -> None:
    """Sets the time of a linked file to the one that its table's log has, which is also its
    source's.
    """
    if path.modified_ms() != changed_ms:
        path.set_modified(changed_ms)


def sync_folders(root: Location, folders: Iterable[str]) -> None:
    """Makes the names of new files outlive a power cut."""
    for place in {root, *(root / folder for folder in folders)}:
        place.sync()


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Returns a file's statistics as a table's log has them: rows, nulls, and bounds of numbers,
    times and short text.

    Floats have no bounds: Parquet leaves NaN out of them, and Spark sorts it behind all numbers.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(place).path: place for place in range(len(footer.schema))}
    for field in schema:
        place = places.get(field.name)
        if place is None:
            continue
        found = [
            footer.row_group(group).column(place).statistics
            for group in range(footer.num_row_groups)
        ]
        if not all(one is not None and one.has_null_count for one in found):
            continue
        nulls[field.name] = sum(one.null_count for one in found)
        bounds = (
            _bounds([one for one in found if one.has_min_max], field.type)
            if _is_whole(found)
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


def _is_whole(found: Sequence[Any]) -> bool:
    """Returns whether every row group with a value has its bounds."""
    return all(one.has_min_max or one.num_values == 0 for one in found)


def _bounds(found: Sequence[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    has_bounds = (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )
    if not found or not has_bounds:
        return None
    try:
        low = min(one.min for one in found)
        high = max(one.max for one in found)
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
