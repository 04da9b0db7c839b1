"""The check on prose: its patterns, the texts that it reads, its baseline, and the subjects of
commits.
"""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from prose import BASELINE, ROOT, check, find_hits, main, read_baseline, totals_of
from prose_patterns import PATTERNS, Pattern
from prose_subjects import faults_of, subject_of
from prose_texts import KINDS, texts_of

EXAMPLES = {
    "says": [
        "The log says which file failed.",
        "Windows are told apart by id.",
        "users can say which",
    ],
    "begins": ["A window begun earlier.", "A beginning of a window.", "BEGIN TRANSACTION"],
    "opens_with_what": [
        "It ends. What arrived late is kept.",
        "It shows what arrived late.",
        "What's new",
    ],
    "lies": [
        "The file lies in the state folder.",
        "The value lies between 0 and 1.",
        "The key relies on it.",
    ],
    "nobody": ["Whoever reads it waits.", "No reader waits.", "Anybody can read it."],
    "behind": ["the window behind it", "It leaves a file behind.", "behind a reverse proxy"],
    "is_no": ["A null is no source.", "There is no source.", "It is no longer open."],
    "goes_on": ["The replay goes on.", "It goes on top of the page.", "going on"],
    "beside": ["The file beside it.", "The files are side by side.", "besides"],
    "is_there": ["It reads what is there.", "Is there a window?", "There are two windows."],
    "anew": ["It is computed anew.", "It computes the window again.", "a new window"],
    "comma_else": [
        "the setting, else the default",
        "the setting; otherwise the default",
        "elsewhere",
    ],
    "gives": [
        "Gives the rows of a window.",
        "It takes 10 minutes.",
        "The caller makes sure of it.",
    ],
    "comes_out": ["It shows what came of them.", "The result is equal.", "come outside"],
    "of_its_own": ["a process of its own", "its own process", "of the owner"],
    "so_many": ["windows of so many tuples", "as many rows as windows", "many tuples"],
    "holds": ["The promise holds.", "The file that it holds.", "It holds a lock."],
    "to_be_had": ["The file is to be read.", "The caller must read the file.", "that is to say"],
    "in_the_place": ["It stands in the place of null.", "in place of null", "at the place of"],
    "passive": [
        "The window is refused.",
        "The window is refused by the planner.",
        "It refused the window.",
    ],
}
"""By pattern: a text with the construction, then two without it."""


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(textwrap.dedent(text))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A committed repository with two hits, and their baseline."""
    root = Path(str(tmp_path))
    git(root, "init", "--quiet", "--initial-branch=main")
    put(root, "rewindow/clock.py", '"""The clock begins."""\n# It goes on.\n')
    put(root, "scripts/about.txt", "The folder of the baseline.\n")
    assert main(["--write"], root) == 0
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Add a clock")
    return root


def found_in(name: str, text: str) -> list[tuple[str, str, int]]:
    """Returns pattern, kind and line of the hits in one file."""
    found = texts_of(name, textwrap.dedent(text))
    assert found
    return [
        (pattern.name, part.kind, part.line_of(start, end))
        for part in found.texts
        for pattern in PATTERNS
        for start, end in pattern.spans(part.text)
    ]


def test_every_pattern_has_examples() -> None:
    assert list(EXAMPLES) == [pattern.name for pattern in PATTERNS]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_pattern_matches_its_construction_but_not_plain_sentences(
    pattern: Pattern,
) -> None:
    odd, *plain = EXAMPLES[pattern.name]
    assert len(list(pattern.spans(odd))) == 1
    assert [text for text in plain if list(pattern.spans(text))] == []


def test_construction_across_a_line_break_is_found() -> None:
    assert found_in("docs/page.md", "The replay goes\non.\n") == [("goes_on", "docs", 1)]


@pytest.mark.parametrize(
    ("name", "text", "hit"),
    [
        ("rewindow/a.py", '"""The clock\n\nbegins."""\n', ("begins", "docstrings", 3)),
        ("rewindow/a.py", 'x = 1\n"""The clock begins."""\n', ("begins", "docstrings", 2)),
        (
            "tests/test_a.py",
            'def test_a():\n    """A day begins."""\n',
            ("begins", "docstrings", 2),
        ),
        ("rewindow/a.py", "x = 1  # A day\n# begins.\n", ("begins", "comments", 2)),
        ("rewindow/a.py", "# A day\n# goes\n# on.\n", ("goes_on", "comments", 2)),
        (
            "scripts/a.py",
            'raise ValueError(\n    "the day "\n    f"{x} begins"\n)\n',
            ("begins", "messages", 3),
        ),
        ("scripts/a.py", 'fail(hint="It begins.")\n', ("begins", "messages", 1)),
        ("bench/a.py", 'log.info("it begins")\n', ("begins", "messages", 1)),
        ("rewindow/a.py", 'TITLE = "when it begins"\n', ("begins", "messages", 1)),
        ("rewindow/a.py", 'f"it goes {x} and goes " f"on"\n', ("goes_on", "messages", 1)),
        ("plugins/a.py", 'TITLE = "when it begins"\n', ("begins", "messages", 1)),
        ("rewindow/a.py", 'typer.Option("-x", help="It begins.")\n', ("begins", "help", 1)),
        ("rewindow/commands/go.py", 'def go():\n    """It begins."""\n', ("begins", "help", 2)),
        (
            "rewindow/commands/go.py",
            'def other():\n    """It begins."""\n',
            ("begins", "docstrings", 2),
        ),
        ("Makefile", "go: setup ## begins the demo\n", ("begins", "help", 1)),
        ("docs/page.md", "# A page\n\nIt begins.\n", ("begins", "docs", 3)),
        (
            "CHANGELOG.md",
            "# C\n\n## [Unreleased]\n\nIt begins.\n\n## [0.1]\n\nIt begins.\n",
            ("begins", "docs", 5),
        ),
        (
            "tests/test_a.py",
            "class T:\n    def test_a_day_begins(self): ...\n",
            ("begins", "test_names", 2),
        ),
    ],
)
def test_prose_check_reads_every_kind_of_text(
    name: str, text: str, hit: tuple[str, str, int]
) -> None:
    assert found_in(name, text) == [hit]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "docs/page.md",
            "Text.\n\n```python\nit begins\n```\n\n    it begins\n\n`it begins` <!-- it begins "
            "-->\n",
        ),
        ("docs/page.md", "[text](begins.md) and https://example.com/begins\n"),
        ("rewindow/a.py", '"""Reads `what begins` here.\n\n>>> begins()\n"""\n'),
        ("rewindow/a.py", 'raise KeyError("begins")\n'),
        ("rewindow/a.py", 'x = {"begins": 1, "SELECT begins FROM some WHERE x": 2}\n'),
        ("rewindow/a.py", 'x = "# begins"\n'),
        ("rewindow/a.py", "import x  # noqa: begins\n"),
        ("tests/a.py", 'def rows():\n    return "the day it begins"\n'),
        ("scripts/a.py", 'pattern("the day it begins")\n'),
    ],
)
def test_code_and_data_are_not_checked_as_prose(name: str, text: str) -> None:
    assert found_in(name, text) == []


def test_rules_and_released_changelog_entries_are_excluded(repository: Path) -> None:
    assert texts_of("docs/rules/windows.md", "It begins.") is None
    assert texts_of("rewindow/page.html", "It begins.") is None


def test_prose_totals_equal_to_the_baseline_pass(repository: Path) -> None:
    assert read_baseline(repository) == {("begins", "docstrings"): 1, ("goes_on", "comments"): 1}
    assert check(repository) == []


def test_hit_above_the_baseline_is_shown_in_the_changed_files(repository: Path) -> None:
    put(repository, "rewindow/new.py", '"""A day begins."""\n')
    wrong = check(repository)
    assert wrong[:2] == [
        "rewindow/new.py:1: begins: A day begins.",
        "begins in docstrings: 2 hits, the baseline has 1",
    ]
    assert "started" in wrong[2] and "--list begins" in wrong[2]
    assert main(["--check"], repository) == 1


def test_all_hits_above_the_baseline_are_shown_if_no_file_has_changed(repository: Path) -> None:
    put(repository, "rewindow/new.py", '"""A day begins."""\n')
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "Add a day")
    assert [line.split(":")[0] for line in check(repository)[:2]] == [
        "rewindow/clock.py",
        "rewindow/new.py",
    ]


def test_moving_a_file_does_not_change_the_totals(repository: Path) -> None:
    git(repository, "mv", "rewindow/clock.py", "rewindow/time.py")
    assert check(repository) == []


def test_fewer_prose_hits_fail_until_the_baseline_is_written(repository: Path) -> None:
    put(repository, "rewindow/clock.py", '"""The clock starts."""\n# It goes on.\n')
    assert "prose.py --write" in check(repository)[-1]
    assert main(["--write"], repository) == 0
    assert check(repository) == []
    assert read_baseline(repository) == {("goes_on", "comments"): 1}


def test_prose_baseline_increases_only_with_force(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(repository, "rewindow/clock.py", '"""It begins where it begins."""\n')
    assert main(["--write"], repository) == 1
    assert "higher than the baseline" in capsys.readouterr().out
    assert read_baseline(repository) == {("begins", "docstrings"): 1}
    assert main(["--write", "--force"], repository) == 0
    assert read_baseline(repository) == {("begins", "docstrings"): 2}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rewindow/a.py", '"""It begins."""  # prose: ok quotes Spark\n'),
        ("rewindow/a.py", '"""It begins.\n\nNow.\n"""  # prose: ok quotes Spark\n'),
        ("rewindow/a.py", "# It begins.  # prose: ok quotes Spark\n"),
        ("rewindow/a.py", 'x = "when it begins"  # prose: ok quotes Spark\n'),
        ("docs/page.md", "It begins. <!-- prose: ok quotes Spark -->\n"),
    ],
)
def test_prose_exception_requires_a_reason(name: str, text: str, repository: Path) -> None:
    put(repository, name, text)
    assert check(repository) == []
    put(repository, name, text.replace(" quotes Spark", ""))
    wrong = check(repository)
    line = text[: text.index("prose: ok")].count("\n") + 1
    assert f"{name}:{line}: prose: ok needs a reason" in wrong
    assert any(line.startswith("begins in ") for line in wrong)


def test_prose_exception_applies_only_to_its_line(repository: Path) -> None:
    put(repository, "docs/page.md", "It begins. <!-- prose: ok a quote -->\nIt begins.\n")
    assert check(repository)[0].startswith("docs/page.md:2: begins: ")


def test_list_option_prints_the_hits_of_a_pattern_in_given_files(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(repository, "rewindow/new.py", '"""A day begins."""\n')
    for arguments, lines in (
        ([], ["rewindow/clock.py:2", "rewindow/clock.py:1", "rewindow/new.py:1"]),
        (["begins"], ["rewindow/clock.py:1", "rewindow/new.py:1"]),
        (["begins", "rewindow/new.py"], ["rewindow/new.py:1"]),
        (["./rewindow/"], ["rewindow/clock.py:2", "rewindow/clock.py:1", "rewindow/new.py:1"]),
        (["goes_on", "docs"], []),
    ):
        assert main(["--list", *arguments], repository) == 0
        printed = capsys.readouterr().out.splitlines()
        assert [":".join(line.split(":")[:2]) for line in printed] == lines


def test_totals_are_printed_next_to_the_baseline(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(repository, "rewindow/new.py", '"""A day begins."""\n')
    assert main([], repository) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("begins"))
    assert row.split() == ["begins", "2", "(1)", "0", "0", "0", "0", "0", "2", "(1)"]


def test_prose_baseline_of_the_repository_has_known_patterns_and_kinds() -> None:
    baseline = read_baseline(ROOT)
    assert baseline
    assert {pattern for pattern, _ in baseline} <= set(EXAMPLES)
    assert {kind for _, kind in baseline} <= set(KINDS)


@pytest.mark.parametrize(
    "subject",
    [
        "Make causal filling linear in rows per key",
        "Ignore comments and docstrings in code versions",
        "Embed Airflow",
        "Bring ports together",
        "Process windows in order",
        "Vectorize the digest",
        "Reject settings that are out of range",
        "fixup! Make causal filling linear",
        "Merge branch 'checks' of a remote whose name makes this line longer than 72 characters.",
        'Revert "Add a check."',
        "A" + "dd " + "x" * 68,
    ],
)
def test_imperative_commit_subject_passes(subject: str) -> None:
    assert list(faults_of(subject)) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("A test of addresses", 'starts with "A"'),
        ("The guide describes points", 'starts with "The"'),
        ("What follows a row", 'starts with "What"'),
        ("In the JSON", 'starts with "In"'),
        ("Adding a check", 'starts with "Adding"'),
        ("Added a check", 'starts with "Added"'),
        ("Adds a check", 'starts with "Adds"'),
        ("Wrote a check", 'starts with "Wrote"'),
        ("Causality is kept", 'starts with "Causality"'),
        ("README explains slack", 'starts with "README"'),
        ("`plan` rejects a range", 'starts with "`plan`"'),
        ("Test: a tolerance", "prefix"),
        ("add a check", "lower case"),
        ("Add a check.", "full stop"),
        ("Add " + "x" * 69, "73 characters"),
        ("Compute windows anew", "again"),
        ("", "empty"),
    ],
)
def test_invalid_commit_subject_fails(subject: str, fault: str) -> None:
    assert any(fault in found for found in faults_of(subject)), list(faults_of(subject))


def test_subject_is_the_first_line_that_is_not_a_comment() -> None:
    assert subject_of("# A comment\n\nAdd a check\n\nThe body.\n") == "Add a check"


def test_commit_message_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = Path(str(tmp_path)) / "COMMIT_EDITMSG"
    message.write_text("Add a check\n")
    assert main(["--subject", str(message)]) == 0
    message.write_text("Added a check\n")
    assert main(["--subject", str(message)]) == 1
    assert 'The subject starts with "Added"' in capsys.readouterr().out


def test_commit_range_is_checked_without_merge_commits(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    git(repository, "checkout", "--quiet", "-b", "branch")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "Add a branch")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "--message", "The branch is merged", "branch")
    assert main(["--commits", "HEAD~1..HEAD"], repository) == 0
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "The clock is right")
    assert main(["--commits", "HEAD~1..HEAD"], repository) == 1
    assert "The clock is right" in capsys.readouterr().out
    assert main(["--commits", "missing..HEAD"], repository) == 1
    assert 'git cannot list the commits "missing..HEAD"' in capsys.readouterr().out


def test_hits_of_the_repository_equal_the_totals_in_the_baseline(repository: Path) -> None:
    hits, faults = find_hits(repository)
    assert not faults
    assert totals_of(hits) == read_baseline(repository)
    assert (repository / BASELINE).read_text().startswith("# ")
