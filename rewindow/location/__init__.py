"""FileLayout below the state folder: list, read, write, delete, and a conditional put. Nobody else
opens a path there.

Another store is a module here that answers `Location`, and its scheme in `location`.
"""

from __future__ import annotations

import os
import re

from rewindow.errors import InputError
from rewindow.location.local import LocalLocation
from rewindow.location.location import Location

__all__ = ["Location", "location"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def location(given: str | os.PathLike[str] | Location) -> Location:
    """Returns the place of a path; a place stays what it is.

    Raises:
        InputError: it is a URL, which would be taken for a folder of that name.
    """
    if isinstance(given, Location):
        return given
    text = os.fspath(given)
    if _SCHEME.match(text):
        raise InputError(
            f"{text} is no folder of this machine",
            hint="Write a path on a local or shared file system; no object store is known.",
        )
    return LocalLocation(text)
