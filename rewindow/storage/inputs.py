"""The inputs of a planned replay: opens them at the pinned versions and compares their files with
recorded checksums.

The name, size and checksum of a file are recorded when it is written. An attempt compares them
before it first reads a window of the file: always name and size, and the bytes if the plan asks for
it. So a flipped byte on the disk is reported before it can affect a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.recovery import InputPlan
from rewindow.storage.delta import DataFile, Table, paths_of
from rewindow.storage.files import file_checksum, name_in, noted_files, open_files
from rewindow.storage.in_place import TuplesInPlace
from rewindow.windows import WindowRange

_THREADS = 4
_HINT_IN_PLACE = (
    "Its table is read in place, and VACUUM or another program has removed the file. Record the "
    "stream, then abandon the replay and plan its range again."
)
_HINT = "Restore the file from a backup, then continue; or replay ranges without its windows."


def open_input(entry: InputPlan, state: Location) -> Table:
    """Returns the table of an input at the version that the plan has pinned.

    Args:
        entry: the input in the plan.
        state: the state folder.

    Raises:
        TableError: the table or that version is missing, or the table was replaced by another one.
    """
    path = entry.table(state)
    current_id = Table.open(path).id
    if current_id != entry.table_id:
        raise TableError(
            f'stream "{entry.stream}" is not the table that the replay was planned on',
            detail=f"The plan has table {entry.table_id}, but the stream is now table "
            f"{current_id}: it was deleted and recorded again.",
            hint="Abandon the replay and plan its range again: rewindow abandon REPLAY",
        )
    return Table.open(path, entry.version)


class InputFiles:
    """The data files of an input at one version.

    Each file is compared with its checksum once, before one of its windows is read.

    Args:
        stream: its name, for errors.
        table: its tuples, at the version that is read.
        checksums: whether to compare the bytes, not only names and sizes.
        noted: recorded size and checksum of files, by path in the table's folder, if they are not
            in the table `.files` of a stream.
        origin: sentence for errors that names the writer and the reader.
        hint: the next step after an error; by default to restore the file.

    Attributes:
        foreign: files without a recorded checksum, written by another program, such as one that
            compacted the table. Only their sizes are compared, with the table's log.
    """

    def __init__(
        self,
        stream: str,
        table: Table,
        *,
        checksums: bool,
        noted: Mapping[str, tuple[int, str]] | None = None,
        origin: str = "",
        hint: str = "",
    ) -> None:
        self._stream = stream
        self._table = table
        self._checksums = checksums
        self._noted = noted_files(open_files(table.path)) if noted is None else noted
        self._origin = origin
        self._hint = hint or (_HINT_IN_PLACE if isinstance(table, TuplesInPlace) else _HINT)
        self._compared: set[str] = set()
        self.foreign: list[str] = []

    def compare(self, windows: WindowRange) -> None:
        """Compares the files that may contain windows of a range with their checksums.

        Files that were compared before are skipped.

        Raises:
            TableError: a file is missing, or has another size or other bytes; the message has the
                file and its windows.
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
        # The files of a table in place all belong to another program.
        if name not in self._noted and not isinstance(self._table, TuplesInPlace):
            self.foreign.append(name)
        noted = self._noted.get(name, (file.size, ""))[0]
        try:
            size = location(file.path).size()
        except OSError as error:
            raise self._damaged(file, f"cannot be read: {error.strerror}") from error
        if {noted, file.size, size} != {noted}:
            raise self._damaged(file, f"has {size:,} bytes, but {noted:,} were recorded")

    def _compare_bytes(self, file: DataFile) -> None:
        noted = self._noted.get(name_in(self._table, file))
        if noted is None:
            return
        try:
            checksum = file_checksum(location(file.path))
        except OSError as error:
            raise self._damaged(file, f"cannot be read: {error.strerror}") from error
        if checksum != noted[1]:
            raise self._damaged(file, "does not have the recorded bytes: its checksum differs")

    def _damaged(self, file: DataFile, what: str) -> TableError:
        windows = (
            f" It may have windows {file.first} to {file.last}." if file.first is not None else ""
        )
        return TableError(
            f'file "{name_in(self._table, file)}" of stream "{self._stream}" {what}',
            detail=f"Nothing was computed from it.{windows}{self._origin}",
            hint=self._hint,
        )
