"""Decides which files of a staged output can be linked into a published table unchanged, and which
rows must be rewritten.

A file is linked if it has the columns of the published table, all its windows are in the range, and
readers see each of its rows. The last condition is checked by counts: files of one attempt with
overlapping windows form a unit, and a unit is linked if it has as many rows as that attempt sealed
in its windows. All other rows, such as the rows of a superseded attempt that readers still see, are
rewritten.

Every file must have the size and number of rows that the log of its table lists, and a linked file
must have the recorded checksum. If there is no recorded checksum, for example because the log was
cleaned, its rows are read and compared with the seals.

Rules: R52
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
from rewindow.storage.failures import DAMAGE, MISSING, plain_text


@dataclass(frozen=True)
class StagedFiles:
    """The files and rows with which a staged output is published.

    Attributes:
        whole: files that are linked.
        rows: the output, with the seals of only those windows whose rows are rewritten.
        doubtful: the output, with the seals of those windows whose rows must be compared with the
            seals first.
    """

    whole: list[DataFile]
    rows: StagedOutput
    doubtful: StagedOutput

    @property
    def unnoted(self) -> int:
        """The number of linked files without a recorded checksum.

        Their rows are not trusted until they are checked.
        """
        return sum(1 for file in self.whole if not file.checksum)


@dataclass(frozen=True)
class _Unit:
    """Files of one attempt whose windows overlap.

    Attributes:
        windows: the slice of the seals that has their windows.
        sealed: for each of these seals, whether this attempt created it.
    """

    files: list[DataFile]
    windows: slice
    sealed: Any


def staged_files(staged: StagedOutput) -> StagedFiles:
    """Returns the files and rows with which a staged output is published.

    Raises:
        TableError: a file is missing, or its size, number of rows or bytes have changed since it
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
            hint="Check the disk, then publish again.",
        ) from error
    if wrong:
        others = [f"{file.first} to {file.last}" for file in wrong[1:]]
        more = (
            f". The same is true for {len(others)} other files, of windows {', '.join(others[:10])}"
            if others
            else ""
        )
        raise _altered(
            staged,
            wrong[0],
            f"Its size is right, but its bytes do not match the checksum in table "
            f'"{staged.table.path.name}"{more}',
        )


def _only(staged: StagedOutput, windows: Any) -> StagedOutput:
    return replace(staged, seals=staged.seals.filter(pa.array(windows)))


def _units(staged: StagedOutput, attempts: Any) -> Iterator[_Unit]:
    """Yields the units of files that can be linked. If `offset` is an event column, yields none."""
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
    """Yields units of files in ascending order.

    Files of different units have no window in common.
    """
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
    """Returns the attempt that wrote all rows of a file; None if several attempts wrote them, or if
    the attempt is unknown.

    Args:
        staged: the output.
        file: one of its files. If its checksum is recorded, its content is checked later; otherwise
            its footer is read.
        logged: file to its attempt, for files whose attempt is in the log.

    Raises:
        TableError: the file does not match the log.
    """
    path = location(file.path)
    try:
        size = path.size()
        if size == file.size and file.checksum and file.path in logged:
            return logged[file.path] if file.first is not None and file.last is not None else None
        footer = pq.read_metadata(path.uri)
    except FileNotFoundError as error:
        raise _altered(staged, file, MISSING) from error
    except DAMAGE as error:
        raise _altered(staged, file, f"It cannot be read: {plain_text(error)}") from error
    if (size, footer.num_rows) != (file.size, file.rows):
        raise _altered(
            staged,
            file,
            f"It has {size} bytes and {footer.num_rows} rows, but {file.size} bytes and "
            f"{file.rows} rows were written",
            # Size and rows are compared with the log, whose entry may be damaged, too.
            ", or the log that describes it,",
        )
    # None stands for a row group without statistics, whose rows may be of any attempt.
    index = list(footer.schema.names).index("attempt")
    bounds: set[int | None] = set()
    for group in map(footer.row_group, range(footer.num_row_groups)):
        if group.num_rows:
            statistics = group.column(index).statistics
            has_bounds = statistics and statistics.has_min_max
            bounds |= {statistics.min, statistics.max} if has_bounds else {None}
    has_one = len(bounds) == 1 and file.first is not None and file.last is not None
    return bounds.pop() if has_one else None


def _altered(staged: StagedOutput, file: DataFile, why: str, other: str = "") -> TableError:
    held = "unknown windows" if file.first is None else f"windows {file.first} to {file.last}"
    name = location(file.path).name
    return TableError(
        f'file "{name}" of staged output "{staged.output.name}"{other} is damaged: {held} cannot '
        "be published",
        detail=f"{why.rstrip('.')}. Nothing was published.",
        hint="Restore the file from a backup, or plan the range again.",
    )
