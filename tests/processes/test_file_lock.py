"""The lock between processes of one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rewindow.errors import ResourceError
from rewindow.processes.file_lock import file_lock

_HOLD = """
import sys
from pathlib import Path
from rewindow.processes.file_lock import file_lock
with file_lock(Path(sys.argv[1])) as is_ours:
    print(is_ours, flush=True)
    sys.stdin.read()
"""


def test_lock_is_held_by_one_process_and_released_when_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout and holder.stdout.readline() == "True\n"
        with file_lock(path, wait=False) as is_ours:
            assert not is_ours
        holder.kill()
    with file_lock(path, wait=False) as is_ours:
        assert is_ours
    assert path.exists()


def test_lock_is_released_at_the_end_of_its_block_even_on_error(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with pytest.raises(KeyError), file_lock(path):
        raise KeyError
    with file_lock(path, wait=False) as is_ours:
        assert is_ours


def test_lock_that_cannot_be_created_raises_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "one"
    with (
        pytest.raises(ResourceError, match=re.escape(f'lock "{path}" cannot be taken')),
        file_lock(path),
    ):
        raise AssertionError


def test_lock_on_a_file_system_without_flock_raises_an_error_with_detail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr("rewindow.processes.file_lock.fcntl.flock", refuse)
    with pytest.raises(ResourceError) as raised, file_lock(tmp_path / "one"):
        raise AssertionError
    assert os.strerror(38) in raised.value.detail
