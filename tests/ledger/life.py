"""Steps in the life of a replay, as the ledger's tests take them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rewindow.ledger import Ledger, Publication, Replay
from rewindow.ledger.publication_rows import effective_publications
from rewindow.windows import WindowRange

WORKERS = 4


def new_schema(server: str) -> str:
    return f"{server}&options=-csearch_path%3Dtest_{uuid.uuid4().hex[:12]}"


def plan(
    ledger: Ledger,
    replay_id: str,
    first: int = 100,
    last: int = 199,
    mode: str = "exactly_once",
) -> Replay:
    return ledger.replays.create(
        replay_id,
        "app",
        first,
        last,
        mode,
        {"replay_id": replay_id},
        "v1",
    )


def run_to_end(ledger: Ledger, replay_id: str, passed: bool = True) -> None:
    epoch = begin(ledger, replay_id)
    ledger.attempts.end(replay_id, epoch, "done")
    if passed:
        ledger.checks.record(replay_id, "passed")


def begin(ledger: Ledger, replay_id: str) -> int:
    epoch = ledger.attempts.next_epoch(replay_id)
    ledger.attempts.begin(replay_id, epoch, "host", 1234, 1234, "boot/170000")
    return epoch


def results(jobs: list[Future[Any]]) -> list[Any]:
    """Returns what the workers returned; a worker's own failure comes before that of those who
    waited for it.
    """
    failures = [error for error in (job.exception() for job in jobs) if error is not None]
    for failure in sorted(failures, key=lambda error: "did not come" in str(error)):
        raise failure
    return [job.result() for job in jobs]


@contextmanager
def writer(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Gives a process, in a group of its own, that is to write to a ledger's file."""
    code = (
        "import sqlite3, sys; sys.stdin.readline(); ledger = sqlite3.connect(sys.argv[1], "
        "isolation_level=None); "
        "ledger.execute('BEGIN IMMEDIATE'); print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stop_in_a_write(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "mine\n"
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def newest_over(ledger: Ledger, table: str, first: int, last: int) -> Publication | None:
    """Returns the newest publication that stands in a table over any window of a range."""
    standing = effective_publications(ledger.publications.newest(table_name=table, limit=1_000_000))
    asked = WindowRange(first, last)
    return next(
        (act for act in standing if act.closed_at is not None and act.range.overlap(asked)), None
    )
