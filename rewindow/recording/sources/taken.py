"""Recognizes files of a source that were read before, by name, size and time, or by a checksum of
their bytes.

Each file is read once. An unchanged file is read again only for tuples that waited in it. If only
its time differs, its checksum is compared; the checksum also identifies a renamed file. If a file
of lines has grown and its old bytes still have their old checksum, reading resumes at its old end,
or at its first tuple that waited. If a file's bytes have changed in another way, it is unknown
which of its rows are new. Then the whole source is read and compared with the recorded tuples.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewindow.location import location
from rewindow.recording.sources.source import SourceFile, SourcePosition, TakenFile
from rewindow.settings.config import StreamConfig
from rewindow.storage.files import file_checksum

_NOT_ABOUT_ROWS = {
    "sealed_to",
    "seal_after_us",
    "keys",
    "event_at",
    "interval_us",
    "slack_us",
    "max_jump_us",
    "malformed_max_share",
    "gap_windows_max",
    "on_gap",
}
"""Settings of a stream that do not change the tuples of a file."""
_CHUNK_BYTES = 4 << 20
_GONE_MAX = 1_000


@dataclass(frozen=True)
class Selection:
    """The files of a source to read now.

    Attributes:
        files: the files to read, in order.
        whole: whether these are all files, because no position is known or a file has changed.
        warnings: texts about files that changed other than by growing, or that were deleted while
            they had waiting tuples.
    """

    files: list[SourceFile]
    whole: bool
    warnings: list[str]


@dataclass(frozen=True)
class FileRows:
    """The state of a file's rows after a run has read them.

    Attributes:
        last: number of the last row.
        waits: number of the first tuple whose window is not sealed yet; None if all are sealed.
    """

    last: int
    waits: int | None


def settings_digest(stream: StreamConfig) -> str:
    """Returns a digest of the settings that determine the tuples of a file."""
    values = stream.model_dump(mode="json", exclude=_NOT_ABOUT_ROWS)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def select_files(
    files: list[SourceFile],
    position: SourcePosition,
    stream: StreamConfig,
) -> Selection:
    """Returns the files of a source to read, given the files that were read before."""
    known = position.files
    by_name = {file.name: file for file in files}
    if not known or position.settings != settings_digest(stream) or len(by_name) < len(files):
        return Selection(files, True, [])
    gone = {name: taken for name, taken in known.items() if name not in by_name}
    # A file is new, unchanged, longer than before, or changed in the part that was read. Only in
    # the last case are all files read again, since the windows of the old rows are not known.
    chosen: list[SourceFile] = []
    for file in files:
        before = known[file.name].name if file.name in known else _renamed_from(file, gone)
        if before is None:
            chosen.append(file)
        elif _is_same(file, known[before]):
            if known[before].waits:
                chosen.append(_read_on(file, known[before]))
        elif _has_grown(file, known[before]) and known[before].begin_byte:
            chosen.append(_read_on(file, known[before]))
        else:
            return Selection(files, True, _words_on_change(file, known[before]))
        gone.pop(before or "", None)
    lost = [name for name, taken in gone.items() if taken.waits]
    words = (
        f"{len(lost)} files with waiting tuples were removed from the source, such as {lost[0]}"
        if lost
        else ""
    )
    return Selection(chosen, False, [words] if words else [])


def gone_files(files: Sequence[SourceFile], position: SourcePosition) -> dict[str, TakenFile]:
    """Returns the newest of the recorded files that are missing from a source.

    Renamed files are not missing.
    """
    by_name = {file.name: file for file in files}
    gone = {**position.gone, **position.files}
    for name in by_name:
        gone.pop(name, None)
    for name in by_name.keys() - position.files.keys():
        gone.pop(_renamed_from(by_name[name], gone) or "", None)
    return dict(list(gone.items())[-_GONE_MAX:])


def remember(
    files: Sequence[SourceFile],
    read: Mapping[str, FileRows],
    position: SourcePosition,
) -> dict[str, TakenFile]:
    """Returns the states of a source's files, which are stored for the next run.

    Args:
        files: all existing files.
        read: state of the rows of files that this run has read, by name.
        position: the states stored before.
    """
    marks: dict[Path, _Marks] = {}
    found = {}
    for file in files:
        taken = position.files.get(file.name)
        if taken is not None and file.name not in read:
            found[file.name] = replace(
                taken,
                size=file.size,
                modified_ns=file.modified_ns,
                waits=False,
            )
            continue
        rows = read.get(file.name, FileRows(0, None))
        rows = replace(rows, last=max(rows.last, file.seen_rows))
        if file.path not in marks or file.lines:
            marks[file.path] = _marks(file.path, rows.waits)
        mark = marks[file.path]
        # A file that was changed after its rows were read gets no checksum, so that it counts as
        # changed in the next run.
        checksum = mark.checksum if file.path.stat().st_mtime_ns == file.modified_ns else ""
        can_go_on = (
            file.lines
            and mark.is_whole
            and mark.lines == rows.last
            and not (file.quotes and mark.quote_open)
        )
        begin = (
            (mark.byte, mark.lines + 1 if rows.waits is None else rows.waits)
            if can_go_on
            else (0, 1)
        )
        waits = rows.waits is not None
        found[file.name] = TakenFile(
            file.name,
            file.size,
            file.modified_ns,
            checksum,
            waits,
            rows.last,
            *begin,
        )
    return found


@dataclass(frozen=True)
class _Marks:
    """The checksum, the lines and other properties of a file's bytes.

    Attributes:
        checksum: checksum of all bytes.
        lines: number of lines.
        is_whole: whether the last line is complete.
        quote_open: whether the number of quotes is odd.
        byte: start of the requested line, otherwise the end.
    """

    checksum: str
    lines: int
    is_whole: bool
    quote_open: bool
    byte: int


def _marks(path: Path, line: int | None) -> _Marks:
    digest = hashlib.sha256()
    size = 0
    lines = 0
    quotes = 0
    begin = None
    last = b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            inside = chunk.count(b"\n")
            if line is not None and begin is None and lines + inside >= line - 1:
                begin = size + _after_lines(chunk, line - 1 - lines)
            size = size + len(chunk)
            lines = lines + inside
            quotes = quotes + chunk.count(b'"')
            last = chunk[-1:]
    return _Marks(
        digest.hexdigest(),
        lines,
        last == b"\n",
        quote_open=quotes % 2 == 1,
        byte=size if begin is None else begin,
    )


def _after_lines(chunk: bytes, count: int) -> int:
    """Returns the position in a chunk after a number of lines."""
    at = 0
    for _ in range(count):
        at = chunk.index(b"\n", at) + 1
    return at


def _read_on(file: SourceFile, taken: TakenFile) -> SourceFile:
    """Returns a file whose reading continues where the last run stopped.

    Of the rows that were read before, only tuples that waited are recorded.
    """
    seen = taken.rows or sys.maxsize
    return replace(file, begin_byte=taken.begin_byte, begin_row=taken.begin_row, seen_rows=seen)


def _has_grown(file: SourceFile, taken: TakenFile) -> bool:
    """Returns whether a file of lines is longer than before and its old part is unchanged."""
    if not (file.lines and taken.checksum and file.size > taken.size):
        return False
    return file_checksum(location(file.path), taken.size) == taken.checksum


def _words_on_change(file: SourceFile, taken: TakenFile) -> list[str]:
    """Returns warnings about a file whose bytes have changed.

    There are none if the file can only have grown.
    """
    if _has_grown(file, taken) if file.lines else file.size > taken.size:
        return []
    words = f'source file "{file.name}" has changed since it was recorded'
    return [f"{words}; the whole source was read and compared with the recorded tuples"]


def _is_same(file: SourceFile, taken: TakenFile) -> bool:
    if file.size != taken.size or not taken.checksum:
        return False
    return (
        file.modified_ns == taken.modified_ns
        or file_checksum(location(file.path)) == taken.checksum
    )


def _renamed_from(file: SourceFile, gone: Mapping[str, TakenFile]) -> str | None:
    """Returns the name under which a file was read before; None if it was not read."""
    alike = [taken for taken in gone.values() if taken.size == file.size and taken.checksum]
    checksum = file_checksum(location(file.path)) if alike else ""
    return next((taken.name for taken in alike if taken.checksum == checksum), None)
