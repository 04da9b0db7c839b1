"""The lint of operator code: clocks, chance and sets are named with their line, what is sound is
not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.errors import InputError
from rewindow.loading.determinism_lint import doubts

ROOT = Path(__file__).parents[2]
HEAD = """
import random
import time as clock
import uuid
import numpy as np
from datetime import datetime
from pyspark.sql import functions as F
from pyspark.sql.functions import expr, rand as chance
"""


def said(folder: Path, line: str) -> list[str]:
    (folder / "app.py").write_text(f"{HEAD}{line}\n")
    return [str(doubt) for doubt in doubts([folder / "app.py"])]


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ("now = datetime.now()", "datetime.now()", "clock"),
        ("now = clock.time()", "clock.time()", "clock"),
        ("row = frame.withColumn('at', F.current_timestamp())", "F.current_timestamp()", "clock"),
        ("row = frame.withColumn('at', expr('x + now()'))", "now() in SQL", "clock"),
        (
            "row = frame.selectExpr('current_timestamp as at')",
            "current_timestamp() in SQL",
            "clock",
        ),
        ("x = random.random()", "random.random()", "random_number"),
        ("x = random.Random()", "random.Random()", "random_number"),
        ("x = np.random.default_rng()", "np.random.default_rng()", "random_number"),
        ("x = uuid.uuid4()", "uuid.uuid4()", "random_number"),
        ("x = chance(7)", "chance()", "random_number"),
        ("x = hash('text')", "hash()", "random_number"),
        (
            "x = F.monotonically_increasing_id()",
            "F.monotonically_increasing_id()",
            "divides the rows",
        ),
        ("for x in {'a', 'b'}: pass", "a loop", "sorted()"),
        ("x = [y for y in set(names)]", "a loop", "sorted()"),
        ("x = ','.join(set(names))", "join()", "sorted()"),
        ("x = list({y for y in names})", "list()", "sorted()"),
    ],
)
def test_nondeterministic_calls_are_reported_with_their_line(
    tmp_path: Path,
    line: str,
    code: str,
    word: str,
) -> None:
    # Rules: R86
    [text] = said(tmp_path, line)
    assert text.startswith(f"app.py:{HEAD.count(chr(10)) + 1}: {code} ") and word in text


@pytest.mark.parametrize(
    ("line", "warnings"),
    [
        ("x = uuid.uuid4()  # repeatable: only names a scratch file", 0),
        ("# repeatable: only names a scratch file\nx = uuid.uuid4()", 0),
        ("# repeatable: only names a scratch file\nx = uuid.uuid4()\ny = uuid.uuid4()", 1),
        ("x = uuid.uuid4()  # repeatable:", 1),
        ("x = uuid.uuid4()  # repeatable", 1),
        ("x = str(uuid.uuid4()) + '# repeatable: no comment'", 1),
    ],
)
def test_comment_with_a_reason_suppresses_the_warning_of_one_line(
    tmp_path: Path, line: str, warnings: int
) -> None:
    (tmp_path / "app.py").write_text(f"{HEAD}{line}\n")
    assert len(doubts([tmp_path / "app.py"])) == warnings


@pytest.mark.parametrize(
    "line",
    [
        "x = random.Random(7).random()",
        "x = np.random.default_rng(seed=7)",
        "at = datetime.fromisoformat('2013-01-01')",
        "x = sorted(set(names))",
        "x = 'a' in {'a', 'b'}",
        "x = len(set(names))",
        "row = frame.where('random_number < 3 and known')",
        "text = 'now() is a word here'",
        "x = operator.now()",
    ],
)
def test_deterministic_code_is_not_reported(tmp_path: Path, line: str) -> None:
    assert not said(tmp_path, line)


def test_examples_have_no_determinism_warnings() -> None:
    assert not doubts((ROOT / "jobs" / "applications").glob("*.py"))


def test_file_without_valid_python_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def (")
    with pytest.raises(InputError, match=r"app\.py\" cannot be read as Python"):
        doubts([tmp_path / "app.py"])
