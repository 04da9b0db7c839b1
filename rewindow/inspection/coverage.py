"""The state of the windows of all streams and published outputs, as ranges of windows.

Pages ask for it often, so what was read of a table is cached until the table changes. A stream has
few ranges even with a million windows, because most windows are in the state of the window before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import MissingTableError, RewindowError
from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import StandingRange
from rewindow.ledger.replays import ReplayState
from rewindow.location import Location
from rewindow.names import stream_of, windows_name
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.queries import read_rows
from rewindow.storage.streams import LATE, stored_grid
from rewindow.windows import Grid, WindowRange, format_time

Ranges: TypeAlias = npt.NDArray[np.int64]
"""Ascending, disjoint ranges of windows: a row for each, with its first and its last window."""
_UNFINISHED = (
    ReplayState.PLANNED,
    ReplayState.RUNNING,
    ReplayState.ENDED,
    ReplayState.CHECKED,
)
_UNFINISHED_MAX = 200
_COLUMNS = ("window_id", "tuples", "end_window")


class WindowState(StrEnum):
    """The states of windows, from the one that needs attention most."""

    LOST = "lost"
    MISSING = "missing"
    STALE = "stale"
    LATE = "late"
    IN_PROGRESS = "in progress"
    PUBLISHED = "published"
    SEALED = "sealed"
    EMPTY = "empty"


@dataclass(frozen=True)
class StreamCoverage:
    """The state of the windows of a stream or a published output.

    Attributes:
        grid: None if its tables cannot be read.
        problem: the reason why they cannot be read.
        windows: the windows in each state. A window can be in several: all windows that are sealed
            are `published` for an output and `sealed` for a recorded stream, also empty ones.
        tuples: number of tuples in sealed windows.
        end: last window of a stream that has ended.
        published: the visible publication of each window, ascending and disjoint.
        in_progress: the newest replay that may still publish a window, ascending and disjoint.
    """

    name: str
    grid: Grid | None = None
    problem: RewindowError | None = None
    windows: Mapping[WindowState, Ranges] = field(default_factory=dict)
    tuples: int = 0
    end: int | None = None
    published: Sequence[StandingRange] = ()
    in_progress: Sequence[StandingRange] = ()

    @property
    def is_output(self) -> bool:
        """Whether it is an application's output; otherwise it was recorded."""
        return "." in self.name

    @property
    def parts(self) -> list[StandingRange]:
        """The ranges of all replays that have published its windows, or may publish some."""
        return [*self.published, *self.in_progress]

    @property
    def full(self) -> WindowState:
        """The state of its sealed windows."""
        return WindowState.PUBLISHED if self.is_output else WindowState.SEALED

    @property
    def sealed_to(self) -> str:
        """The end of its last sealed window as a time; empty if none is sealed."""
        sealed = self.windows[self.full]
        if self.grid is None or not len(sealed):
            return ""
        return format_time(self.grid.end_us(int(sealed[-1, 1])))


def read_coverage(config: Config, ledger: Ledger | None) -> list[StreamCoverage]:
    """Returns the state of the windows of all recorded streams, then of all published outputs, by
    name.

    A table that cannot be read becomes an entry with a `problem`, and does not hide the others.
    """
    found = []
    late: dict[str, Ranges] = {}
    quarantine = config.quarantine_table
    if quarantine.exists():
        try:
            late = _read_late(quarantine, _changed_at(quarantine))
        except RewindowError as error:
            found.append(StreamCoverage(quarantine.name, problem=error))
    folders = (config.state / "streams").entries(windows_name("*"))
    for name in map(stream_of, names_of(folders)):
        path = config.windows_table(name)
        try:
            coverage = _read_seals(path, _changed_at(path))
        except MissingTableError:
            continue
        except RewindowError as error:
            found.append(StreamCoverage(name, problem=error))
            continue
        its_late = late.get(name, _ranges([]))
        windows = {**coverage.windows, WindowState.LATE: its_late}
        found.append(replace(coverage, windows=windows))
    if ledger is not None:
        found = _with_publications(ledger, found)
    return sorted(found, key=lambda coverage: (coverage.is_output, coverage.name))


def visible_parts(standing: Sequence[StandingRange]) -> list[StandingRange]:
    """Returns the windows of each publication that no later one covers, ascending and disjoint.

    Args:
        standing: publications, oldest first.
    """
    bounds = _ranges_of(standing) + np.array([0, 1])
    borders = np.unique(bounds)
    owner = np.full(len(borders), -1)
    places = np.searchsorted(borders, bounds).tolist()
    for index, (begin, end) in enumerate(places):
        owner[begin:end] = index
    parts = []
    changes = np.flatnonzero(np.diff(owner, prepend=-1))
    for begin, end in pairwise(changes.tolist()):
        index = int(owner[begin])
        if index >= 0:
            first = int(borders[begin])
            last = int(borders[end]) - 1
            part = replace(standing[index], range=WindowRange(first, last))
            parts.append(part)
    return parts


