"""A component of Airflow leaves as soon as it has ended; no JVM, and a stand-in for the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = """
import atexit, os, sys, threading

class Heap:
    def __del__(self, write=os.write): write(1, b"freed")

heap = Heap()
sys.keep = heap
atexit.register(print, "at the end")
threading.Thread(target=lambda: sys.stdout.write("a thread\\n")).start()
sys.stdout.write(" ".join(sys.argv[1:]) + "\\n")
sys.exit({code})
"""


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [("3", 3, ""), ("None", 0, ""), ("'why'", 1, "why\n")],
)
def test_airflow_command_stops_threads_and_exit_handlers_and_keeps_the_exit_code(
    code: str,
    exit_code: int,
    said: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").touch()
    (tmp_path / "airflow" / "__main__.py").write_text(STAND_IN.format(code=code))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), *sys.path])
    command = [
        sys.executable,
        "-m",
        "rewindow.embedded.airflow_command",
        "scheduler",
        "--skip-serve-logs",
    ]
    ended = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (exit_code, said)
    assert sorted(ended.stdout.split("\n")) == [
        "",
        "a thread",
        "at the end",
        "scheduler --skip-serve-logs",
    ]
