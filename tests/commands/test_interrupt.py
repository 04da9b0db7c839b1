"""Ctrl-C on `rewindow replay`, at whatever moment: it ends, says how to go on, and nothing begins
again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rewindow.launcher import attempts
from rewindow.ledger import Ledger
from tests.recovery.project import make_project


def runs(process: psutil.Process, program: str, argument: str) -> bool:
    try:
        return program in process.name() and any(argument in word for word in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("program", "argument"),
    [("java", "org.apache.spark"), ("python", "jobs/replay.py")],
)
def test_interrupt_ends_the_command_and_starts_no_further_attempt(
    tmp_path: Path,
    program: str,
    argument: str,
) -> None:
    config = make_project(tmp_path).config
    command = [sys.executable, "-m", "rewindow.cli", "replay", "totals", "--id", "one"]
    environment = {**os.environ, "REWINDOW_CONFIG": str(config.file)}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    own = psutil.Process(process.pid)
    while not any(runs(child, program, argument) for child in own.children(recursive=True)):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == attempts.INTERRUPTED, output
    assert "rewindow replay --resume one" in output
    assert [attempt.epoch for attempt in Ledger.open(config.ledger_url).attempts.of("one")] in (
        [],
        [1],
    )
