"""Joins small staged files after the last group is committed, so that later steps open fewer files.

A replay in many groups leaves a few files per group, and publication, checks and readers open each
of them. Neighbouring files in the order of windows are joined into one. The new file is read back
before the commit, which adds it and removes the others under the attempt's fence. If the process is
killed, the files are either joined or unchanged.

A joined file has rows of one attempt only. If another attempt has written the same windows, the
files are not joined, so that readers use either all rows of a joined file or none. A file whose
bytes do not match its recorded checksum is not joined either, so that damage is not hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from rewindow.errors import TableError
from rewindow.location import location
from rewindow.storage import DataFile, FencedTable, Table
from rewindow.storage.checksums import differing, with_checksums, with_noted
from rewindow.storage.delta import by_bounds, paths_of, total_size
from rewindow.storage.new_files import sync_folders, write_file
from rewindow.storage.queries import read_rows

FILE_BYTES = 64_000_000
FILES_MIN = 8
ROWS_MAX = 1_000_000
_SMALL = 2
"""Files of more than 1/2 of the target size are large enough and not joined."""

Run = list[DataFile]


def join_files(
    fenced: FencedTable,
    folder: str,
    file_bytes: int,
    sorted_by: Sequence[str] = (),
) -> int:
    """Joins the small files of a staged table.

    Returns how many files fewer the table has.

    Args:
        fenced: the staged table.
        folder: subfolder of the table for the new files.
        file_bytes: most bytes of the files that are joined into one.
        sorted_by: columns by which the rows of each file are sorted.

    Raises:
        FencedError: a newer attempt has started.
        TableError: a new file differs from the rows that were written to it.
        OSError: a file cannot be read or written.
    """
    table = fenced.table.refresh()
    assert isinstance(table, Table), "only the simulation has other ones"
    runs = [run for run in runs_to_join(table, file_bytes) if not differing(run)]
    if not runs:
        return 0
    joined = [_join(table, folder, run, sorted_by=sorted_by) for run in runs]
    sync_folders(table.path, [folder])
    done = fenced.replace(with_checksums(joined), list(chain.from_iterable(runs)))
    return sum(map(len, runs)) - len(runs) if done else 0


def runs_to_join(table: Table, file_bytes: int) -> list[Run]:
    """Returns the runs of files of a staged table to join, in ascending order.

    The function adds the units of files, in the order of windows, to the current run. A new run
    starts where the attempt changes, where the sizes would exceed the limits, and after a file that
    must not be joined. Runs with few files are dropped.
    """
    attempts = table.single_values("attempt")
    before = None
    runs: list[Run] = [[]]
    size = rows = 0
    for unit in _units(with_noted(table, table.files())):
        # A file with rows of two attempts could not be linked when the output is published.
        of_files = set(map(attempts.get, paths_of(unit)))
        attempt = of_files.pop() if len(of_files) == 1 else None
        if attempt is None or not all(
            file.checksum and file.size <= file_bytes // _SMALL for file in unit
        ):
            runs.append([])
            size = rows = 0
            continue
        more_size = total_size(unit)
        more_rows = sum(file.rows for file in unit)
        if attempt != before or size + more_size > file_bytes or rows + more_rows > ROWS_MAX:
            runs.append([])
            size = rows = 0
        runs[-1] += unit
        size = size + more_size
        rows = rows + more_rows
        before = attempt
    return [run for run in runs if len(run) >= FILES_MIN]


def _units(files: Sequence[DataFile]) -> Iterator[Run]:
    """Yields groups of files that share windows, in ascending order. If a file has no bounds,
    yields nothing.

    Files of one commit group, for example, share windows.
    """
    placed = by_bounds(files)
    if len(placed) < sum(1 for file in files if file.rows):
        return
    unit: Run = []
    end = 0
    for first, last, file in placed:
        if unit and first > end:
            yield unit
            unit = []
        end = max(end, last) if unit else last
        unit.append(file)
    if unit:
        yield unit


def _join(table: Table, folder: str, files: Run, sorted_by: Sequence[str]) -> DataFile:
    rows = read_rows(files, table.schema, table.schema.names)
    if sorted_by:
        rows = rows.sort_by([(name, "ascending") for name in sorted_by])
    new = write_file(table.path, folder, rows)
    joined = DataFile(
        (table.path / new.path).uri,
        new.rows,
        files[0].first,
        last=max(file.last or 0 for file in files),
        size=new.size,
        changed_ms=new.changed_ms,
        statistics=new.statistics,
    )
    if not read_rows([joined], table.schema, table.schema.names).equals(rows):
        location(joined.path).delete()
        raise TableError(
            f'file "{new.path}" of table "{table.path.name}" differs from the rows that were '
            "written to it",
            detail="It was read back before the commit; nothing was changed.",
            hint="The disk or the memory of this machine may be failing; check them, then resume "
            "the replay.",
        )
    return joined
