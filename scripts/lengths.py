"""Prints every function of more than 70 lines and every module of more than 400; fails when there is one."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
ROOMS = ("rewindow", "jobs", "dags", "plugins", "bench", "tests", "scripts")


def too_long(path: Path) -> Iterator[str]:
    """Yields a line for the module and for each of its functions that is beyond its limit."""
    text = path.read_text()
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{path}:1: module has {lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: function {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    found = [line for room in ROOMS for path in sorted((root / room).rglob("*.py")) for line in too_long(path)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
