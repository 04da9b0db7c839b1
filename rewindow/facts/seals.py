"""Creates, checks and reads seals: the rows of a stream's table `.windows`.

A window that is recorded to its end has exactly one row, its seal, even if it is empty. When a
window is opened again, a new row with the next `generation` replaces the old one. So a version of
the table never contains two seals of a window, and replays use the version that they pinned.

The end of a stream is also a row: the *end row* has no `window_id`, so that queries about windows
do not select it, and `end_window` is the last window of the stream. Every later window counts as
sealed and empty without a row, and nothing can be recorded after the end. `stream_end` returns it.

Every row has a checksum of all its other columns, so that a flipped count or digest is detected.
All decisions that depend on seals (planning, counting inputs, certificates, comparing a source with
its recording) use `read_seals`.

Rules: W40, X21, X52
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
"""The columns that are equal in all windows that were sealed together."""


def columns_text(events: pa.Schema) -> str:
    """Returns the names and Delta types of a stream's event columns as stored in a seal. They are
    JSON, sorted by name.

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
        found: window_id, tuples, digest and float_digest, one row per window. It may contain other
            columns of a seal, such as `generation`, to override their defaults.
        data: the table of tuples; its id and version are stored.
        columns: the event columns, from `columns_text`.
        sealed_at: time of the seal, by default now.
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
    """Returns the end row of a stream whose last window is `last`.

    It is appended to the stream's table of seals.

    Rules: X21
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
    """Adds new checksums to seals after a column was changed."""
    return _with_checksums({name: rows[name] for name in _COVERED})


def read_seals(
    windows: Table,
    asked: WindowRange | None = None,
    *,
    table_id: str | None = None,
) -> pa.Table:
    """Returns the seals of a range, or all seals, in ascending order.

    The checksum of each seal is verified.

    Args:
        windows: a stream's table of seals, at the version to read.
        asked: the range, by default all windows.
        table_id: Delta id of the table that the seals must refer to, by default not compared.

    Raises:
        TableError: a seal is damaged, or refers to a table with another id.
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
    """Returns the ids of the sealed windows of a range, ascending, and their total number of
    tuples.

    The checksum of every seal is verified, as by `read_seals`, but the seals are read in parts, so
    that they are never all in memory.

    Raises:
        TableError: see read_seals.
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
    """Returns the range from the first to the last seal; None if there are no seals.

    An end row does not extend the range.
    """
    bounds = query(
        "select min(window_id) as first, max(window_id) as last from w",
        w=windows,
    ).to_pylist()[0]
    return None if bounds["first"] is None else WindowRange(bounds["first"], bounds["last"])


def stream_end(windows: Table) -> int | None:
    """Returns the last window of a stream that has ended; None for a stream that can continue.

    Raises:
        TableError: the end row is damaged.

    Rules: X21
    """
    rows = query("select * from w where end_window is not null order by sealed_at", w=windows)
    if not rows.num_rows:
        return None
    with windows.reading():
        rows = rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)
    check_seals(rows, windows)
    return int(rows["end_window"][-1].as_py())


def intact(rows: pa.Table) -> pa.ChunkedArray:
    """Returns for each seal whether its checksum matches its other columns.

    For a seal without a checksum, the result is false.
    """
    return pc.fill_null(pc.equal(rows["checksum"], with_checksums(rows)["checksum"]), False)


def check_seals(rows: pa.Table, windows: Table, table_id: str | None = None) -> None:
    """Verifies the checksums of seals, and the id of the table that they refer to.

    Raises:
        TableError: a seal is wrong; the message has the stream and the first such window.
    """
    stream = stream_of(windows.path.name)
    damaged = rows.filter(pc.invert(intact(rows)))
    if damaged.num_rows:
        raise TableError(
            f'seal of window {damaged["window_id"][0]} of stream "{stream}" is damaged: its '
            "checksum differs",
            detail=f"{damaged.num_rows} of {rows.num_rows} seals that were read are damaged. "
            "Nothing was changed.",
            hint=f"Restore the files of {windows.path} from a backup, or create the seals again "
            f"from the recorded tuples: rewindow streams upgrade {stream}",
        )
    foreign = (
        rows.filter(pc.not_equal(rows["table_id"], table_id)) if table_id else rows.slice(0, 0)
    )
    if foreign.num_rows:
        raise TableError(
            f'seals of stream "{stream}" belong to a table that was replaced',
            detail=f"Window {foreign['window_id'][0]} was sealed in table "
            f"{foreign['table_id'][0]}, but the current table is {table_id}: it was deleted and "
            "created again.",
            hint=f"Restore {windows.path.with_name(stream)} from a backup, or record the stream "
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
