"""Replay jobs in the process of the test, on its Spark session, where a claim is not about processes.

A job of its own takes ten seconds of two processors before it computes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.engine import replay as job
from rewindow.launcher import Outcome, Submission

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[Submission, Callable[[str], None]], Outcome]


def jobs_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns what stands in for `launcher.run`: the same job, but for its process."""

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        def tell(kind: str, /, **facts: Any) -> None:
            on_line(json.dumps({"rewindow": kind, **facts}))

        with monkeypatch.context() as patch:
            patch.setenv("REWINDOW_CONFIG", submission.environment["REWINDOW_CONFIG"])
            patch.setattr(job, "spark_session", lambda *given, **named: spark)
            patch.setattr(job, "tell", tell)
            patch.setattr(job, "say", on_line)
            patch.setattr(job.StopRequest, "listen", lambda stop: None)
            return Outcome(0, "done", False, job.replay(submission.replay_id, submission.epoch))

    return run
