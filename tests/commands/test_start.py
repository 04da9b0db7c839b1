"""What a verb imports when it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rewindow.planning import ReplayRequest, create_replay
from rewindow.settings.config import Config
from tests.recovery.project import make_project

PROGRAM = """
import sys
from typer.testing import CliRunner
from rewindow.cli import app
CliRunner().invoke(app, ["status", "--help"])
import pyarrow as pa
row = pa.table({"a": pa.array([1])}).filter(pa.array([True]))
print("pandas" in sys.modules, row.to_pandas()["a"].tolist(),
    pa.Table.from_pandas(row.to_pandas()).num_rows)
"""


def test_commands_import_pandas_only_when_needed() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "False [1] 1"


DEFINED = """
state = "state"
[applications.sums]
window = "1 hour"
operators.sums = { operator = "Aggregate", inputs = { rows = "events" }, by = ["key"], aggregates = { total = "sum(x)" }, application_windows = 4 }
operators.top = { operator = "TopN", inputs = { rows = "sums" }, by = ["key"], top = 3 }
outputs.sums = { source = "sums", key = ["key"] }
"""  # noqa: E501
WITHOUT_SPARK = """
import sys
from rewindow.cli import main
for line in (
    "validate sums",
    "plan sums --json",
    "status one --json",
    "list --json",
    "streams --json",
):
    try:
        main(line.split())
    except SystemExit as ended:
        assert not ended.code, line
    if "pyspark" in sys.modules:
        sys.exit(f"{line} imports pyspark")
"""


def test_commands_that_do_not_start_spark_do_not_import_pyspark(tmp_path: Path) -> None:
    file = make_project(tmp_path).config.file
    file.write_text(DEFINED)
    replay = ReplayRequest("sums", replay_id="one", first=1008, last=1010, initial_state=True)
    create_replay(Config.load(file), replay)
    command = [sys.executable, "-c", WITHOUT_SPARK]
    variables = {**os.environ, "REWINDOW_CONFIG": str(file)}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr


def test_pyarrow_still_imports_pandas_by_itself() -> None:
    # If this fails, commands/pandas_later.py is no longer needed.
    program = "import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
