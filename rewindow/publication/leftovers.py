"""What a killed publisher leaves running: its JVM outlives its Python by half a second and may still be committing.

The publisher's lock ends with its Python. So each publisher notes its processes beside the tables, and the next one
ends those of a Python that is gone before it commits anything; on a local file system nothing else would stop them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from rewindow.errors import OverlapError, ResourceError

_PATIENCE_SECONDS = 15.0


@contextmanager
def only_publisher(folder: Path, application: str) -> Iterator[None]:
    """Ends what the last publisher of an application left running on this host; notes the processes of this one.

    Raises:
        OverlapError: the last publisher itself is alive, under another ledger.
        ResourceError: a process that it left does not end.
    """
    note = folder / f"{application}.publisher.json"
    _end_leftovers(note, application)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"host": socket.gethostname(), "python": _named(psutil.Process()), "java": _java()}))
    yield
    note.unlink(missing_ok=True)


def _end_leftovers(note: Path, application: str) -> None:
    try:
        left = json.loads(note.read_text())
    except (OSError, ValueError):
        return
    mine = {tuple(named) for named in (_named(psutil.Process()), *_java())}
    if left.get("host") != socket.gethostname() or tuple(left["python"]) in mine:
        return
    if _find(left["python"]) is not None:
        raise OverlapError(
            f'application "{application}" is being published by process {left["python"][0]}, which uses another ledger',
            hint="Wait until it has ended; two ledgers over one state folder must never be used at once.",
        )
    found = [process for named in left["java"] if tuple(named) not in mine and (process := _find(named))]
    for process in found:
        process.kill()
    _, alive = psutil.wait_procs(found, timeout=_PATIENCE_SECONDS)
    if alive:
        raise ResourceError(f"process {alive[0].pid} of the last publisher does not end", hint="End it by hand.")


def _java() -> list[list[float]]:
    """Returns the JVMs of this process: started by it, or, under spark-submit, its parents."""
    own = psutil.Process(os.getpid())
    return [_named(process) for process in (*own.children(recursive=True), *own.parents()) if _is_java(process)]


def _is_java(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "java")
    except psutil.Error:
        return False


def _named(process: psutil.Process) -> list[float]:
    return [process.pid, process.create_time()]


def _find(named: list[float]) -> psutil.Process | None:
    """Returns a process that is still the one that was noted: same pid, same start."""
    try:
        process = psutil.Process(int(named[0]))
        same = abs(process.create_time() - named[1]) < 0.1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
