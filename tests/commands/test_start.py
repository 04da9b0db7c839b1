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
print("pandas" in sys.modules, row.to_pandas()["a"].tolist(), pa.Table.from_pandas(row.to_pandas()).num_rows)
"""


def test_a_verb_imports_pandas_only_where_it_is_used() -> None:
    """pyarrow would import it, for half a second, with the first array; a conversion still finds it."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "False [1] 1"


def test_pyarrow_still_imports_pandas_by_itself() -> None:
    """Once this fails, commands/pandas_later.py has no reason any more and can go."""
    program = "import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
