"""The whole demo on its first six days: real streams, Airflow, Spark and SIGKILLs. Runs with the
recovery matrix.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
LAST = 376_954 + 6 * 24 - 1


@pytest.mark.recovery_matrix
def test_demo_recovers_in_every_mode_and_writes_its_page(tmp_path: Path) -> None:
    environment = {**os.environ, "REWINDOW_STATE": str(tmp_path / "state"), "CI": "true"}
    command = [sys.executable, "-m", "rewindow.cli"]
    arguments = ["demo", "--seed", "5", "--last", str(LAST), "--port", str(_free_port())]
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        subprocess.run([*command, "down"], cwd=PROJECT, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count("SIGKILL: process") == 3
    page = tmp_path / "state" / "results" / "pages" / "demo.html"
    assert str(page) in done.stdout and "SIGKILL at" in page.read_text()
    for words in ("departures late", "filled with heartbeats", "filled with values, temp"):
        assert words in done.stdout
    times = [page.parents[1] / "time" / f"{stream}.html" for stream in ("flights", "weather")]
    assert all(str(time) in page.read_text() for time in times)
    assert (
        "Lateness by key" in times[0].read_text()
        and "Recorded, made and missing values" in times[1].read_text()
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
