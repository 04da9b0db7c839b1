"""Which files of a staged output can become part of a published table as they are, and which rows
must be written.

A file is taken whole if it has the columns of the published table, lies in the range, and readers
take each of its rows (R52). That is judged by counts: files of one attempt whose windows overlap
are one unit, and it is whole if it has as many rows as were sealed in its windows by that attempt.
What is left over, such as the part of a superseded attempt that readers still take, is written row
by row.

Every file must have the size and the number of rows that the log of its table says, and one that is
taken whole the bytes that it had when it was written, by the checksum noted then. Where none is
known, as of a table whose log was cleaned, its rows are read and held against the seals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.errors import TableError
from rewindow.location import location
from rewindow.publication.staged_output import StagedOutput
from rewindow.storage.checksums import differing, with_noted
from rewindow.storage.delta import DataFile
from rewindow.storage.failures import DAMAGE, plain_text


@dataclass(frozen=True)
class StagedFiles:
    """How a staged output is published.

    Attributes:
        whole: files that are linked.
        rows: the output with the seals of those windows alone whose rows are written.
        doubtful: the output with the seals of those windows whose rows must be held against them
            first.
    """

    whole: list[DataFile]
    rows: StagedOutput
    doubtful: StagedOutput

    @property
    def unnoted(self) -> int:
        """Number of the whole files of which no checksum is known; their rows are doubtful."""
        return sum(1 for file in self.whole if not file.checksum)


@dataclass(frozen=True)
class _Unit:
    """Files of one attempt whose windows overlap.

    Attributes:
        windows: where their windows lie in the seals.
        sealed: for each of these, whether this attempt sealed it.
    """

    files: list[DataFile]
    windows: slice
    sealed: Any


def staged_files(staged: StagedOutput) -> StagedFiles:
    """Returns how a staged output is published.

    Raises:
        TableError: a file is not there, or has another size, number of rows or bytes than when it
            was written.
    """
    attempts = staged.seals["attempt"].to_numpy()
    tuples = staged.seals["tuples"].to_numpy()
    written = tuples > 0
    doubtful = np.zeros(len(tuples), dtype=bool)
    whole: list[DataFile] = []
    for unit in _units(staged, attempts):
        mine = np.where(unit.sealed, tuples[unit.windows], 0)
        # A unit is linked as a whole if it has exactly the rows that readers see. One of an attempt
        # that was superseded has rows, but none of them is sealed.
        if sum(file.rows for file in unit.files) == mine.sum():
            whole += unit.files
            written[unit.windows] &= ~unit.sealed
            if not all(file.checksum for file in unit.files):
                doubtful[unit.windows] |= unit.sealed
    _check_bytes(staged, whole)
    return StagedFiles(whole, _only(staged, written), _only(staged, written | doubtful))


def _check_bytes(staged: StagedOutput, files: list[DataFile]) -> None:
    try:
        wrong = differing(files)
    except OSError as error:
        named = f'"{location(error.filename).name}"' if error.filename else "a file"
        raise TableError(
            f'{named} of staged output "{staged.output.name}" cannot be read',
            detail=f"{error.strerror}. Nothing was published.",
            hint="Look at the disk, then publish again.",
        ) from error
    if wrong:
        others = [f"{file.first} to {file.last}" for file in wrong[1:]]
        more = (
            f". So have {len(others)} other files, of windows {', '.join(others[:10])}"
            if others
            else ""
        )
        raise _altered(
            staged,
            wrong[0],
            "It has other bytes than were written, of the same number, as noted in table "
            f'"{staged.table.path.name}"{more}',
        )


def _only(staged: StagedOutput, windows: Any) -> StagedOutput:
    return replace(staged, seals=staged.seals.filter(pa.array(windows)))


def _units(staged: StagedOutput, attempts: Any) -> Iterator[_Unit]:
    """Yields the units of files that may be linked; none where `offset` is a column of the
    events.
    """
    if "offset" in staged.events.names:
        return
    ids = staged.seals["window_id"].to_numpy()
    files = with_noted(staged.table, staged.table.files())
    logged = staged.table.single_values("attempt")
    by_attempt: dict[int, list[DataFile]] = {}
    for file in files:
        attempt = _attempt_of(staged, file, logged)
        if attempt is not None:
            by_attempt.setdefault(attempt, []).append(file)
    # A link takes all rows of a file. Files of one attempt that share windows are therefore linked
    # together or not at all.
    for attempt in sorted(by_attempt):
        for files in _overlapping(by_attempt[attempt]):
            first = files[0].first or 0
            last = max(file.last or 0 for file in files)
            inside = slice(
                int(np.searchsorted(ids, first)),
                int(np.searchsorted(ids, last, side="right")),
            )
            if first in staged.plan.range and last in staged.plan.range:
                yield _Unit(files, inside, attempts[inside] == attempt)


def _overlapping(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yields files in units, ascending: those of two units have no window in common."""
    unit: list[DataFile] = []
    end = 0
    for file in sorted(files, key=lambda file: file.first or 0):
        if unit and (file.first or 0) > end:
            yield unit
            unit = []
        end = max(end, file.last or 0) if unit else file.last or 0
        unit.append(file)
    if unit:
        yield unit


def _attempt_of(staged: StagedOutput, file: DataFile, logged: Mapping[str, int]) -> int | None:
    """Returns the one attempt whose rows a file has; None when it has several, or does not say.

    Args:
        staged: the output.
        file: one of its files; where its checksum is known, that vouches for its content, else its
            footer is read.
        logged: of the files of which the log says it, that attempt.

    Raises:
        TableError: the file is not what the log says.
    """
    path = location(file.path)
    try:
        size = path.size()
        if size == file.size and file.checksum and file.path in logged:
            return logged[file.path] if file.first is not None and file.last is not None else None
        footer = pq.read_metadata(path.uri)
    except FileNotFoundError as error:
        raise _altered(staged, file, "It is missing") from error
    except DAMAGE as error:
        raise _altered(staged, file, f"It cannot be read: {plain_text(error)}") from error
    if (size, footer.num_rows) != (file.size, file.rows):
        raise _altered(
            staged,
            file,
            f"It has {size} bytes and {footer.num_rows} rows, written were {file.size} and "
            f"{file.rows}",
            # Size and rows are compared with the log, whose entry may be damaged, too.
            ", or the log that describes it,",
        )
    # None stands for a row group without statistics, whose rows may be of any attempt.
    place = list(footer.schema.names).index("attempt")
    bounds: set[int | None] = set()
    for group in map(footer.row_group, range(footer.num_row_groups)):
        if group.num_rows:
            found = group.column(place).statistics
            bounds |= {found.min, found.max} if found and found.has_min_max else {None}
    has_one = len(bounds) == 1 and file.first is not None and file.last is not None
    return bounds.pop() if has_one else None


def _altered(staged: StagedOutput, file: DataFile, why: str, other: str = "") -> TableError:
    held = (
        "windows that are not known"
        if file.first is None
        else f"windows {file.first} to {file.last}"
    )
    name = location(file.path).name
    return TableError(
        f'file "{name}" of staged output "{staged.output.name}"{other} is damaged: {held} cannot '
        "be published",
        detail=f"{why.rstrip('.')}. Nothing was published.",
        hint="Put the file back from a copy, or plan the range again.",
    )
