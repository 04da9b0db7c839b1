"""Seals: the rows of a stream's table `.windows`, made, checked and read in one place.

A window that is recorded to its end has exactly one row, its seal, also when it is empty (W40). A
window that is opened again gets a new row in the place of the old one, with the next `generation`
(X52): a version of the table never holds two seals of a window, and replays keep the version that
they pinned.

The end of a stream is a row too (X21): the *end row* has no `window_id`, so that no query about
windows meets it, and names in `end_window` the last window of the stream. Every later window is
sealed and empty without a row of its own; `is_sealed` and `stream_end` say so, and nothing may be
recorded behind it.

Every row has a checksum of all its other columns, so that a flipped count or digest is noticed.
Whoever decides by seals (planning, counting inputs, certificates, comparing a source with its
recording) reads them by `read_seals`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from rewindow.errors import TableError
from rewindow.facts.checksums import line_checksums
from rewindow.names import POSITION_COLUMNS, stream_of
from rewindow.sequences import excluding
from rewindow.storage.delta import Table
from rewindow.storage.queries import in_order, query, query_in_parts
from rewindow.storage.streams import WINDOWS_SCHEMA
from rewindow.windows import WindowRange

_TIME = pa.timestamp("us", tz="UTC")
FIRST_GENERATION = 1
_PART = 65_536
_COVERED = excluding(WINDOWS_SCHEMA.names, {"checksum"})
_ALIKE = _COVERED[_COVERED.index("sealed_at") :]
"""The columns that are the same in all windows that were sealed together."""


def columns_text(events: pa.Schema) -> str:
    """Returns the names and Delta types of a stream's event columns as a seal holds them: JSON,
    sorted by name.

    >>> columns = [("window_id", pa.int64()), ("key", pa.string()), ("at", pa.int64())]
    >>> columns_text(pa.schema(columns))
    '{"at":"long","key":"string"}'
    """
    types = {
        field.name: json.loads(field.type.to_json())
        for field in Schema.from_arrow(events).fields
        if field.name not in POSITION_COLUMNS
    }
    return json.dumps(types, sort_keys=True, separators=(",", ":"))


def seal_rows(
    found: pa.Table,
    data: Table,
    columns: str,
    *,
    sealed_at: datetime | None = None,
) -> pa.Table:
    """Returns the seals of windows, with their checksums.

    Args:
        found: window_id, tuples, digest and float_digest, a row for each window; any other column
            of a seal, such as `generation`, where it is not what follows from the other arguments.
        data: the table that holds the tuples; gives id and version.
        columns: the event columns, from `columns_text`.
        sealed_at: now unless given.
    """
    count = found.num_rows
    values: dict[str, object] = {
        "sealed_at": sealed_at or datetime.now(UTC),
        "data_version": data.version,
        "generation": FIRST_GENERATION,
        "columns": columns,
        "table_id": data.id,
        "end_window": None,
    }
    return _with_checksums(
        {
            name: found[name]
            if name in found.column_names
            else _repeated(name, values.get(name), count)
            for name in _COVERED
        }
    )


def end_row(data: Table, last: int) -> pa.Table:
    """Returns the end row of a stream whose last window is `last` (X21); to be appended to its
    table of seals.
    """
    values: dict[str, object] = {
        "sealed_at": datetime.now(UTC),
        "data_version": data.version,
        "generation": FIRST_GENERATION,
        "table_id": data.id,
        "end_window": last,
    }
    return _with_checksums({name: _repeated(name, values.get(name), 1) for name in _COVERED})


def with_checksums(rows: pa.Table) -> pa.Table:
    """Returns seals with checksums of what they say; for whoever changes a column of them."""
    return _with_checksums({name: rows[name] for name in _COVERED})


def read_seals(
    windows: Table,
    asked: WindowRange | None = None,
    *,
    table_id: str | None = None,
) -> pa.Table:
    """Returns the seals of a range, or all, ascending, each held against its own checksum.

    Args:
        windows: a stream's table of seals, at the version that is to be believed.
        asked: the range; all windows unless given.
        table_id: Delta id of the table that the seals must speak of; not compared unless given.

    Raises:
        TableError: a seal is damaged, or speaks of another table than the one whose id is given.
    """
    where = (
        "window_id is not null"
        if asked is None
        else f"window_id between {asked.first} and {asked.last}"
    )
    with windows.reading():
        rows = query(f"select * from w where {where}", w=windows)
        rows = in_order(rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA), "window_id")
    check_seals(rows, windows, table_id)
    return rows


def sealed_windows(
    windows: Table,
    asked: WindowRange,
    *,
    table_id: str | None = None,
) -> tuple[npt.NDArray[np.int64], int]:
    """Returns the ids of the sealed windows of a range, ascending, and the tuples of all; for
    whoever needs no more.

    Every seal is held against its own checksum, as by `read_seals`, but never are all of them in
    memory at once.

    Raises: see read_seals.
    """
    where = f"window_id between {asked.first} and {asked.last}"
    ids = [np.zeros(0, dtype=np.int64)]
    tuples = 0
    for rows in query_in_parts(f"select * from w where {where}", _PART, w=windows):
        with windows.reading():
            seals = rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)
        check_seals(seals, windows, table_id)
        ids.append(rows["window_id"].to_numpy())
        tuples += pc.sum(rows["tuples"]).as_py() or 0
    return np.sort(np.concatenate(ids), kind="stable"), tuples


def sealed_range(windows: Table) -> WindowRange | None:
    """Returns the range from the first seal to the last one, None without any; an end row does not
    extend it.
    """
    bounds = query(
        "select min(window_id) as first, max(window_id) as last from w",
        w=windows,
    ).to_pylist()[0]
    return None if bounds["first"] is None else WindowRange(bounds["first"], bounds["last"])


def stream_end(windows: Table) -> int | None:
    """Returns the last window of a stream that has ended (X21), None for one that may go on.

    Raises:
        TableError: the end row is damaged.
    """
    rows = query("select * from w where end_window is not null order by sealed_at", w=windows)
    if not rows.num_rows:
        return None
    with windows.reading():
        rows = rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)
    check_seals(rows, windows)
    return int(rows["end_window"][-1].as_py())


def intact(rows: pa.Table) -> pa.ChunkedArray:
    """Returns for each seal whether its checksum is that of its other columns; one without a
    checksum is not.
    """
    return pc.fill_null(pc.equal(rows["checksum"], with_checksums(rows)["checksum"]), False)


def check_seals(rows: pa.Table, windows: Table, table_id: str | None = None) -> None:
    """Holds seals against their own checksums, and against the id of the table that they must speak
    of.

    Raises:
        TableError: names the stream and the first window.
    """
    stream = stream_of(windows.path.name)
    damaged = rows.filter(pc.invert(intact(rows)))
    if damaged.num_rows:
        raise TableError(
            f'seal of window {damaged["window_id"][0]} of stream "{stream}" is damaged: its '
            "checksum differs",
            detail=f"{damaged.num_rows} of {rows.num_rows} seals that were read are damaged. "
            "Nothing was changed.",
            hint=f"Put the files of {windows.path} back from a copy, or seal again what is "
            "recorded: "
            f"rewindow streams upgrade {stream}",
        )
    foreign = (
        rows.filter(pc.not_equal(rows["table_id"], table_id)) if table_id else rows.slice(0, 0)
    )
    if foreign.num_rows:
        raise TableError(
            f'seals of stream "{stream}" speak of another table than the one that is there',
            detail=f"Window {foreign['window_id'][0]} was sealed in table "
            f"{foreign['table_id'][0]}, there is "
            f"{table_id}: the tuples were deleted and made anew.",
            hint=f"Put {windows.path.with_name(stream)} back from a copy, or record the stream "
            "under another name.",
        )


def _with_checksums(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    rows = (
        pa.table(dict(columns))
        .select(_COVERED)
        .cast(pa.schema(list(map(WINDOWS_SCHEMA.field, _COVERED))))
    )
    return rows.append_column(WINDOWS_SCHEMA.field("checksum"), line_checksums(rows, _ALIKE))


def _repeated(name: str, value: object, count: int) -> pa.Array:
    kind = WINDOWS_SCHEMA.field(name).type
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)
