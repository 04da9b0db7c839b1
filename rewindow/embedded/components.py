"""A component of Airflow.

It is started, monitored, restarted with back-off, and ended together with its child processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rewindow.embedded.processes import descendants, session, signal_all, started_at, title
from rewindow.processes.parent_death import dies_with_parent

API_SERVER = "api-server"
COMMANDS = {
    API_SERVER: ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
"""Commands of the components. The log servers of scheduler and triggerer are disabled, because they
would listen on every interface.
"""

BACK_OFF_SECONDS_MAX = 30.0
RESTLESS_SECONDS = 4.0
"""The delay after the third failure in a row."""
STEADY_SECONDS = 60.0
_WORKER = "airflow worker -- LocalExecutor: "
_IDLE = "LocalExecutor: <idle>"
_LOG_BYTES_MAX = 20_000_000


class Component:
    """A component and its current process. Each process is the leader of a separate session."""

    def __init__(self, name: str, log_folder: Path) -> None:
        self.name = name
        self.log = log_folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.dead_sessions: dict[int, str] = {}
        self.began_at = 0.0
        self._began = 0.0
        self._delay_seconds = 0.0
        self._not_before = 0.0

    def start(self) -> None:
        """Starts the process. It ends together with the supervisor."""
        self._began = time.monotonic()
        self.began_at = time.time()
        with open(self.log, "ab" if _is_small(self.log) else "wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # The working directory can be a checkout, see `_is_installed`.
                    "-m",
                    "rewindow.embedded.airflow_command",
                    *COMMANDS[self.name],
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )

    def watch(self) -> str:
        """Restarts a dead process when its delay has passed.

        Returns a log line about a change, or an empty string.
        """
        now = time.monotonic()
        if self.process is None:
            if now < self._not_before:
                return ""
            self.start()
            return f"{self.name} started again"
        exit_code = self.process.poll()
        if exit_code is None:
            return ""
        if now - self._began >= STEADY_SECONDS:
            self._delay_seconds = 0.0
        self._delay_seconds = min(max(1.0, 2 * self._delay_seconds), BACK_OFF_SECONDS_MAX)
        self._not_before = now + self._delay_seconds
        self.dead_sessions[self.process.pid] = self.name
        self.process = None
        again = f"to be started again in {self._delay_seconds:.0f} s; see {self.log}"
        return f"{self.name} died ({_cause(exit_code)}), {again}"

    @property
    def restless(self) -> bool:
        """Whether the component has died at least three times without running for a minute in
        between.
        """
        return self._delay_seconds >= RESTLESS_SECONDS

    @property
    def identity(self) -> tuple[int, int | None]:
        """The pid and the start time of the process; (0, None) while it is dead."""
        pid = self.process.pid if self.process else 0
        return (pid, started_at(pid)) if pid else (0, None)


def end_orphans(dead_sessions: Mapping[int, str]) -> list[int]:
    """Ends processes that dead components have left behind, and returns their pids.

    Args:
        dead_sessions: session id of a component's dead process to the component's name.

    A worker of a dead scheduler may still run a task, which must not be lost. It is ended when its
    title shows that it is idle.
    """
    ended = []
    for pid in descendants(os.getpid()):
        component = dead_sessions.get(session(pid) or 0)
        if component and (component != "scheduler" or _IDLE in title(pid)):
            ended.append(pid)
    signal_all(ended, signal.SIGKILL)
    return ended


def busy_workers(supervisor: int) -> list[int]:
    """Returns the pids of workers that run a task.

    They are the workers of a supervisor's schedulers, including dead ones.
    """
    workers = []
    for pid in descendants(supervisor):
        name = title(pid)
        if name.startswith(_WORKER) and _IDLE not in name:
            workers.append(pid)
    return workers


def _is_small(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size < _LOG_BYTES_MAX


def _cause(exit_code: int) -> str:
    return (
        f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
    )
