"""Checks docs/rules against the code and its tests, and writes docs/rules/coverage.md.

Rules are cited by their id, such as `W40`, in docstrings, comments and test cases; this script
finds out where. Without an argument it writes the coverage, which is not in git, as `make docs`
does; with `--check` it writes nothing. Both fail, with a line for each, when
- an id is cited that no page of docs/rules has,
- a rule has no status in docs/rules/status.toml, or two,
- a rule that is called implemented is cited by no code, or by no function that is a test: a
  citation in the docstring of a test module shows nothing,
- a rule that is said to wait is cited by code,
- a message, help text or page shows an id to a user: it must say in words what is meant.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    "operators",
    "windows_and_checkpoints",
    "recovery",
    "event_time",
    "heartbeat",
    "latency",
    "decisions",
)
CODE = ("rewindow", "plugins", "dags", "jobs", "applications", "expectations")
TESTS = ("tests",)
DOCS = (
    "docs",
    "bench",
    "scripts",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "dags/README.md",
)
SUFFIXES = {".py", ".json", ".toml", ".html", ".md"}
STATUSES = ("implemented", "partly", "departed", "waits", "definition")
SHOWN_MAX = 3
COVERAGE = "coverage.md"
"""The page that this script writes: it may be out of date, so that its citations do not count."""

_RULE = re.compile(r"^- \*\*(?P<id>[A-Z]\d+)\*\* (?P<text>.+)$", re.MULTILINE)
_ID = re.compile(
    r"\b(?P<family>[OWREHGLX])(?P<first>\d{1,3})\b(?:(?: to |-)(?P=family)(?P<last>\d{1,3})\b)?"
)
_LINTER = re.compile(r"# noqa:.*")


@dataclass
class Rule:
    """A rule with its page, its status, and who cites it; `why` says what is missing, different or
    waited for.
    """

    page: str
    status: str = ""
    why: str = ""
    code: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)


def ids_in(text: str) -> set[str]:
    """Returns the ids that a text cites, also those of a range.

    >>> sorted(ids_in("R48 to R50, X2"))
    ['R48', 'R49', 'R50', 'X2']
    """
    found = set()
    for match in _ID.finditer(_LINTER.sub("", text)):
        first = int(match["first"])
        last = int(match["last"] or match["first"])
        found |= {f"{match['family']}{number}" for number in range(first, last + 1)}
    return found


def read_rules(root: Path) -> tuple[dict[str, Rule], list[str]]:
    """Returns the rules of all pages with their status, and what is wrong with pages and status."""
    wrong: list[str] = []
    rules: dict[str, Rule] = {}
    for page in PAGES:
        for match in _RULE.finditer((root / f"docs/rules/{page}.md").read_text()):
            if match["id"] in rules:
                wrong.append(f"docs/rules/{page}.md: {match['id']} is there twice")
            rules[match["id"]] = Rule(page)
    listed = tomllib.loads((root / "docs/rules/status.toml").read_text())
    for status, entries in listed.items():
        for cited, why in entries.items():
            for name in ids_in(cited):
                rule = rules.get(name)
                if rule is None or status not in STATUSES:
                    wrong.append(f"docs/rules/status.toml: {status}: {name} is unknown")
                    continue
                if rule.status:
                    wrong.append(f"docs/rules/status.toml: {name} is {rule.status} and {status}")
                rule.status = status
                rule.why = why
    wrong += [
        f"docs/rules/status.toml: {name} has no status"
        for name, rule in rules.items()
        if not rule.status
    ]
    return rules, wrong


def files_in(root: Path, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields name and text of the files below some folders in which an id may stand."""
    for place in places:
        path = root / place
        files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
        for file in files:
            name = file.relative_to(root).as_posix()
            if file.suffix in SUFFIXES and not name.startswith("docs/rules/"):
                yield name, file.read_text()


def tests_in(name: str, text: str) -> Iterator[tuple[str, set[str]]]:
    """Yields the test functions of a file with the ids that each cites; the ids outside of them
    come under the file's name.
    """
    lines = text.splitlines()
    apart: set[int] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            apart |= set(range(first - 1, node.end_lineno or first))
            yield f"{name}::{node.name}", ids_in("\n".join(lines[first - 1 : node.end_lineno]))
    yield name, ids_in("\n".join(line for number, line in enumerate(lines) if number not in apart))


