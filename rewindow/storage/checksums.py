"""Checksums of a table's files. They are recorded when the files are written, and compared without
Spark.

For a stream they are in its table `.files`. For a staged output they are in the `userMetadata` of
the commit that added the files, so that a file and its checksum become visible together. A file
without a recorded checksum was written by another program, or the log of its table was cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rewindow.location import location
from rewindow.progress.steps import counted
from rewindow.storage.delta import CHECKSUMS, DataFile, Table, total_size
from rewindow.storage.failures import reading_table
from rewindow.storage.files import file_checksum, files_path, name_in, noted_files

_THREADS = 4


def with_checksums(files: Sequence[DataFile]) -> list[DataFile]:
    """Returns files with the checksums of their current bytes.

    Raises:
        OSError: a file cannot be read.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        taken = pool.map(lambda file: file_checksum(location(file.path)), files)
        return [
            replace(file, checksum=checksum) for file, checksum in zip(files, taken, strict=True)
        ]


def with_noted(table: Table, files: Sequence[DataFile]) -> list[DataFile]:
    """Adds the recorded checksums to files of a table.

    A file without a recorded checksum has an empty one.
    """
    noted = noted_checksums(table) if files else {}
    return [replace(file, checksum=noted.get(name_in(table, file), "")) for file in files]


def noted_checksums(table: Table) -> Mapping[str, str]:
    """Returns the recorded checksums by the path of the file in the table's folder."""
    notes = files_path(table.path)
    if Table.exists(notes):
        return {name: checksum for name, (_, checksum) in noted_files(Table.open(notes)).items()}
    return _in_commits(table)


def differing(files: Iterable[DataFile]) -> list[DataFile]:
    """Returns the files whose bytes do not match their checksum.

    Files without a checksum are skipped.

    Raises:
        OSError: a file cannot be read.
    """
    noted = [file for file in files if file.checksum]
    size = total_size(noted)
    with ThreadPoolExecutor(_THREADS) as pool:
        taken = zip(
            noted,
            pool.map(lambda file: file_checksum(location(file.path)), noted),
            strict=True,
        )
        every = counted("comparing staged files", taken, size, "bytes", lambda pair: pair[0].size)
        return [file for file, checksum in every if file.checksum != checksum]


def _in_commits(table: Table) -> dict[str, str]:
    checksums: dict[str, str] = {}
    for entry in (table.path / "_delta_log").entries("*.json"):
        if not entry.stem.isdigit() or int(entry.stem) > table.version:
            continue
        with reading_table(table.path):
            for line in entry.read_text().splitlines():
                if CHECKSUMS in line:
                    metadata = json.loads(line).get("commitInfo", {}).get("userMetadata") or "{}"
                    checksums |= json.loads(metadata).get(CHECKSUMS, {})
    return checksums
