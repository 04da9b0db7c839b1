"""The tables of a replay (staged outputs, facts, checkpoints), with their names, columns, and a
digest of their contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypedDict

import pyarrow as pa

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.storage.delta import Table, create_table
from rewindow.storage.failures import reading_table
from rewindow.storage.fields import fields_without
from rewindow.storage.files import file_checksum
from rewindow.storage.formats import TableKind, check_format, format_property
from rewindow.storage.log_gaps import restore_hint

FACTS = "facts"
CHECKPOINTS = "checkpoints"
STARTED = "started"
"""Name of the transaction id, on the checkpoints table, of the last window that at most once has
started."""
CODE = "code"
"""Folder with a candidate's code, next to its tables."""
MEASURES = pa.list_(
    pa.field(
        "element",
        pa.struct([("measure", pa.int64()), ("whole", pa.int64()), ("real", pa.float64())]),
    )
)
"""Measures of a window, computed when its rows were read back: the digest of each measure
(`loading.measures.Measure.digest`) with its value, a whole or a real number. Both are null if the
value is null."""
_TIME = pa.timestamp("us", tz="UTC")
_BOOKKEEPING = "rewindow.bookkeeping"
LOG_KEPT = {"delta.logRetentionDuration": "interval 36500 days"}
"""Property of every table of a replay. The log is kept until the replay is purged, instead of
Delta's 30 days, because publications pin versions and commits contain the checksums of files."""
FACTS_SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("direction", pa.string()),
        ("port", pa.string()),
        ("tuples", pa.int64()),
        ("digest", pa.string()),
        ("float_digest", pa.string()),
        ("attempt", pa.int64()),
        ("lost", pa.bool_()),
        ("measures", MEASURES),
        ("group_first", pa.int64()),
        ("group_last", pa.int64()),
        ("began_at", _TIME),
        ("ended_at", _TIME),
    ]
)
"""Columns of the facts table, format 3."""


def app_id(replay_id: str, table: str) -> str:
    """Returns the transaction id with which a replay commits to one of its tables."""
    return f"{replay_id}/{table}"


def state_folder(root: Location) -> Location:
    """Returns the state folder that contains a replay's folder."""
    return root.parent.parent


def own_columns(event_columns: pa.Schema) -> pa.Schema:
    """Returns the columns that a staged output has in addition to its event columns.

    `offset` is the position at which a tuple was written. `arrived_at` is the start of the tuple's
    window, unless the output has an event column of that name. With these columns the files can be
    published unchanged.
    """
    own = [
        ("window_id", pa.int64()),
        ("attempt", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", _TIME),
    ]
    return pa.schema([column for column in own if column[0] not in event_columns.names])


def staged_schema(event_columns: pa.Schema) -> pa.Schema:
    """Returns the schema of a staged output: bookkeeping columns, then event columns."""
    return pa.schema([*own_columns(event_columns), *event_columns])


def create_staged(path: Location, event_columns: pa.Schema) -> Table:
    """Creates an empty staged table for an output or an error port. An existing table is not
    changed.
    """
    properties = {
        _BOOKKEEPING: ",".join(own_columns(event_columns).names),
        **format_property(TableKind.OUTPUT),
        **LOG_KEPT,
    }
    return create_table(path, staged_schema(event_columns), properties)


def bookkeeping(staged: Table) -> frozenset[str]:
    """Returns the names of those columns of a staged table that are not event columns."""
    with reading_table(staged.path, what=f": it has no property {_BOOKKEEPING}"):
        return frozenset(staged.properties[_BOOKKEEPING].split(","))


def event_columns(staged: Table) -> pa.Schema:
    """Returns the event columns of an output from its staged table."""
    own = bookkeeping(staged)
    return pa.schema(fields_without(staged.schema, own))


class TableContents(TypedDict):
    """The contents of a table: its version, and a digest of the names and sizes of its files."""

    version: int
    files: str


Contents = Mapping[str, TableContents]
"""Table name to its contents, for the tables of a replay."""

_READ_WHOLE = (FACTS, CHECKPOINTS)
"""Tables whose bytes are part of the digest. The bytes of an output are not, since it is compared
with its facts when it is published."""


def staged_contents(root: Location, versions: Mapping[str, int] | None = None) -> Contents:
    """Returns the contents of every table of a replay, to detect later changes.

    The digest covers the table's id and the names and sizes of its files; for facts and checkpoints
    also their bytes.

    Args:
        root: folder of the replay's tables.
        versions: table name to the version to read, by default the newest.

    Raises:
        TableError: a table or one of its files is missing.
    """
    names = (
        versions
        if versions is not None
        else [path.name for path in root.folders() if Table.exists(path)]
    )
    return {
        name: _contents(Table.open(root / name, versions[name] if versions else None))
        for name in names
    }


def versions_of(contents: Contents) -> dict[str, int]:
    """Returns the version of each table by table name."""
    return {name: table["version"] for name, table in contents.items()}


def _contents(table: Table) -> TableContents:
    digest = hashlib.sha256(str(table.delta.metadata().id).encode())
    for file in sorted(table.files(), key=lambda file: file.path):
        digest.update(f"\0{location(file.path).relative_to(table.path)}\0{file.size}\0".encode())
        if table.path.name in _READ_WHOLE:
            digest.update(_bytes_digest(table, location(file.path)))
    return {"version": table.version, "files": digest.hexdigest()}


def _bytes_digest(table: Table, file: Location) -> bytes:
    try:
        return bytes.fromhex(file_checksum(file))
    except OSError as error:
        raise TableError(
            f'file "{file.name}" of table "{table.path.name}" cannot be read',
            detail=f"{error.strerror}: {file}.",
            hint=restore_hint(table.path),
        ) from error


def check_replay_format(root: Location) -> None:
    """Checks that the tables of a replay have the formats of this version.

    Raises:
        TableError: an older or newer version of Rewindow created them; the message has the replay,
            both formats and the next step.
    """
    for name, kind in ((CHECKPOINTS, TableKind.CHECKPOINTS), (FACTS, TableKind.FACTS)):
        if Table.exists(root / name):
            check_format(Table.open(root / name), kind)
