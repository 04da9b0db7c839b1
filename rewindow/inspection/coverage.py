"""The state of the windows of all streams and published outputs, as ranges of windows.

Pages ask for it often, so the seals of a stream are cached until its table changes, and then only
the new files are read. A stream has few ranges even with a million windows, because most windows
are in the same state as the window before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import MissingTableError, RewindowError
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.publication_rows import StandingRange
from rewindow.ledger.replays import ReplayState
from rewindow.location import Location
from rewindow.names import stream_of, windows_name
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.queries import read_rows
from rewindow.storage.streams import LATE, stored_grid
from rewindow.windows import Grid, WindowRange, format_time

Ranges: TypeAlias = npt.NDArray[np.int64]
"""Ascending, disjoint ranges of windows: a row for each, with its first and its last window."""
NO_RANGES: Ranges = np.zeros((0, 2), dtype=np.int64)
IN_PROGRESS = (
    ReplayState.PLANNED,
    ReplayState.RUNNING,
    ReplayState.ENDED,
    ReplayState.CHECKED,
)
"""States of replays whose windows may still be published."""
_IN_PROGRESS_MAX = 200
_TABLES_MAX = 500
_COLUMNS = ("window_id", "tuples", "end_window")


@dataclass(frozen=True)
class SealedWindows:
    """The seals of a stream.

    Attributes:
        sealed, empty: its sealed windows, and those of them without a tuple.
        end: last window of a stream that has ended.
        files: paths of the files that were read.
    """

    grid: Grid
    sealed: Ranges
    empty: Ranges
    tuples: int
    end: int | None
    files: frozenset[str]

    @property
    def span(self) -> WindowRange | None:
        """The range from the first sealed window to the last one; None if none is sealed."""
        if not len(self.sealed):
            return None
        return WindowRange(int(self.sealed[0, 0]), int(self.sealed[-1, 1]))

    @property
    def missing(self) -> int:
        """The number of windows inside the span that are not sealed."""
        return len(self.span or ()) - count_windows(self.sealed)


@dataclass(frozen=True)
class StreamCoverage:
    """The state of the windows of a stream or a published output.

    Attributes:
        seals: None if its tables cannot be read.
        problem: the reason why they cannot be read.
        late: windows with tuples in quarantine that arrived after the windows were sealed.
        late_tuples: number of these tuples.
        stale, lost: published windows that are stale, or that a replay in at most once has lost.
        published: the visible publication of each window, ascending and disjoint.
        in_progress: unfinished replays that would publish windows, newest first.
    """

    name: str
    seals: SealedWindows | None = None
    problem: RewindowError | None = None
    late: Ranges = field(default_factory=NO_RANGES.copy)
    late_tuples: int = 0
    stale: Ranges = field(default_factory=NO_RANGES.copy)
    lost: Ranges = field(default_factory=NO_RANGES.copy)
    published: Sequence[StandingRange] = ()
    in_progress: Sequence[Replay] = ()

    @property
    def is_output(self) -> bool:
        """Whether it is an application's output; otherwise it was recorded."""
        return "." in self.name

    @property
    def sealed_to(self) -> str:
        """The end of the last sealed window as a time; empty if none is sealed."""
        if self.seals is None or self.seals.span is None:
            return ""
        return format_time(self.seals.grid.end_us(self.seals.span.last))

    def replays(self) -> set[str]:
        """Returns the replays that have published its windows or may publish some."""
        found = {act.replay_id for act in self.published}
        return found | {row.replay_id for row in self.in_progress}


def read_coverage(config: Config, ledger: Ledger | None) -> list[StreamCoverage]:
    """Returns the state of the windows of all recorded streams, then of all published outputs, by
    name.

    A stream whose tables cannot be read has a `problem`, and does not hide the others.
    """
    folders = (config.state / "streams").entries(windows_name("*"))
    names = [stream_of(folder.name) for folder in folders]
    outputs = [name for name in names if "." in name]
    standing = ledger.publications.standing(outputs) if ledger else {}
    late = _late(config)
    unfinished: list[Replay] = []
    stale: dict[str, list[WindowRange]] = {}
    if ledger and outputs:
        rows = ledger.replays.newest(
            state=IN_PROGRESS, limit=_IN_PROGRESS_MAX, without_samples=True
        )
        unfinished = [row for row in rows if not row.plan.get("candidate")]
        for marked in ledger.stale.ranges():
            windows = WindowRange(marked.first, marked.last)
            stale.setdefault(marked.table_name, []).append(windows)
    found = []
    for name in sorted(names, key=lambda name: ("." in name, name)):
        published = visible_parts(standing.get(name, []))
        try:
            seals = _seals(config.windows_table(name))
        except MissingTableError:
            continue
        except RewindowError as error:
            found.append(StreamCoverage(name, problem=error))
            continue
        application = name.rpartition(".")[0]
        late_windows, late_tuples = late.get(name, (NO_RANGES, 0))
        coverage = StreamCoverage(
            name,
            seals,
            late=late_windows,
            late_tuples=late_tuples,
            stale=as_ranges(stale.get(name, [])),
            lost=_lost(ledger, published, name) if ledger else NO_RANGES,
            published=published,
            in_progress=[row for row in unfinished if row.application == application],
        )
        found.append(coverage)
    return found


