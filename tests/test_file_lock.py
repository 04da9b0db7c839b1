"""The lock between processes of one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rewindow.errors import ResourceError
from rewindow.file_lock import file_lock

_HOLD = """
import sys
from pathlib import Path
from rewindow.file_lock import file_lock
with file_lock(Path(sys.argv[1])) as is_ours:
    print(is_ours, flush=True)
    sys.stdin.read()
"""


def test_lock_is_held_by_one_process_and_let_go_of_when_it_is_killed(tmp_path: Path) -> None:
    """Nobody else gets a lock that a living process holds; after a SIGKILL anybody does, and the file stays."""
    path = tmp_path / "locks" / "one"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout and holder.stdout.readline() == "True\n"
        with file_lock(path, wait=False) as is_ours:
            assert not is_ours
        holder.kill()
    with file_lock(path, wait=False) as is_ours:
        assert is_ours
    assert path.exists()


def test_lock_is_let_go_of_at_the_end_of_its_block_even_when_that_fails(tmp_path: Path) -> None:
    """A lock ends with its block, whichever way the block ends."""
    path = tmp_path / "one"
    with pytest.raises(KeyError), file_lock(path):
        raise KeyError
    with file_lock(path, wait=False) as is_ours:
        assert is_ours


def test_lock_that_cannot_be_made_is_an_error_of_ours_that_names_it(tmp_path: Path) -> None:
    """A file in the place of the folder, or a file system without locks, is said with the lock's path."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "one"
    with pytest.raises(ResourceError, match=re.escape(f'lock "{path}" cannot be taken')), file_lock(path):
        raise AssertionError


def test_lock_on_a_file_system_without_flock_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says about a lock that it does not know is in the detail."""

    def refuse(handle: int, operation: int) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr("rewindow.file_lock.fcntl.flock", refuse)
    with pytest.raises(ResourceError) as raised, file_lock(tmp_path / "one"):
        raise AssertionError
    assert os.strerror(38) in raised.value.detail
