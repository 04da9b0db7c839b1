"""Writes the operators of docs/library*.md; a test fails while a page is out of date."""

from __future__ import annotations

from pathlib import Path

from rewindow.loading.library import EXAMPLES, catalogue

MARK = "<!-- written by scripts/library_page.py -->\n"
DOCS = Path(__file__).parent.parent / "docs"
JOINS = {"Deduplicate", "Enrich", "Join"}
EVENT_TIME = {"AggregateWindows", "FillGaps", "Heartbeat", "Merge", "Metronome", "SplitLate"}
OPERATORS = {
    "library.md": EXAMPLES.keys() - JOINS - EVENT_TIME,
    "library_joins.md": JOINS,
    "library_event_time.md": EVENT_TIME,
}
"""Names of the operators that a page describes."""


def written(name: str) -> str:
    """Returns a page with its introduction and the present catalogue."""
    introduction = (DOCS / name).read_text().partition(MARK)[0]
    return f"{introduction}{MARK}\n{catalogue(OPERATORS[name])}"


if __name__ == "__main__":
    for page in OPERATORS:
        (DOCS / page).write_text(written(page))
