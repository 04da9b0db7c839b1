"""Measures how densely code is packed, and holds it to a baseline.

    python scripts/density.py                  the figures of rewindow/
    python scripts/density.py --root tests     the figures of another folder; may be repeated
    python scripts/density.py --files          the densest files as well
    python scripts/density.py --check          fails if the figures are not those of the baseline
    python scripts/density.py --write          records better figures in the baseline

Definitions:
- statement token: a token of Python outside of comments, imports, docstrings and other strings that
  are statements. Line ends and indentation do not count; an f-string counts as one token.
- tokens_per_line: statement tokens divided by the physical lines that have a part of one.
- comprehensions: list, set and dict comprehensions and generator expressions, per 1,000 non-blank
  lines.
- comments: comments other than pragmas (noqa, type, fmt and the like), per 1,000 non-blank lines.
- fmt_skip: comments that keep the formatter off, in all Python files of the repository.
"""

from __future__ import annotations

import argparse
import ast
import gc
import io
import sys
import token
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prose_texts import PRAGMA, comments_in, is_docstring, tracked_files

ROOT = Path(__file__).parent.parent
BASELINE = "scripts/density_baseline.toml"
HEAD = """\
# Figures of rewindow/, written by `python scripts/density.py --write`. `comments` may only rise,
# the others may only fall.
"""
CHECKED_ROOT = "rewindow"
FILES_SHOWN = 20
FILE_LINES_MIN = 20
"""A file with fewer statement lines is not listed among the densest."""
TOLERANCE = 0.01
"""A figure may be this much worse, because its last digit is rounded."""
GAIN = {"tokens_per_line": 0.1, "comprehensions": 0.5, "comments": 0.5, "fmt_skip": 1}
"""A figure that is better by this much has to be recorded in the baseline."""
MAY_RISE = {"comments"}

_NO_CODE = {
    token.COMMENT,
    token.DEDENT,
    token.ENCODING,
    token.ENDMARKER,
    token.INDENT,
    token.NEWLINE,
    token.NL,
}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# From Python 3.12 on an f-string has several tokens.
_FSTRING_START = getattr(token, "FSTRING_START", None)
_FSTRING_END = getattr(token, "FSTRING_END", None)

Position = tuple[int, int]


@dataclass
class Density:
    """Counts over some files."""

    files: int = 0
    lines: int = 0
    filled_lines: int = 0
    statement_tokens: int = 0
    statement_lines: int = 0
    comprehensions: int = 0
    comments: int = 0

    def add(self, other: Density) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    @property
    def tokens_per_line(self) -> float:
        return round(self.statement_tokens / max(1, self.statement_lines), 2)

    def per_1000_lines(self, count: int) -> float:
        return round(1000 * count / max(1, self.filled_lines), 2)

    @property
    def checked(self) -> dict[str, float]:
        """The figures by folder that the baseline bounds."""
        return {
            "tokens_per_line": self.tokens_per_line,
            "comprehensions": self.per_1000_lines(self.comprehensions),
            "comments": self.per_1000_lines(self.comments),
        }


def density_of(content: str) -> Density:
    """Returns the counts of one module."""
    tree = ast.parse(content)
    skipped = list(_skipped_spans(tree))
    lines: set[int] = set()
    count = 0
    for start, end in _code_tokens(content):
        if not any(first <= start and end <= last for first, last in skipped):
            count += 1
            lines.update(range(start[0], end[0] + 1))
        while skipped and skipped[0][1] < start:
            del skipped[0]
    return Density(
        files=1,
        lines=content.count("\n"),
        filled_lines=sum(1 for line in content.splitlines() if line.strip()),
        statement_tokens=count,
        statement_lines=len(lines),
        comprehensions=sum(isinstance(node, _COMPREHENSIONS) for node in ast.walk(tree)),
        comments=sum(not PRAGMA.match(comment) for _, comment in comments_in(content)),
    )


def _code_tokens(content: str) -> Iterator[tuple[Position, Position]]:
    """Yields start and end of each token that is not a comment, line end or indentation."""
    depth = 0
    start: Position = (0, 0)
    for found in tokenize.generate_tokens(io.StringIO(content).readline):
        if found.type == _FSTRING_START:
            start = start if depth else found.start
            depth += 1
        elif found.type == _FSTRING_END:
            depth -= 1
            if not depth:
                yield start, found.end
        elif not depth and found.type not in _NO_CODE:
            yield found.start, found.end


