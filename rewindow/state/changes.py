"""Values that properties got while their replay ran: who changed what, from which window on (X10,
O26, O27).

A replay keeps them in one log of numbered files, in which it also notes, before it begins a group,
up to where its windows are begun. A number is given once, by a conditional put, so changes and
begun windows have one order: no window that was begun is changed afterwards, and every attempt
computes a window with the same values, whenever it is killed.
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
    """One file of the log: a change, or the last window that is begun."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: PropertyChange | None = None
    begun: int | None = None


@dataclass
class ChangeLog:
    """The changes of one replay.

    Args:
        root: folder of the replay.
        planned: those that its plan has from the start.
        folder: folder of the log, below that of the replay.
    """

    root: Location
    planned: Iterable[PropertyChange] = ()
    folder: str = FOLDER
    _entries: list[_Entry] = field(default_factory=list, init=False, repr=False)

    def changes(self) -> list[PropertyChange]:
        """Returns all changes; of one property and window the last one counts."""
        self._read()
        changes = {}
        for change in (*self.planned, *(entry.change for entry in self._entries)):
            if change is not None:
                changes[change.path, change.from_window, change.at] = change
        return list(changes.values())

    def begun(self) -> int | None:
        """Returns the last window that was begun, None before the first."""
        self._read()
        begun = [entry.begun for entry in self._entries if entry.begun is not None]
        return max(begun, default=None)

    def add(self, change: Callable[[int | None], PropertyChange]) -> PropertyChange:
        """Notes a change, and returns it.

        Args:
            change: gives it, in view of the last window that was begun; may raise, then nothing is
                noted.
        """
        made: list[PropertyChange] = []

        def entry() -> _Entry:
            made.append(change(self.begun()))
            return _Entry(change=made[-1])

        self._append(entry)
        return made[-1]

    def begin(self, first: int, last: int) -> int:
        """Notes that the windows of a group are begun; returns its last one, before which no change
        falls.
        """
        # A group must not span a change, so it ends before the first one. Between reading the log
        # and writing to it another process may add a change: then the entry is made again.
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
        """Returns the changes that hold in a window, the last one of each property."""
        changes = {}
        for change in sorted(self.changes(), key=lambda change: change.from_window):
            if change.from_window <= window:
                changes[change.path] = change
        return list(changes.values())

    def _append(self, entry: Callable[[], _Entry | None]) -> None:
        """Puts what an entry is, in view of all before it, under the next number; again where that
        was taken.
        """
        while (made := entry()) is not None:
            content = made.model_dump_json(exclude_none=True)
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
    """Returns the log of a container. It is in the folder of the whole replay, so that a container
    that is not planned yet has one.

    Args:
        root: folder of the whole replay.
        container: its name.
        planned: changes of its operators that its plan has from the start.
    """
    return ChangeLog(root, planned, f"{FOLDER}/{container}")
