"""Small published files beside a publication's range, joined in its own commit.

A stream that is published day by day would have a file a day for ever, and reading it would take as
long as opening them. So a publication writes a run of small neighbours into one file, row by row as
they are: windows, offsets, digests and seals stay what they were. It is as if they were cut on the
edge of the range: read back before the commit, part of that one commit, and put up with by every
undo, which takes its range out of whatever file holds it.

Of a run the largest file is at most a quarter, so that a row is written anew a few times in its
life, and sixteen files are the least, so that it happens at every sixteenth publication. A file
without a noted checksum, or with another one, is left alone: a damaged one must stay to be found.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewindow.publication.spark_needed import reason_for_spark
from rewindow.storage import Table
from rewindow.storage.checksums import differing, with_noted
from rewindow.storage.delta import DataFile, by_bounds
from rewindow.windows import WindowRange

FILES_MIN = 16
FILES_MAX = 256
BYTES_MAX = 64_000_000
ROWS_MAX = 1_000_000
_SHARE_MAX = 4


def files_to_join(table: Table, windows: WindowRange) -> list[DataFile]:
    """Returns neighbours of a range that are to become one file, ascending; none as a rule.

    Args:
        table: the published table.
        windows: the range, of which no file is returned, nor one that reaches into it.
    """
    # The files nearest to the range are tried first on either side: a stream that grows day by day
    # has its small files there.
    known = by_bounds(table.files())
    below = [file for _, last, file in known if last < windows.first][::-1]
    above = [file for first, _, file in known if first > windows.last]
    for near in (_chain(below)[::-1], _chain(above)):
        run = with_noted(table, _longest(near))
        if run and all(file.checksum for file in run) and not reason_for_spark(table, run.copy):
            return [] if _is_damaged(run) else run
    return []


def _chain(near: Sequence[DataFile]) -> list[DataFile]:
    """Returns the small files nearest to the range up to one that is none, or that has windows of
    the one before.
    """
    found: list[DataFile] = []
    for file in near[:FILES_MAX]:
        apart = not found or _last(file) < _first(found[-1]) or _first(file) > _last(found[-1])
        if not apart or file.size > BYTES_MAX // _SHARE_MAX:
            break
        found.append(file)
    return found


def _longest(files: Sequence[DataFile]) -> list[DataFile]:
    """Returns the longest run that is worth joining."""
    # Tries every run: there are at most FILES_MAX squared of them. The limit on the largest file
    # bounds how often a row is copied in the life of a table.
    found: list[DataFile] = []
    for start in range(len(files)):
        size = rows = largest = 0
        for end, file in enumerate(files[start:], start=start + 1):
            size = size + file.size
            rows = rows + file.rows
            largest = max(largest, file.size)
            if size > BYTES_MAX or rows > ROWS_MAX:
                break
            if end - start >= max(FILES_MIN, len(found) + 1) and largest * _SHARE_MAX <= size:
                found = list(files[start:end])
    return found


def _is_damaged(files: Sequence[DataFile]) -> bool:
    try:
        return bool(differing(files))
    except OSError:
        return True


def _first(file: DataFile) -> int:
    assert file.first is not None, "files of a chain have bounds"
    return file.first


def _last(file: DataFile) -> int:
    assert file.last is not None, "files of a chain have bounds"
    return file.last
