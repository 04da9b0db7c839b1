"""Ends processes when the process that started them ends, even if that one is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_LOOK_SECONDS = 0.3


def dies_with_parent() -> Callable[[], None]:
    """Returns a function for `preexec_fn` that makes a new process receive SIGTERM when the current
    one ends; Linux only.
    """
    parent = os.getpid()

    def before_exec() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # The parent ended before the call of prctl.
            os._exit(128 + signal.SIGTERM)

    return before_exec


def end_group_with_parent() -> None:
    """Kills the current process's whole group as soon as its parent has ended.

    For processes that Rewindow does not start: Spark's driver is started by a JVM, which may end
    first.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)