def visible_parts(standing: Sequence[StandingRange]) -> list[StandingRange]:
    """Returns the part of each publication that no later one covers, ascending and disjoint.

    Args:
        standing: effective publications, oldest first.
    """
    borders = np.unique([(act.range.first, act.range.last + 1) for act in standing])
    owner = np.full(max(len(borders) - 1, 0), -1)
    for index, act in enumerate(standing):
        begin, end = np.searchsorted(borders, (act.range.first, act.range.last + 1)).tolist()
        owner[begin:end] = index
    changes = np.flatnonzero(np.diff(owner, prepend=-2))
    ends = np.append(changes[1:], len(owner))
    parts = []
    for begin, end in zip(changes.tolist(), ends.tolist(), strict=False):
        if owner[begin] >= 0:
            act = standing[owner[begin]]
            windows = WindowRange(int(borders[begin]), int(borders[end]) - 1)
            parts.append(StandingRange(act.number, act.replay_id, windows))
    return parts


def as_ranges(windows: Iterable[WindowRange]) -> Ranges:
    """Returns window ranges in any order as ascending, disjoint ones."""
    bounds = [(part.first, part.last) for part in windows]
    return _joined(np.array(bounds, dtype=np.int64).reshape(-1, 2))


def count_windows(ranges: Ranges) -> int:
    """Returns the number of windows in disjoint ranges."""
    return int((ranges[:, 1] - ranges[:, 0] + 1).sum())


def _joined(ranges: Ranges) -> Ranges:
    """Sorts ranges and joins those that overlap or are adjacent."""
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    lasts = np.maximum.accumulate(ordered[:, 1])
    starts = np.flatnonzero(np.append(True, ordered[1:, 0] > lasts[:-1] + 1)[: len(ordered)])
    ends = np.append(starts[1:], len(ordered))[: len(starts)] - 1
    return np.column_stack([ordered[starts, 0], lasts[ends]])


def _runs(ids: npt.NDArray[np.int64]) -> Ranges:
    """Returns ascending ids as ranges."""
    breaks = np.flatnonzero(np.diff(ids) != 1)
    if not len(ids):
        return NO_RANGES
    firsts = np.concatenate([ids[:1], ids[breaks + 1]])
    return np.column_stack([firsts, np.append(ids[breaks], ids[-1])])


def _lost(ledger: Ledger, published: Sequence[StandingRange], name: str) -> Ranges:
    """Returns the visible windows of an output that their replay has lost."""
    output = name.rpartition(".")[2]
    lost = ledger.counts.lost_ranges(list({act.replay_id for act in published}))
    found = []
    for act in published:
        for windows in lost.get(act.replay_id, {}).get(output, ()):
            if part := windows.overlap(act.range):
                found.append(part)
    return as_ranges(found)


class _Cache:
    """The contents of tables as they were read before, for threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seals: dict[str, tuple[float, SealedWindows]] = {}
        self._late: dict[str, tuple[float, dict[str, tuple[Ranges, int]]]] = {}

    def seals(self, path: Location) -> SealedWindows:
        """Returns the seals of a stream. Only files that the last call has not read are read."""
        with self._lock:
            changed_at = _changed_at(path)
            known = self._seals.pop(str(path), None)
            if known is None or known[0] != changed_at:
                known = (changed_at, _read_seals(path, known[1] if known else None))
            self._seals[str(path)] = known
            while len(self._seals) > _TABLES_MAX:
                del self._seals[next(iter(self._seals))]
            return known[1]

    def late(self, path: Location) -> dict[str, tuple[Ranges, int]]:
        """Returns the windows with late tuples, and their number, by stream."""
        with self._lock:
            changed_at = _changed_at(path)
            known = self._late.get(str(path))
            if known is None or known[0] != changed_at:
                known = (changed_at, _read_late(path))
                self._late = {str(path): known}
            return known[1]


_CACHE = _Cache()


def _seals(path: Location) -> SealedWindows:
    return _CACHE.seals(path)


def _late(config: Config) -> dict[str, tuple[Ranges, int]]:
    """Returns the windows with late tuples, and their number, by stream; none if the quarantine
    cannot be read.
    """
    if not Table.exists(config.quarantine_table):
        return {}
    return _CACHE.late(config.quarantine_table)


def _changed_at(path: Location) -> float:
    """Returns when a commit was last added to the log of a table; 0 without a log."""
    log = path / "_delta_log"
    return log.modified() if log.is_dir() else 0


def _read_seals(path: Location, known: SealedWindows | None) -> SealedWindows:
    table = Table.open(path)
    files = {file.path: file for file in table.files()}
    # If seals were replaced, the cached windows are outdated.
    if known is not None and known.files <= files.keys() and table.is_plain():
        new = [file for path, file in files.items() if path not in known.files]
        with table.reading(*new):
            rows = read_rows(new, table.schema, _COLUMNS)
    else:
        known = None
        rows = query(f"select {', '.join(_COLUMNS)} from w", w=table)
    ids = rows["window_id"].drop_null().to_numpy()
    without_tuples = rows.filter(pc.equal(rows["tuples"], 0))["window_id"].drop_null().to_numpy()
    sealed, empty = _runs(np.sort(ids)), _runs(np.sort(without_tuples))
    tuples = pc.sum(rows["tuples"]).as_py() or 0
    end = pc.max(rows["end_window"]).as_py()
    if known is not None:
        sealed = _joined(np.concatenate([known.sealed, sealed]))
        empty = _joined(np.concatenate([known.empty, empty]))
        tuples += known.tuples
        end = known.end if end is None else end
    return SealedWindows(stored_grid(table), sealed, empty, tuples, end, frozenset(files))


def _read_late(path: Location) -> dict[str, tuple[Ranges, int]]:
    sql = f"""select source, window_id, count(*) as n from q
              where reason = '{LATE}' and window_id is not null
                  group by source, window_id order by source, window_id"""
    rows: pa.Table = query(sql, q=path)
    found = {}
    for source in pc.unique(rows["source"]).to_pylist():
        its = rows.filter(pc.equal(rows["source"], source))
        found[source] = (_runs(its["window_id"].to_numpy()), pc.sum(its["n"]).as_py())
    return found
