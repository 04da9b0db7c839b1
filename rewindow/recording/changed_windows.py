"""Finds the windows of a Delta table that may have changed between two versions, from its log.

A commit can only change windows within the bounds of the files that it added or removed. Files that
OPTIMIZE rewrote do not count, because the same rows are in other files.

Rules: X57
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from rewindow.errors import TableError
from rewindow.location import location
from rewindow.storage import Table
from rewindow.storage.in_place import CUT_US, SourceColumns, arrival_bounds, physical_name
from rewindow.windows import WindowRange

Bounds = tuple[int, int]
"""First and last window of a file."""
_RANGES_MAX = 100


def changed_windows(
    source: Table,
    since: int,
    columns: SourceColumns,
) -> list[WindowRange] | None:
    """Returns ranges that contain all windows that may have changed after a version, in ascending
    order.

    Returns None if they are unknown, because a commit is gone from the log or a file has no
    statistics.

    Args:
        source: the table at its newest version.
        since: the version before the changes.
        columns: the arrival column and the window grid.
    """
    try:
        before = Table.open(source.path, since)
    except TableError:
        return None
    known = _bounds_of(before, columns) | _bounds_of(source, columns)
    column = physical_name(source.delta, columns.arrived_at)
    found: list[Bounds] = []
    for version in range(since + 1, source.version + 1):
        actions = _data_changes(source, version)
        if actions is None:
            return None
        for path, action in actions:
            bounds = known.get(path) or _bounds_in(action, column, columns)
            if bounds is None:
                return None
            known[path] = bounds
            found.append(bounds)
    return _joined(found)


def _joined(found: list[Bounds]) -> list[WindowRange]:
    """Returns the union of bounds as ranges, at most `_RANGES_MAX`, because each is a condition in
    a query.
    """
    ranges: list[WindowRange] = []
    for first, last in sorted(found):
        if ranges and first <= ranges[-1].last + 1:
            ranges[-1] = WindowRange(ranges[-1].first, max(last, ranges[-1].last))
        else:
            ranges.append(WindowRange(first, last))
    if len(ranges) > _RANGES_MAX:
        return [WindowRange(ranges[0].first, ranges[-1].last)]
    return ranges


def _bounds_of(table: Table, columns: SourceColumns) -> dict[str, Bounds]:
    """Returns the bounds of each file of a table by its path in the log."""
    found = {}
    for path, first, last in arrival_bounds(table.delta, columns):
        if first is not None and last is not None:
            found[path] = (first, last)
    return found


def _data_changes(source: Table, version: int) -> Iterator[tuple[str, dict[str, Any]]] | None:
    """Returns path and content of the actions of a commit that changed rows; None if the commit is
    gone.
    """
    commit = location(source.path.uri) / "_delta_log" / f"{version:020}.json"
    try:
        lines = commit.read_text().splitlines()
    except OSError:
        return None
    actions = []
    for line in filter(str.strip, lines):
        entry = json.loads(line)
        action = entry.get("add") or entry.get("remove")
        if action and action.get("dataChange", True):
            actions.append((unquote(action["path"]), action))
    return iter(actions)


def _bounds_in(action: dict[str, Any], column: str, columns: SourceColumns) -> Bounds | None:
    """Returns the bounds in an action's own statistics; None if it has none."""
    grid = columns.grid
    try:
        statistics = json.loads(action["stats"])
        low, high = (
            datetime.fromisoformat(statistics[key][column]) for key in ("minValues", "maxValues")
        )
    except (KeyError, TypeError, ValueError):
        return None
    first, last = (
        (round(time.timestamp() * 1_000_000) + more - grid.origin_us) // grid.width_us
        for time, more in ((low, 0), (high, CUT_US))
    )
    return first, last
