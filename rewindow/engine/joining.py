"""Small staged files, joined when the last group is committed, so that all who come after open
fewer.

A replay in many groups leaves a few files a group, and what publishes, judges or reads it opens
each. Neighbours in the order of windows become one file: rows as they are, read back before the
commit, which adds the one and removes the others under the attempt's fence. A kill leaves the table
as it was or joined.

A file has rows of one attempt, also then; one whose windows another attempt has written too is left
alone, so that readers take all rows of a joined file or none. So is a file whose bytes are not
those that were noted when it was written: damage must stay to be found.
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
"""A file of half the wished size is large enough."""

Run = list[DataFile]


def join_files(
    fenced: FencedTable,
    folder: str,
    file_bytes: int,
    sorted_by: Sequence[str] = (),
) -> int:
    """Joins the small files of a staged table; returns how many are fewer now.

    Args:
        folder: where in the table's folder the new files go.
        file_bytes: the most that files which are joined have together.
        sorted_by: columns by which the rows of each file are ordered.

    Raises:
        FencedError: a newer attempt has begun.
        TableError: a new file does not hold what was written to it.
        OSError: a file cannot be read or written.
    """
    table = fenced.table.refresh()
    assert isinstance(table, Table), "only the simulation has other ones"
    runs = [run for run in runs_to_join(table, file_bytes) if not differing(run)]
    if not runs:
        return 0
    made = [_join(table, folder, run, sorted_by=sorted_by) for run in runs]
    sync_folders(table.path, [folder])
    done = fenced.replace(with_checksums(made), list(chain.from_iterable(runs)))
    return sum(map(len, runs)) - len(runs) if done else 0


def runs_to_join(table: Table, file_bytes: int) -> list[Run]:
    """Returns the files of a staged table that are to become one file each, ascending."""
    attempts = table.single_values("attempt")
    before = None
    runs: list[Run] = [[]]
    size = rows = 0
    for unit in _units(with_noted(table, table.files())):
        # A file with rows of two attempts could not be linked when the output is published.
        whose = set(map(attempts.get, paths_of(unit)))
        attempt = whose.pop() if len(whose) == 1 else None
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
    """Yields files that share windows, as those of one group do, together, ascending; none where
    one has no bounds.
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
    made = DataFile(
        (table.path / new.path).uri,
        new.rows,
        files[0].first,
        last=max(file.last or 0 for file in files),
        size=new.size,
        changed_ms=new.changed_ms,
        statistics=new.statistics,
    )
    if not read_rows([made], table.schema, table.schema.names).equals(rows):
        location(made.path).delete()
        raise TableError(
            f'file "{new.path}" of table "{table.path.name}" does not hold what was written to it',
            detail="It was read back before the commit; nothing was changed.",
            hint="The disk or the memory of this machine may be failing; look at it, then resume "
            "the replay.",
        )
    return made
