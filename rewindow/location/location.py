"""A place below the state folder: a folder or a file, on a file system or in a store.

What an object store cannot do is not here: no rename of what others read, no lock, no link that two
names share, no folder without a file in it. Names and meanings are pathlib's where both know a
thing.
"""

from __future__ import annotations

import fnmatch
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


@dataclass(frozen=True, order=True)
class Location(ABC):
    """A place. It is a value: to make one touches nothing, and equal addresses are equal places.

    Attributes:
        uri: what Spark, delta-rs and pyarrow get: a path, or a URL with the store's scheme.
    """

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, part: str) -> Self:
        """Returns a place in this folder; a whole path or URL stands for itself."""
        return type(self)(posixpath.join(self.uri, part))

    @property
    def name(self) -> str:
        """The last part."""
        return posixpath.basename(self.uri)

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Self:
        """The folder that it is in."""
        return type(self)(posixpath.dirname(self.uri))

    def with_name(self, name: str) -> Self:
        """Returns the place of another name in the same folder."""
        return self.parent / name

    def is_below(self, folder: Location) -> bool:
        """Returns whether it is a folder, or lies in it at any depth."""
        return self == folder or self.uri.startswith(f"{folder.uri.rstrip('/')}/")

    def relative_to(self, folder: Location) -> str:
        """Returns its path within a folder that it is below."""
        if not self.is_below(folder):
            raise ValueError(f'"{self}" is not below "{folder}"')
        return self.uri[len(folder.uri) :].strip("/")

    def exists(self) -> bool:
        """Returns whether a file is there, or a folder."""
        return self.is_file() or self.is_dir()

    def entries(self, pattern: str = "*") -> list[Self]:
        """Returns the files and folders in this folder whose names match, sorted; none where there
        is no folder.

        Names that begin with a dot are left out: what is hidden so is being made, or taken away.
        """
        names = sorted(name for name in self._names() if not name.startswith("."))
        return [self / name for name in names if fnmatch.fnmatchcase(name, pattern)]

    def folders(self, pattern: str = "*") -> list[Self]:
        """Returns the folders among the `entries`."""
        return [place for place in self.entries(pattern) if place.is_dir()]

    def read_text(self) -> str:
        """Returns a file's content, as UTF-8."""
        return self.read_bytes().decode()

    def read_bytes(self) -> bytes:
        """Returns a file's content."""
        with self.open() as stream:
            return stream.read()

    @abstractmethod
    def _names(self) -> list[str]:
        pass

    @abstractmethod
    def is_file(self) -> bool:
        """Returns whether a file is there."""

    @abstractmethod
    def is_dir(self) -> bool:
        """Returns whether a folder is there; in a store, whether anything lies below."""

    @abstractmethod
    def files(self) -> Iterator[Self]:
        """Yields all files below, at any depth, hidden ones too."""

    @abstractmethod
    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Opens a file for reading.

        Raises:
            OSError: it is not there (FileNotFoundError), or cannot be read.
        """

    @abstractmethod
    def size(self) -> int:
        """Returns a file's bytes.

        Raises:
            OSError: as `open`.
        """

    def modified(self) -> float:
        """Returns when a file was last written, in seconds since 1970."""
        return self.modified_ms() / 1000

    @abstractmethod
    def modified_ms(self) -> int:
        """Returns when a file was last written, in whole milliseconds since 1970, as tables' logs
        have it.

        Raises:
            OSError: as `open`.
        """

    @abstractmethod
    def write(self, content: str | bytes) -> None:
        """Writes a file, or writes it anew. Whoever reads gets the old content or the new one, also
        after a power cut.

        The folders on the way come into being. So with everything here that writes.
        """

    @abstractmethod
    def put_if_absent(self, content: str | bytes) -> bool:
        """Writes a file that is not there yet, whole. Of all who try only one is told True."""

    @abstractmethod
    def copy_to(self, target: Location) -> bool:
        """Makes a file's content be at another place too; a file that is there already stays. May
        be repeated.

        Returns whether it had to be copied, as two names could not share it.

        Where two names may share what is written once, they do: nobody changes such a file, it is
        only deleted.

        Raises:
            FileNotFoundError: it is not there.
        """

    def links_to(self, folder: Location) -> bool:
        """Returns whether this file can be in a folder too without being copied; leaves nothing
        behind.
        """
        return False

    @abstractmethod
    def move_to(self, target: Location) -> bool:
        """Gives a folder another place in one step; False when there is a folder already.

        A store without such a step copies, the logs of tables last, each by a conditional put, then
        deletes.
        """

    @abstractmethod
    def delete(self) -> None:
        """Deletes a file; one that is gone is no error."""

    @abstractmethod
    def delete_tree(self) -> None:
        """Deletes a folder with all that is below, and what deletions beside it that died have
        left.

        Nobody finds a part of it under its name: a file system hides it first, a store begins with
        the tables' logs. One that is gone is no error.
        """

    @abstractmethod
    def make_folder(self) -> None:
        """Makes a folder, with those on the way; where folders are only names, nothing is done."""

    @abstractmethod
    def sync(self) -> None:
        """Makes a file or the names in a folder outlive a power cut; a store has done so when it
        answers.
        """

    @abstractmethod
    def set_modified(self, at_ms: int | None = None) -> None:
        """Sets when a file was written: now, or a time; a store knows that by itself, and nothing
        is done.
        """

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Returns how much room there is, None where nothing says so."""

    @abstractmethod
    def real(self) -> Self:
        """Returns the place itself where symbolic links lead to it; a store has none."""

    @abstractmethod
    def local(self) -> Path:
        """Returns it as a path, for what only a file system can do: SQLite, locks, the scratch of a
        process.

        Raises:
            InputError: it is in a store.
        """
