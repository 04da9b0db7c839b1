"""Components of a real Airflow that keep dying, or hang: `up` says so. Runs with the recovery
matrix.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from rewindow import embedded as supervisor
from rewindow.embedded import api, control
from rewindow.embedded.environment import airflow_home
from rewindow.embedded.processes import descendants, is_alive, signal_all, started_at, wait_until
from rewindow.embedded.status import READY, read_status
from rewindow.errors import ResourceError
from rewindow.settings.config import Config
from tests.airflow.airflows import live_airflow
from tests.airflow.conftest import ROOT
from tests.airflow.small_project import make_project
from tests.airflow.test_supervisor import state_of

SOON_SILENT = {
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
}


@pytest.mark.recovery_matrix
def test_up_fails_and_names_the_component_that_is_unhealthy(tmp_path: Path) -> None:
    config = Config.load(make_project(tmp_path / "project", ROOT))
    with live_airflow(config, **SOON_SILENT) as airflow:
        _check_a_component_that_keeps_dying(config)
        _check_a_component_that_hangs(config, airflow.address)


def _check_a_component_that_keeps_dying(config: Config) -> None:
    """Killed whenever it comes back, a component is named with its log by `up`; let alone, it lives
    again.
    """
    for _ in range(3):
        pid = _wait_for_triggerer(config)
        os.kill(pid, signal.SIGKILL)
        is_dead = partial(lambda gone: started_at(gone) is None and state_of(config) != READY, pid)
        assert wait_until(is_dead, 20)
    with pytest.raises(
        ResourceError,
        match=r"triggerer died \(signal SIGKILL\).*logs/triggerer\.log",
    ):
        supervisor.up(config)
    assert wait_until(lambda: state_of(config) == READY, 120)


def _check_a_component_that_hangs(config: Config, address: str) -> None:
    """A component that is there and does nothing is noticed by its heartbeat."""
    pid = _wait_for_triggerer(config)
    family = [pid, *descendants(pid)]
    signal_all(family, signal.SIGSTOP)
    try:
        assert wait_until(lambda: api.unwell(address) == ["triggerer"], 120)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "_READY_SECONDS_MAX", 1.0)
            with pytest.raises(ResourceError, match="is not ready: triggerer"):
                supervisor.up(config)
    finally:
        signal_all(family, signal.SIGCONT)
    supervisor.up(config)


def _wait_for_triggerer(config: Config) -> int:
    def pid() -> int:
        status = read_status(airflow_home(config))
        assert status is not None
        return status.components["triggerer"][0] if is_alive(*status.components["triggerer"]) else 0

    assert wait_until(lambda: pid() > 0, 60)
    return pid()
