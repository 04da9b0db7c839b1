"""Finds odd English in docstrings, comments, messages, help, docs, test names and commit subjects.

    python scripts/prose.py                            totals by pattern and kind of text
    python scripts/prose.py --list [PATTERN] [PATH...] every hit
    python scripts/prose.py --check                    fails if the totals are not the baseline
    python scripts/prose.py --write                    lowers the baseline to the totals
    python scripts/prose.py --commits RANGE            checks the subjects of commits

The baseline has totals only, so that a moved file changes nothing. It may only fall: a total that
is higher than the baseline fails the check, and so does a lower one until `--write` records it.

The check skips a line with a comment `prose: ok REASON`, in Markdown `<!-- prose: ok REASON -->`.
For a string over several lines the comment is on its last line.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from prose_patterns import PATTERNS
from prose_subjects import faults_of, subject_of
from prose_texts import KINDS, FileTexts, texts_of, tracked_files

ROOT = Path(__file__).parent.parent
BASELINE = "scripts/prose_baseline.toml"
HEAD = """\
# Totals by pattern and kind of text, written by `python scripts/prose.py --write`. They may only
# fall. After a merge with conflicts take either side and run that command.
"""
CONTEXT_LENGTH = 40
HITS_SHOWN_MAX = 40

Totals = dict[tuple[str, str], int]
"""Number of hits by pattern and kind; a pair without hits is left out."""


@dataclass(frozen=True)
class Hit:
    """A place where a text uses a construction to avoid."""

    path: str
    line: int
    pattern: str
    kind: str
    around: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.pattern}: {self.around}"


def find_hits(root: Path) -> tuple[list[Hit], list[str]]:
    """Returns the hits in a repository, and a line for each exception without a reason."""
    hits: list[Hit] = []
    faults: list[str] = []
    for path in tracked_files(root):
        if path.endswith((".py", ".md")) or path == "Makefile":
            found = texts_of(path, (root / path).read_text())
            if found is not None:
                hits += _hits_in(path, found)
                faults += [
                    f"{path}:{line}: prose: ok needs a reason" for line in found.without_reason
                ]
    return hits, faults


def _hits_in(path: str, found: FileTexts) -> list[Hit]:
    hits = []
    for text in found.texts:
        for pattern in PATTERNS:
            for start, end in pattern.spans(text.text):
                line = text.line_of(start, end)
                if not found.exempt & {line, text.last_line}:
                    around = text.text[max(0, start - CONTEXT_LENGTH) : end + CONTEXT_LENGTH]
                    around = " ".join(around.split())
                    hits.append(Hit(path, line, pattern.name, text.kind, around))
    return hits


def totals_of(hits: list[Hit]) -> Totals:
    return dict(Counter((hit.pattern, hit.kind) for hit in hits))


def read_baseline(root: Path) -> Totals | None:
    """Returns the totals of the baseline, or None if no baseline exists."""
    path = root / BASELINE
    if not path.exists():
        return None
    tables = tomllib.loads(path.read_text())
    return {
        (pattern, kind): total for pattern, table in tables.items() for kind, total in table.items()
    }


def write_baseline(root: Path, totals: Totals, *, force: bool) -> bool:
    """Lowers the baseline to the totals; returns whether the file now has them.

    A total above the baseline is written only with `force`, or if no baseline exists.
    """
    old = None if force else read_baseline(root)
    written = (
        totals
        if old is None
        else {cell: min(total, old.get(cell, 0)) for cell, total in totals.items()}
    )
    text = HEAD
    for pattern in PATTERNS:
        cells = [
            (kind, written[pattern.name, kind])
            for kind in KINDS
            if written.get((pattern.name, kind))
        ]
        if cells:
            text += f"\n[{pattern.name}]\n" + "".join(
                f"{kind} = {total}\n" for kind, total in cells
            )
    (root / BASELINE).write_text(text)
    return written == totals


def check(root: Path) -> list[str]:
    """Returns the totals above or below the baseline, and the exceptions without a reason."""
    hits, wrong = find_hits(root)
    totals = totals_of(hits)
    baseline = read_baseline(root) or {}
    instead = {pattern.name: pattern.instead for pattern in PATTERNS}
    changed = changed_files(root)
    is_lower = False
    for cell in sorted(totals.keys() | baseline.keys()):
        total = totals.get(cell, 0)
        allowed = baseline.get(cell, 0)
        is_lower = is_lower or total < allowed
        if total > allowed:
            pattern, kind = cell
            in_cell = [hit for hit in hits if (hit.pattern, hit.kind) == cell]
            shown = [hit for hit in in_cell if hit.path in changed] or in_cell
            wrong += [str(hit) for hit in shown[:HITS_SHOWN_MAX]]
            wrong.append(f"{pattern} in {kind}: {total} hits, the baseline has {allowed}")
            hint = f"Write instead: {instead.get(pattern, '')}. See all with --list {pattern}."
            wrong.append(f"  Hint: {hint}")
    if is_lower:
        wrong.append("prose has fewer hits than the baseline, in this or an earlier change")
        wrong.append("  Hint: Run `python scripts/prose.py --write` and commit the baseline.")
    return wrong


def changed_files(root: Path) -> set[str]:
    """Returns the files that differ from the last commit, and the new ones."""
    names: set[str] = set()
    for command in ("diff --name-only --relative -z HEAD", "ls-files -o --exclude-standard -z"):
        listed = subprocess.run(["git", *command.split()], cwd=root, capture_output=True, text=True)
        names |= set(listed.stdout.split("\0"))
    return names


def check_commits(root: Path, commits: str) -> list[str]:
    """Returns the faults of the subjects in a range of commits, without merges."""
    command = ["git", "log", "--no-merges", "--format=%h %s", commits, "--"]
    log = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if log.returncode:
        return [f'git cannot list the commits "{commits}": {log.stderr.strip()}']
    wrong = []
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        wrong += [f"{commit} {subject}\n  The subject {fault}." for fault in faults_of(subject)]
    return wrong


def table(totals: Totals, baseline: Totals) -> str:
    """Returns the totals as text, with the baseline in brackets where it differs."""
    names = [pattern.name for pattern in PATTERNS]
    rows = [["", *KINDS, "all"]]
    for name in [*names, "all"]:
        row = [name]
        for kind in [*KINDS, "all"]:
            cells = [
                (p, k) for p in names for k in KINDS if name in (p, "all") and kind in (k, "all")
            ]
            now = sum(totals.get(cell, 0) for cell in cells)
            before = sum(baseline.get(cell, 0) for cell in cells)
            row.append(str(now) if now == before else f"{now} ({before})")
        rows.append(row)
    lines = [f"{row[0]:<16}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows]
    return "\n".join(lines)


def chosen(hits: list[Hit], words: list[str]) -> list[Hit]:
    """Returns the hits of the named files or folders, and of the pattern if the first word is
    one.
    """
    pattern = words[0] if words and words[0] in {known.name for known in PATTERNS} else ""
    paths = tuple(path.removeprefix("./").rstrip("/") for path in words[bool(pattern) :])
    return [
        hit
        for hit in hits
        if (not pattern or hit.pattern == pattern)
        and (
            not paths or any(hit.path == path or hit.path.startswith(f"{path}/") for path in paths)
        )
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Finds odd English in texts and commit subjects.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--list",
        nargs="*",
        metavar="PATTERN|PATH",
        help="Print every hit, or a selection.",
    )
    what.add_argument("--check", action="store_true", help="Compare with the baseline.")
    what.add_argument("--write", action="store_true", help="Lower the baseline to the totals.")
    what.add_argument("--commits", metavar="RANGE", help="Check the subjects of some commits.")
    what.add_argument(
        "--subject",
        metavar="FILE",
        type=Path,
        help="Check a message.",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="With --write, raise the baseline too.",
    )
    options = parser.parse_args(arguments)
    if options.commits is not None:
        return _report(check_commits(root, options.commits))
    if options.subject is not None:
        subject = subject_of(options.subject.read_text())
        return _report([f"The subject {fault}." for fault in faults_of(subject)])
    if options.check:
        return _report(check(root))
    hits, _ = find_hits(root)
    totals = totals_of(hits)
    if options.list is not None:
        for hit in chosen(hits, options.list):
            print(hit)
    elif options.write and not write_baseline(root, totals, force=options.force):
        return _report(["some totals are higher than the baseline and stay; see them with --check"])
    elif not options.write:
        print(table(totals, read_baseline(root) or {}))
    return 0


def _report(wrong: list[str]) -> int:
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    gc.disable()  # Collecting the many nodes of parsed modules takes longer than all the rest.
    sys.exit(main())
