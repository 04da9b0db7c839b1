"""A file that lists the delivered windows, for folders and for targets that do not list their
windows.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from rewindow.errors import OverlapError


class ProgressFile:
    """A file of JSON lines with window, publication and digest, locked by the process that
    delivers.

    `open` removes an incomplete last line, which a killed process may have left.

    Args:
        what: the target, as an error message names it.

    Attributes:
        digests: digest of each delivered window.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._file: IO[bytes] | None = None
        self.digests: dict[int, str] = {}

    def open(self) -> None:
        """Locks and reads the file.

        Raises:
            OverlapError: another process delivers to the same target.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = file = self._path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise OverlapError(
                f"another process is delivering to {self._what}",
                hint="Wait until it has ended, and run the command again.",
            ) from None
        # The lock is held from here on, so no other process appends while the lines are read.
        file.seek(0)
        whole = 0
        for line in file.read().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            entry = json.loads(line)
            if entry["digest"] is None:
                self.digests.pop(entry["window_id"], None)
            else:
                self.digests[entry["window_id"]] = entry["digest"]
        # An incomplete line would run into the next one.
        file.truncate(whole)

    def note(self, window_id: int, publication: int, digest: str | None) -> None:
        """Appends the digest of a window and syncs the file. None marks the window as removed."""
        assert self._file is not None, "opened"
        entry = {"window_id": window_id, "publication": publication, "digest": digest}
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Releases the lock."""
        if self._file is not None:
            self._file.close()
