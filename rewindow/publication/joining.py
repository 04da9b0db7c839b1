"""Joins small published files next to a publication's range, in the commit of the publication.

A stream that is published every day would get at least one file per day, and reading it would
become slower and slower. So a publication writes a run of small neighbouring files into one file.
The rows do not change, and neither do windows, offsets, digests and seals. Joined files are treated
like files that are cut at the edge of the range: they are read back before the commit and are part
of that commit. An undo works as usual, since it cuts its range out of whatever file contains it.

In a run of files the largest has at most a quarter of the bytes, which limits how often a row is
rewritten, and a run has at least sixteen files, so that files are joined at every sixteenth
publication. A file without a recorded checksum, or with another one, is not joined, so that damage
is not hidden.
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
    """Returns neighbouring files of a range to join into one file, in ascending order.

    Usually there are none.

    Args:
        table: the published table.
        windows: the range. Files that contain any of its windows are not returned.
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
    """Returns the small files nearest to the range, up to the first file that is large or shares
    windows with the previous one.
    """
    chain: list[DataFile] = []
    for file in near[:FILES_MAX]:
        is_disjoint = (
            not chain or _last(file) < _first(chain[-1]) or _first(file) > _last(chain[-1])
        )
        if not is_disjoint or file.size > BYTES_MAX // _SHARE_MAX:
            break
        chain.append(file)
    return chain


def _longest(files: Sequence[DataFile]) -> list[DataFile]:
    """Returns the longest run of files that is worth joining."""
    # Tries every run: there are at most FILES_MAX squared of them. The limit on the largest file
    # bounds how often a row is copied in the life of a table.
    longest: list[DataFile] = []
    for start in range(len(files)):
        size = rows = largest = 0
        for end, file in enumerate(files[start:], start=start + 1):
            size = size + file.size
            rows = rows + file.rows
            largest = max(largest, file.size)
            if size > BYTES_MAX or rows > ROWS_MAX:
                break
            if end - start >= max(FILES_MIN, len(longest) + 1) and largest * _SHARE_MAX <= size:
                longest = list(files[start:end])
    return longest


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
