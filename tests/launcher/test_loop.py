"""Jobs that are run to their end, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.errors import Interrupted
from rewindow.launcher import Outcome, Submission, loop
from rewindow.launcher.attempts import INTERRUPTS
from tests.recovery.here import jobs_here
from tests.recovery.project import WINDOWS, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_interrupt_in_the_last_group_of_a_container_starts_no_other_container(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = make_project(tmp_path)
    project.plan_of("three_modes", "one", "exactly_once", group_windows=WINDOWS)
    here = jobs_here(spark)
    begun: list[str] = []

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        begun.append(submission.replay_id)
        with INTERRUPTS.passed_on():
            signal.raise_signal(signal.SIGINT)
            return here(submission, on_line)

    monkeypatch.setattr(loop, "run", run)
    with pytest.raises(Interrupted, match="stopped by the user") as stopped:
        loop.run_attempts(project.config, "one")
    assert begun == ["one@sums"]
    assert stopped.value.hint == "Resume it: rewindow replay --resume one"
