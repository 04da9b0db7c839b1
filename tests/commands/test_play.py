"""`rewindow play` whose reader goes, or that is stopped: how it ends, and the report that it
leaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.playback.test_play import record


def begin(root: Path, arrivals: list[float], *options: str) -> subprocess.Popen[str]:
    (root / "rewindow.toml").write_text('state = "state"\n')
    record(root / "state", arrivals)
    command = [
        sys.executable,
        "-m",
        "rewindow.cli",
        "play",
        "s",
        "--report",
        str(root / "report.json"),
        *options,
    ]
    environment = {**os.environ, "REWINDOW_CONFIG": str(root / "rewindow.toml")}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_play_command_ignores_a_closed_pipe(tmp_path: Path) -> None:
    # As with `| head`: no message, the exit code of a closed pipe, and a report.
    process = begin(tmp_path, [n / 1000 for n in range(9000)], "--speed", "max")
    assert process.stdout and process.stderr
    assert json.loads(process.stdout.readline())["key"] == "k0"
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == "" and process.wait(60) == 128 + signal.SIGPIPE
    report = json.loads((tmp_path / "report.json").read_text())
    assert 0 < report["tuples"] < 9000 and not report["is_complete"]


def test_interrupted_play_prints_its_report_and_how_to_resume(tmp_path: Path) -> None:
    process = begin(tmp_path, [1.0, 99_000.0])
    assert process.stdout and process.stderr
    assert json.loads(process.stdout.readline())["key"] == "k0"
    while (
        psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING
    ):  # Then it waits for the next tuple.
        pass
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert (
        process.returncode == 130
        and "ended after 1 tuple," in errors
        and "rewindow play s --first" in errors
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["tuples"], report["is_complete"]) == (1, False)
