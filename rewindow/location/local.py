"""Locations on a local or shared file system."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self

from rewindow.location.location import Location

_DELETED = ".trash"
_UNTIDY = re.compile(r"//|/\.?$|/\./|^\.(?:/|$)|^$")
"""Matches paths that are not normalized, for example with a slash at the end; most paths do not
match.
"""
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES})
"""Errors of a link call if a file cannot be linked."""


@dataclass(frozen=True, order=True)
class LocalLocation(Location):
    """A location that is a path.

    Only code that requires a local file system (`local`, tests) opens it as a path.
    """

    def __post_init__(self) -> None:
        if _UNTIDY.search(self.uri):
            object.__setattr__(self, "uri", str(PurePosixPath(self.uri)))

    def __fspath__(self) -> str:
        return self.uri

    def local(self) -> Path:
        return Path(self.uri)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.uri)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_file(self) -> bool:
        return os.path.isfile(self.uri)

    def is_dir(self) -> bool:
        return os.path.isdir(self.uri)

    def files(self) -> Iterator[Self]:
        for folder, _, names in os.walk(self.uri):
            for name in sorted(names):
                yield type(self)(os.path.join(folder, name))

    def open(self) -> AbstractContextManager[IO[bytes]]:
        return open(self.uri, "rb")

    def size(self) -> int:
        return os.stat(self.uri).st_size

    def modified_ms(self) -> int:
        return os.stat(self.uri).st_mtime_ns // 1_000_000

    def write(self, content: str | bytes) -> None:
        draft = self._draft(content)
        try:
            os.replace(draft, self.uri)
        except OSError:
            os.unlink(draft)
            raise

    def put_if_absent(self, content: str | bytes) -> bool:
        draft = self._draft(content)
        try:
            os.link(draft, self.uri)
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        return True

    def copy_to(self, target: Location) -> bool:
        if target.exists():
            return False
        target.parent.make_folder()
        try:
            os.link(self.uri, target.uri)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            return False
        draft = LocalLocation(_beside(target))
        try:
            shutil.copyfile(self.uri, draft.uri)
            draft.sync()
            os.replace(draft.uri, target.uri)
        finally:
            draft.delete()
        return True

    def links_to(self, folder: Location) -> bool:
        """Tries to create a link with a hidden name and removes it.

        File systems have no query for this.
        """
        trial = _beside(folder / self.name)
        try:
            os.link(self.uri, trial)
        except OSError:
            return False
        os.unlink(trial)
        return True

    def move_to(self, target: Location) -> bool:
        target.parent.make_folder()
        try:
            os.rename(self.uri, target.uri)
        except OSError:
            if not target.exists():
                raise
            return False
        return True

    def delete(self) -> None:
        self.local().unlink(missing_ok=True)

    def delete_tree(self) -> None:
        hidden = self.with_name(f".{self.name}.{uuid.uuid4().hex[:8]}{_DELETED}")
        with suppress(FileNotFoundError):
            os.rename(self.uri, hidden.uri)
        for name in self.parent._names():
            if name.startswith(".") and name.endswith(_DELETED):
                shutil.rmtree(self.with_name(name).uri, ignore_errors=True)

    def make_folder(self) -> None:
        os.makedirs(self.uri, exist_ok=True)

    def sync(self) -> None:
        handle = os.open(self.uri, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def set_modified(self, at_ms: int | None = None) -> None:
        ns = time.time_ns() if at_ms is None else at_ms * 1_000_000
        os.utime(self.uri, ns=(ns, ns))

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self.uri).free

    def real(self) -> Self:
        return type(self)(os.path.realpath(self.uri))

    def _draft(self, content: str | bytes) -> str:
        """Writes the content to a hidden file in the same folder and returns that file."""
        self.parent.make_folder()
        draft = _beside(self)
        try:
            with open(draft, "xb") as stream:
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise
        return draft


def _beside(place: Location) -> str:
    return place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}").uri
