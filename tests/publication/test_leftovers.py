"""What a publisher leaves behind: in a process that lives on nothing, and never a JVM that is not its own."""

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

from rewindow.config import Config
from rewindow.process_identity import process_identity
from rewindow.publication.leftovers import only_publisher

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
    """Stands for any failure of a publication."""


def fail_as_publisher(config: Config) -> None:
    """Begins to publish and fails."""
    with only_publisher(config, "app", None):
        assert note(config).exists()
        raise Failed


def note(config: Config) -> Path:
    """Returns where a publisher notes its processes."""
    return config.state / "streams" / "app.publisher.json"


def test_a_publisher_that_failed_is_in_nobodys_way(config: Config) -> None:
    """A notebook's process lives on: its note would name a publisher that does not publish."""
    with pytest.raises(Failed):
        fail_as_publisher(config)
    assert not note(config).exists()


def test_only_the_jvm_of_the_session_is_noted(
    spark: SparkSession, config: Config, other_java: subprocess.Popen[bytes]
) -> None:
    """Other children called java, such as a database or an editor's, are not ours to end."""
    with only_publisher(config, "app", spark):
        ((pid, _),) = json.loads(note(config).read_text())["java"]
    assert pid != other_java.pid and psutil.Process(pid).name() == "java"


def test_a_jvm_that_others_began_is_not_noted(config: Config) -> None:
    """Under a server that runs Spark for many, the JVM above this process goes on with their work."""
    handle = SimpleNamespace(pid=lambda: psutil.Process().ppid())
    lang = SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: handle))
    session = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))
    with only_publisher(config, "app", session):  # type: ignore[arg-type]
        assert json.loads(note(config).read_text())["java"] == []


def test_a_java_of_a_publisher_that_died_is_left_alone_unless_it_was_noted(
    config: Config, other_java: subprocess.Popen[bytes]
) -> None:
    """The next publisher ends what the note names, and nothing else."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    started = process_identity(other_java.pid)
    note(config).parent.mkdir(parents=True)
    for java, ended in (([], False), ([[other_java.pid, started]], True)):
        left = {"host": socket.gethostname(), "python": [gone.pid, "boot/0"], "java": java}
        note(config).write_text(json.dumps(left))
        with only_publisher(config, "app", None):
            assert (other_java.poll() is not None) == ended
