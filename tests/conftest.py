"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


settings.register_profile("rewindow", deadline=None, print_blob=True)
settings.load_profile("rewindow")


@pytest.fixture(autouse=True)
def settings_left_as_found() -> Iterator[None]:
    """No test leaves settings in the environment for those that come after it, in whatever order they run."""
    before = _settings()
    yield
    assert _settings() == before, "the test left REWINDOW_ variables changed: set them with monkeypatch"


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("REWINDOW_")}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of a test run: as the product starts it, on two local cores."""
    from rewindow.config import Config, SparkConfig
    from rewindow.engine.session import spark_session

    jars = Path(__file__).parent.parent / ".rewindow" / "jars"
    config = Config(
        state=tmp_path_factory.mktemp("state"), spark=SparkConfig(master="local[2]", driver_memory="2g", jars=str(jars))
    )
    session = spark_session(config, "tests", quick=True, extra_conf={"spark.sql.shuffle.partitions": "2"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
