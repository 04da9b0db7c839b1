"""Functions of the command line: start and stop Airflow, return its status, run one of its
commands.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewindow.embedded.api import unwell
from rewindow.embedded.environment import (
    HOST,
    address,
    airflow_environment,
    airflow_home,
    airflow_version,
    dags_folder,
    password_file,
    port_of,
)
from rewindow.embedded.processes import is_alive, session, signal_all, started_at, wait_until
from rewindow.embedded.sqlite import write_local_settings
from rewindow.embedded.status import FAILED, READY, SupervisorStatus, read_status
from rewindow.errors import InputError, ResourceError
from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

_READY_SECONDS_MAX = 300.0
_STOP_SECONDS_MAX = 40.0


@dataclass(frozen=True)
class Running:
    """A running Airflow, with its address and the file with the passwords of its users."""

    address: str
    password_file: Path


def up(config: Config, port: int | None = None) -> Running:
    """Starts Airflow on loopback unless it is running, and returns its address.

    The function returns only when a triggered task would run immediately (20 to 40 s). If Airflow
    is running but a component has died or is not healthy, it waits for that too.

    Args:
        config: the current settings; Airflow's home is `<state>/airflow`.
        port: port of web pages and API; by default the port of the last start.

    Raises:
        InputError: the port is invalid, or DAGs and plugin are missing.
        ResourceError: Airflow is not installed, the port is in use, or a component does not start.
    """
    airflow_version()
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"port must be from 1 to 65535, not {port}")
    dags_folder(config)
    status = running(config)
    if status is None:
        _end_leftovers(config)
        _start(config, port or port_of(config))
    else:
        logger.info(f"Airflow is already running at {address(status.port)}")
        if port not in (None, status.port):
            logger.info(f"It does not use port {port}: run `rewindow down` first to move it.")
    _wait_until_ready(config)
    current = running(config)
    return Running(
        address(current.port if current else port or port_of(config)),
        password_file(config),
    )


def down(config: Config) -> bool:
    """Stops Airflow and all its processes. Returns whether it was running.

    Running jobs end and can be resumed.

    Raises:
        ResourceError: the supervisor does not end.
    """
    status = running(config)
    if status is None:
        return _end_leftovers(config)
    signal_all([status.pid], signal.SIGTERM)
    if not wait_until(lambda: not status.alive, _STOP_SECONDS_MAX):
        raise ResourceError(
            f"supervisor {status.pid} does not end",
            detail=f"Waited {_STOP_SECONDS_MAX:.0f} s.",
            hint=_log_hint(config),
        )
    return True


def running(config: Config) -> SupervisorStatus | None:
    """Returns the status of the supervisor that runs with these settings; None if there is none."""
    status = read_status(airflow_home(config))
    return status if status and status.alive else None


def run_airflow(config: Config, arguments: Sequence[str]) -> int:
    """Runs Airflow's command line in the environment of this project's Airflow, and returns its
    exit code.
    """
    command = [sys.executable, "-P", "-m", "airflow", *arguments]
    return subprocess.run(command, env=airflow_environment(config), check=False).returncode


def _start(config: Config, port: int) -> None:
    refuse_port_in_use(port)
    home = airflow_home(config)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "port").write_text(str(port))
    write_local_settings(home)
    logger.info(
        f"Starting Airflow {airflow_version()} at {address(port)}; its log: "
        f"{home / 'supervisor.log'}"
    )
    with open(home / "supervisor.log", "ab") as log:
        starter = subprocess.run(
            [sys.executable, "-m", "rewindow.embedded"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=config.root,
            env=airflow_environment(config, port),
            start_new_session=True,
            check=False,
        )
    if starter.returncode or not wait_until(lambda: running(config) is not None, _STOP_SECONDS_MAX):
        raise ResourceError("supervisor did not start", hint=_log_hint(config))


def _wait_until_ready(config: Config) -> None:
    began = time.monotonic()
    last = ""

    def is_ready() -> bool:
        nonlocal last
        status = running(config)
        if status is None or status.state == FAILED:
            raise ResourceError(
                "Airflow did not start",
                detail=_last_words(config),
                hint=_log_hint(config),
            )
        if status.state != READY and status.message != last:
            last = status.message
            logger.info(f"{time.monotonic() - began:.0f} s: {last}")
        return status.state == READY and not unwell(address(status.port))

    if not wait_until(is_ready, _READY_SECONDS_MAX, every_seconds=0.2):
        lame = (
            ", ".join(unwell(address(port_of(config))))
            or "the steps after its components have started"
        )
        raise ResourceError(
            f"Airflow is not ready: {lame}",
            detail=f"Waited {_READY_SECONDS_MAX:.0f} s.",
            hint=_log_hint(config),
        )


def _last_words(config: Config) -> str:
    """Returns the last message of the supervisor as a sentence, which names the component that died
    and its log.
    """
    status = read_status(airflow_home(config))
    return f"{status.message}." if status and status.message else "The supervisor ended."


def refuse_port_in_use(port: int) -> None:
    """Checks that a port is free.

    Raises:
        ResourceError: the port is in use, or may not be opened.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ResourceError(
                f"port {port} of {HOST} cannot be opened: {error.strerror}",
                detail="Nothing was started.",
                hint=f"Choose another one: rewindow up --port {port + 1}.",
            ) from error


def _end_leftovers(config: Config) -> bool:
    """Ends components whose supervisor was killed. Returns whether there were any.

    These components would be slow to end by themselves.
    """
    status = read_status(airflow_home(config))
    if status is None:
        return False
    leaders = {pid for pid, started in status.components.values() if pid and is_alive(pid, started)}
    left = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and session(int(entry.name)) in leaders
    ]
    signal_all(left, signal.SIGTERM)
    if not wait_until(lambda: not any(map(started_at, left)), _STOP_SECONDS_MAX / 2):
        signal_all(left, signal.SIGKILL)
        wait_until(lambda: not any(map(started_at, left)), _STOP_SECONDS_MAX / 2)
    (airflow_home(config) / "supervisor.json").unlink(missing_ok=True)
    return bool(left)


def _log_hint(config: Config) -> str:
    home = airflow_home(config)
    return (
        f"Read {home / 'supervisor.log'} and {home / 'logs'}, one log a component. rewindow "
        "down stops what runs."
    )
