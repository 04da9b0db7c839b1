"""Seals the windows of a Delta table where it is, without copying its tuples and without a JVM.

DataFusion reads the rows, and numpy computes the same digests as Spark. A later run reads only the
windows that may have changed. A window whose digest has changed gets a seal of the next generation.
The seals and the version of the source at which they are valid are one commit, so that after every
crash each sealed window has exactly the tuples that its seal counts.

Rules: W40, X21, X57
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from rewindow.crash import crash_point
from rewindow.errors import InputError, TableError
from rewindow.facts.arrow_digests import arrow_digests, merged_digests
from rewindow.facts.seals import columns_text, read_seals, seal_rows, sealed_range, stream_end
from rewindow.facts.window_facts import DIGESTS_SCHEMA, unequal
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import mark_end, mark_stale
from rewindow.location import location
from rewindow.names import did_you_mean
from rewindow.progress.listener import Listener, Silent
from rewindow.recording import inventory, malformed, sealing
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.arrival_gaps import find_gap
from rewindow.recording.changed_windows import changed_windows
from rewindow.recording.progress import RecordingProgress
from rewindow.recording.result import RecordResult
from rewindow.recording.seal_range import RecordingCounts, SealRange
from rewindow.recording.stream import StreamTables, recording_lock, settings_to_store
from rewindow.recording.tuples import check_event_columns
from rewindow.sequences import quantity
from rewindow.settings.config import Config, StreamConfig
from rewindow.spark.digests import empty_digests
from rewindow.spark.frames import spark_schema
from rewindow.storage import Table, quoted
from rewindow.storage.delta import total_size
from rewindow.storage.failures import plain_text
from rewindow.storage.files import open_files
from rewindow.storage.formats import TableKind, check_format
from rewindow.storage.in_place import (
    SourceColumns,
    event_columns_of,
    has_statistics,
    position_id,
    read_note,
)
from rewindow.storage.queries import query_in_parts
from rewindow.storage.stream_settings import changed_source, check_fixed_settings
from rewindow.storage.streams import create_seal_tables, stored_settings, stream_properties
from rewindow.windows import WindowRange, to_ranges

_PART_ROWS = 1_000_000
_THREADS = 2
_MERGED_ROWS = 2_000_000
_COLUMN = re.compile(r"\w+|`[^`]+`")
_COPY = "Set copy = true in the section of the stream: its tuples are then copied."


def record_in_place(
    config: Config,
    name: str,
    *,
    sealed_to: str | None = None,
    end: bool = False,
    start_over: bool = False,
    listener: Listener | None = None,
    **others: bool,
) -> RecordResult:
    """Seals the windows of a Delta table where it is, and returns the counts.

    The arguments are those of `record`. The others belong to copies.

    Raises:
        InputError: the table cannot be sealed in place, too many of its sealed windows have
            changed, or an argument belongs to copies.
        OverlapError: another recording of the stream is running.
        TableError: the source cannot be read.

    Rules: W40, X57
    """
    for option in filter(others.get, others):
        raise InputError(
            f'--{option.replace("_", "-")} does not apply to stream "{name}", which is in place',
            detail="Its tuples are not copied: late and changed rows enter their windows at the "
            "next recording.",
            hint=f"Record it without this option: rewindow record {name}",
        )
    with recording_lock(config, name):
        inventory.finish_removal(config, name)
        if start_over:
            inventory.remove_stream(config, name)
        progress = RecordingProgress(name, listener or Silent())
        return _Run(config, name, config.stream(name), progress).record(sealed_to, end)


@dataclass(frozen=True)
class _Counted:
    """The result of one pass over a source.

    Attributes:
        digests: count and digests of the windows that have a tuple.
        newest_us: newest arrival that is not in the future; None if there is none.
        without: rows without an arrival timestamp, or with one before the origin of the grid.
    """

    digests: pa.Table
    newest_us: int | None
    without: int

    def arrivals(self, columns: SourceColumns) -> ArrivalCounts:
        """Returns the number of tuples in each window."""
        ids = self.digests["window_id"].to_numpy()
        tuples = self.digests["tuples"].to_numpy()
        newest_us = ids * columns.grid.width_us + columns.grid.origin_us
        present = np.where(newest_us <= _now_us(), tuples, 0)
        if self.newest_us is not None:
            newest_us[ids == columns.grid.window(self.newest_us)] = self.newest_us
        return ArrivalCounts(ids, tuples, present, newest_us, self.without)


@dataclass
class _Run:
    config: Config
    name: str
    stream: StreamConfig
    progress: RecordingProgress
    result: RecordResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = RecordResult(self.name)

    def record(self, sealed_to: str | None, end: bool) -> RecordResult:
        """Runs all steps in order."""
        extent = SealRange(self.name, self.stream)
        given = extent.given(sealed_to)
        source = self._open_source()
        columns, schema = self._columns(source)
        tables = self._open_tables(source, columns, schema)
        changed = self._changed(tables, source, columns)
        with self.progress.during("counting"):
            counted = self._count(source, columns, schema, within=_parts(tables.sealed, changed))
        arrivals = counted.arrivals(columns)
        self._check_arrivals(arrivals)
        last = extent.last(arrivals, tables.end, given, end)
        self._check_gap(arrivals, tables, last)
        counts = extent.count(arrivals, tables, last)
        self._report(counts, arrivals, extent, tables)
        old = None
        if tables.sealed and (compared := list(filter(None, map(tables.sealed.overlap, changed)))):
            old = self._differing(tables, counted, schema, compared)
        self._seal(tables, counted, counts.windows, old=old, schema=schema)
        if end:
            sealing.end(tables, self._mark_end)
        self.result.source_version = source.version
        self.result.stream_first = tables.first
        self.result.stream_last = tables.last
        self.result.seconds = self.progress.seconds
        self.progress.step("done", self.result.recorded)
        return self.result

    def _open_source(self) -> Table:
        path = location(os.path.normpath(self.config.root / self.stream.source))
        try:
            return Table.open(path)
        except TableError as error:
            raise InputError(
                f'source "{path}" of stream "{self.name}" is not a Delta table',
                detail=str(error),
            ) from error

    def _columns(self, source: Table) -> tuple[SourceColumns, pa.Schema]:
        """Returns the columns to read, and those of the stream with their types.

        Raises:
            InputError: a setting needs a copy, or a column does not exist.
        """
        arrived_at = self._arrival(source)
        folder = self.config.stream_table(self.name)
        if Table.exists(folder):
            events = read_note(folder).events
        else:
            events = event_columns_of(source.schema, arrived_at, self.stream.keep)
        unknown = [column for column in events if column not in source.schema.names]
        if unknown:
            raise InputError(
                f'column "{unknown[0]}" of stream "{self.name}" is not in its source',
                hint=f"{did_you_mean(unknown[0], source.schema.names)}The source has the columns: "
                f"{', '.join(source.schema.names)}.",
            )
        grid = self.stream.grid
        columns = SourceColumns(
            str(source.path),
            arrived_at,
            events,
            width_ms=grid.width_ms,
            origin_ms=grid.origin_ms,
        )
        schema = columns.schema(source.schema)
        check_event_columns(self.name, self.stream, spark_schema(schema))
        return columns, schema

    def _arrival(self, source: Table) -> str:
        """Returns the column with the arrival timestamp."""
        text = self.stream.arrived_at.strip()
        wrong = ""
        if self.stream.select or self.stream.columns is not None:
            wrong = "the settings select and columns compute or convert columns"
        elif self.stream.new_columns == "take":
            wrong = 'the setting new_columns = "take" adds columns'
        elif self.stream.on_gap == "quarantine":
            wrong = 'the setting on_gap = "quarantine" leaves rows out'
        elif _COLUMN.fullmatch(text) is None:
            wrong = f'arrived_at = "{text}" is an expression'
        if wrong:
            raise self._needs_copy(wrong)
        column = text.strip("`")
        if column not in source.schema.names:
            raise InputError(
                f'arrival column "{column}" of stream "{self.name}" is not in its source',
                hint=f"{did_you_mean(column, source.schema.names)}The source has the columns: "
                f"{', '.join(source.schema.names)}.",
            )
        kind = source.schema.field(column).type
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise self._needs_copy(f'arrival column "{column}" is not a TIMESTAMP, but {kind}')
        if column in source.delta.metadata().partition_columns:
            raise self._needs_copy(f'arrival column "{column}" is a partition column')
        if source.files() and not has_statistics(source.delta, column):
            raise self._needs_copy(f'the log has no statistics of arrival column "{column}"')
        return column

    def _needs_copy(self, reason: str) -> InputError:
        return InputError(
            f'stream "{self.name}" cannot be sealed in place: {reason}',
            hint=_COPY,
        )

    def _open_tables(
        self,
        source: Table,
        columns: SourceColumns,
        schema: pa.Schema,
    ) -> StreamTables:
        """Returns the stream's tables, with the source as the table of its tuples.

        Raises:
            InputError: the types of the columns have changed.
        """
        folder = self.config.stream_table(self.name)
        settings = settings_to_store(self.stream, spark_schema(schema))
        seals = self.config.windows_table(self.name)
        create_seal_tables(folder, settings)
        windows = check_format(Table.open(seals), TableKind.SEALS)
        sealed = sealed_range(windows)
        if sealed is not None:
            stored = stored_settings(windows)
            check_fixed_settings(self.name, self.stream, stored)
            have, now = stored.get("schema", ""), str(settings["schema"])
            if have != now:
                raise changed_source(self.name, have.split(", "), now.split(", "))
        if sealed is None or columns != read_note(folder):
            columns.store(folder)
        tables = StreamTables(
            self.name,
            source,
            windows,
            files=open_files(folder),
            app_id=position_id(source.id),
            run=max(windows.txn(position_id(source.id)), 0),
            end=stream_end(windows),
        )
        if sealed is not None:
            tables.first, tables.last = sealed.first, sealed.last
        tables.set_properties(stream_properties(settings))
        return tables

    def _changed(
        self,
        tables: StreamTables,
        source: Table,
        columns: SourceColumns,
    ) -> list[WindowRange]:
        """Returns ranges that contain all windows up to the last sealed one whose rows may have
        changed.

        Raises:
            InputError: the source has lost commits.
        """
        version = tables.windows.txn(tables.app_id)
        if version > source.version:
            raise InputError(
                f'source of stream "{self.name}" is at version {source.version}, but it was '
                f"sealed at version {version}",
                detail=f"The last commits of {source.path} are missing from its log.",
                hint="Restore them from a backup, or seal all windows again: rewindow record "
                f"{self.name} --start-over",
            )
        if tables.sealed is None:
            return []
        changed = None if version < 0 else changed_windows(source, version, columns)
        if changed is None:
            return [tables.sealed]
        before = WindowRange(min([0, *(part.first for part in changed)]), tables.sealed.last)
        return list(filter(None, map(before.overlap, changed)))

    def _count(
        self,
        source: Table,
        columns: SourceColumns,
        schema: pa.Schema,
        within: Sequence[tuple[int, int | None]],
    ) -> _Counted:
        """Counts and digests the tuples of each window in the given ranges, by default of the whole
        table.
        """
        at = f"arrow_cast({quoted(columns.arrived_at)}, 'Int64')"
        # The prefix keeps a column of the table apart that has the name of one of these.
        selected = [f"{at} as arrived_us", f"{quoted(columns.arrived_at)} as e_arrived_at"]
        selected += [f"{quoted(name)} as {quoted(f'e_{name}')}" for name in columns.events]
        sql = f"select {', '.join(selected)} from t"
        if within:
            sql += f" where {' or '.join(starmap(columns.arrived_in, within))}"
        else:
            self.result.bytes_read = total_size(source.files())
        fields = pa.schema(list(schema)[2:])
        now_us = _now_us()

        def digest(rows: pa.Table) -> tuple[pa.Table, int, int]:
            arrived_us = rows["arrived_us"]
            good = pc.fill_null(pc.greater_equal(arrived_us, columns.grid.origin_us), False)
            kept = rows.filter(good)
            times_us = kept["arrived_us"].to_numpy()
            past = times_us[times_us <= now_us]
            ids = (times_us - columns.grid.origin_us) // columns.grid.width_us
            named = pa.table(
                {name: kept[f"e_{name}"] for name in fields.names} | {"window_id": ids}
            )
            newest_us = int(past.max()) if len(past) else np.iinfo(np.int64).min
            return arrow_digests(named, fields), newest_us, rows.num_rows - kept.num_rows

        parts = []
        newest_us = np.iinfo(np.int64).min
        without = 0
        done = 0
        for digests, newest_in_part, bad in _in_threads(digest, self._rows(sql, source)):
            parts.append(digests)
            newest_us = max(newest_us, newest_in_part)
            without += bad
            done += pc.sum(digests["tuples"]).as_py() or 0
            self.progress.step("counting", done)
            if sum(part.num_rows for part in parts) > _MERGED_ROWS:
                parts = [merged_digests(parts)]
        found = merged_digests(parts) if parts else DIGESTS_SCHEMA.empty_table()
        is_known = newest_us > np.iinfo(np.int64).min
        return _Counted(found, int(newest_us) if is_known else None, without)

    def _rows(self, sql: str, source: Table) -> Iterator[pa.Table]:
        """Yields the rows of a query over the source.

        Raises:
            InputError: the source has a feature that only Spark reads.
        """
        try:
            yield from query_in_parts(sql, _PART_ROWS, t=source)
        except DeltaError as error:
            if "feature" not in str(error):
                raise
            raise InputError(
                f'stream "{self.name}" cannot be sealed in place: its source has a feature that '
                "cannot be read without Spark",
                detail=plain_text(error),
                hint=_COPY,
            ) from error

    def _check_arrivals(self, arrivals: ArrivalCounts) -> None:
        """Reports rows without a window.

        Raises:
            InputError: there are too many.
        """
        if not arrivals.malformed:
            return
        words = (
            f"{quantity(arrivals.malformed, 'row')} of {arrivals.rows:,} have no arrival timestamp "
            f'in column "{self.stream.arrived_at}", or one before the origin of the grid'
        )
        if malformed.too_many(arrivals, self.stream):
            raise InputError(
                f'stream "{self.name}" cannot be sealed: {words}',
                detail=f"malformed_max_share is {self.stream.malformed_max_share:.1%}. No window "
                "was sealed.",
                hint="Correct the stream's setting arrived_at or origin, or raise "
                "malformed_max_share.",
            )
        self.result.malformed = arrivals.malformed
        self.result.warnings.append(f"{words}; they are in no window")

    def _check_gap(self, arrivals: ArrivalCounts, tables: StreamTables, last: int | None) -> None:
        """Checks that no arrival is far from all others.

        Raises:
            InputError: too many consecutive windows would be sealed without a tuple.
        """
        gap = find_gap(arrivals, tables.sealed, last, self.stream.gap_windows_max)
        if gap is None or not gap.empty:
            return
        apart = ", ".join(map(self.stream.grid.describe, gap.apart))
        raise InputError(
            f'arrivals of stream "{self.name}" have a gap of {gap.empty:,} windows, but '
            f"gap_windows_max is {self.stream.gap_windows_max:,}",
            detail=f"On the smaller side of the gap: windows {apart}. The clock of a sender may be "
            "wrong. No window was sealed.",
            hint="Correct these rows in the source, or the stream's setting arrived_at; or "
            f"gap_windows_max = {gap.empty} accepts the gap.",
        )

    def _report(
        self,
        counts: RecordingCounts,
        arrivals: ArrivalCounts,
        extent: SealRange,
        tables: StreamTables,
    ) -> None:
        """Reports tuples that are not in a sealed window."""
        self.result.already_there = counts.sealed
        self.result.waiting = counts.waiting
        early = 0
        if tables.first is not None:
            early = int(arrivals.tuples[arrivals.windows < tables.first].sum())
        if early:
            self.result.warnings.append(
                f"{quantity(early, 'tuple')} arrived before window "
                f"{self.stream.grid.describe(tables.first or 0)}, the first one of the stream, and "
                "are in no window; to seal their windows too: rewindow record "
                f"{self.name} --start-over"
            )
        if counts.open and tables.end is not None:
            self.result.warnings.append(
                f"{counts.open:,} tuples are after window {self.stream.grid.describe(tables.end)}, "
                "the end of the stream, and are not part of it"
            )
        elif counts.open:
            self.result.open = extent.open_windows(counts)

    def _differing(
        self,
        tables: StreamTables,
        counted: _Counted,
        schema: pa.Schema,
        changed: Sequence[WindowRange],
    ) -> pa.Table:
        """Returns the seals of the windows whose digests have changed, with new values.

        If the source is another table than before, returns all seals.

        Args:
            tables, counted, schema: the stream, and what was counted.
            changed: the sealed windows that were counted.

        Raises:
            InputError: more windows have changed than the settings allow.
        """
        seals = pa.concat_tables(read_seals(tables.windows, part) for part in changed)
        now = sealing.every_window(
            counted.digests,
            changed,
            empty_digests(spark_schema(schema)),
        )
        differs = np.zeros(seals.num_rows, bool)
        for name in ("tuples", "digest", "float_digest"):
            differs |= unequal(now[name], seals[name])
        number = int(differs.sum())
        if number > self.stream.late_windows_max:
            raise InputError(
                f'{number:,} sealed windows of stream "{self.name}" have changed in its source, '
                f"but late_windows_max is {self.stream.late_windows_max:,}",
                detail=f'Is column "{self.stream.arrived_at}" the time at which a row arrived? '
                "Then new rows do not belong to old windows. No window was sealed.",
                hint="Correct arrived_at; or, if the rows have been changed on purpose: "
                f"late_windows_max = {number}",
            )
        generation = pc.add(seals["generation"], pa.array(differs.astype(np.int64)))
        rows = now.append_column("generation", generation)
        before, after = (table["tuples"].to_numpy()[differs] for table in (seals, now))
        self.result.reopened = number
        self.result.taken = int(np.maximum(after - before, 0).sum())
        self.result.removed = int(np.maximum(before - after, 0).sum())
        is_other = not pc.all(pc.equal(seals["table_id"], tables.data.id)).as_py()
        if number:
            windows = to_ranges(now["window_id"].to_numpy()[differs])
            ledger = Ledger.open(self.config.ledger_url)
            self.result.warnings += mark_stale(ledger, self.name, windows)
        return rows if is_other else rows.filter(pa.array(differs))

    def _seal(
        self,
        tables: StreamTables,
        counted: _Counted,
        windows: WindowRange | None,
        *,
        old: pa.Table | None,
        schema: pa.Schema,
    ) -> None:
        """Commits the changed and the new seals, together with the version of the source."""
        parts = [] if old is None or not old.num_rows else [old]
        if windows is not None:
            sealing.check_count(self.name, windows)
            new = sealing.every_window(
                counted.digests, [windows], empty_digests(spark_schema(schema))
            )
            parts.append(new.append_column("generation", pa.repeat(np.int64(1), new.num_rows)))
            self.result.first, self.result.last = windows.first, windows.last
            self.result.windows_sealed = len(windows)
            self.result.recorded = pc.sum(new["tuples"]).as_py()
            self.result.windows_empty = pc.sum(pc.equal(new["tuples"], 0)).as_py()
        if tables.last is None and not parts:
            return
        crash_point("in_place_before_seals")
        version = tables.data.version
        with sealing.refusing_overlap(tables):
            if not parts:
                if version != tables.run:
                    tables.windows.commit_files([], app_id=tables.app_id, version=version)
            else:
                rows = seal_rows(pa.concat_tables(parts), tables.data, columns_text(schema))
                if len(parts) == 1 and parts[0] is not old:
                    tables.windows.commit_arrow(rows, app_id=tables.app_id, version=version)
                else:
                    predicate = " or ".join(
                        f"(window_id >= {part.first} and window_id <= {part.last})"
                        for part in to_ranges(rows["window_id"].to_numpy())
                    )
                    tables.windows.replace(
                        rows.to_reader(),
                        predicate,
                        app_id=tables.app_id,
                        version=version,
                    )
        crash_point("in_place_after_seals")
        tables.refresh()

    def _mark_end(self, end: int | None) -> None:
        self.result.warnings += mark_end(Ledger.open(self.config.ledger_url), self.name, end)


def _parts(
    sealed: WindowRange | None,
    changed: Sequence[WindowRange],
) -> list[tuple[int, int | None]]:
    """Returns the ranges of windows to count: the changed ones, and those that are not sealed yet.
    An empty list is the whole table.
    """
    if sealed is None or list(changed) == [sealed]:
        return []
    return [*((part.first, part.last) for part in changed), (sealed.last + 1, None)]


def _in_threads(
    compute: Callable[[pa.Table], tuple[pa.Table, int, int]],
    parts: Iterator[pa.Table],
) -> Iterator[tuple[pa.Table, int, int]]:
    """Yields the results for parts in their order. Only a few parts are in memory."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[tuple[pa.Table, int, int]]] = deque()
        for part in parts:
            waiting.append(pool.submit(compute, part))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _now_us() -> int:
    return time.time_ns() // 1000
