"""Which files of a source were taken before: by name, size and time, else by the checksum of their bytes.

A file is taken once. A file that is there as it was is not read again, but for tuples that waited in it; one whose time
alone differs is held against its checksum; one that was renamed is known by it too. When a file's bytes have changed
nobody knows which of its rows are new: the whole source is then read and held against what is recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewindow.config import StreamConfig
from rewindow.location import location
from rewindow.recording.sources.source import SourceFile, SourcePosition, TakenFile
from rewindow.storage.files import file_checksum

_NOT_ABOUT_ROWS = {
    "sealed_to", "seal_after_us", "keys", "event_at", "interval_us", "slack_us", "max_jump_us", "malformed_max_share",
}  # fmt: skip
"""Settings of a stream that do not change which tuples a file has."""


@dataclass(frozen=True)
class Selection:
    """The files of a source that are to be read now.

    Attributes:
        files: the files to read, in order.
        whole: whether these are all that there are, as what was taken before is not known or has changed.
        warnings: a file that changed without growing, or files that are gone with tuples that waited.
    """

    files: list[SourceFile]
    whole: bool
    warnings: list[str]


def settings_digest(stream: StreamConfig) -> str:
    """Returns a digest of the settings that say which tuples a file has."""
    values = stream.model_dump(mode="json", exclude=_NOT_ABOUT_ROWS)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def select_files(files: list[SourceFile], position: SourcePosition, stream: StreamConfig) -> Selection:
    """Returns which of a source's files are to be read, after what was taken before."""
    known = position.files
    by_name = {file.name: file for file in files}
    if not known or position.settings != settings_digest(stream) or len(by_name) < len(files):
        return Selection(files, True, [])
    gone = {name: taken for name, taken in known.items() if name not in by_name}
    chosen: list[SourceFile] = []
    for file in files:
        before = known[file.name].name if file.name in known else _renamed_from(file, gone)
        if before is None:
            chosen.append(file)
        elif not _is_same(file, known[before]):
            words = f'source file "{file.name}" has changed since it was taken'
            words += "; the whole source was read and compared with what is recorded"
            return Selection(files, True, [] if file.size > known[before].size else [words])
        elif known[before].waits:
            chosen.append(replace(file, seen=True))
        gone.pop(before or "", None)
    lost = [name for name, taken in gone.items() if taken.waits]
    words = f"{len(lost)} files are gone from the source in which tuples waited, such as {lost[0]}" if lost else ""
    return Selection(chosen, False, [words] if words else [])


def remember(
    files: Sequence[SourceFile], read: Collection[str], waiting: Collection[str], position: SourcePosition
) -> dict[str, TakenFile]:
    """Returns what is to be remembered of a source's files.

    Args:
        files: all that there are.
        read: names of those that this run has read.
        waiting: names of those that hold tuples of windows that are not sealed yet.
        position: what was remembered before.
    """
    checksums: dict[Path, str] = {}
    found = {}
    for file in files:
        taken = position.files.get(file.name)
        if taken is None or file.name in read:
            checksum = checksums[file.path] = checksums.get(file.path) or file_checksum(location(file.path))
            # A file that was written since its rows were read equals nothing when it is looked at again.
            checksum = checksum if file.path.stat().st_mtime_ns == file.modified_ns else ""
        else:
            checksum = taken.checksum
        found[file.name] = TakenFile(file.name, file.size, file.modified_ns, checksum, file.name in waiting)
    return found


def _is_same(file: SourceFile, taken: TakenFile) -> bool:
    if file.size != taken.size or not taken.checksum:
        return False
    return file.modified_ns == taken.modified_ns or file_checksum(location(file.path)) == taken.checksum


def _renamed_from(file: SourceFile, gone: Mapping[str, TakenFile]) -> str | None:
    """Returns the name under which a file was taken before, None if it was not."""
    alike = [taken for taken in gone.values() if taken.size == file.size and taken.checksum]
    checksum = file_checksum(location(file.path)) if alike else ""
    return next((taken.name for taken in alike if taken.checksum == checksum), None)
