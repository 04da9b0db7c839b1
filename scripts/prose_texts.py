"""Finds the texts that people read in the repository, and keeps their kinds apart.

The kinds are docstrings, comments, messages, help, docs and test names. The module reads Python
with `ast`, and comments with a small lexer, because `tokenize` needs as long as all the rest.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

KINDS = ("docstrings", "comments", "messages", "help", "docs", "test_names")
USER_ROOTS = ("rewindow/", "plugins/", "dags/", "jobs/")
"""Folders in which every string that reads as a sentence counts as a message."""
HELP_KEYWORDS = {"help", "epilog", "short_help"}
MESSAGE_KEYWORDS = {"hint", "detail", "primary"}
MESSAGE_CALLS = {
    "critical",
    "debug",
    "error",
    "exception",
    "info",
    "log",
    "print",
    "say",
    "warn",
    "warning",
}
SENTENCE_WORDS_MIN = 3

_LEXER = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''(?:[^\\]|\\.)*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)
PRAGMA = re.compile(r"#\s*(?:noqa|type:|fmt:|ruff:|mypy:|pragma:|isort:|!)")
_EXCEPTION = re.compile(
    r"(?:#|<!--)\s*prose: ok\b:?[ \t]*(?P<reason>.*?)\s*(?:-->|$)", re.MULTILINE
)
_INLINE_CODE = re.compile(r"``[^`]+``|`[^`]+`")
_LINK_TARGET = re.compile(r"(?<=\])\([^()\s]*\)|<?https?://[^\s)>]+>?")
_DOCTEST = re.compile(r"^\s*(?:>>>|\.\.\.).*$", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z]{2,}")
_SQL = re.compile(r"\b(?:SELECT|INSERT INTO|CREATE TABLE|CASE WHEN|WHERE|GROUP BY|ORDER BY)\b")
_TARGET = re.compile(r"^[a-z-]+:.*?## (?P<help>.+)$")


@dataclass(frozen=True)
class Text:
    """A text of one kind that starts at a line of a file.

    `last_line` is the last line of the string literal that the text comes from, or 0. `source` has
    the lines of a literal whose lines are not those of the text, as in implicitly joined strings.
    """

    kind: str
    line: int
    text: str
    last_line: int = 0
    source: tuple[str, ...] = ()

    def line_of(self, start: int, end: int) -> int:
        """Returns the line of the file that has a part of the text, or its first word."""
        if not self.source:
            return self.line + self.text.count("\n", 0, start)
        sought = self.text[start:end].strip()
        for part in (sought, *sought.split()[:1]):
            for number, line in enumerate(self.source):
                if part in line:
                    return self.line + number
        return self.line


@dataclass
class FileTexts:
    """The texts of a file, its lines that the check skips, and the exceptions without a reason."""

    texts: list[Text] = field(default_factory=list)
    exempt: set[int] = field(default_factory=set)
    without_reason: list[int] = field(default_factory=list)


def tracked_files(root: Path) -> list[str]:
    """Returns the existing files of the repository that Git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    names = set(listed.stdout.split("\0"))
    return sorted(name for name in names if name and (root / name).is_file())


def is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Returns whether a node is a string that is a statement, such as a docstring."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def texts_of(name: str, content: str) -> FileTexts | None:
    """Returns the texts of a file, or None where the check does not read it."""
    if name.endswith(".py"):
        return _python(name, content)
    if name == "Makefile":
        found = FileTexts()
        for number, line in enumerate(content.splitlines(), start=1):
            target = _TARGET.match(line)
            if target:
                found.texts.append(Text("help", number, target["help"]))
        return found
    if name.endswith(".md") and not name.startswith("docs/rules/"):
        # The catalogue of operators repeats docstrings, which are counted where they are written.
        content = content.partition("<!-- written by scripts/library_page.py -->")[0]
        # The changelog's third part has the releases, which stay as they are.
        return _markdown(content.split("\n## [", 2) if name == "CHANGELOG.md" else [content])
    return None


def _markdown(parts: list[str]) -> FileTexts:
    """Returns the prose of a page without its code, of several parts that of the first two."""
    content = "\n## [".join(parts[:2])
    found = FileTexts()
    _find_exemptions(content, found)
    lines: list[str] = []
    fence = ""
    after_blank = True
    is_code = False
    for line in content.split("\n"):
        marker = re.match(r"\s*(```+|~~~+)", line)
        if fence or marker:
            if marker and (not fence or marker[1].startswith(fence)):
                fence = "" if fence else marker[1]
            lines.append("")
            continue
        is_code = line.startswith(("    ", "\t")) and (is_code or after_blank)
        after_blank = not line.strip()
        lines.append("" if is_code else line)
    text = re.sub(r"<!--.*?-->", _blank, "\n".join(lines), flags=re.DOTALL)
    text = _LINK_TARGET.sub(_blank, text)
    found.texts.append(Text("docs", 1, _without_code(text)))
    return found


def _find_exemptions(content: str, found: FileTexts, line: int = 1) -> None:
    for match in _EXCEPTION.finditer(content):
        number = line + content.count("\n", 0, match.start())
        if match["reason"]:
            found.exempt.add(number)
        else:
            found.without_reason.append(number)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\s`]", "_", match[0])


def _without_code(text: str) -> str:
    """Returns a text of the same length whose inline code is blank.

    >>> _without_code("the verb `plan --late` reads")
    'the verb `____ ______` reads'
    """
    return _INLINE_CODE.sub(_blank, text) if "`" in text else text


