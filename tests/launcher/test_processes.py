"""Process groups of attempts: ended when they are the ones that are meant, whatever the clock
did.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from rewindow.launcher.processes import end_process_group, is_gone
from rewindow.ledger import AttemptRecord
from rewindow.processes.identity import SILENT_AFTER, pid_place, process_identity
from tests.namespaces import run_in_namespace


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


def test_process_identity_is_stable_and_none_for_an_unused_pid() -> None:
    assert process_identity(os.getpid()) == process_identity(os.getpid())
    assert process_identity(os.getpid()).startswith(f"{pid_place()}/")
    assert process_identity(2**22 + 1) == ""


ENDS_THE_GROUP = """
import sys
from rewindow.launcher.processes import end_process_group
from rewindow.processes.identity import process_identity
from tests.launcher.test_processes import attempt
from rewindow.launcher.processes import is_gone
group, leader = int(sys.argv[1]), sys.argv[2]
end_process_group(group, leader)
print(process_identity(group) == leader, is_gone(attempt(group, leader)))
"""


def attempt(group: int, identity: str, silent: timedelta = timedelta(0)) -> AttemptRecord:
    now = datetime.now(UTC)
    return AttemptRecord(
        replay_id="one",
        epoch=1,
        host=socket.gethostname(),
        pid=group,
        process_group=group,
        process_identity=identity,
        mark=None,
        outcome=None,
        message="",
        began_at=now - silent,
        heard_at=now - silent,
        ended_at=None,
    )


def test_attempt_in_another_pid_namespace_is_neither_killed_nor_declared_dead(
    group: subprocess.Popen[bytes],
) -> None:
    leader = process_identity(group.pid)
    assert run_in_namespace(ENDS_THE_GROUP, str(group.pid), leader) == "False False\n"
    assert group.poll() is None
    assert not is_gone(attempt(group.pid, leader))


def test_invisible_attempt_is_declared_dead_after_hours_without_a_report() -> None:
    boot, _, namespace = pid_place().partition(".")
    elsewhere = f"{boot}.{int(namespace) + 1}/1"
    assert not is_gone(attempt(1, elsewhere, SILENT_AFTER / 2))
    assert is_gone(attempt(1, elsewhere, SILENT_AFTER * 2))


def test_attempt_started_before_the_last_boot_is_dead_and_a_newer_one_is_not() -> None:
    since_boot = datetime.now(UTC) - datetime.fromtimestamp(psutil.boot_time(), UTC)
    assert is_gone(attempt(1, "boot.1/1", since_boot + timedelta(minutes=1)))
    assert not is_gone(attempt(1, "boot.1/1"))
