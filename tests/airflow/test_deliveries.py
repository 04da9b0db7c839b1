"""The task that delivers published windows, which runs the command in a real process."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rewindow.settings.config import Config
from rewindow_airflow import deliver
from tests.airflow.conftest import in_force
from tests.airflow.test_operators import Store
from tests.delivery.conftest import config  # noqa: F401
from tests.delivery.test_deliver import STREAM, in_lake, published, visible


def execute(settings: Config, target: str) -> None:
    with in_force(settings):
        deliver(STREAM, target).execute({"task_state_store": Store()})  # type: ignore[typeddict-item]


def test_task_delivers_the_published_windows(config: Config) -> None:  # noqa: F811
    published(config, "one", 100, 104, seed=1)
    execute(config, "lake")
    assert in_lake(config) == visible(config)
    published(config, "two", 103, 109, seed=2)
    execute(config, "lake")
    assert in_lake(config) == visible(config)


def test_invalid_delivery_target_fails_without_a_retry(config: Config, tmp_path: Path) -> None:  # noqa: F811
    published(config, "one", 100, 104, seed=1)
    with pytest.raises(AirflowFailException, match=r'target "lakes" is unknown'):
        execute(config, "lakes")
    assert not (tmp_path / "lake").exists()


def test_output_that_is_not_published_yet_is_skipped(config: Config) -> None:  # noqa: F811
    with pytest.raises(AirflowSkipException, match="flight_delays.delays is not published yet"):
        execute(config, "lake")