def shown_ids(name: str, text: str) -> Iterator[str]:
    """Yields a line for every text of a module that a user may read and that holds an id.

    Docstrings are for colleagues, but those of DAGs are their pages and those of verbs their help.
    A text that is nothing but an id is a value.
    """
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    hidden = set() if "dags/" in name else docstrings - {id(shown) for shown in _helps(tree, name)}
    for node in nodes:
        if (
            not isinstance(node, ast.Constant)
            or not isinstance(node.value, str)
            or id(node) in hidden
        ):
            continue
        if ids_in(node.value) and not _ID.fullmatch(node.value):
            yield (
                f"{name}:{node.lineno}: shows a user {', '.join(sorted(ids_in(node.value)))}; "
                "say it in words"
            )


def _helps(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Yields the docstrings of a verb's module that are the help of its commands."""
    for node in tree.body if "commands/" in name else []:
        if not isinstance(node, ast.FunctionDef) or not isinstance(node.body[0], ast.Expr):
            continue
        if node.decorator_list or node.name in (Path(name).stem, "command"):
            yield node.body[0].value


def read_citations(root: Path, rules: dict[str, Rule]) -> list[str]:
    """Enters who cites each rule; returns what is wrong with the citations."""
    wrong: list[str] = []

    def cite(name: str, ids: set[str]) -> Iterator[Rule]:
        for cited in sorted(ids):
            if cited in rules:
                yield rules[cited]
            else:
                wrong.append(f"{name}: no rule {cited} in docs/rules")

    for name, text in files_in(root, CODE):
        ids = ids_in(text)
        for rule in cite(name, ids):
            rule.code.add(name)
        if ids and name.endswith(".py"):
            wrong += shown_ids(name, text)
        elif ids and name.endswith((".json", ".html")):
            wrong.append(f"{name}: shows a user {', '.join(sorted(ids))}; say it in words")
    for name, text in files_in(root, TESTS):
        for test, ids in tests_in(name, text) if ids_in(text) and name.endswith(".py") else ():
            for rule in cite(test, ids):
                if "::" in test:
                    rule.tests.add(test)
    for name, text in files_in(root, DOCS):
        list(cite(name, ids_in(text)))
    for page in (root / "docs/rules").glob("*.md"):
        if page.name != COVERAGE:
            list(cite(f"docs/rules/{page.name}", ids_in(page.read_text())))
    return wrong


def false_statuses(rules: dict[str, Rule]) -> Iterator[str]:
    """Yields a line for every rule whose status the citations contradict."""
    for name, rule in rules.items():
        if rule.status == "implemented" and not rule.code:
            yield f"{name} is called implemented, and no code cites it"
        if rule.status == "implemented" and not rule.tests:
            yield f"{name} is called implemented, and no test function cites it"
        if rule.status == "waits" and rule.code:
            yield f"{name} is said to wait, and {', '.join(sorted(rule.code))} cites it"


def coverage(rules: dict[str, Rule]) -> str:
    """Returns the text of docs/rules/coverage.md."""
    text = [
        "# Coverage",
        "",
        "Written by `python scripts/rules.py` from status.toml and from who cites each rule; do "
        "not edit it.",
        "A test is named by its file below `tests/`. README.md says what each status means.",
        "",
        f"| page | rules | {' | '.join(STATUSES)} |",
        f"|---|---|{'---|' * len(STATUSES)}",
    ]
    for page in (*PAGES, "all"):
        found = [rule.status for rule in rules.values() if page in (rule.page, "all")]
        shown = f"[{page}]({page}.md)" if page in PAGES else page
        text.append(
            f"| {shown} | {len(found)} | "
            f"{' | '.join(str(found.count(status)) for status in STATUSES)} |"
        )
    for page in PAGES:
        text += ["", f"## {page}", "", "| rule | status | where | tests |", "|---|---|---|---|"]
        for name, rule in rules.items():
            if rule.page == page:
                status = f"{rule.status}: {rule.why}" if rule.why else rule.status
                tests = {test.removeprefix("tests/") for test in rule.tests}
                text.append(f"| {name} | {status} | {_some(rule.code)} | {_some(tests)} |")
    return "\n".join(text) + "\n"


def _some(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:SHOWN_MAX]) + (" and more" if len(shown) > SHOWN_MAX else "")


def check(root: Path, *, write: bool) -> list[str]:
    """Returns what is wrong; with `write` the coverage is written."""
    rules, wrong = read_rules(root)
    wrong += read_citations(root, rules)
    wrong += false_statuses(rules)
    if write:
        (root / "docs/rules" / COVERAGE).write_text(coverage(rules))
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Checks docs/rules and writes docs/rules/coverage.md."
    )
    parser.add_argument("--check", action="store_true", help="Write nothing.")
    found = check(ROOT, write=not parser.parse_args().check)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
