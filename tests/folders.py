"""A place that a test may also use as the path that it is: what a test makes, damages and looks at
are files.
"""

from __future__ import annotations

import sys
from pathlib import Path, PosixPath
from typing import IO, Any

import pytest

from rewindow.location.local import LocalLocation


class FolderLocation(PosixPath, LocalLocation):  # type: ignore[misc]
    """A folder of a test. What both know (`/`, `name`, `exists`) is pathlib's; the rest is each
    one's own.
    """

    def __init__(self, *parts: Any) -> None:
        # Up to Python 3.11, a path is complete after __new__; LocalLocation.__init__ must not run.
        if sys.version_info >= (3, 12):
            PosixPath.__init__(self, *parts)

    @property
    def uri(self) -> str:  # type: ignore[override]
        return str(self)

    def relative_to(self, folder: Any) -> str:  # type: ignore[override]
        return str(Path(self).relative_to(folder))

    def open(self, mode: str = "rb", **given: Any) -> IO[Any]:  # type: ignore[override]
        return Path(self).open(mode, **given)


class FolderFactory:
    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._factory, name)

    def mktemp(self, basename: str, numbered: bool = True) -> FolderLocation:
        return FolderLocation(self._factory.mktemp(basename, numbered))