def _skipped_spans(tree: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Yields start and end of imports and docstrings, in the order of the file."""
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node):
            end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
            spans.append(((node.lineno, node.col_offset), end))
    yield from sorted(spans)


def measure(root: Path, folders: list[str]) -> tuple[dict[str, Density], dict[str, Density], int]:
    """Returns counts by folder and by file, and the number of `fmt: skip` comments in all files."""
    by_folder = {folder: Density() for folder in folders}
    by_file: dict[str, Density] = {}
    fmt_skip = 0
    for path in tracked_files(root):
        if not path.endswith(".py"):
            continue
        content = (root / path).read_text()
        if "fmt: skip" in content:
            fmt_skip += sum("fmt: skip" in comment for _, comment in comments_in(content))
        for folder, total in by_folder.items():
            if path.startswith(f"{folder}/"):
                by_file[path] = by_file.get(path) or density_of(content)
                total.add(by_file[path])
    return by_folder, by_file, fmt_skip


def figures_of(root: Path) -> dict[str, float]:
    """Returns the figures that the baseline bounds."""
    by_folder, _, fmt_skip = measure(root, [CHECKED_ROOT])
    return {**by_folder[CHECKED_ROOT].checked, "fmt_skip": fmt_skip}


def read_baseline(root: Path) -> dict[str, float] | None:
    """Returns the figures of the baseline, or None if no baseline exists."""
    path = root / BASELINE
    return tomllib.loads(path.read_text()) if path.exists() else None


def _gain(name: str, now: float, before: float) -> float:
    """Returns by how much a figure is better than the baseline; less than 0 if it is worse."""
    return round(now - before if name in MAY_RISE else before - now, 2)


def write_baseline(root: Path, figures: dict[str, float], *, force: bool) -> bool:
    """Records better figures, and with `force` worse ones too.

    Returns whether no figure is worse than the baseline.
    """
    old = (None if force else read_baseline(root)) or {}
    text = HEAD
    is_worse = False
    for name, now in figures.items():
        before = old.get(name, now)
        gain = _gain(name, now, before)
        is_worse = is_worse or gain < -TOLERANCE
        text += f"{name} = {now if gain >= 0 else before}\n"
    (root / BASELINE).write_text(text)
    return not is_worse


def check(root: Path) -> list[str]:
    """Returns the figures that are worse than the baseline, or better by more than rounding."""
    figures = figures_of(root)
    baseline = read_baseline(root) or {}
    wrong = []
    for name, now in figures.items():
        if name not in baseline:
            wrong += [
                f"{name} is not in {BASELINE}",
                "  Hint: Run `python scripts/density.py --write`.",
            ]
            continue
        gain = _gain(name, now, baseline[name])
        if gain < -TOLERANCE:
            bound = "at least" if name in MAY_RISE else "at most"
            wrong.append(f"{name} is {now}, {bound} {baseline[name]} is allowed")
            wrong.append(f"  Hint: {HINTS[name]} See the densest files with --files.")
        elif gain >= GAIN[name]:
            wrong.append(f"{name} is {now}, better than the baseline of {baseline[name]}")
            wrong.append("  Hint: Run `python scripts/density.py --write` and commit the baseline.")
    return wrong


HINTS = {
    "tokens_per_line": "Give intermediate values a name, and let the formatter unfold arguments.",
    "comprehensions": "Write nested comprehensions out as loops.",
    "comments": "Add comments that give a reason where a reader would ask for one.",
    "fmt_skip": "Remove `fmt: skip` and let the formatter lay the lines out.",
}


def report(
    by_folder: dict[str, Density],
    fmt_skip: int,
    baseline: dict[str, float],
) -> Iterator[str]:
    """Yields lines with the figures of folders, next to those of the baseline."""
    for folder, total in by_folder.items():
        size = f"{total.files:,} files, {total.lines:,} lines"
        yield f"{folder}: {size}, {total.statement_tokens:,} statement tokens"
        for name, figure in total.checked.items():
            is_bounded = folder == CHECKED_ROOT and name in baseline
            bound = f"  (baseline {baseline[name]:.2f})" if is_bounded else ""
            unit = "" if name == "tokens_per_line" else " per 1,000 lines"
            yield f"  {name:<16}{figure:8.2f}{unit}{bound}"
    bound = f"  (baseline {baseline['fmt_skip']})" if "fmt_skip" in baseline else ""
    yield f"fmt_skip in all files: {fmt_skip}{bound}"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Measures how densely code is packed.")
    parser.add_argument(
        "--root",
        action="append",
        metavar="FOLDER",
        help="Measure this folder, by default rewindow.",
    )
    parser.add_argument("--files", action="store_true", help="List the densest files as well.")
    parser.add_argument("--check", action="store_true", help="Compare with the baseline.")
    parser.add_argument("--write", action="store_true", help="Record better figures.")
    parser.add_argument("--force", action="store_true", help="With --write, record worse ones too.")
    options = parser.parse_args(arguments)
    wrong: list[str] = []
    if options.check:
        wrong = check(root)
    elif options.write:
        if not write_baseline(root, figures_of(root), force=options.force):
            wrong = ["some figures are worse than the baseline and stay; see them with --check"]
    else:
        folders = [folder.rstrip("/") for folder in options.root or [CHECKED_ROOT]]
        by_folder, by_file, fmt_skip = measure(root, folders)
        print("\n".join(report(by_folder, fmt_skip, read_baseline(root) or {})))
        if options.files:
            listed = [
                (found.tokens_per_line, path)
                for path, found in by_file.items()
                if found.statement_lines >= FILE_LINES_MIN
            ]
            for density, path in sorted(listed, reverse=True)[:FILES_SHOWN]:
                print(f"{density:8.2f}  {path}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    gc.disable()  # Collecting the many nodes of parsed modules takes longer than the counting.
    sys.exit(main())
