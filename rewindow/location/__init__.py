"""File access below the state folder: list, read, write, delete, and a conditional put. No other
package opens paths there.

To support another store, add a module here that implements `Location`, and its scheme to
`location`.
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
    """Returns the location of a path.

    A location is returned unchanged.

    Raises:
        InputError: it is a URL, which would be treated as the name of a folder.
    """
    if isinstance(given, Location):
        return given
    text = os.fspath(given)
    if _SCHEME.match(text):
        raise InputError(
            f'location "{text}" is not a folder of this machine',
            hint="Use a path on a local or shared file system. Object stores are not supported.",
        )
    return LocalLocation(text)
