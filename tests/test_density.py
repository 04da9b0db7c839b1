"""The measure of density: its definitions on small modules, and its baseline."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from density import BASELINE, ROOT, check, density_of, figures_of, main, measure, read_baseline

MODULE = '''\
"""A module."""

import os
from pathlib import (
    Path,
)

X = 1  # A reason.
"""An attribute."""


def f(a):  # noqa: ANN001
    """A function."""
    # Another reason.
    return [b for b in a], {b for b in a}
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one module in the measured folder, and its baseline."""
    root = Path(str(tmp_path))
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    for name in ("rewindow/clock.py", "tests/test_clock.py", "scripts/about.py"):
        (root / name).parent.mkdir()
        (root / name).write_text(MODULE)
    assert main(["--write"], root) == 0
    return root


def put(root: Path, text: str) -> None:
    (root / "rewindow/clock.py").write_text(text)


def test_comments_imports_and_docstrings_are_not_statement_tokens() -> None:
    found = density_of(MODULE)
    # X = 1, def f(a):, and a return of 20 tokens.
    assert (found.statement_tokens, found.statement_lines) == (3 + 6 + 16, 3)
    assert (found.lines, found.filled_lines, found.files) == (15, 11, 1)


def test_comprehensions_and_comments_are_counted_without_pragmas() -> None:
    found = density_of(MODULE)
    assert (found.comprehensions, found.comments) == (2, 2)
    assert density_of("x = (a for a in {b: c for b in d})\n").comprehensions == 2


@pytest.mark.parametrize(
    "text",
    ['x = f"{a} b {c!r}"\n', 'x = f"{a:{b}}"\n', "x = f'{f(\"a\")}'\n"],
)
def test_f_string_is_counted_as_one_token(text: str) -> None:
    assert density_of(text).statement_tokens == 3


def test_statement_over_several_lines_counts_every_line() -> None:
    found = density_of('x = (\n    """a\n    b"""\n)\n')
    assert (found.statement_tokens, found.statement_lines) == (5, 4)
    assert density_of("x = 1; import os; y = 2\n").statement_tokens == 3 + 1 + 1 + 3


def test_formatter_comments_are_counted_in_all_files(repository: Path) -> None:
    put(repository, 'x = 1  # fmt: skip\ny = "# fmt: skip"\n')
    (repository / "tests/test_clock.py").write_text("x = 1  # fmt: skip\n")
    by_folder, by_file, fmt_skip = measure(repository, ["rewindow"])
    assert fmt_skip == 2
    assert list(by_folder) == ["rewindow"] and list(by_file) == ["rewindow/clock.py"]


def test_density_equal_to_the_baseline_passes(repository: Path) -> None:
    assert read_baseline(repository) == figures_of(repository)
    assert check(repository) == []
    assert main(["--check"], repository) == 0


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        (MODULE + "y = (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9)\n", "tokens_per_line"),
        (MODULE + "y = [a for a in X]\n", "comprehensions"),
        (MODULE.replace("# A reason.", ""), "comments"),
        (MODULE + "y = 1  # fmt: skip\n", "fmt_skip"),
    ],
)
def test_worse_density_fails_and_only_force_records_it(
    text: str,
    figure: str,
    repository: Path,
) -> None:
    before = read_baseline(repository)
    put(repository, text)
    assert any(
        line.startswith(f"{figure} is ") and "is allowed" in line for line in check(repository)
    )
    assert main(["--write"], repository) == 1
    written = read_baseline(repository)
    assert before and written and written[figure] == before[figure]
    assert main(["--write", "--force"], repository) == 0
    assert check(repository) == []


def test_better_density_fails_until_the_baseline_is_written(repository: Path) -> None:
    put(repository, MODULE.replace(", {b for b in a}", ""))
    assert any("--write" in line for line in check(repository))
    assert main(["--write"], repository) == 0
    assert check(repository) == []


def test_density_difference_within_rounding_passes(repository: Path) -> None:
    path = repository / BASELINE
    before = figures_of(repository)["tokens_per_line"]
    path.write_text(path.read_text().replace(str(before), str(round(before - 0.01, 2))))
    assert check(repository) == []
    path.write_text(
        path.read_text().replace(str(round(before - 0.01, 2)), str(round(before - 0.02, 2)))
    )
    assert check(repository) != []


def test_missing_density_baseline_fails(repository: Path) -> None:
    (repository / BASELINE).unlink()
    assert any("is not in" in line for line in check(repository))


def test_density_of_several_folders_and_of_the_densest_files_is_printed(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(repository, "x = 1\n" * 20)
    assert main(["--root", "rewindow", "--root", "tests/", "--files"], repository) == 0
    printed = capsys.readouterr().out
    assert "rewindow: 1 files, 20 lines, 60 statement tokens" in printed
    assert "tests: 1 files" in printed
    assert printed.splitlines()[-1].split() == ["3.00", "rewindow/clock.py"]


def test_density_baseline_of_the_repository_is_complete() -> None:
    baseline = read_baseline(ROOT)
    assert baseline and set(baseline) == {
        "tokens_per_line",
        "comprehensions",
        "comments",
        "fmt_skip",
    }
