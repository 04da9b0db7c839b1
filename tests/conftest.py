"""Fixtures for all tests."""

from __future__ import annotations

import gc
import logging
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import rewindow.location as places
from rewindow.settings.config import Config
from tests.folders import FolderFactory, FolderLocation
from tests.small_frames import ONE_TASK, SMALL_FRAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.recovery.project import Project


settings.register_profile("rewindow", deadline=None, print_blob=True)
settings.load_profile("rewindow")
logging.getLogger("rewindow").setLevel(logging.INFO)
places.LocalLocation = FolderLocation  # type: ignore[misc, assignment]


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> FolderFactory:
    """Folders that are places for the product and paths for the test, `tmp_path` too."""
    return FolderFactory(tmp_path_factory)


LONGEST_FIRST = (
    "tests/demo/test_whole_demo.py",
    "tests/airflow/test_supervisor.py",
    "tests/recovery/test_cluster.py",
    "tests/recovery/test_event_time_kills.py",
    "tests/airflow/test_scheduler.py",
    "tests/test_docs.py",
    "tests/recovery/test_stuck.py",
    "tests/delivery/test_kills.py",
    "tests/airflow/test_drills.py",
    "tests/candidates/test_drills.py",
    "tests/engine/test_shared_passes.py",
    "tests/airflow/test_repairs.py",
    "tests/recovery/test_kills.py",
    "tests/airflow/test_runs.py",
    "tests/engine/test_attempt.py",
    "tests/recording/test_sources.py",
    "tests/recording/test_reopening.py",
    "tests/recovery/test_container_kills.py",
    "tests/recording/test_dirty_sources.py",
    "tests/recording/test_record.py",
    "tests/operators/test_event_windows.py",
    "tests/engine/test_partitions.py",
    "tests/operators/test_heartbeat.py",
    "tests/quality/test_generated_suites.py",
    "tests/planning/test_reuse.py",
    "tests/operators/test_columns.py",
    "tests/operators/test_filling.py",
    "tests/publication/test_by_files.py",
    "tests/engine/test_failing_tuples.py",
    "tests/recording/test_crashes.py",
    "tests/recording/test_malformed.py",
    "tests/quality/test_planted_damages.py",
    "tests/quality/test_measures_in_spark.py",
    "tests/recording/test_taken.py",
    "tests/candidates/test_comparison.py",
    "tests/engine/test_containers.py",
    "tests/airflow/test_pages.py",
    "tests/operators/test_lateness.py",
    "tests/operators/test_heartbeat_operator.py",
    "tests/engine/test_error_tuples.py",
    "tests/launcher/test_verbs.py",
    "tests/operators/test_pairing.py",
    "tests/commands/test_damaged_files.py",
    "tests/recording/test_arrival_gaps.py",
    "tests/engine/test_random_graphs.py",
    "tests/operators/test_look_back.py",
    "tests/recording/test_one_pass.py",
    "tests/publication/test_kills.py",
    "tests/operators/test_current_windows.py",
    "tests/operators/test_filling_blocks.py",
    "tests/planning/test_planner.py",
    "tests/engine/test_state_store.py",
    "tests/operators/test_hours.py",
    "tests/ledger/test_publications.py",
    "tests/operators/test_retriggering.py",
    "tests/planning/test_start_flaws.py",
    "tests/operators/test_filling_sources.py",
    "tests/publication/test_staged_files.py",
    "tests/candidates/test_determinism.py",
    "tests/commands/test_verbs.py",
    "tests/operators/test_merge.py",
)
"""Files that take minutes begin first, so that no process has one left when the others have
ended."""

SUBMITTING = (
    "tests/airflow/",
    "tests/recovery/test_kills.py",
    "tests/commands/test_interrupt.py",
    "tests/commands/test_verbs.py",
    "tests/recording/test_record.py",
    "tests/recording/test_sources.py",
    "tests/recording/test_crashes.py",
    "tests/operators/test_heartbeat.py",
    "tests/operators/test_merge.py",
    "tests/engine/test_error_tuples.py",
)
"""Where tests start jobs or servers of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a JVM or a server, and puts the longest files first; the rest stays in its
    random order.
    """
    order = {name: number for number, name in enumerate(LONGEST_FIRST)}
    for item in items:
        if _starts_servers(item):
            item.add_marker("jvm")
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def _starts_servers(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    on_postgresql = parameters is not None and "postgresql" in map(str, parameters.params.values())
    asks = set(getattr(item, "fixturenames", ()))
    return (
        item.nodeid.startswith(SUBMITTING)
        or on_postgresql
        or bool(asks & {"spark", "postgresql", "server"})
    )


SCORE = "score"
"""A property of a test, by record_property, that is printed when all have ended."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for found in terminalreporter.stats.values()
        for report in found
        if hasattr(report, "when")
    ]
    scores = sorted(
        {
            text
            for report in reports
            for key, text in getattr(report, "user_properties", ())
            if key == SCORE
        }
    )
    for text in scores:
        terminalreporter.write_line(f"score: {text}")


def pytest_collection_finish() -> None:
    """Spares the garbage collector what stays for the whole run: modules and tests are a million
    objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger's file; migrations take longer than most tests."""
    from rewindow.ledger import Ledger

    file = tmp_path_factory.mktemp("ledger") / "empty.sqlite"
    Ledger.open(f"sqlite:///{file}").close()
    return file


@pytest.fixture(autouse=True)
def settings_left_as_found() -> Iterator[None]:
    before = _settings()
    yield
    assert _settings() == before, (
        "the test left REWINDOW_ variables changed: set them with monkeypatch"
    )


@pytest.fixture(autouse=True)
def new_ledgers_are_copies(
    settings_left_as_found: None,
    empty_ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test's new ledger on SQLite is a copy of an empty one; the tests of the ledger itself go
    without.
    """
    from rewindow.ledger.url import LedgerUrl

    monkeypatch.setattr(
        LedgerUrl,
        "_make_file",
        lambda place, file: shutil.copy(empty_ledger, file),
    )


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("REWINDOW_")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of one test: a recorded stream and an application."""
    from tests.recovery.project import make_project

    return make_project(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "rewindow.toml"
    file.write_text(f'state = "{tmp_path / "state"}"\n')
    return Config.load(file)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of a test run: as the product starts it, on two local cores."""
    from rewindow.settings.config import SparkConfig
    from rewindow.spark.session import spark_session
    from rewindow.spark.settings import DRIVER_OPTIONS
    from tests.java_names import remember_java_names
    from tests.light_hadoop import make_hadoop_light

    remember_java_names()
    jars = Path(__file__).parent.parent / ".rewindow" / "jars"
    config = Config(
        state=tmp_path_factory.mktemp("state"),
        spark=SparkConfig(
            master="local[2]",
            driver_memory="2600m",
            jars=str(jars),
            # Plans live for one query: with much room for what is new, little of it is copied.
            conf={DRIVER_OPTIONS: "-Xms1700m -Xmn1200m"},
        ),
    )
    session = spark_session(config, "tests", quick=True, extra_conf=SMALL_FRAMES | ONE_TASK)
    session.sparkContext.setLogLevel("ERROR")
    make_hadoop_light(session)
    context = session.sparkContext
    for form in ("callSite.short", "callSite.long"):
        context.setLocalProperty(form, "a test")  # Spark else reads the stack for every RDD.
    context.parallelize = partial(context.parallelize, numSlices=1)  # type: ignore[method-assign]
    yield session
    session.stop()
