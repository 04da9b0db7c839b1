"""Executors of a cluster get the library and the user's modules with the job; what else they lack
is said in words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rewindow.spark.executors import code_zip

ROOT = Path(__file__).parents[2]


def test_executor_zip_contains_the_library_and_has_a_content_based_name(tmp_path: Path) -> None:
    folder = Path(str(tmp_path)) / "applications"
    (folder / "helpers").mkdir(parents=True)
    files = [folder / "spending.py", folder / "_prices.py", folder / "helpers" / "rates.py"]
    for file in files:
        file.write_text("X = 1\n")
    made = code_zip(tmp_path / "one", files)
    names = zipfile.ZipFile(made).namelist()
    assert {
        "spending.py",
        "_prices.py",
        "helpers/rates.py",
        "rewindow/tuple_engine/key_range.py",
    } <= set(names)
    assert code_zip(tmp_path / "two", reversed(files)).name == made.name
    files[0].write_text("X = 2\n")
    assert code_zip(tmp_path / "one", files).name != made.name


@pytest.mark.recovery_matrix
@pytest.mark.jvm
def test_executors_compute_with_the_shipped_modules_and_report_missing_ones(tmp_path: Path) -> None:
    here = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    script = [
        sys.executable,
        str(Path(__file__).parent / "on_a_cluster.py"),
        str(tmp_path),
        str(ROOT / ".rewindow" / "jars"),
    ]
    done = subprocess.run(
        script,
        env=os.environ | here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert f'the executors have no Python "{tmp_path / "no-python"}"' in found["none"]
    assert (
        "Python on the executors lacks pyarrow" in found["poor"]
        and "spark.pyspark.python" in found["poor"]
    )
    assert found["good"] == "nothing"
    # The last column is the order of emission, where the operator has one.
    assert [[row[:3] for row in rows] for rows in found["rows"]] == [
        [[7, "ann", 3], [7, "ann", 6]]
    ] * 2
