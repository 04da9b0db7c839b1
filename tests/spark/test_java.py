"""Limits of the shell under which no JVM starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rewindow.errors import InputError
from rewindow.spark.java import BESIDE_HEAP_BYTES, heap_bytes

SUBMIT = """
import resource, sys
from pathlib import Path
from rewindow.settings.config import Config, SparkConfig
from rewindow.errors import RewindowError
from rewindow.launcher.attempts import plain_submission
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])))
try:
    plain_submission(Config(state=Path(sys.argv[4]), spark=SparkConfig(jars=sys.argv[4])),
        "record.py", [], "flights")
except RewindowError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def submit(folder: object, limit: str, soft: int, hard: int) -> str:
    command = [sys.executable, "-c", SUBMIT, limit, str(soft), str(hard), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("hard", [64, 256])
def test_low_open_file_limit_is_rejected_before_anything_starts(
    tmp_path: object,
    hard: int,
) -> None:
    # Spark would wait forever.
    said = submit(tmp_path, "RLIMIT_NOFILE", hard, hard)
    assert f"limit of open files must be at least 1024 for Spark, not {hard}" in said
    assert "ulimit -n 1024" in said


def test_soft_open_file_limit_is_raised_if_allowed(tmp_path: object) -> None:
    said = submit(tmp_path, "RLIMIT_NOFILE", 256, 4096)
    assert "open files" not in said
    assert said.splitlines()[-1] == "1024"


def test_address_space_limit_is_not_reported_as_missing_java(tmp_path: object) -> None:
    said = submit(tmp_path, "RLIMIT_AS", 4 * 2**30, 4 * 2**30)
    assert "limit of 4096 MB of address space is too low" in said
    assert "spark.driver_memory = 2g" in said
    assert "no Java" not in said


def test_heap_size_without_a_unit_is_read_as_mebibytes() -> None:
    assert [heap_bytes(text) for text in ("2g", "512m", "512", "1GB")] == [
        2**31,
        2**29,
        2**29,
        2**30,
    ]
    assert BESIDE_HEAP_BYTES == 2.5 * 2**30
    with pytest.raises(InputError, match='"much" is not an amount of memory'):
        heap_bytes("much")
