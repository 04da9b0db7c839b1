"""The rule book and its check: every id that is cited exists, and every status is what the
citations say.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
NOWHERE = "W" + "999"
"""An id that no page has, put together here so that this file does not cite it."""


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rule_book", ROOT / "scripts" / "rules.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def book(tmp_path: Path, rules: ModuleType) -> Path:
    """A project with two rules, one implemented and one that waits, and nothing wrong with it."""
    tmp_path = Path(str(tmp_path))
    for folder in ("docs/rules", "rewindow/commands", "tests", "dags"):
        (tmp_path / folder).mkdir(parents=True)
    for page in rules.PAGES:
        (tmp_path / f"docs/rules/{page}.md").write_text(f"# {page}\n")
    put(
        tmp_path,
        "docs/rules/latency.md",
        "# Latency\n\n- **L1** One. *(ours)*\n- **L2** Two. *(ours)*\n",
    )
    put(tmp_path, "docs/rules/status.toml", '[implemented]\nL1 = ""\n[waits]\nL2 = "later"\n')
    put(tmp_path, "rewindow/clock.py", '"""The clock (L1)."""\n')
    put(
        tmp_path,
        "tests/test_clock.py",
        'def test_clock_runs() -> None:\n    """It runs (L1)."""\n',
    )
    assert rules.check(tmp_path, write=True) == []
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text)


def test_valid_rule_pages_pass_the_check(book: Path, rules: ModuleType) -> None:
    assert rules.check(book, write=False) == []
    written = (book / "docs/rules/coverage.md").read_text()
    assert "| L1 | implemented | rewindow/clock.py | test_clock.py::test_clock_runs |" in written
    assert "| L2 | waits: later |  |  |" in written


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (
            "rewindow/clock.py",
            f'"""The clock (L1, {NOWHERE})."""\n',
            f"clock.py: no rule {NOWHERE}",
        ),
        ("tests/test_other.py", f"# {NOWHERE}\n", f"test_other.py: no rule {NOWHERE}"),
        ("docs/guide.md", f"See {NOWHERE}.\n", f"guide.md: no rule {NOWHERE}"),
        ("docs/rules/latency.md", "- **L1** One.\n- **L2** As L3.\n", "latency.md: no rule L3"),
        (
            "docs/rules/latency.md",
            "- **L1** One.\n- **L2** Two.\n- **L2** Two.\n",
            "L2 is there twice",
        ),
        (
            "docs/rules/latency.md",
            "- **L1** One.\n- **L2** Two.\n- **L3** Three.\n",
            "L3 has no status",
        ),
        (
            "docs/rules/status.toml",
            '[implemented]\nL1 = ""\n[partly]\n"L1 L2" = ""\n',
            "L1 is implemented and partly",
        ),
        (
            "docs/rules/status.toml",
            '[implemented]\n"L1 to L2" = ""\n',
            "L2 is called implemented, and no code",
        ),
        (
            "tests/test_clock.py",
            "def test_clock_runs() -> None: ...\n",
            "L1 is called implemented, and no test",
        ),
        (
            "tests/test_clock.py",
            '"""The clock (L1)."""\n\n\ndef test_clock_runs() -> None: ...\n',
            "L1 is called implemented, and no test function cites it",
        ),
        ("rewindow/late.py", "# L2\n", "L2 is said to wait, and rewindow/late.py cites it"),
        ("rewindow/late.py", 'x = f"too late (L1), by {1}"\n', "late.py:1: shows a user L1"),
        ("dags/replay.py", '"""Replays a day (L1)."""\n', "replay.py:1: shows a user L1"),
        (
            "rewindow/commands/go.py",
            'def go() -> None:\n    """Goes (L1)."""\n',
            "go.py:2: shows a user L1",
        ),
    ],
)
def test_every_fault_in_the_rule_pages_is_found(
    name: str,
    text: str,
    fault: str,
    book: Path,
    rules: ModuleType,
) -> None:
    put(book, name, text)
    assert any(fault in line for line in rules.check(book, write=False)), fault


def test_rule_id_used_as_a_value_is_not_reported_as_a_message(
    book: Path, rules: ModuleType
) -> None:
    put(book, "rewindow/clock.py", 'rule = "L1"\nimport x  # noqa: E999\n')
    assert rules.check(book, write=True) == []


def test_moved_test_is_still_found(book: Path, rules: ModuleType) -> None:
    shutil.move(book / "tests/test_clock.py", book / "tests/test_time.py")
    assert rules.check(book, write=True) == []
    assert "test_time.py::test_clock_runs" in (book / "docs/rules/coverage.md").read_text()


def test_coverage_page_of_an_earlier_build_is_ignored(book: Path, rules: ModuleType) -> None:
    put(book, "docs/rules/coverage.md", f"| {NOWHERE} | implemented |  |  |\n")
    assert rules.check(book, write=False) == []
