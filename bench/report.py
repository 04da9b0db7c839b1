"""Writes docs/benchmarks.md: each measurement, the figure to compare with, and the verdict."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

APART = "## Measured separately"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Row:
    """One line of the page: figures in words, and whether the aim is reached (None: there is no
    aim).
    """

    what: str
    measured: str
    beside: str
    aim: str
    reached: bool | None

    @property
    def verdict(self) -> str:
        """The last cell."""
        return {True: "reached", False: "**not reached**", None: ""}[self.reached]


def write_report(rows: list[Row], millions: int) -> Path:
    """Writes the page and returns its path."""
    memory_gib = psutil.virtual_memory().total / 2**30
    machine = (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}"
    )
    lines = [
        "# Benchmarks",
        "",
        f"Measured on {machine}, Python {platform.python_version()}, Spark `local[2]`, by `make "
        "bench`",
        f"({millions} M tuples). Ratios are of one run, in one process where possible; "
        "single times on a",
        "shared machine vary by a third. The alternatives were measured in the same session, after "
        "a warm-up.",
        "",
        "| what | measured | compared with | aim | |",
        "|---|---|---|---|---|",
        *(
            f"| {row.what} | {row.measured} | {row.beside} | {row.aim} | {row.verdict} |"
            for row in rows
        ),
        "",
    ]
    PAGE.write_text("\n".join(lines) + _apart())
    return PAGE


def _apart() -> str:
    """Returns the page's part that is written by hand; it stays."""
    text = PAGE.read_text() if PAGE.is_file() else ""
    return "\n" + (text[text.find(APART) :] if APART in text else f"{APART}\n")
