"""Whether a table still holds what its seals say: commits that are not ours, and files changed in
place. No JVM.

A commit is ours if it carries the table's transaction, as every attempt's and every publication's
does, or says that it leaves damaged files out. Any other one that changed data makes the seals of
the windows in question doubtful; so does a file that is not as it was written. Contents are not
read for this.
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
"""Path of a file within its table to the SHA-256 of the bytes that were written."""


@dataclass(frozen=True)
class Doubt:
    """Why the seals of some windows may not say what a table holds.

    Attributes:
        windows: those in question; None when nobody knows which.
        why: in words, a full sentence.
        version: the version of the table that raises it; None when its files do.
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
    """Returns what speaks against the seals of a range, by the table's log and by the files as they
    lie there.

    Args:
        table: pinned to the version that is compared.
        app_id: transaction id of our commits to it.
        since: the version at which the oldest seal was made.
        windows: the range that is asked about.
        written: what is known of the files' bytes.
    """
    doubts: list[Doubt] = []
    for version in range(since + 1, table.version + 1):
        doubts += _commit_doubts(table, version, app_id)
    for file in table.files(windows.first, windows.last):
        doubts += _file_doubts(table, file, written)
    return [doubt for doubt in doubts if doubt.windows is None or doubt.windows.overlap(windows)]


def count_doubts(table: Table, seals: Table, windows: WindowRange) -> list[Doubt]:
    """Returns a doubt about a range if a table's log counts other rows in its files than its seals.

    A foreign commit may have the version number of one that was lost. A table with deletion vectors
    or column mapping is not counted.

    Args:
        table: a stream's tuples.
        seals: its seals.
        windows: the range; with it the other windows of its files are counted.
    """
    counted = windows
    while True:
        files = table.files(counted.first, counted.last)
        known = by_bounds(files)
        if not table.is_plain() or len(known) < len(files):
            return []
        # The log counts the rows of a file, so all windows of a file are counted with it.
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
    why = f'The log of table "{name}" counts {rows:,} rows in windows {counted}, its seals'
    return [Doubt(counted, f"{why} {sealed:,}.")]


def _commit_doubts(table: Table, version: int, app_id: str) -> list[Doubt]:
    file = table.path / "_delta_log" / f"{version:020}.json"
    try:
        actions = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError):
        return [
            Doubt(
                None,
                f'The log of table "{table.path.name}" no longer tells what its version {version} '
                "changed.",
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
    """Returns the windows that some files hold, by the statistics of the versions before and after;
    None: not known.
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
    """Returns what speaks against a file: another size, bytes whose checksum is another one, or
    nobody knows whose.
    """
    path = location(file.path)
    name = location(file.path).name
    held = None if file.first is None or file.last is None else WindowRange(file.first, file.last)
    try:
        size = path.size()
        modified = path.modified()
    except FileNotFoundError:
        return [Doubt(held, f'File "{name}" of table "{table.path.name}" is not there.')]
    if size != file.size:
        return [
            Doubt(
                held,
                f'File "{name}" of table "{table.path.name}" has another size than when it was '
                "written.",
            )
        ]
    if abs(modified * 1000 - file.changed_ms) <= _TIME_SLACK_MS:
        return []
    if written.get(path.relative_to(table.path)) == file_checksum(path):
        return []  # Its time alone has changed, as in a copy of the folder.
    return [Doubt(held, f'File "{name}" of table "{table.path.name}" was changed in place.')]
