"""`rewindow streams upgrade`: which job is started, and what its result means for the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewindow.launcher import Outcome, Submission

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("names", [(), ("flights",), ("flights", "flight_delays.ranks")])
@pytest.mark.parametrize(("differing", "code"), [([], 0), ([[7, 7]], 1)])
def test_upgrade_starts_one_job_for_all_names_and_fails_on_a_mismatch(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    differing: list[Any],
    code: int,
) -> None:
    started: list[Submission] = []

    def run(submission: Submission, line: object) -> Outcome:
        started.append(submission)
        return Outcome(0, "", False, {"streams": [{"stream": "flights", "differing": differing}]})

    monkeypatch.setattr("rewindow.launcher.loop.run", run)
    monkeypatch.setattr(
        "rewindow.launcher.attempts.submit_command",
        lambda config, job, given, **_: [job, *given],
    )
    monkeypatch.setattr("rewindow.launcher.attempts.job_environment", lambda *_, **__: {})
    assert command("streams", "upgrade", *names)[0] == code
    (submission,) = started
    assert submission.command == ["upgrade.py", *names]
