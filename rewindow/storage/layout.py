"""The tables of a replay: staged outputs, facts, checkpoints; their names, columns and what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewindow.errors import TableError
from rewindow.storage.delta import Table
from rewindow.storage.formats import TableKind, check_format

FACTS = "facts"
CHECKPOINTS = "checkpoints"
STARTED = "started"
"""Names the transaction id, on the checkpoints table, of the last window that at most once has begun."""
_TIME = pa.timestamp("us", tz="UTC")
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
        ("group_first", pa.int64()),
        ("group_last", pa.int64()),
        ("began_at", _TIME),
        ("ended_at", _TIME),
    ]
)


def app_id(replay_id: str, table: str) -> str:
    """Returns the transaction id under which a replay commits to one of its tables."""
    return f"{replay_id}/{table}"


def state_folder(root: Path) -> Path:
    """Returns the state folder that a replay's folder lies in."""
    return root.parent.parent


def staged_schema(event_columns: pa.Schema) -> pa.Schema:
    """Returns the schema of a staged output: window, the attempt that wrote the row, event columns."""
    return pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), *event_columns])


Contents = dict[str, dict[str, Any]]
"""What the tables of a replay hold: by table its "version", and "files", a digest of their names and sizes."""

_READ_WHOLE = (FACTS, CHECKPOINTS)
"""Tables whose bytes go into the digest. Those of an output are compared with its facts when it is published."""


def staged_contents(root: Path, versions: Mapping[str, int] | None = None) -> Contents:
    """Returns what every table of a replay holds, so that two looks at it can be compared.

    The digest covers the table's id and its files with their sizes; of facts and checkpoints also the bytes.

    Args:
        root: folder of the replay's tables.
        versions: look at these versions; the newest ones unless given.

    Raises:
        TableError: a table or one of its files is not there.
    """
    names = versions if versions is not None else sorted(path.name for path in root.glob("*/") if Table.exists(path))
    return {name: _contents(Table.open(root / name, versions[name] if versions else None)) for name in names}


def versions_of(contents: Contents) -> dict[str, int]:
    """Returns table to version."""
    return {name: int(table["version"]) for name, table in contents.items()}


def _contents(table: Table) -> dict[str, Any]:
    digest = hashlib.sha256(str(table.delta.metadata().id).encode())
    for file in sorted(table.files(), key=lambda file: file.path):
        digest.update(f"\0{Path(file.path).relative_to(table.path)}\0{file.size}\0".encode())
        if table.path.name in _READ_WHOLE:
            digest.update(_bytes_digest(table, Path(file.path)))
    return {"version": table.version, "files": digest.hexdigest()}


def _bytes_digest(table: Table, file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise TableError(
            f'file "{file.name}" of table "{table.path.name}" cannot be read', detail=f"{error.strerror}: {file}."
        ) from error


def check_replay_format(root: Path) -> None:
    """Refuses a replay whose tables an older or a newer version has made; its checkpoints stand for all of them.

    Raises:
        TableError: names the replay, both formats and what to do.
    """
    for name, kind in ((CHECKPOINTS, TableKind.CHECKPOINTS), (FACTS, TableKind.FACTS)):
        if Table.exists(root / name):
            check_format(Table.open(root / name), kind)
