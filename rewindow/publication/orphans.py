"""What a killed publisher leaves running: its JVM outlives its Python by half a second and may
still be committing.

The publisher's lock ends with its Python. So each publisher notes its processes beside the tables,
and the next one ends the JVM of a Python that is gone before it commits anything; on a local file
system nothing else would stop it. Only the very JVM that runs this process's Spark is noted, and
only if this process or our spark-submit started it. A publisher that ends, also by an error, takes
its note back: a notebook that goes on living is in nobody's way.
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
    """Ends what the last publisher of an application left running on this host; notes the processes
    of this one.

    Args:
        spark: the session that this publisher works with; None when it works without one.

    Raises:
        OverlapError: the last publisher itself is alive, under another ledger.
        ResourceError: a process that it left does not end.
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
        return  # As one that was cut short: its publisher had not begun.
    mine = {*map(tuple, (_named(psutil.Process()), *jvm))}
    if left.get("host") != socket.gethostname() or tuple(left["python"]) in mine:
        return
    if _find(left["python"]) is not None:
        raise OverlapError(
            f'application "{application}" is being published by process {left["python"][0]}, which '
            "uses another ledger",
            hint="Wait until it has ended; two ledgers over one state folder must never be used at "
            "once.",
        )
    found = [
        process for named in left["java"] if tuple(named) not in mine and (process := _find(named))
    ]
    for process in found:
        process.kill()
    _, alive = psutil.wait_procs(found, timeout=_PATIENCE_SECONDS)
    if alive:
        raise ResourceError(
            f"process {alive[0].pid} of the last publisher does not end",
            hint="End it by hand.",
        )


def _own_jvm(spark: SparkSession | None) -> list[Named]:
    """Returns the JVM of a session if it ends with this process: its own child, or the spark-submit
    that we began.
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
    """Returns a process that is still the one that was noted: same pid, same identity."""
    try:
        process = psutil.Process(int(named[0]))
        same = process_identity(process.pid) == named[1]
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
