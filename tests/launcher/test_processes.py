"""Process groups of attempts: ended when they are the ones that are meant, whatever the clock
did.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from rewindow.launcher.processes import end_process_group
from rewindow.processes.identity import boot_id, process_identity


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def test_process_group_is_ended_after_a_clock_step(
    group: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A clock step shifts every wall-clock start time, but not boot id and ticks.
    leader = process_identity(group.pid)
    before = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + 3600)
    end_process_group(group.pid, leader)
    assert not psutil.pid_exists(group.pid)


@pytest.mark.parametrize("other", ["another boot", "another process"])
def test_process_group_with_a_reused_pid_is_not_killed(
    group: subprocess.Popen[bytes],
    other: str,
) -> None:
    boot, _, ticks = process_identity(group.pid).partition("/")
    end_process_group(
        group.pid,
        f"x{boot}/{ticks}" if other == "another boot" else f"{boot}/{int(ticks) - 1}",
    )
    assert group.poll() is None


def test_process_identity_is_stable_and_missing_for_an_unused_pid() -> None:
    assert process_identity(os.getpid()) == process_identity(os.getpid())
    assert process_identity(os.getpid()).startswith(f"{boot_id()}/")
    assert process_identity(2**22 + 1) == ""
