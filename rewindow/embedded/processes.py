"""Inspects processes through /proc: running processes, descendants, sessions, titles."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
_LIBC = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def started_at(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot; None if the process has ended or is
    a zombie.

    The pid alone may have been reused. The pid and the start time together identify a process.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Returns whether the process with this pid and start time is running."""
    now = started_at(pid)
    return now is not None and (started is None or now == started)


def title(pid: int) -> str:
    """Returns the title of a process, which is its command line."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


def session(pid: int) -> int | None:
    """Returns the id of a process's session; None if the process has ended."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def descendants(root: int) -> list[int]:
    """Returns all running processes that descend from a process, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if (
            entry.name.isdigit()
            and (fields := _stat(int(entry.name))) is not None
            and fields[0] not in "ZX"
        ):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = []
    queue = list(children.get(root, []))
    while queue:
        pid = queue.pop(0)
        found.append(pid)
        queue += children.get(pid, [])
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_until(
    condition: Callable[[], bool],
    seconds_max: float,
    every_seconds: float = 0.1,
) -> bool:
    """Polls a condition and returns whether it became true before the deadline."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_seconds)
    return True


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose parent dies.

    It can then end these processes.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _stat(pid: int) -> list[str] | None:
    """Returns the fields of /proc/PID/stat, starting with the state: [state, parent, group,
    session, ...].
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
