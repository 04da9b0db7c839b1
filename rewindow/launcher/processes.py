"""Ends process groups of attempts completely."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import psutil

from rewindow.errors import ResourceError
from rewindow.ledger import AttemptRecord
from rewindow.processes.identity import is_silent, is_visible, process_identity

_PATIENCE_SECONDS = 15.0


def end_process_group(group: int, leader: str, *, only_stopped: bool = False) -> None:
    """Kills the remaining processes of a process group and waits until they have ended.

    Args:
        group: process group, by its leader's pid.
        leader: that leader's identity (process_identity). A process with the same pid and another
            identity is left alone. So is every process if the leader is not visible here: it ran in
            another pid namespace, or before this boot of the machine.
        only_stopped: whether to leave the group alone unless one of its processes is stopped
            (SIGSTOP).

    Raises:
        ResourceError: a process did not end.
    """
    if not is_visible(leader) or process_identity(group) not in ("", leader):
        return
    members = list(_members(group))
    if only_stopped and not any(map(_is_stopped, members)):
        return
    for process in members:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(members, timeout=_PATIENCE_SECONDS)
    alive = [
        process
        for process in alive
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    if alive:
        raise ResourceError(
            f"process {alive[0].pid} of the last attempt does not end",
            hint="End it manually and retry.",
        )


def is_gone(attempt: AttemptRecord) -> bool:
    """Returns whether the process of an attempt without a recorded end no longer exists. If this is
    unknown, returns False.

    For a process in another pid namespace of this host, only the ledger is available. The process
    counts as ended if the attempt has reported nothing for hours.
    """
    if attempt.outcome is not None or attempt.host != socket.gethostname():
        return False
    if not attempt.process_group or not attempt.process_identity:
        return False
    if not is_visible(attempt.process_identity):
        return is_silent(attempt.heard_at, attempt.process_identity)
    exists = process_identity(attempt.process_group) == attempt.process_identity
    return not exists and not any(_members(attempt.process_group))


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def _members(group: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group:
                yield process
        except (ProcessLookupError, PermissionError):
            continue
