"""The detached process that keeps Airflow's components running.

`python -m rewindow.embedded` starts it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from rewindow.embedded.api import unwell
from rewindow.embedded.components import API_SERVER, COMMANDS, Component, busy_workers, end_orphans
from rewindow.embedded.environment import address, airflow_home, airflow_version, port_of
from rewindow.embedded.processes import (
    adopt_orphans,
    descendants,
    signal_all,
    started_at,
    wait_until,
)
from rewindow.embedded.readiness import make_ready
from rewindow.embedded.status import FAILED, READY, STARTING, SupervisorStatus
from rewindow.processes.file_lock import file_lock
from rewindow.progress.messages import messages_shown
from rewindow.sequences import excluding
from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.3
_STOP_SECONDS = 4.0
"""Triggerer and DAG processor may wait longer for a child that has just started, and have nothing
to lose.
"""
_TASK_SECONDS = 9.0
"""A task waits five seconds for its job to end, and its worker needs a few more to report its
end.
"""
_SETTLE_SECONDS = 2.0


class Supervisor:
    """Starts the components, restarts dead ones, and ends all of them when requested."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.home = airflow_home(config)
        self.port = port_of(config)
        self.components = [Component(name, self.home / "logs") for name in COMMANDS]
        self.stopping = threading.Event()
        self.state = STARTING
        self.message = ""
        self._telling = threading.Lock()
        self._cancelled = threading.Event()
        self._prepared = threading.Event()

    def run(self) -> int:
        """Runs until SIGTERM, SIGINT or a failed start, and returns the exit code of the
        process.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.set())
        adopt_orphans()
        (self.home / "logs").mkdir(exist_ok=True)
        self._tell()
        if not self._migrate():
            return 1
        for component in self.components:
            component.start()
        self._tell("components started")
        self._prepare()
        while not self.stopping.wait(_LOOK_SECONDS):
            self._look()
        self._stop()
        return 0

    def _migrate(self) -> bool:
        """Ensures that the database has the tables of this Airflow version. Returns whether it has.

        Runs the migration only after an installation.
        """
        marker = self.home / "migrated"
        wanted = f"{airflow_version()} {sys.prefix}"
        if (
            marker.is_file()
            and marker.read_text() == wanted
            and (self.home / "airflow.db").is_file()
        ):
            return True
        with open(self.home / "logs" / "migrate.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                stdout=log,
                stderr=log,
            )
            while process.poll() is None:
                if self.stopping.wait(0.1):
                    process.kill()
        if process.returncode == 0:
            marker.write_text(wanted)
            return True
        self._tell(
            f"airflow db migrate failed with exit code {process.returncode}; see {log.name}",
            FAILED,
        )
        return False

    def _prepare(self) -> None:
        """Starts preparing Airflow, and cancels an earlier preparation."""
        self._cancelled.set()
        self._cancelled = threading.Event()
        self._prepared = threading.Event()
        threading.Thread(
            target=self._make_ready,
            args=(self._cancelled, self._prepared),
            daemon=True,
        ).start()

    def _make_ready(self, cancelled: threading.Event, prepared: threading.Event) -> None:
        if make_ready(
            self.config, address(self.port), self._is_healthy, say=self._tell, stopping=cancelled
        ):
            prepared.set()

    def _is_healthy(self) -> bool:
        """Returns whether all components are running and have sent a heartbeat since the newest of
        them started.
        """
        youngest = max(component.began_at for component in self.components)
        return all(component.process for component in self.components) and not unwell(
            address(self.port),
            youngest,
        )

    def _look(self) -> None:
        alive = [component for component in self.components if component.process]
        changes = [line for component in self.components if (line := component.watch())]
        died = [component for component in alive if not component.process]
        if died:
            failed = self.state == FAILED or any(component.restless for component in died)
            self._tell("; ".join(changes), FAILED if failed else STARTING)
            self._prepare()
        elif changes:
            self._tell("; ".join(changes))
        elif self.state != READY and self._prepared.is_set():
            self._tell("ready", READY)
        # The children of a dead component are found by the session that it led.
        dead_sessions: dict[int, str] = {}
        for component in self.components:
            dead_sessions |= component.dead_sessions
        if dead_sessions and (ended := end_orphans(dead_sessions)):
            logger.info(f"ended {len(ended)} processes that a dead component left behind")
        _reap_adopted({component.process.pid for component in self.components if component.process})

    def _stop(self) -> None:
        """Ends everything, starting with the tasks.

        The tasks report to the API server that they resume later, in the same try.
        """
        logger.info("stopping")
        self._cancelled.set()
        servers = [component for component in self.components if component.name == API_SERVER]
        self._terminate(excluding(self.components, servers))
        if workers := busy_workers(os.getpid()):
            logger.info(f"ending {len(workers)} tasks, which resume after the next start")
            signal_all(workers, signal.SIGTERM)
            wait_until(lambda: not set(workers) & set(busy_workers(os.getpid())), _TASK_SECONDS)
        self._terminate(servers)
        if not wait_until(self._all_gone, _STOP_SECONDS):
            signal_all(descendants(os.getpid()), signal.SIGTERM)
            if not wait_until(self._all_gone, _SETTLE_SECONDS):
                signal_all(descendants(os.getpid()), signal.SIGKILL)
                wait_until(self._all_gone, _SETTLE_SECONDS)
        (self.home / "supervisor.json").unlink(missing_ok=True)
        logger.info("stopped")

    def _terminate(self, components: list[Component]) -> None:
        pids = (component.process.pid for component in components if component.process)
        signal_all(pids, signal.SIGTERM)

    def _all_gone(self) -> bool:
        _reap_adopted(set())
        return not descendants(os.getpid())

    def _tell(self, message: str = "", state: str = "") -> None:
        """Logs a line, and stores it and the state for other processes. The line of a failure stays
        until all components are healthy.
        """
        identities = {component.name: component.identity for component in self.components}
        with self._telling:
            if message and (state or self.state != FAILED):
                self.message = message
            self.state = state or self.state
            status = SupervisorStatus(
                os.getpid(),
                started_at(os.getpid()),
                self.port,
                state=self.state,
                message=self.message,
                components=identities,
            )
            status.write(self.home)
        if message:
            logger.info(message)


def main() -> int:
    """Runs a supervisor for the current settings, and returns its exit code."""
    os.umask(0o077)
    config = Config.load()
    if os.fork():
        os._exit(0)  # The caller continues; the supervisor is detached.
    with (
        file_lock(airflow_home(config) / "supervisor.lock", wait=False) as is_ours,
        messages_shown(partial(print, flush=True), "%(asctime)s %(message)s"),
    ):
        if not is_ours:
            logger.info("another supervisor runs for this home")
            return 0
        return Supervisor(config).run()


def _reap_adopted(mine: set[int]) -> None:
    """Reaps ended child processes that are not components, so that no zombies remain."""
    for pid in _zombies():
        if pid not in mine:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _zombies() -> list[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    pids = list(map(int, children.read_text().split())) if children.is_file() else []
    return [pid for pid in pids if started_at(pid) is None]
