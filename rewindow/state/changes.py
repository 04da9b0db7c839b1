"""Changes of properties while a replay runs: which user set which value, and from which window on
it is effective.

A replay keeps them in one log of numbered files. Before it starts a group, it also writes to the
log the last window of that group. Each number is written once, by a conditional put, so changes and
started windows are totally ordered. Therefore a change never affects a window that was started
before, and every attempt computes a window with the same values, whenever a process is killed.

Rules: O26, O27, X10
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from rewindow.application.overrides import PropertyChange
from rewindow.json_files import reading_json
from rewindow.location import Location
from rewindow.storage.log_gaps import restore_hint

FOLDER = "changes"


class _Entry(BaseModel):
    """One file of the log. It contains a change, or the last window that was started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: PropertyChange | None = None
    begun: int | None = None


@dataclass
class ChangeLog:
    """The property changes of one replay.

    Args:
        root: folder of the replay.
        planned: changes that its plan contains.
        folder: folder of the log, below that of the replay.
    """

    root: Location
    planned: Iterable[PropertyChange] = ()
    folder: str = FOLDER
    _entries: list[_Entry] = field(default_factory=list, init=False, repr=False)

    def changes(self) -> list[PropertyChange]:
        """Returns all changes.

        If a property was changed twice for the same window, the later change counts.
        """
        self._read()
        changes = {}
        for change in (*self.planned, *(entry.change for entry in self._entries)):
            if change is not None:
                changes[change.path, change.from_window, change.at] = change
        return list(changes.values())

    def begun(self) -> int | None:
        """Returns the last window that was started; None before the first window."""
        self._read()
        begun = [entry.begun for entry in self._entries if entry.begun is not None]
        return max(begun, default=None)

    def add(self, change: Callable[[int | None], PropertyChange]) -> PropertyChange:
        """Adds a change to the log and returns it.

        Args:
            change: returns the change, given the last window that was started. If it raises an
                exception, nothing is written. It is called again if another process writes at the
                same time.
        """
        tried: list[PropertyChange] = []

        def entry() -> _Entry:
            tried.append(change(self.begun()))
            return _Entry(change=tried[-1])

        self._append(entry)
        return tried[-1]

    def begin(self, first: int, last: int) -> int:
        """Records that the windows of a group are started, and returns the last window of the
        group.

        No later change can affect these windows.
        """
        # A group must not span a change, so it ends before the first one. Another process may add
        # a change between reading the log and writing to it; then `_append` calls `entry` again.
        end = last

        def entry() -> _Entry | None:
            nonlocal end
            begun = self.begun()
            end = last
            for change in self.changes():
                if first < change.from_window <= end:
                    end = change.from_window - 1
            return None if begun is not None and begun >= end else _Entry(begun=end)

        self._append(entry)
        return end

    def at(self, window: int) -> list[PropertyChange]:
        """Returns the changes that are effective in a window.

        For each property, it is the last change.
        """
        changes = {}
        for change in sorted(self.changes(), key=lambda change: change.from_window):
            if change.from_window <= window:
                changes[change.path] = change
        return list(changes.values())

    def _append(self, entry: Callable[[], _Entry | None]) -> None:
        """Writes an entry with the next number.

        If another process has used that number, the entry is computed again from the longer log.
        """
        while (new := entry()) is not None:
            content = new.model_dump_json(exclude_none=True)
            if self._place(len(self._entries)).put_if_absent(content):
                return

    def _read(self) -> None:
        while (place := self._place(len(self._entries))).is_file():
            with reading_json(place, "property change", restore_hint(self.root / self.folder)):
                self._entries.append(_Entry.model_validate_json(place.read_bytes()))

    def _place(self, number: int) -> Location:
        return self.root / self.folder / f"{number:08}.json"


def container_log(
    root: Location,
    container: str,
    planned: Iterable[PropertyChange] = (),
) -> ChangeLog:
    """Returns the log of a container.

    It is in the folder of the whole replay, so that it exists before the container is planned.

    Args:
        root: folder of the whole replay.
        container: its name.
        planned: changes of its operators that its plan contains.
    """
    return ChangeLog(root, planned, f"{FOLDER}/{container}")
