"""Records new tuples of a stream's source into the recorded stream, window by window.

A run over an unchanged source changes nothing. If a run is interrupted, the next run completes its
work: it first seals tuples without a sealed window, then records and quarantines what is still
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.crash import crash_point
from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import mark_end, mark_stale
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.progress.listener import Listener, Silent
from rewindow.recording import inventory, malformed, quarantine, reopening, sealing
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.arrival_gaps import find_gap, refused
from rewindow.recording.late import Differences, check_whole, compare, surplus, warnings
from rewindow.recording.local_times import note_words
from rewindow.recording.progress import RecordingProgress
from rewindow.recording.result import RecordResult
from rewindow.recording.seal_range import RecordingCounts, SealRange
from rewindow.recording.source_rows import copy_rows
from rewindow.recording.sources.columns import as_declared
from rewindow.recording.sources.source import (
    FILE,
    ROW,
    Source,
    SourceContents,
    SourcePosition,
    open_source,
)
from rewindow.recording.sources.taken import FileRows, gone_files, remember, settings_digest
from rewindow.recording.stream import (
    StreamTables,
    check_settings,
    create_seals,
    open_stream_tables,
    prepare_stream,
    recording_lock,
    tuples_without_seals,
)
from rewindow.recording.tuples import (
    POSITION,
    REASON,
    computing,
    may_change,
    parse_columns,
    read_tuples,
    recorded_schema,
    rows_schema,
    session_of,
    untaken,
)
from rewindow.sequences import names_of, quantity
from rewindow.settings.config import Config, StreamConfig
from rewindow.spark.executors import check_executors, send_code
from rewindow.spark.frames import empty_frame, read_files, write_files
from rewindow.storage import Table
from rewindow.storage.streams import CHANGED, LATE
from rewindow.windows import WindowRange

_LISTED = 1_000


def record(  # noqa: PLR0913 - each is an option of the verb
    spark: SparkSession,
    config: Config,
    name: str,
    *,
    listener: Listener | None = None,
    sealed_to: str | None = None,
    end: bool = False,
    seal_again: bool = False,
    reopen: bool = False,
    replace: bool = False,
    start_over: bool = False,
) -> RecordResult:
    """Records the new tuples of a stream's source, seals their windows, and returns the counts.

    The window of the newest tuple stays open, because more tuples may arrive in it. A tuple that
    arrives after its window's seal is late.

    Args:
        spark: a session, whose settings are restored at the end.
        config: current settings.
        name: the stream.
        listener: receives an event per step; by default events are discarded.
        sealed_to: windows that end at or before this time are sealed; by default the stream's
            setting, otherwise the arrival of the newest tuple minus the stream's `seal_after`.
        end: no more tuples will arrive. The window of the newest tuple is sealed too, and the
            stream gets its end row: every later window is sealed and empty.
        seal_again: the table of seals is lost; create it again from the recorded tuples.
        reopen: move late tuples from the quarantine into their windows, which get a new seal. An
            end of the stream is removed if tuples exist after it.
        replace: with `reopen`: read the whole source, replace the tuples of sealed windows that
            differ from it, and seal these windows again.
        start_over: if no replay needs the stream, remove all that was recorded and record it from
            scratch with the current settings.

    Raises:
        InputError: the stream is unknown; its source does not exist or does not fit its settings;
            it was recorded with other settings; too many rows are malformed, so a setting must be
            wrong; `end` is given although the source has tuples of the future; windows to reopen
            have changed in the source, or recorded files are missing from it.
        TableError: one of the stream's tables is missing, or lacks its last commits.
        OverlapError: another recording of the stream is running, or `start_over` is given and a
            replay needs the stream.
        ResourceError: the disk is too full.

    Rules: W4, W15, X21, X52
    """
    stream = config.stream(name)
    with (
        recording_lock(config, name),
        _scratch(config, name) as folder,
        session_of(spark, stream.zone),
    ):
        run = _Run(
            spark,
            config,
            name,
            stream=stream,
            folder=folder,
            progress=RecordingProgress(name, listener or Silent()),
        )
        if seal_again:
            run.rebuild_seals()
        return run.record(sealed_to, end, reopen, replace, start_over)


@contextmanager
def _scratch(config: Config, name: str) -> Iterator[Location]:
    folder = config.state / "scratch" / f"record-{name}"
    folder.delete_tree()
    folder.make_folder()
    try:
        yield folder
    finally:
        folder.delete_tree()


@dataclass
class _Run:
    spark: SparkSession
    config: Config
    name: str
    stream: StreamConfig
    folder: Location
    progress: RecordingProgress

    def __post_init__(self) -> None:
        self.result = RecordResult(self.name)
        self.extent = SealRange(self.name, self.stream)

    @cached_property
    def source(self) -> Source:
        """The source of the stream.

        Raises:
            InputError: see `open_source`.
        """
        streams = self.config.state / "streams"
        return open_source(self.name, self.stream, self.config.root, streams=streams)

    def record(
        self,
        sealed_to: str | None,
        end: bool,
        reopen: bool,
        replace: bool,
        start_over: bool,
    ) -> RecordResult:
        """Runs all steps in order; returns the counts. The function `record` describes the
        arguments.
        """
        given = self.extent.given(sealed_to)
        inventory.finish_removal(self.config, self.name)
        quarantine.release(self.config.quarantine_table, self.name, quarantine.REFUSED)
        taken = SourcePosition() if start_over else self._heal()
        if reopen and not replace:
            self._reopen()
        position = SourcePosition() if replace else taken
        contents, tuples = self._read_source(position, start_over)
        end = end or (contents.ends and given is None)
        given = self.extent.by_source(given, contents)
        position = SourcePosition() if contents.whole else position
        with self.progress.during("counting"), computing(self.name):
            arrivals = ArrivalCounts.count(tuples, self.stream.event_at)
        self._check_malformed(arrivals, tuples, contents)
        notes = sum(contents.notes, Counter(arrivals.notes))
        self.result.warnings += note_words(notes, self.stream.zone)
        stored = None if start_over else open_stream_tables(self.config, self.name)
        ended = None if stored is None or reopen else stored.end
        tuples, arrivals = self._check_gaps(
            tuples,
            arrivals,
            contents,
            stored=stored,
            last=self.extent.last(arrivals, ended, given, end),
        )
        if start_over:
            self._start_over()
        tables = prepare_stream(
            self.config, self.name, self.stream, schema=recorded_schema(tuples.schema)
        )
        before = tables.sealed
        self._warn_of_times(arrivals, end)
        newest = self.extent.newest_window(arrivals)
        if reopen and tables.end is not None and newest is not None and newest > tables.end:
            sealing.take_back_end(tables, self._mark_end)
        if contents.files:
            tables.forget_files()
        if replace:
            self._replace(tables, tuples, contents, gone_files(contents.present, taken))
        counts = self.extent.count(
            arrivals,
            tables,
            self.extent.last(arrivals, tables.end, given, end),
        )
        self._seal(tables, tuples, arrivals, counts, contents)
        if end:
            sealing.end(tables, self._mark_end)
        self._put_aside(
            tables,
            tuples,
            contents,
            position=position,
            before=before,
            counts=counts,
        )
        if contents.version is not None or (contents.present and tables.last is not None):
            self._move_on(tables, tuples, contents, position=position, taken=taken)
        return self._done(tables)

    def _done(self, tables: StreamTables) -> RecordResult:
        sealing.remove_strays(tables)
        self.result.stream_first = tables.first
        self.result.stream_last = tables.last
        self.result.seconds = self.progress.seconds
        self.progress.step("done", self.result.recorded)
        return self.result

    def _warn_of_times(self, arrivals: ArrivalCounts, end: bool) -> None:
        if arrivals.future and not end:
            self.result.warnings.append(
                f"{arrivals.future:,} tuples have arrival timestamps in the future; they wait, "
                "and the windows before them are not sealed because of them"
            )
        if arrivals.without_event_time:
            self.result.warnings.append(
                arrivals.lack_of_event_time(self.name, str(self.stream.event_at))
            )

    def _check_malformed(
        self,
        arrivals: ArrivalCounts,
        tuples: DataFrame,
        contents: SourceContents,
    ) -> None:
        """Stops the recording if too many rows are malformed, because a setting must be wrong.

        The rows go to quarantine, where they can be inspected.
        """
        if not malformed.too_many(arrivals, self.stream):
            return
        path = self.config.quarantine_table
        bad = tuples.where(F.col(REASON).isNotNull())
        rows = quarantine.malformed_rows(self.spark, bad, contents.files, are_refused=True)
        quarantine.quarantine(self.spark, path, self.name, rows, by_position=True)
        raise malformed.refused(
            self.name,
            self.stream,
            arrivals,
            bad,
            contents.files,
            path,
        )

    def _check_gaps(
        self,
        tuples: DataFrame,
        arrivals: ArrivalCounts,
        contents: SourceContents,
        stored: StreamTables | None,
        last: int | None,
    ) -> tuple[DataFrame, ArrivalCounts]:
        """Marks tuples from a wrong clock as malformed, and returns all tuples and their counts.

        Raises:
            InputError: a gap is too long, and its rows may not go to quarantine.
        """
        sealed = None if stored is None else stored.sealed
        gap = find_gap(arrivals, sealed, last, self.stream.gap_windows_max)
        if gap is None:
            return tuples, arrivals
        without = arrivals.as_malformed(gap.apart)
        is_few = not malformed.too_many(without, self.stream)
        if self.stream.on_gap == "quarantine" and is_few:
            apart = gap.as_malformed(tuples.where(gap.column))
            rows = quarantine.malformed_rows(self.spark, apart, contents.files)
            path = self.config.quarantine_table
            # If an earlier run has quarantined these rows, they were found before anything was
            # sealed.
            if not gap.after_sealed or quarantine.holds(self.spark, path, self.name, rows):
                return gap.as_malformed(tuples), without
        if not gap.empty:
            return tuples, arrivals
        raise refused(
            self.name,
            self.stream,
            gap,
            tuples=tuples,
            files=contents.files,
            may_be_quarantined=is_few,
        )

    def _start_over(self) -> None:
        """Removes everything that was recorded.

        It runs only after the source was read without errors.
        """
        self.progress.step("deleting the recorded stream")
        inventory.check_unneeded(self.config, self.name)
        inventory.remove_stream(self.config, self.name)

    def rebuild_seals(self) -> None:
        """Creates a lost table of seals again, without rows.

        Recovery then seals all recorded tuples.
        """
        data = tuples_without_seals(self.config, self.name)
        sealing.check_grid(self.spark, self.name, data, grid=self.stream.grid)
        create_seals(self.config, self.name, self.stream, data=data)

    def _heal(self) -> SourcePosition:
        tables = open_stream_tables(self.config, self.name)
        if tables is None:
            return SourcePosition()
        if reopening.complete(
            self.spark, tables, self.config.quarantine_table, on_opened=self._mark_stale
        ):
            self.result.warnings.append(
                "windows that an interrupted recording had reopened were sealed"
            )
        healed = sealing.seal_uncommitted(self.spark, tables)
        if healed is not None:
            self.result.warnings.append(
                f"windows {self.stream.grid.describe(healed)} were sealed: an interrupted "
                "recording had written their tuples without a seal"
            )
            self._count_sealed(healed, empty=sealing.empty_windows(tables, healed))
        return tables.position

    def _read_source(
        self,
        position: SourcePosition,
        start_over: bool,
    ) -> tuple[SourceContents, DataFrame]:
        """Returns the contents of the source and its tuples.

        If possible, Spark reads the source directly. Otherwise, the typed rows are first written to
        scratch files.
        """
        declared = parse_columns(self.name, self.stream.columns)
        stored = None if start_over else open_stream_tables(self.config, self.name)
        stored = stored if stored is not None and stored.binding else None
        recorded = None if stored is None else stored.data.schema
        source = self.source
        contents = source.scan(position, declared.names if declared else None, recorded)
        self.result.bytes_read = 0 if contents.is_computed else contents.size
        self.result.source_version = contents.version
        self.result.files_unchanged = max(0, len(contents.present) - len(contents.files))
        self.result.warnings.extend(contents.warnings)

        if contents.is_computed:
            check_executors(self.spark)
            send_code(self.spark, self.config, [])
        rows = source.frame(self.spark, contents)
        direct = (
            None
            if rows is None
            else read_tuples(self.name, self.stream, contents, declared=declared, raw=rows)
        )
        contents = contents if rows is not None else as_declared(contents, declared)
        empty = empty_frame(self.spark, rows_schema(contents))
        tuples = (
            read_tuples(self.name, self.stream, contents, declared=declared, raw=empty)
            if direct is None
            else direct
        )
        if stored is not None:
            check_settings(stored, self.stream, recorded_schema(tuples.schema))
        if direct is None or contents.is_computed or may_change(self.stream, direct):
            direct = self._copied(source, contents, declared, rows=rows)
        return contents, untaken(direct, contents.files, position.sealed_last)

    def _copied(
        self,
        source: Source,
        contents: SourceContents,
        declared: T.StructType | None,
        rows: DataFrame | None,
    ) -> DataFrame:
        """Returns the tuples of a source from scratch files, so that they are computed only
        once.
        """
        raw = self.folder / "raw"
        typed = self.folder / "typed"
        if rows is None:
            count = copy_rows(
                source,
                contents,
                raw.local(),
                on_rows=lambda done: self.progress.step("reading", done),
            )
            contents.check_unchanged(self.name)
            rows = self.spark.read.schema(rows_schema(contents)).parquet(str(raw))
            self.progress.step("typing", count)
        tuples = read_tuples(self.name, self.stream, contents, declared=declared, raw=rows)
        with computing(self.name):
            write_files(tuples, typed)
        return read_files(self.spark, typed, tuples.schema)

    def _seal(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        arrivals: ArrivalCounts,
        counts: RecordingCounts,
        contents: SourceContents,
    ) -> None:
        """Records and seals windows, and reports which windows stay open."""
        self.result.waiting = counts.waiting
        if counts.open and tables.end is not None:
            self.result.warnings.append(
                f"{counts.open:,} tuples are after window {self.stream.grid.describe(tables.end)}, "
                "the end of the stream, and wait. If the stream continues: rewindow record "
                f"{self.name} --reopen"
            )
        elif counts.open:
            self.result.open = self.extent.open_windows(counts)
        windows = counts.windows
        if windows is None:
            return
        good = tuples.where(F.col(REASON).isNull())
        with self.progress.during(f"recording windows {windows}", counts.new), computing(self.name):
            sealed = sealing.seal(
                self.spark,
                tables,
                good,
                windows,
                arrivals,
                lambda: contents.check_unchanged(self.name),
                by_content=self.source.ordered_by_content,
            )
        self.result.bytes_written = sealed.size
        self.result.recorded = counts.new
        self._count_sealed(windows, sealed.empty)

    def _count_sealed(self, windows: WindowRange, empty: int) -> None:
        """Adds the windows that this run has sealed to the result.

        They come after the windows that recovery has sealed.
        """
        self.result.first = windows.first if self.result.first is None else self.result.first
        self.result.last = windows.last
        self.result.windows_sealed += len(windows)
        self.result.windows_empty += empty

    def _reopen(self) -> None:
        """Moves late tuples from the quarantine into their windows.

        Raises:
            InputError: windows were changed in the source.
        """
        tables = open_stream_tables(self.config, self.name)
        if tables is None or tables.last is None or not Table.exists(self.config.quarantine_table):
            return
        inventory.check_unchanged(self.config, self.name)
        late = reopening.late_tuples(self.spark, tables, self.config.quarantine_table).cache()
        windows = [row[0] for row in late.select("window_id").distinct().collect()]
        if windows:
            self._open_again(tables, late, windows)
            self.result.taken = late.count()

    def _replace(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        contents: SourceContents,
        gone: Collection[str],
    ) -> None:
        """Replaces the tuples of sealed windows that differ from the source.

        Raises:
            InputError: missing files may contain tuples of these windows, or the source cannot be
                read again.
        """
        if not contents.whole:
            raise InputError(
                f'source of stream "{self.name}" cannot be read again from the start',
                detail="The source returns each tuple only once.",
                hint=f"To add late tuples to their windows: rewindow record {self.name} --reopen",
            )
        windows = tables.sealed
        if windows is None:
            return
        sealed = self._sealed(tuples, windows.last)
        found = compare(self.spark, sealed, tables, windows)
        # Late tuples from before the recording have no window that they could be added to.
        found = found.where(found.windows >= windows.first)
        check_whole(self.name, found, list(gone))
        if len(found.windows):
            contents.check_unchanged(self.name)
            rows = reopening.source_tuples(sealed)
            self._open_again(tables, rows, found.windows.tolist(), replace=True)
            self.result.taken = int(found.new.sum())
            self.result.removed = int(found.gone.sum())

    def _open_again(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        windows: Sequence[int],
        replace: bool = False,
    ) -> None:
        """Adds tuples to sealed windows or replaces their tuples, then seals these windows
        again.
        """
        self.progress.step("reopening windows", 0)
        opened = reopening.reopen(
            self.spark,
            tables,
            self.config.quarantine_table,
            self.folder,
            tuples,
            windows,
            self._mark_stale,
            replace=replace,
            by_content=self.source.ordered_by_content,
        )
        self.result.reopened = sum(map(len, opened.windows))

    def _mark_stale(self, windows: Sequence[WindowRange]) -> None:
        """Marks windows that were published from the given windows as stale, because the given
        windows get a new seal.
        """
        self.result.warnings += mark_stale(Ledger.open(self.config.ledger_url), self.name, windows)

    def _mark_end(self, end: int | None) -> None:
        """Marks windows that were published with another end of the stream as stale.

        Rules: X34
        """
        self.result.warnings += mark_end(Ledger.open(self.config.ledger_url), self.name, end)

    def _put_aside(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        contents: SourceContents,
        position: SourcePosition,
        before: WindowRange | None,
        counts: RecordingCounts,
    ) -> None:
        """Puts malformed rows and late tuples into quarantine.

        `before` is the range that was sealed before this run.
        """
        by_position = not contents.whole
        path = self.config.quarantine_table
        if counts.malformed:
            self.progress.step("moving malformed rows to quarantine", counts.malformed)
            bad = quarantine.malformed_rows(
                self.spark,
                tuples.where(F.col(REASON).isNotNull()),
                contents.files,
            )
            new = quarantine.quarantine(self.spark, path, self.name, bad, by_position=by_position)
            self.result.malformed = new
            self.result.known = counts.malformed - new
        crash_point("record_after_malformed")
        if before is None:
            return
        self.progress.step("comparing sealed windows", counts.sealed)
        self._compare_sealed(
            tables,
            tuples,
            contents,
            position=position,
            windows=before,
            counts=counts,
        )

    def _compare_sealed(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        contents: SourceContents,
        position: SourcePosition,
        windows: WindowRange,
        counts: RecordingCounts,
    ) -> None:
        """Quarantines tuples of sealed windows that are in the source but not in the recording:
        late tuples, and new tuples of changed windows.
        """
        self.result.already_there = counts.sealed
        sealed = self._sealed(tuples, windows.last)
        # In windows that were already sealed when the source was last read, every new tuple is
        # late. Later windows may have been sealed by a run that died, so they are compared.
        done = position.sealed_last
        first = windows.first if done is None else done + 1
        certain = [] if done is None else [sealed.where(F.col("window_id") < first)]
        others = sealed if done is None else sealed.where(F.col("window_id") >= first)
        late = certain if counts.sealed else []
        if contents.whole:
            # The list of changed windows is replaced in each run, because the source may have been
            # restored.
            quarantine.release(self.config.quarantine_table, self.name, CHANGED)
        if first <= windows.last:
            found = compare(self.spark, others, tables, WindowRange(first, windows.last))
            self._report(found)
            if changed := found.changed.windows.tolist():
                new = surplus(self.spark, sealed, tables, differing=changed)
                self._put_tuples_aside(new, contents, CHANGED)
            if added := found.late.windows.tolist():
                late = [*late, surplus(self.spark, sealed, tables, differing=added)]
        if late:
            self._put_tuples_aside(reduce(DataFrame.unionByName, late), contents, LATE)

    def _report(self, found: Differences) -> None:
        """Reports the sealed windows that have lost tuples in the source."""
        self.result.changed = found.changed.counts(_LISTED)
        self.result.short_windows = len(found.short.windows)
        self.result.short_tuples = int(found.short.gone.sum())
        self.result.warnings += warnings(self.name, found)

    def _put_tuples_aside(self, tuples: DataFrame, contents: SourceContents, reason: str) -> None:
        """Puts tuples of sealed windows into quarantine, each only once."""
        path = self.config.quarantine_table
        events = recorded_schema(tuples.schema).names[3:]
        rows = quarantine.late_rows(self.spark, tuples, contents.files, events, reason)
        by_position = not contents.whole
        new = quarantine.quarantine(self.spark, path, self.name, rows, by_position=by_position)
        count = tuples.count()
        self.result.already_there -= count
        if reason == LATE:
            self.result.late = new
            self.result.known += count - new
        if reason == LATE and new:
            command = f"rewindow record {self.name} --reopen"
            moved = (
                f". If rows of the incomplete windows were moved to these windows: {command} "
                "--replace"
            )
            self.result.warnings.append(
                f"{quantity(new, 'tuple')} arrived after their windows were sealed; they are in "
                f"the table {path}. To add them to their windows: "
                f"{command}{moved if self.result.short_windows else ''}"
            )

    def _sealed(self, tuples: DataFrame, last: int) -> DataFrame:
        """Returns the source's valid tuples up to a window, with the stream's columns except the
        offset.
        """
        events = recorded_schema(tuples.schema).names[3:]
        columns = [*POSITION, "window_id", "arrived_at", *map(quoted_column, events)]
        return tuples.where(F.col(REASON).isNull() & (F.col("window_id") <= last)).select(*columns)

    def _move_on(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        contents: SourceContents,
        position: SourcePosition,
        taken: SourcePosition,
    ) -> None:
        """Stores the position up to which the source has been read. `taken` is the position stored
        before.

        This is the last step, so that the source is read again after an interrupted run.
        """
        self.progress.step("saving the position in the source")
        seen = self._rows_seen(tables, tuples, contents)
        if contents.version is not None:
            places = {}
            for file in contents.files:
                if seen[file.name].waits is not None:
                    places[file.name] = dict(file.constants)
            tables.set_position(SourcePosition(contents.version, tables.last, places))
            return
        files = remember(contents.present, seen, position)
        if seen or files != position.files or tables.last != position.sealed_last:
            noted = SourcePosition(
                sealed_last=tables.last,
                files=files,
                settings=settings_digest(self.stream),
                gone=gone_files(contents.present, taken),
            )
            tables.set_position(noted)

    def _rows_seen(
        self,
        tables: StreamTables,
        tuples: DataFrame,
        contents: SourceContents,
    ) -> dict[str, FileRows]:
        """Returns, for each file that this run has read, its last row and the first row whose
        window is not sealed yet.
        """
        seen = dict.fromkeys(names_of(contents.files), FileRows(0, None))
        if not any(file.lines for file in contents.files) and not self.result.waiting:
            return seen
        waits = F.col("window_id") > F.lit(-1 if tables.last is None else tables.last)
        found = tuples.groupBy(FILE).agg(F.max(ROW), F.min(F.when(waits, F.col(ROW))))
        for file, last, first in found.collect():
            seen[contents.files[file].name] = FileRows(last, first)
        return seen
