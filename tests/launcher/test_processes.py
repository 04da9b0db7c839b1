"""Process groups of attempts: ended when they are the ones that are meant, whatever the clock did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from rewindow.launcher.processes import end_process_group
from rewindow.process_identity import boot_id, process_identity


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """Returns a process that leads a group of its own and waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


def test_group_is_ended_although_the_clock_was_stepped(
    group: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that steps moves every wall-clock start time; boot and ticks stay."""
    leader = process_identity(group.pid)
    before = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + 3600)
    end_process_group(group.pid, leader)
    assert not psutil.pid_exists(group.pid)


@pytest.mark.parametrize("other", ["another boot", "another process"])
def test_group_of_somebody_else_is_left_alone(group: subprocess.Popen[bytes], other: str) -> None:
    """The same pid after a restart of the machine, or given out again: nobody is killed."""
    boot, _, ticks = process_identity(group.pid).partition("/")
    end_process_group(group.pid, f"x{boot}/{ticks}" if other == "another boot" else f"{boot}/{int(ticks) - 1}")
    assert group.poll() is None


def test_identity_names_one_process_of_this_boot() -> None:
    """It is the same at every look, and there is none for a pid that nobody has."""
    assert process_identity(os.getpid()) == process_identity(os.getpid())
    assert process_identity(os.getpid()).startswith(f"{boot_id()}/")
    assert process_identity(2**22 + 1) == ""
