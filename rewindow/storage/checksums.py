"""Checksums of a table's files, kept since they were written, and read without Spark.

Of a stream they are in its table `.files`. Of a staged output they are in the commit that made the
files part of it, in its `userMetadata`, so that a file and its checksum become known in one step.
Where neither says anything of a file, another program wrote it, or the log of its table was
cleaned.
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
    """Returns files with the checksums of their bytes as they are now.

    Raises:
        OSError: one cannot be read.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        taken = pool.map(lambda file: file_checksum(location(file.path)), files)
        return [
            replace(file, checksum=checksum) for file, checksum in zip(files, taken, strict=True)
        ]


def with_noted(table: Table, files: Sequence[DataFile]) -> list[DataFile]:
    """Returns files of a table with the checksums that were noted of them; empty where there is
    none.
    """
    noted = noted_checksums(table) if files else {}
    return [replace(file, checksum=noted.get(name_in(table, file), "")) for file in files]


def noted_checksums(table: Table) -> Mapping[str, str]:
    """Returns file, as its path in the table's folder, to its checksum, for those of which one was
    noted.
    """
    notes = files_path(table.path)
    if Table.exists(notes):
        return {name: checksum for name, (_, checksum) in noted_files(Table.open(notes)).items()}
    return _in_commits(table)


def differing(files: Iterable[DataFile]) -> list[DataFile]:
    """Returns the files whose bytes are not those of their checksum; one without a checksum is
    passed over.

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
    found: dict[str, str] = {}
    for entry in (table.path / "_delta_log").entries("*.json"):
        if not entry.stem.isdigit() or int(entry.stem) > table.version:
            continue
        with reading_table(table.path):
            for line in entry.read_text().splitlines():
                if CHECKSUMS in line:
                    told = json.loads(line).get("commitInfo", {}).get("userMetadata") or "{}"
                    found |= json.loads(told).get(CHECKSUMS, {})
    return found
