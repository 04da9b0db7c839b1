"""The result of a recording, as counts and as lines for the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewindow.sequences import quantity


@dataclass
class RecordResult:
    """The counts of one recording.

    Attributes:
        stream: its name.
        first, last: windows that it sealed; None if it sealed none.
        stream_first, stream_last: all windows sealed so far.
        windows_sealed: number of windows that it sealed, of which `windows_empty` have no tuple.
        recorded: tuples written.
        files_unchanged: files that an earlier recording has read and that were not read again.
        already_there: tuples that were read again and are already recorded.
        late: tuples of windows sealed earlier, quarantined by this run.
        malformed: rows from which no tuple could be made, quarantined by this run.
        known: late and malformed rows that an earlier run has quarantined.
        waiting: tuples of windows that are not sealed yet.
        changed: sealed windows that have lost tuples in the source and gained others, each with the
            number of both; at most 1,000 windows.
        short_windows, short_tuples: number of sealed windows that have only lost tuples in the
            source, and of these tuples.
        reopened: number of windows that were reopened to add `taken` late tuples, or replaced,
            which removed `removed` tuples.
        bytes_read: size of the source, or of the new files of a Delta source.
        bytes_written: size of the stream's new files.
        source_version: the version of a Delta source that was read.
        seconds: duration.
        warnings: problems that a user should look at.
        open: text about windows that have tuples and are not sealed, and how to seal them; empty if
            none exist.
    """

    stream: str
    first: int | None = None
    last: int | None = None
    stream_first: int | None = None
    stream_last: int | None = None
    windows_sealed: int = 0
    windows_empty: int = 0
    recorded: int = 0
    files_unchanged: int = 0
    already_there: int = 0
    late: int = 0
    malformed: int = 0
    known: int = 0
    waiting: int = 0
    changed: list[dict[str, int]] = field(default_factory=list)
    short_windows: int = 0
    short_tuples: int = 0
    reopened: int = 0
    taken: int = 0
    removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    source_version: int | None = None
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    open: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the counts as plain values.

        Window ids are numbers.

        Rules: W14
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RecordResult:
        """Returns the counts from plain values that `to_json` has written."""
        return cls(**values)

    def lines(self) -> list[str]:
        """Returns the lines to print."""
        sealed = f"{self.stream}: {quantity(self.windows_sealed, 'window')} sealed"
        if self.first is not None:
            sealed += f" [{self.first}, {self.last}], {self.windows_empty:,} of them empty"
        found = [
            sealed,
            f"{self.stream}: {quantity(self.recorded, 'tuple')} recorded, {self.already_there:,} "
            f"recorded before, {self.late:,} late, {self.malformed:,} malformed, {self.waiting:,} "
            "waiting for the seal of their window",
            f"{self.stream}: {size_words(self.bytes_read)} read, {size_words(self.bytes_written)} "
            "written,"
            f" {self.seconds:.1f} s",
        ]
        if self.malformed:
            found.append(
                f"{self.stream}: to list the malformed rows: rewindow streams quarantine "
                f"{self.stream}"
            )
        if self.files_unchanged:
            found.append(
                f"{self.stream}: {quantity(self.files_unchanged, 'file')} unchanged since the last "
                "recording, not read again"
            )
        if self.reopened:
            found.append(
                f"{self.stream}: {quantity(self.reopened, 'window')} reopened, "
                f"{quantity(self.taken, 'tuple')} added, {self.removed:,} removed"
            )
        if self.known:
            found.append(
                f"{self.stream}: {self.known:,} late or malformed tuples were already in quarantine"
            )
        found += [f"{self.stream}: warning: {warning}" for warning in self.warnings]
        return found + ([f"{self.stream}: {self.open}"] if self.open else [])


def size_words(count: float) -> str:
    """Returns a number of bytes with a unit, such as "1.2 MB"."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
