"""The identity of a process beyond its pid: the system reuses pids, wall-clock start times move
when the clock steps, and containers that share a host name count their pids separately.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

SILENT_AFTER = timedelta(hours=6)
"""A process that is not visible here counts as ended after this time without a heartbeat."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def boot_id() -> str:
    """Returns the id of this boot of the machine; empty if the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def pid_place() -> str:
    """Returns a text that identifies where the pids of this process are valid: the boot of the
    machine and the pid namespace.

    It is empty if the system has no boot id. Containers with the host's network have its host name
    but other pids.
    """
    boot = boot_id()
    try:
        return f"{boot}.{_NAMESPACE.stat().st_ino}" if boot else ""
    except OSError:
        return boot


def process_identity(pid: int) -> str:
    """Returns a permanently unique name of a process: where its pid is valid, and the clock ticks
    from the boot to its start.

    Empty if the process does not exist. If the system provides neither, it is the start time in
    hundredths of a second.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid_place()}/{fields[19]}"
    except (OSError, IndexError):
        pass
    try:
        return f"/{round(psutil.Process(pid).create_time() * 100)}" if not boot_id() else ""
    except psutil.Error:
        return ""


def is_visible(identity: str) -> bool:
    """Returns whether a process with this identity can be found by its pid in this boot and this
    pid namespace.
    """
    return identity.partition("/")[0] == pid_place()


def is_silent(heard_at: datetime, identity: str = "") -> bool:
    """Returns whether a process that is not visible here counts as ended.

    Args:
        heard_at: time of its last heartbeat.
        identity: its identity if known; a process of another boot whose last heartbeat was before
            this boot ended with the machine.
    """
    boot = identity.partition("/")[0].partition(".")[0]
    if boot not in ("", boot_id()) and heard_at.timestamp() < psutil.boot_time():
        return True
    return datetime.now(UTC) - heard_at > SILENT_AFTER


@dataclass(frozen=True)
class Launcher:
    """The process that started a Spark job: the parent of the JVM that is the driver's parent.

    When it ends, the JVM is ended too, so the job fails at any operation with an error that names
    no cause.
    """

    pid: int
    identity: str

    @classmethod
    def of_this_job(cls) -> Launcher:
        """Returns the launcher of the current process. Call this while the launcher is certain to
        be running.
        """
        try:
            pid = psutil.Process(os.getppid()).ppid()
        except psutil.Error:
            return cls(0, "")
        return cls(pid, process_identity(pid))

    def is_gone(self) -> bool:
        """Returns whether the launcher has ended, even if its parent has not waited for it yet.

        An unknown launcher counts as running.
        """
        if not self.identity:
            return False
        if process_identity(self.pid) != self.identity:
            return True
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True
