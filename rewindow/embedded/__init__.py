"""Runs Airflow on this machine: four components on loopback, kept alive by one detached process.

    up()  ──starts──> supervisor (supervision.py) ──starts, watches, restarts──> api-server,
    scheduler,
                                                                                 dag-processor,
                                                                                 triggerer
    down() ──SIGTERM──> supervisor ──stops──> all of them, and their remaining processes

Airflow's home is `<state>/airflow`: database, logs, secrets and passwords (mode 0600), pid file and
supervisor.log. This package starts Airflow as a command and never imports it.
"""

from __future__ import annotations

from rewindow.embedded.control import Running, down, run_airflow, running, up
from rewindow.embedded.environment import PORT_DEFAULT, airflow_environment

__all__ = ["PORT_DEFAULT", "Running", "airflow_environment", "down", "run_airflow", "running", "up"]
