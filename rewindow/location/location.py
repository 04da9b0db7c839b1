"""A location below the state folder: a folder or a file, on a file system or in a store.

The interface has no operation that an object store lacks: no rename of files that others read, no
lock, no link with two names, no folder without a file in it. Operations that pathlib also has use
its names and meanings.
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
    """A location in the state folder.

    It is a value: creating a location does not access it, and locations with equal addresses are
    equal.

    Attributes:
        uri: the address for Spark, delta-rs and pyarrow: a path, or a URL with the store's scheme.
    """

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, part: str) -> Self:
        """Returns a location in this folder. An absolute path or a URL replaces the folder."""
        return type(self)(posixpath.join(self.uri, part))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.uri)

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Self:
        """The folder that contains this location."""
        return type(self)(posixpath.dirname(self.uri))

    def with_name(self, name: str) -> Self:
        """Returns the location with another name in the same folder."""
        return self.parent / name

    def is_below(self, folder: Location) -> bool:
        """Returns whether this location is a given folder, or is in it at any depth."""
        return self == folder or self.uri.startswith(f"{folder.uri.rstrip('/')}/")

    def relative_to(self, folder: Location) -> str:
        """Returns the path of this location relative to a folder that contains it."""
        if not self.is_below(folder):
            raise ValueError(f'"{self}" is not below "{folder}"')
        return self.uri[len(folder.uri) :].strip("/")

    def exists(self) -> bool:
        """Returns whether this is an existing file or folder."""
        return self.is_file() or self.is_dir()

    def entries(self, pattern: str = "*") -> list[Self]:
        """Returns the files and folders in this folder whose names match, sorted; none if the
        folder does not exist.

        Names that start with a dot are left out, because such files are being created or deleted.
        """
        names = sorted(name for name in self._names() if not name.startswith("."))
        return [self / name for name in names if fnmatch.fnmatchcase(name, pattern)]

    def folders(self, pattern: str = "*") -> list[Self]:
        """Returns the folders among the `entries`."""
        return [place for place in self.entries(pattern) if place.is_dir()]

    def read_text(self) -> str:
        """Returns the content of a file as text in UTF-8."""
        return self.read_bytes().decode()

    def read_bytes(self) -> bytes:
        """Returns the content of a file."""
        with self.open() as stream:
            return stream.read()

    @abstractmethod
    def _names(self) -> list[str]:
        pass

    @abstractmethod
    def is_file(self) -> bool:
        """Returns whether this is an existing file."""

    @abstractmethod
    def is_dir(self) -> bool:
        """Returns whether this is an existing folder.

        In a store, this is true if the folder contains any file.
        """

    @abstractmethod
    def files(self) -> Iterator[Self]:
        """Yields all files in this folder at any depth, including hidden ones."""

    @abstractmethod
    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Opens a file for reading.

        Raises:
            OSError: it does not exist (FileNotFoundError), or cannot be read.
        """

    @abstractmethod
    def size(self) -> int:
        """Returns the size of a file in bytes.

        Raises:
            OSError: as `open`.
        """

    def modified(self) -> float:
        """Returns when a file was last written, in seconds since 1970."""
        return self.modified_ms() / 1000

    @abstractmethod
    def modified_ms(self) -> int:
        """Returns when a file was last written, in whole milliseconds since 1970, as in the logs of
        tables.

        Raises:
            OSError: as `open`.
        """

    @abstractmethod
    def write(self, content: str | bytes) -> None:
        """Writes or replaces a file.

        Readers see the old or the new content, even after a power failure. Missing parent folders
        are created, as in all methods that write.
        """

    @abstractmethod
    def put_if_absent(self, content: str | bytes) -> bool:
        """Writes a complete file if it does not exist yet. Only one of several concurrent callers
        gets True.
        """

    @abstractmethod
    def copy_to(self, target: Location) -> bool:
        """Creates a file with the same content at another location; an existing file is kept. May
        be repeated.

        Returns whether the content was copied, because two names could not share it.

        If two names can share a file, they do: such files are never changed, only deleted.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def links_to(self, folder: Location) -> bool:
        """Returns whether this file can be linked into a folder without a copy. Leaves no files
        there.
        """
        return False

    @abstractmethod
    def move_to(self, target: Location) -> bool:
        """Moves a folder in one step; returns False if the target exists.

        A store without such a step copies the files, the logs of tables last and each by a
        conditional put, then deletes the originals.
        """

    @abstractmethod
    def delete(self) -> None:
        """Deletes a file; a missing file is not an error."""

    @abstractmethod
    def delete_tree(self) -> None:
        """Deletes a folder with everything below it, and the remains of interrupted deletions in
        the same folder.

        No reader finds a part of it under its name: a file system hides it first, a store starts
        with the logs of tables. A missing folder is not an error.
        """

    @abstractmethod
    def make_folder(self) -> None:
        """Creates a folder and its parents.

        Does nothing in a store where folders are only names.
        """

    @abstractmethod
    def sync(self) -> None:
        """Ensures that a file, or the names in a folder, are durable.

        In a store, writes are durable when they return.
        """

    @abstractmethod
    def set_modified(self, at_ms: int | None = None) -> None:
        """Sets the modification time of a file to now or to a given time.

        Does nothing in a store.
        """

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Returns the free space in bytes; None if unknown."""

    @abstractmethod
    def real(self) -> Self:
        """Returns the location with symbolic links resolved. A store has no symbolic links."""

    @abstractmethod
    def local(self) -> Path:
        """Returns the location as a path, for operations that need a file system: SQLite, locks,
        temporary files.

        Raises:
            InputError: it is in a store.
        """