def _with_publications(
    ledger: Ledger,
    coverages: Sequence[StreamCoverage],
) -> list[StreamCoverage]:
    """Adds what the ledger records about outputs."""
    standing = ledger.publications.standing(names_of(coverages))
    replays = set()
    for acts in standing.values():
        replays.update({act.replay_id for act in acts})
    lost = ledger.counts.lost_ranges(list(replays))
    unfinished: dict[str, list[StandingRange]] = {}
    newest = ledger.replays.newest(
        state=_UNFINISHED,
        limit=_UNFINISHED_MAX,
        without_samples=True,
    )
    for number, row in enumerate(reversed(newest)):
        if not row.plan.get("candidate"):
            its = unfinished.setdefault(row.application, [])
            its.append(StandingRange(number, row.replay_id, row.range))
    stale: dict[str, list[WindowRange]] = {}
    for marked in ledger.stale.ranges():
        windows = WindowRange(marked.first, marked.last)
        its_stale = stale.setdefault(marked.table_name, [])
        its_stale.append(windows)
    found = []
    for coverage in coverages:
        application, _, output = coverage.name.rpartition(".")
        published = visible_parts(standing.get(coverage.name, []))
        in_progress = visible_parts(unfinished.get(application, []))
        lost_parts = []
        for act in published:
            by_output = lost.get(act.replay_id, {})
            for windows in sorted(by_output.get(output, ())):
                if shown := windows.overlap(act.range):
                    lost_parts.append(shown)
        windows_by_state = {
            **coverage.windows,
            WindowState.LOST: _ranges(lost_parts),
            WindowState.STALE: _ranges(stale.get(coverage.name, [])),
            WindowState.IN_PROGRESS: _ranges_of(in_progress),
        }
        entry = replace(
            coverage,
            windows=windows_by_state,
            published=published,
            in_progress=in_progress,
        )
        found.append(entry)
    return found


def _changed_at(path: Location) -> float:
    """Returns when a commit was last added to the log of a table; 0 without a log."""
    log = path / "_delta_log"
    return log.modified() if log.is_dir() else 0


_LAST_READS: dict[Location, tuple[frozenset[str], StreamCoverage]] = {}
"""The files of each stream's seals that were read last, and the result."""


@lru_cache(maxsize=100)
def _read_seals(path: Location, changed_at: float) -> StreamCoverage:
    """Returns the seals of a stream. `changed_at` is only a part of the cache's key.

    A commit usually adds files, and then only these are read.
    """
    table = Table.open(path)
    files = {file.path: file for file in table.files()}
    read, coverage = _LAST_READS.get(path, (frozenset(), None))
    if coverage and read <= files.keys() and table.is_plain():
        new = [file for file in files.values() if file.path not in read]
        with table.reading(*new):
            rows = read_rows(new, table.schema, _COLUMNS)
    else:
        coverage = StreamCoverage(stream_of(path.name), stored_grid(table))
        rows = query(f"select {', '.join(_COLUMNS)} from w", w=table)
    full = coverage.full
    is_empty = pc.equal(rows["tuples"], 0)
    windows = {
        full: _joined(rows["window_id"], coverage.windows.get(full)),
        WindowState.EMPTY: _joined(
            rows.filter(is_empty)["window_id"],
            coverage.windows.get(WindowState.EMPTY),
        ),
    }
    after_ranges = windows[full][:-1, 1] + 1
    before_ranges = windows[full][1:, 0] - 1
    windows[WindowState.MISSING] = np.column_stack([after_ranges, before_ranges])
    end = pc.max(rows["end_window"]).as_py()
    coverage = replace(
        coverage,
        windows=windows,
        tuples=coverage.tuples + (pc.sum(rows["tuples"]).as_py() or 0),
        end=coverage.end if end is None else end,
    )
    _LAST_READS[path] = (frozenset(files), coverage)
    return coverage


@lru_cache(maxsize=4)
def _read_late(path: Location, changed_at: float) -> dict[str, Ranges]:
    """Returns the windows with late tuples by stream."""
    sql = f"select source, window_id from q where reason = '{LATE}' and window_id is not null"
    rows = query(sql, q=path)
    found = {}
    for source in pc.unique(rows["source"]).to_pylist():
        is_its = pc.equal(rows["source"], source)
        its = rows.filter(is_its)
        found[source] = _joined(its["window_id"])
    return found


def _joined(windows: pa.ChunkedArray, known: Ranges | None = None) -> Ranges:
    """Returns window ids in any order, together with known ranges, as ranges."""
    # Sorting takes a tenth of the time of np.unique. An id may occur several times.
    ids = np.sort(windows.drop_null().to_numpy())
    ranges = np.column_stack([ids, ids])
    if known is not None:
        ranges = np.concatenate([known, ranges])
        ranges = ranges[np.argsort(ranges[:, 0])]
    if not len(ranges):
        return _ranges([])
    breaks = np.flatnonzero(ranges[1:, 0] > ranges[:-1, 1] + 1)
    firsts = ranges[np.append(-1, breaks) + 1, 0]
    lasts = ranges[np.append(breaks, -1), 1]
    return np.column_stack([firsts, lasts])


def _ranges(windows: Sequence[WindowRange]) -> Ranges:
    """Returns ascending, disjoint ranges as an array."""
    bounds = [(part.first, part.last) for part in windows]
    ranges = np.array(bounds, dtype=np.int64)
    return ranges.reshape(-1, 2)


def _ranges_of(parts: Sequence[StandingRange]) -> Ranges:
    return _ranges([part.range for part in parts])
