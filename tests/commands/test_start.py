"""What a verb imports when it starts."""

from __future__ import annotations

import subprocess
import sys

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


def test_verbs_import_pandas_only_on_use() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "False [1] 1"


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
