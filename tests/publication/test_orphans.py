"""What a publisher leaves behind: in a process that lives on nothing, and never a JVM that is not
its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from rewindow.processes.identity import process_identity
from rewindow.publication.orphans import exclusive_publisher
from rewindow.settings.config import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def other_java(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child of this process that is called java and has nothing to do with Spark."""
    binary = tmp_path / "java"
    binary.symlink_to("/bin/sleep")
    with subprocess.Popen([str(binary), "600"]) as process:
        yield process
        process.kill()


class Failed(Exception):
    pass


def fail_as_publisher(config: Config) -> None:
    with exclusive_publisher(config, "app", None):
        assert note(config).exists()
        raise Failed


def note(config: Config) -> Path:
    return config.state / "streams" / "app.publisher.json"


def test_failed_publisher_does_not_block_others(config: Config) -> None:
    with pytest.raises(Failed):
        fail_as_publisher(config)
    assert not note(config).exists()


def test_publisher_records_only_the_jvm_of_its_spark_session(
    spark: SparkSession,
    config: Config,
    other_java: subprocess.Popen[bytes],
) -> None:
    # Other Java processes, such as a database, must not be ended.
    with exclusive_publisher(config, "app", spark):
        ((pid, _),) = json.loads(note(config).read_text())["java"]
    assert pid != other_java.pid and psutil.Process(pid).name() == "java"


def test_publisher_does_not_record_a_jvm_started_by_another_process(config: Config) -> None:
    handle = SimpleNamespace(pid=lambda: psutil.Process().ppid())
    lang = SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: handle))
    session = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))
    with exclusive_publisher(config, "app", session):  # type: ignore[arg-type]
        assert json.loads(note(config).read_text())["java"] == []


def test_java_process_of_a_dead_publisher_is_killed_only_if_it_was_recorded(
    config: Config,
    other_java: subprocess.Popen[bytes],
) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    started = process_identity(other_java.pid)
    note(config).parent.mkdir(parents=True)
    for java, ended in (([], False), ([[other_java.pid, started]], True)):
        left = {"host": socket.gethostname(), "python": [gone.pid, "boot/0"], "java": java}
        note(config).write_text(json.dumps(left))
        with exclusive_publisher(config, "app", None):
            assert (other_java.poll() is not None) == ended
