"""Commits that are missing in the middle of a table's log; its last ones cannot be told from
commits never made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewindow.errors import TableError
from rewindow.location import Location
from rewindow.sequences import names_of

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


def missing_commits(table: Location) -> list[int]:
    """Returns the versions that a log lacks between its newest Delta checkpoint and its newest
    commit.

    Older ones are not needed: the Delta checkpoint says what they brought.
    """
    names = names_of((table / "_delta_log").entries())
    commits = _versions(_COMMIT, names)
    checkpoints = _versions(_CHECKPOINT, names)
    first = max(checkpoints, default=-1) + 1
    return sorted(set(range(first, max(commits, default=first - 1))) - commits)


def _versions(pattern: re.Pattern[str], names: Iterable[str]) -> set[int]:
    """Returns the version in each name that has a form."""
    return {int(match[1]) for match in map(pattern.fullmatch, names) if match}


def check_log(table: Location, without_copy: str = "") -> None:
    """Refuses a table whose log has a gap: nobody can know what it holds.

    Args:
        without_copy: what to do when there is no copy of the log.

    Raises:
        TableError: names the files that are missing.
    """
    missing = missing_commits(table)
    if not missing:
        return
    files = ", ".join(f"{version:020}.json" for version in missing[:3]) + (
        " ..." if len(missing) > 3 else ""
    )
    raise TableError(
        f'log of table "{table.name}" lacks version {missing[0]}, though later ones are there',
        detail=f"Missing in {table / '_delta_log'}: {files}. Nothing was changed.",
        hint=f"Put it back from a copy.{without_copy and f' Without one: {without_copy}'}",
    )
