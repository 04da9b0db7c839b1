"""Jobs in the process of the test, on its Spark session, where a claim is not about processes.

A job of its own takes ten seconds of two processors before it computes anything. Here the same
entry point runs, with the same command line and environment; a kill is an exception that nothing
catches, so the job leaves no outcome either.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rewindow import crash
from rewindow.engine import job as replay_job
from rewindow.launcher import Outcome, Submission, read_outcome
from rewindow.publication import job as publication_job
from rewindow.recording import job as recording_job
from rewindow.spark import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[Submission, Callable[[str], None]], Outcome]
KILLED = -9
_LIBRARY = logging.getLogger("rewindow")


class Killed(BaseException):
    pass


def jobs_here(spark: SparkSession) -> Run:
    """Returns what stands in for `launcher.run`: the same job, but for its process."""

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        submission.outcome.unlink(missing_ok=True)
        return read_outcome(
            submission.outcome,
            run_here(spark, submission.command, submission.environment, on_line),
        )

    return run


def run_here(
    spark: SparkSession,
    command: list[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> int:
    """Runs the job of a spark-submit command line on a session and returns its exit code."""
    [start] = [number for number, word in enumerate(command) if word.endswith(".py")]
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REWINDOW_")]:
            patch.delenv(name)
        for name in [name for name in environment if name.startswith("REWINDOW_")]:
            patch.setenv(name, environment[name])
        for module in (replay_job, publication_job, recording_job):
            patch.setattr(module, "spark_session", lambda *given, **named: spark)
        patch.setattr(replay_job, "own_process", lambda: _NOBODY)
        patch.setattr(job.StopRequest, "listen", lambda stop: None)
        patch.setattr(job, "end_group_with_parent", lambda: None)
        patch.setattr(job, "leave", _leave)
        patch.setattr(
            crash,
            "os",
            SimpleNamespace(environ=os.environ, getpgid=os.getpgid, killpg=_kill),
        )
        patch.setattr(sys, "argv", command[start:])
        with contextlib.redirect_stdout(_Lines(on_line)):
            try:
                runpy.run_path(command[start], run_name="__main__")
            except SystemExit as end:
                return int(end.code or 0)
            except Killed:
                return KILLED
    raise AssertionError("a job ends by `leave`")


_NOBODY = {"host": "nowhere", "pid": 1, "process_group": 1, "process_identity": "boot/0"}
"""The process of an attempt: none that the next attempt could end."""


def _kill(group: int, number: int) -> None:
    raise Killed


def _leave(code: int) -> None:
    raise SystemExit(code)


class _Lines(io.TextIOBase):
    """A stream that hands on whole lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = ""
        self._stdout = sys.stdout
        self._handling = _LIBRARY.handlers, _LIBRARY.propagate

    @contextlib.contextmanager
    def _outside(self) -> Iterator[None]:
        """Restores output and log handlers of the test, for code that is called with a line."""
        inside = _LIBRARY.handlers, _LIBRARY.propagate
        _LIBRARY.handlers, _LIBRARY.propagate = self._handling
        try:
            with contextlib.redirect_stdout(self._stdout):
                yield
        finally:
            _LIBRARY.handlers, _LIBRARY.propagate = inside

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        with self._outside():
            for line in lines:
                self._on_line(line)
        return len(text)
