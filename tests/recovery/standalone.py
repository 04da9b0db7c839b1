"""A standalone cluster of Spark on the loopback addresses of this machine, whose workers and
executors can be killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from rewindow.launcher import Outcome
from rewindow.settings.config import Config
from rewindow.spark.settings import spark_environment, usable_archive

SECONDS_MAX = 120
EXECUTOR = "CoarseGrainedExecutorBackend"
HOSTS = ("127.0.0.2", "127.0.0.3")


def java_options(config: Config) -> str:
    """Returns the options by which master, workers and executors start as soon as short jobs do."""
    archive = usable_archive(config)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return options if archive is None else f"{options} -XX:SharedArchiveFile={archive}"


def until(
    happens: Callable[[], bool],
    what: str,
    before: Future[Outcome] | None = None,
) -> None:
    """Waits for an event that another process brings about, before an attempt ends."""
    end = time.monotonic() + SECONDS_MAX
    while not happens():
        assert before is None or not before.done(), f"no {what}: {before and before.result()}"
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


@dataclass
class Worker:
    """A worker with one core and, while an application runs, one executor.

    Attributes:
        local: folder of its executors' shuffle files.
    """

    host: str
    process: subprocess.Popen[bytes]
    local: Path

    def executors(self) -> list[psutil.Process]:
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(EXECUTOR in word for word in child.cmdline()):
                    found.append(child)
        return found

    def runs(self, pid: int) -> bool:
        """Returns whether a Python worker belongs to one of its executors."""
        with contextlib.suppress(psutil.Error):
            parents = {parent.pid for parent in psutil.Process(pid).parents()}
            return self.process.pid in parents
        return False

    def kill_executor(self) -> None:
        for executor in self.executors():
            executor.kill()

    def kill(self) -> None:
        """Kills it with its executor."""
        executors = self.executors()
        self.process.kill()
        self.process.wait()
        for executor in executors:
            executor.kill()


@dataclass
class Cluster:
    folder: Path
    java_options: str
    lines: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_master(self) -> None:
        process = self._start("master.Master", "127.0.0.1", [], ["--port", "0"])
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        until(lambda: bool(self.url), "a master")

    @property
    def url(self) -> str:
        found = [line for line in self.lines if "Starting Spark master at " in line]
        return found[0].split("Starting Spark master at ")[1].strip() if found else ""

    def start_worker(self, host: str, within: list[str]) -> Worker:
        """Starts a worker by a command line, such as one that enters another namespace."""
        folder = self.folder / f"worker-{host}-{len(self.processes)}"
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        process = self._start(
            "worker.Worker", host, within, [*arguments, self.url], SPARK_LOCAL_DIRS=str(folder)
        )
        registered = f"Registering worker {host}:"
        before = sum(registered in line for line in self.lines)
        until(lambda: sum(registered in line for line in self.lines) > before, f"worker {host}")
        return Worker(host, process, folder)

    def stop(self) -> None:
        for process in reversed(self.processes):
            children = []
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()

    def _start(
        self,
        name: str,
        host: str,
        within: list[str],
        arguments: list[str],
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0"]
        process = subprocess.Popen(
            [*within, *command, *arguments],
            env=spark_environment()
            | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": self.java_options}
            | environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if name == "master.Master" else subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line.decode(errors="replace"))


@contextmanager
def cluster(folder: Path, options: str) -> Iterator[Cluster]:
    """Starts a cluster with a master and no worker, whose JVMs have these options."""
    made = Cluster(folder, options)
    try:
        made.start_master()
        yield made
    finally:
        made.stop()


OWN_MOUNTS = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def may_mount(folder: Path) -> bool:
    """Returns whether this user may have mounts that no other process sees."""
    command = [*OWN_MOUNTS, "mount", "--bind", str(folder), str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def mount_for(process: subprocess.Popen[bytes], source: Path, target: Path) -> None:
    """Mounts a folder over another one, for a process that has its own mounts and for its
    children.
    """
    enter = ["nsenter", "--target", str(process.pid), "--mount"]
    enter += [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    subprocess.run([*enter, "mount", "--bind", str(source), str(target)], check=True)
