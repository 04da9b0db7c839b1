"""The inputs of a planned replay: opened as it has pinned them, their files held against what was
noted of them.

What was sealed is in files of which name, size and checksum were noted when they were written. An
attempt compares them before it reads a window of a file for the first time: name and size always,
the bytes as the plan says. A byte that flipped on the disk is so named before anything is computed
from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.recovery import InputPlan
from rewindow.storage.delta import DataFile, Table, paths_of
from rewindow.storage.files import file_checksum, name_in, noted_files, open_files
from rewindow.windows import WindowRange

_THREADS = 4
_HINT = "Put the file back from a copy, then go on; or replay ranges that do not touch its windows."


def open_input(entry: InputPlan, state: Location) -> Table:
    """Returns the table of an input at the version that the plan has pinned.

    Args:
        state: the state folder.

    Raises:
        TableError: the table or that version is gone, or another table has taken its place.
    """
    path = entry.table(state)
    there = Table.open(path).id
    if there != entry.table_id:
        raise TableError(
            f'stream "{entry.stream}" is another table than the one that the replay was planned on',
            detail=f"Planned was table {entry.table_id}, there is {there}: the stream was deleted "
            "and recorded again.",
            hint="Abandon the replay and plan its range again: rewindow abandon REPLAY",
        )
    return Table.open(path, entry.version)


class InputFiles:
    """The data files of an input at one version; each is compared once, when a window of it is
    asked for.

    Args:
        stream: its name, for errors.
        table: its tuples, at the version that is read.
        checksums: compare the bytes too, not only names and sizes.
        noted: size and checksum of files, by path in the table's folder, if they are not in the
            table `.files` of a stream.
        origin: sentence for errors that names the writer and the reader.
        hint: the next step after an error.

    Attributes:
        foreign: files without a note, which another program has written, such as by compacting the
            table: of them only the size is compared, with the table's log.
    """

    def __init__(
        self,
        stream: str,
        table: Table,
        *,
        checksums: bool,
        noted: Mapping[str, tuple[int, str]] | None = None,
        origin: str = "",
        hint: str = _HINT,
    ) -> None:
        self._stream = stream
        self._table = table
        self._checksums = checksums
        self._noted = noted_files(open_files(table.path)) if noted is None else noted
        self._origin = origin
        self._hint = hint
        self._compared: set[str] = set()
        self.foreign: list[str] = []

    def compare(self, windows: WindowRange) -> None:
        """Compares the files that may hold windows of a range, unless they were compared before.

        Raises:
            TableError: a file is not there, has another size, or other bytes; names it and the
                windows in it.
        """
        files = [
            file
            for file in self._table.files(windows.first, windows.last)
            if file.path not in self._compared
        ]
        for file in files:
            self._compare_size(file)
        if self._checksums:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(self._compare_bytes, files))
        self._compared.update(paths_of(files))

    def _compare_size(self, file: DataFile) -> None:
        name = name_in(self._table, file)
        if name not in self._noted:
            self.foreign.append(name)
        noted = self._noted.get(name, (file.size, ""))[0]
        try:
            there = location(file.path).size()
        except OSError as error:
            raise self._damaged(file, f"cannot be read: {error.strerror}") from error
        if {noted, file.size, there} != {noted}:
            raise self._damaged(file, f"has {there:,} bytes, recorded were {noted:,}")

    def _compare_bytes(self, file: DataFile) -> None:
        noted = self._noted.get(name_in(self._table, file))
        if noted is None:
            return
        try:
            there = file_checksum(location(file.path))
        except OSError as error:
            raise self._damaged(file, f"cannot be read: {error.strerror}") from error
        if there != noted[1]:
            raise self._damaged(file, "holds other bytes than were recorded: its checksum differs")

    def _damaged(self, file: DataFile, what: str) -> TableError:
        windows = (
            f" It may hold windows {file.first} to {file.last}." if file.first is not None else ""
        )
        return TableError(
            f'file "{name_in(self._table, file)}" of stream "{self._stream}" {what}',
            detail=f"Nothing was computed from it.{windows}{self._origin}",
            hint=self._hint,
        )
