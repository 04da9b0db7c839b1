"""Ends the processes that a killed publisher left running. Its JVM runs half a second longer than
its Python process and may still commit.

The publisher's lock ends with its Python process. So each publisher stores the ids of its processes
in a file next to the tables. Before the next one commits, it ends the JVM of a dead Python process;
on a local file system nothing else would stop that JVM. Only the JVM of this process's Spark
session is stored, and only if this process or its spark-submit started it. A publisher deletes its
file when it ends, also after an error, so that an open notebook does not block other publishers.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from rewindow.errors import OverlapError, ResourceError
from rewindow.location import Location
from rewindow.processes.identity import process_identity
from rewindow.settings.config import Config
from rewindow.spark.job_log import OUTCOME_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_SECONDS = 15.0
Named = list[int | str]
"""A process: its pid and its identity."""


@contextmanager
def exclusive_publisher(
    config: Config,
    application: str,
    spark: SparkSession | None,
) -> Iterator[None]:
    """Ends the processes that the last publisher of an application left running on this host, and
    stores the ids of this publisher's processes for the duration of the context.

    Args:
        config: current settings.
        application: the application.
        spark: the session of this publisher; None if it works without one.

    Raises:
        OverlapError: the last publisher is still alive; it uses another ledger.
        ResourceError: a process does not end.
    """
    note = config.state / "streams" / f"{application}.publisher.json"
    jvm = _own_jvm(spark)
    _end_leftovers(note, application, jvm)
    note.write(
        json.dumps({"host": socket.gethostname(), "python": _named(psutil.Process()), "java": jvm})
    )
    try:
        yield
    finally:
        note.delete()


def _end_leftovers(note: Location, application: str, jvm: list[Named]) -> None:
    try:
        left = json.loads(note.read_text())
    except (OSError, ValueError):
        return
    if not isinstance(left, dict) or not {"host", "python", "java"} <= left.keys():
        return  # A truncated file: its publisher had not started.
    mine = {*map(tuple, (_named(psutil.Process()), *jvm))}
    if left.get("host") != socket.gethostname() or tuple(left["python"]) in mine:
        return
    if _find(left["python"]) is not None:
        raise OverlapError(
            f'application "{application}" is being published by process {left["python"][0]}, which '
            "uses another ledger",
            hint="Wait until it has ended. Never use two ledgers with one state folder at the same "
            "time.",
        )
    orphans = [
        process for named in left["java"] if tuple(named) not in mine and (process := _find(named))
    ]
    for process in orphans:
        process.kill()
    _, alive = psutil.wait_procs(orphans, timeout=_PATIENCE_SECONDS)
    if alive:
        raise ResourceError(
            f"process {alive[0].pid} of the last publisher does not end",
            hint="End it manually.",
        )


def _own_jvm(spark: SparkSession | None) -> list[Named]:
    """Returns the JVM of a session if it ends with this process.

    It must be a child of this process, or the spark-submit that Rewindow started.
    """
    gateway = getattr(spark, "_jvm", None)
    if gateway is None:
        return []
    try:
        jvm = psutil.Process(int(gateway.java.lang.ProcessHandle.current().pid()))
        me = psutil.Process()
        submitted = OUTCOME_VARIABLE in os.environ and jvm in me.parents()
        return [_named(jvm)] if submitted or me in jvm.parents() else []
    except psutil.NoSuchProcess:
        return []


def _named(process: psutil.Process) -> Named:
    return [process.pid, process_identity(process.pid)]


def _find(named: Named) -> psutil.Process | None:
    """Returns the process with a stored pid, if its identity shows that it is still the same
    process.
    """
    try:
        process = psutil.Process(int(named[0]))
        same = process_identity(process.pid) == named[1]
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
