"""Finds commits that are missing in the middle of a table's log. Missing commits at its end cannot
be detected from the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewindow.errors import TableError
from rewindow.location import Location
from rewindow.names import files_name, stream_of, whole_replay
from rewindow.sequences import names_of

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


def missing_commits(table: Location) -> list[int]:
    """Returns the missing versions between a log's newest Delta checkpoint and its newest commit.

    Older versions are not needed, because the Delta checkpoint contains their effects.
    """
    names = names_of((table / "_delta_log").entries())
    commits = _versions(_COMMIT, names)
    checkpoints = _versions(_CHECKPOINT, names)
    first = max(checkpoints, default=-1) + 1
    return sorted(set(range(first, max(commits, default=first - 1))) - commits)


def _versions(pattern: re.Pattern[str], names: Iterable[str]) -> set[int]:
    """Returns the version numbers of the names that match a pattern."""
    return {int(match[1]) for match in map(pattern.fullmatch, names) if match}


def check_log(table: Location) -> None:
    """Checks that a table's log has no gap. With a gap, the contents of the table are unknown.

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
        f'log of table "{table.name}" lacks version {missing[0]}, but has later ones',
        detail=f"Missing in {table / '_delta_log'}: {files}. Nothing was changed.",
        hint=restore_hint(table),
    )


def restore_hint(table: Location) -> str:
    """Returns a hint for errors about a damaged or lost file of a table or of its log."""
    hint = "Restore it from a backup."
    replay = table.parent
    if replay.parent.name == "replays":
        return (
            f"{hint} Without a backup: abandon the replay (rewindow abandon "
            f"{whole_replay(replay.name)}) and plan its range again."
        )
    if replay.name != "streams":
        return hint
    stream = stream_of(table.name)
    if table.name == files_name(stream):
        return (
            f"{hint} Without a backup: move the folder {table} away, and compute the checksums "
            "again: "
            f"rewindow streams upgrade {stream}"
        )
    return (
        f'{hint} Without a backup: move all tables of stream "{stream}" away, and record or '
        "publish it again."
    )