def _python(name: str, content: str) -> FileTexts:
    found = FileTexts()
    found.texts += _comments(content, found)
    tree = ast.parse(content)
    if name.startswith("tests/"):
        found.texts += _test_names_and_docstrings(tree)
    else:
        found.texts += _Strings(name, content).read(tree)
    return found


def comments_in(content: str) -> Iterator[tuple[int, str]]:
    """Yields offset and text of each comment of a Python module."""
    for match in _LEXER.finditer(content):
        if match["comment"] is not None:
            yield match.start(), match["comment"]


def _comments(content: str, found: FileTexts) -> Iterator[Text]:
    """Yields the comments; those on lines that follow each other are one text."""
    block: list[str] = []
    first = last = line = position = 0
    for start, comment in comments_in(content):
        line += content.count("\n", position, start)
        position = start
        if "prose: ok" in comment:
            _find_exemptions(comment, found, line + 1)
            comment = _EXCEPTION.sub("", comment)
        if not comment or PRAGMA.match(comment):
            continue
        is_alone = not content[content.rfind("\n", 0, start) + 1 : start].strip()
        if block and is_alone and line == last + 1:
            block.append(comment.lstrip("#").strip())
        else:
            if block:
                yield Text("comments", first + 1, _without_code("\n".join(block)))
            block = [comment.lstrip("#").strip()]
            first = line
        last = line
    if block:
        yield Text("comments", first + 1, _without_code("\n".join(block)))


def _docstring(node: ast.Expr, kind: str = "docstrings") -> Text:
    assert isinstance(node.value, ast.Constant)
    text = _DOCTEST.sub(_blank, str(node.value.value))
    return Text(kind, node.lineno, _without_code(text), node.end_lineno or node.lineno)


def _test_names_and_docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yields what the check reads of a test module: strings are data there."""
    bodies: list[list[ast.stmt]] = [tree.body]
    while bodies:
        for node in bodies.pop():
            if is_docstring(node):
                yield _docstring(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bodies.append(node.body)
                if node.name.startswith("test_"):
                    claim = node.name.removeprefix("test_").replace("_", " ")
                    yield Text("test_names", node.lineno, claim)


def _reads_as_sentence(value: str) -> bool:
    return len(_WORD.findall(value)) >= SENTENCE_WORDS_MIN and not _SQL.search(value)


class _Strings:
    """Sorts the strings of a module into docstrings, help and messages."""

    def __init__(self, name: str, content: str) -> None:
        self._name = name
        self._lines = content.splitlines()
        self._kinds: dict[int, str] = {}
        """Kind by the id of a node; an empty kind is a string that is part of another one."""

    def read(self, tree: ast.Module) -> Iterator[Text]:
        default = "messages" if self._name.startswith(USER_ROOTS) else ""
        self._mark_verbs(tree)
        for node in ast.walk(tree):  # Parents come before their children.
            if is_docstring(node):
                yield _docstring(node, self._kinds.get(id(node.value)) or "docstrings")
                self._kinds[id(node.value)] = ""
            elif isinstance(node, ast.Call):
                self._mark_call(node)
            elif isinstance(node, ast.Raise) and node.exc is not None:
                self._mark(node.exc, "messages")
            elif isinstance(node, ast.JoinedStr | ast.Constant):
                yield from self._text(node, default)

    def _mark_verbs(self, tree: ast.Module) -> None:
        """Marks the docstrings of a verb's module that are the help of its commands."""
        if not self._name.startswith("rewindow/commands/"):
            return
        verbs = {Path(self._name).stem, "command"}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (node.decorator_list or node.name in verbs):
                first = node.body[0]
                if isinstance(first, ast.Expr):
                    self._kinds[id(first.value)] = "help"

    def _mark_call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in HELP_KEYWORDS:
                self._mark(keyword.value, "help")
            elif keyword.arg in MESSAGE_KEYWORDS:
                self._mark(keyword.value, "messages")
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in MESSAGE_CALLS:
            for argument in node.args:
                self._mark(argument, "messages")

    def _mark(self, node: ast.AST, kind: str) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.JoinedStr | ast.Constant):
                self._kinds.setdefault(id(part), kind)

    def _text(self, node: ast.JoinedStr | ast.Constant, default: str) -> Iterator[Text]:
        """Yields the text of a string, with `{_}` for each field of an f-string."""
        if isinstance(node, ast.JoinedStr):
            parts = []
            for part in node.values:
                if isinstance(part, ast.Constant):
                    self._kinds[id(part)] = ""
                parts.append(str(part.value) if isinstance(part, ast.Constant) else "{_}")
            value = "".join(parts)
        else:
            value = str(node.value)
        kind = self._kinds.get(id(node), default)
        if not kind or " " not in value:
            return
        if id(node) not in self._kinds and not _reads_as_sentence(value):
            return
        last = node.end_lineno or node.lineno
        yield Text(
            kind,
            node.lineno,
            _without_code(value),
            last,
            tuple(self._lines[node.lineno - 1 : last]),
        )
