"""Checks whether a table still matches its seals, by looking for commits of other programs and
files changed in place. Starts no JVM.

A commit belongs to Rewindow if it has the table's transaction, as those of attempts and
publications have, or is marked as leaving out damaged files. If any other commit changed data, the
seals of the windows in its files may be wrong. The same applies to a file that has changed since it
was written. The contents of files are not read for this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rewindow.errors import TableError
from rewindow.location import location
from rewindow.storage import Table, query
from rewindow.storage.damage import LEFT_OUT
from rewindow.storage.delta import DataFile, by_bounds
from rewindow.storage.files import file_checksum
from rewindow.windows import WindowRange

_TIME_SLACK_MS = 5000
Written = Mapping[str, str]
"""Path of a file within its table to the SHA-256 of its bytes when they were written."""


@dataclass(frozen=True)
class Doubt:
    """A reason why the seals of some windows may not match the table.

    Attributes:
        windows: the windows in doubt; None if they are unknown.
        why: the reason, a full sentence.
        version: the version of the table that raises it; None if files do.
    """

    windows: WindowRange | None
    why: str
    version: int | None = None


def doubts_of(
    table: Table,
    app_id: str,
    since: int,
    windows: WindowRange,
    written: Written,
) -> list[Doubt]:
    """Returns the reasons why the seals of a range may be wrong, from the table's log and from the
    current files.

    Args:
        table: pinned to the version that is compared.
        app_id: transaction id of Rewindow's commits to it.
        since: the version at which the oldest seal was made.
        windows: the requested range.
        written: checksums of files, if known.
    """
    doubts: list[Doubt] = []
    for version in range(since + 1, table.version + 1):
        doubts += _commit_doubts(table, version, app_id)
    for file in table.files(windows.first, windows.last):
        doubts += _file_doubts(table, file, written)
    return [doubt for doubt in doubts if doubt.windows is None or doubt.windows.overlap(windows)]


def count_doubts(table: Table, seals: Table, windows: WindowRange) -> list[Doubt]:
    """Returns a reason to distrust the seals of a range if the row count in the table's log differs
    from the count in the seals.

    A commit of another program may have the version number of a lost commit. Rows of a table with
    deletion vectors or column mapping are not counted.

    Args:
        table: a stream's tuples.
        seals: its seals.
        windows: the range; other windows in the same files are counted too.
    """
    counted = windows
    while True:
        files = table.files(counted.first, counted.last)
        known = by_bounds(files)
        if not table.is_plain() or len(known) < len(files):
            return []
        # The log counts the rows of whole files, so all windows of a file are included.
        wider = counted
        rows = 0
        for first, last, file in known:
            wider = WindowRange(min(first, wider.first), max(last, wider.last))
            rows += file.rows
        if wider == counted:
            break
        counted = wider
    sql = f"""select coalesce(sum(tuples), 0) as n from w
        where window_id between {counted.first} and {counted.last}"""
    sealed = query(sql, w=seals)["n"][0].as_py()
    if rows == sealed:
        return []
    name = table.path.name
    why = f'The log of table "{name}" has {rows:,} rows in windows {counted}, but its seals have'
    return [Doubt(counted, f"{why} {sealed:,}.")]


def _commit_doubts(table: Table, version: int, app_id: str) -> list[Doubt]:
    file = table.path / "_delta_log" / f"{version:020}.json"
    try:
        actions = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError):
        return [
            Doubt(
                None,
                f'The log of table "{table.path.name}" no longer contains the changes of version '
                f"{version}.",
                version,
            )
        ]
    info = _commit_info(actions)
    if _leaves_out(info):
        return []
    changed = []
    for action in actions:
        if action.get("txn", {}).get("appId") == app_id:
            return []
        for verb in ("add", "remove"):
            if action.get(verb, {}).get("dataChange"):
                changed.append(action[verb])
    if not changed:
        return []
    what = info.get("operation")
    why = (
        f'Version {version} of table "{table.path.name}" ({what or "unknown operation"}) was '
        "not made by Rewindow."
    )
    return [Doubt(_held(table, changed, version), why, version)]


def _held(table: Table, changed: Sequence[dict[str, Any]], version: int) -> WindowRange | None:
    """Returns the windows in the given files, from the statistics of the versions before and after
    a commit; None if unknown.
    """
    # A removed file is only in the version before, an added one only in the version after.
    held = {}
    try:
        for at in (version - 1, version):
            for file in Table.open(table.path, at).files():
                held[location(file.path).relative_to(table.path)] = file
    except TableError:
        return None
    windows: list[int] = []
    for action in changed:
        changed_file = held.get(unquote(action["path"]))
        if changed_file is None or changed_file.first is None or changed_file.last is None:
            return None
        windows += [changed_file.first, changed_file.last]
    return WindowRange(min(windows), max(windows))


def _commit_info(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for action in actions:
        if "commitInfo" in action:
            return dict(action["commitInfo"])
    return {}


def _leaves_out(info: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(info.get("userMetadata") or "{}").get("rewindow") == LEFT_OUT)
    except (ValueError, AttributeError):
        return False


def _file_doubts(table: Table, file: DataFile, written: Written) -> list[Doubt]:
    """Returns a description of what is wrong with a file.

    The file is missing, has another size or checksum, or was changed and has no known checksum.
    """
    path = location(file.path)
    name = location(file.path).name
    held = None if file.first is None or file.last is None else WindowRange(file.first, file.last)
    try:
        size = path.size()
        modified = path.modified()
    except FileNotFoundError:
        return [Doubt(held, f'File "{name}" of table "{table.path.name}" does not exist.')]
    if size != file.size:
        return [
            Doubt(
                held,
                f'File "{name}" of table "{table.path.name}" does not have the size with which it '
                "was written.",
            )
        ]
    if abs(modified * 1000 - file.changed_ms) <= _TIME_SLACK_MS:
        return []
    if written.get(path.relative_to(table.path)) == file_checksum(path):
        return []  # Only its time has changed, as in a copy of the folder.
    return [Doubt(held, f'File "{name}" of table "{table.path.name}" was changed in place.')]
