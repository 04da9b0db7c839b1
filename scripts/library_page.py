"""Writes the part of docs/library.md about each operator; a test fails while it is out of date."""

from __future__ import annotations

from pathlib import Path

from rewindow.loading.library import catalogue

MARK = "<!-- written by scripts/library_page.py -->\n"


def written(page: str) -> str:
    """Returns the page with its introduction and the present catalogue."""
    return f"{page.partition(MARK)[0]}{MARK}\n{catalogue()}"


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "docs" / "library.md"
    path.write_text(written(path.read_text()))
