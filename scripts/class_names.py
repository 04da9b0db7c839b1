"""Prints every class name that means two things in the house; fails when there is one.

A reader who searches for a name, or reads it in an error, must not have to ask which one. Names
that begin with an underscore are a module's own.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOMS = ("rewindow", "plugins")


def public_classes(path: Path) -> list[tuple[str, int]]:
    """Returns name and line of each public class of a module."""
    body = ast.parse(path.read_text()).body
    return [
        (node.name, node.lineno)
        for node in body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    ]


def doubled(root: Path) -> list[str]:
    """Returns a line for each name that several modules give to a public class."""
    places = defaultdict(list)
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            for name, line in public_classes(path):
                places[name].append(f"{path.relative_to(root)}:{line}")
    return [
        f"class {name} is {' and '.join(found)}"
        for name, found in sorted(places.items())
        if len(found) > 1
    ]


if __name__ == "__main__":
    found = doubled(Path(__file__).parent.parent)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
