"""The tables of a replay: staged outputs, facts, checkpoints; their names, columns and what they
hold.
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
CODE = "code"
"""Folder of a candidate's own code, among its tables."""
"""Names the transaction id, on the checkpoints table, of the last window that at most once has
begun."""
MEASURES = pa.list_(
    pa.field(
        "element",
        pa.struct([("measure", pa.int64()), ("whole", pa.int64()), ("real", pa.float64())]),
    )
)
"""Measures of a window that were taken when its rows were read back: each by the digest of what was
asked (`loading.measures.Measure.digest`), with its value, a whole or a real number; both are null
where the value is."""
_TIME = pa.timestamp("us", tz="UTC")
_BOOKKEEPING = "rewindow.bookkeeping"
LOG_KEPT = {"delta.logRetentionDuration": "interval 36500 days"}
"""Property of every table of a replay: a publication pins its versions, and commits hold the
checksums of its files, so that its log stays until the replay is purged, not for Delta's 30
days."""
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
"""Of format 3."""


def app_id(replay_id: str, table: str) -> str:
    """Returns the transaction id under which a replay commits to one of its tables."""
    return f"{replay_id}/{table}"


def state_folder(root: Location) -> Location:
    """Returns the state folder that a replay's folder lies in."""
    return root.parent.parent


def own_columns(event_columns: pa.Schema) -> pa.Schema:
    """Returns the columns that a staged output has beside those of its events.

    `offset` is the position at which a tuple was written, `arrived_at` the start of its window,
    unless the output has a column of that name: then that is an event column. Both are there so
    that the files can be published as they are.
    """
    own = [
        ("window_id", pa.int64()),
        ("attempt", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", _TIME),
    ]
    return pa.schema([column for column in own if column[0] not in event_columns.names])


def staged_schema(event_columns: pa.Schema) -> pa.Schema:
    """Returns the schema of a staged output: our own columns, then those of the events."""
    return pa.schema([*own_columns(event_columns), *event_columns])


def create_staged(path: Location, event_columns: pa.Schema) -> Table:
    """Creates the staged table of an output or an error port, empty; one that is there stays as it
    is.
    """
    said = {
        _BOOKKEEPING: ",".join(own_columns(event_columns).names),
        **format_property(TableKind.OUTPUT),
        **LOG_KEPT,
    }
    return create_table(path, staged_schema(event_columns), said)


def bookkeeping(staged: Table) -> frozenset[str]:
    """Returns which columns of a staged table are not its events'."""
    with reading_table(staged.path, what=f": it has no property {_BOOKKEEPING}"):
        return frozenset(staged.properties[_BOOKKEEPING].split(","))


def event_columns(staged: Table) -> pa.Schema:
    """Returns an output's event columns, as its staged table has them."""
    own = bookkeeping(staged)
    return pa.schema(fields_without(staged.schema, own))


class TableContents(TypedDict):
    """What a table holds: its version, and a digest of the names and sizes of its files."""

    version: int
    files: str


Contents = Mapping[str, TableContents]
"""What the tables of a replay hold, by table."""

_READ_WHOLE = (FACTS, CHECKPOINTS)
"""Tables whose bytes go into the digest. Those of an output are compared with its facts when it is
published."""


def staged_contents(root: Location, versions: Mapping[str, int] | None = None) -> Contents:
    """Returns what every table of a replay holds, so that two looks at it can be compared.

    The digest covers the table's id and its files with their sizes; of facts and checkpoints also
    the bytes.

    Args:
        root: folder of the replay's tables.
        versions: look at these versions; the newest ones unless given.

    Raises:
        TableError: a table or one of its files is not there.
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
    """Returns table to version."""
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
    """Refuses a replay whose tables an older or a newer version has made; its checkpoints stand for
    all of them.

    Raises:
        TableError: names the replay, both formats and what to do.
    """
    for name, kind in ((CHECKPOINTS, TableKind.CHECKPOINTS), (FACTS, TableKind.FACTS)):
        if Table.exists(root / name):
            check_format(Table.open(root / name), kind)
