"""Which process is meant by a pid: a pid is given out again, and wall-clock start times move when
the clock steps.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Returns the id of this boot of the machine; empty where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def process_identity(pid: int) -> str:
    """Returns what names one process for ever: the machine's boot, and clock ticks from there to
    the process's start.

    Empty when there is no such process. Where the system tells neither, it is the start time in
    hundredths of a second.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{boot_id()}/{fields[19]}"
    except (OSError, IndexError):
        pass
    try:
        return f"/{round(psutil.Process(pid).create_time() * 100)}" if not boot_id() else ""
    except psutil.Error:
        return ""


def is_of_this_boot(identity: str) -> bool:
    """Returns whether a process of that identity can be alive at all."""
    return identity.partition("/")[0] == boot_id()


@dataclass(frozen=True)
class Launcher:
    """The process that started a Spark job: the parent of the JVM that is the driver's parent.

    With it the JVM is told to end, so that the job fails of whatever it is at: an error that names
    no cause.
    """

    pid: int
    identity: str

    @classmethod
    def of_this_job(cls) -> Launcher:
        """Returns that of the present process, to be asked for while it is sure to be there."""
        try:
            pid = psutil.Process(os.getppid()).ppid()
        except psutil.Error:
            return cls(0, "")
        return cls(pid, process_identity(pid))

    def is_gone(self) -> bool:
        """Returns whether it has ended; one that nobody has waited for yet has ended too. Who is
        not known is there.
        """
        if not self.identity:
            return False
        if process_identity(self.pid) != self.identity:
            return True
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True
