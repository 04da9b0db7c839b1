"""The table `.files` of a stream. It has one row per data file, with the size and the checksum of
the file.

Code that adds files to a stream's table (recording, publication) calls `note_files` after the
commit and before the windows are sealed, so that every file of a sealed window has its row. Rows
are keyed by file name: a name is never reused for other bytes, a file that is recorded twice has
two equal rows, and rows of removed files are kept, since older versions may still need them. A file
without a row was written by another program, such as one that compacted the table.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping

import pyarrow as pa

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.names import files_name
from rewindow.storage.delta import DataFile, Table
from rewindow.storage.formats import TableKind, check_format
from rewindow.storage.queries import query

FILES_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("bytes", pa.int64()),
        ("checksum", pa.string()),
        ("data_version", pa.int64()),
    ]
)
"""A data file: its path in the table's folder, its size, the SHA-256 of its bytes, and the version
of the table when it was recorded."""
_CHUNK_BYTES = 1 << 20


def files_path(data: Location) -> Location:
    """Returns the folder of the table that lists a stream's data files.

    It is next to the table of tuples.
    """
    return data.with_name(files_name(data.name))


def open_files(data: Location) -> Table:
    """Returns the table that lists a stream's data files.

    Args:
        data: folder of the stream's tuples.

    Raises:
        TableError: the table does not exist, or has another format.
    """
    path = files_path(data)
    if not Table.exists(path):
        raise TableError(
            f'table "{path.name}", with the sizes and checksums of the files of stream '
            f'"{data.name}", does not exist',
            detail="Nothing was changed.",
            hint="Compute the checksums again and compare every window with its seal: rewindow "
            f"streams upgrade {data.name}",
        )
    return check_format(Table.open(path), TableKind.FILES)


def note_files(data: Table, files: Table, taken: Mapping[str, str] | None = None) -> int:
    """Adds a row for every file of the table's snapshot that has none yet. Returns the number of
    new rows.

    Can be repeated.

    Args:
        data: the table of tuples.
        files: the table of its data files.
        taken: checksums that were computed while files were written, by path in the table's folder.
    """
    taken = taken or {}
    known = set(query("select distinct file from f", f=files.refresh())["file"].to_pylist())
    new = []
    for file in data.files():
        name = name_in(data, file)
        if name not in known:
            checksum = taken.get(name) or file_checksum(location(file.path))
            new.append((name, file.size, checksum, data.version))
    if new:
        columns = map(pa.array, zip(*new, strict=True), FILES_SCHEMA.types)
        files.append(pa.table(list(columns), schema=FILES_SCHEMA))
    return len(new)


def noted_files(files: Table) -> dict[str, tuple[int, str]]:
    """Returns the size and the checksum of every file that was ever recorded, by file name."""
    rows = query("select file, bytes, checksum from f", f=files)
    pairs = zip(rows["bytes"].to_pylist(), rows["checksum"].to_pylist(), strict=True)
    return dict(zip(rows["file"].to_pylist(), pairs, strict=True))


def name_in(data: Table, file: DataFile) -> str:
    """Returns the path of a file in its table's folder. It is the key of the file's row.

    A file outside of the folder, such as one of a table in place, has its absolute path.
    """
    if not location(file.path).is_below(data.path):
        return file.path
    return location(file.path).relative_to(data.path)


def file_checksum(path: Location, size: int | None = None) -> str:
    """Returns the SHA-256 of a file, or of its first `size` bytes, in hexadecimal."""
    digest = hashlib.sha256()
    left = sys.maxsize if size is None else size
    with path.open() as stream:
        while chunk := stream.read(min(_CHUNK_BYTES, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
