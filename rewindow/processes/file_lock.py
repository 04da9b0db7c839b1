"""A lock between the processes of one machine.

It is a file that one of the processes locks until it releases the lock or ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rewindow.errors import ResourceError

_LOCKED_UNTIL_EXIT: dict[Path, int] = {}


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Locks a file until the context or the process ends. Yields whether the lock was acquired,
    which is always true with `wait`.

    The file is not removed, because then two processes could lock two files of the same name.

    Raises:
        ResourceError: the file cannot be opened, or its file system has no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise _no_lock(path, error) from error
    try:
        yield _is_held(path, handle, wait)
    finally:
        os.close(handle)


def lock_until_exit(path: Path) -> None:
    """Locks a file until this process ends in any way. A second call changes nothing.

    Does nothing if the file system has no locks.
    """
    if path in _LOCKED_UNTIL_EXIT:
        return
    with suppress(OSError, ResourceError):
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        _LOCKED_UNTIL_EXIT[path] = handle
        _is_held(path, handle, wait=False)


def is_locked(path: Path) -> bool:
    """Returns whether a process may have locked a file.

    If the file does not exist, returns False.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not _is_held(path, handle, wait=False)
    except ResourceError:
        return True
    finally:
        os.close(handle)


def _is_held(path: Path, handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise _no_lock(path, error) from error
    return True


def _no_lock(path: Path, error: OSError) -> ResourceError:
    return ResourceError(
        f'lock "{path}" cannot be taken',
        detail=f"Error of the system: {error.strerror}. Nothing has been changed.",
        hint="Check the permissions of its folder and the free disk space; a shared file system "
        "must support flock.",
    )
