"""Records new windows: writes their tuples in order, commits them, reads them back to compute
digests, and seals them.

The tuples are committed first, then their files are noted in `.files`, then the windows' seals are
committed. The commits of tuples and seals have the run's number as transaction version. A window
counts as recorded when its seal exists. A run that was interrupted in between leaves windows with
tuples but without seals. The next run first seals exactly these windows.

Rules: W40
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.crash import crash_point
from rewindow.errors import FencedError, InputError, OverlapError
from rewindow.facts.seals import end_row, seal_rows
from rewindow.location import location
from rewindow.names import quoted_column
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.file_layout import FileLayout
from rewindow.recording.stream import StreamTables
from rewindow.spark.digests import content_order, empty_digests, window_digests
from rewindow.spark.frames import empty_frame, read_files, spark_schema, write_files
from rewindow.storage import Table, data_files, query
from rewindow.storage.delta import paths_of, total_size
from rewindow.windows import Grid, WindowRange

WINDOWS_MAX = 20_000_000
OnMoved = Callable[[int | None], None]


def seal_uncommitted(spark: SparkSession, tables: StreamTables) -> WindowRange | None:
    """Seals the windows of a run that was interrupted after it had committed its tuples, and
    returns them.

    Returns None if there was no such run. If no window is sealed at all, for example because the
    table of seals was lost, all tuples are sealed.

    Raises:
        OverlapError: that run is still alive.
    """
    if not tables.has_unsealed_commit:
        return None
    run = tables.data.txn(tables.app_id)
    files = tables.data.files()
    if tables.last is not None:
        files = [file for file in files if f"/{_prefix(run)}" in file.path]
    known: list[int] = []
    for file in files:
        if file.first is not None and file.last is not None:
            known += [file.first, file.last]
    if known:
        windows = WindowRange(min(known) if tables.last is None else tables.last + 1, max(known))
        schema = spark_schema(tables.data.schema)
        frame = spark.read.schema(schema).parquet(*paths_of(files))
        _seal(tables, run, windows, window_digests(frame).toArrow(), schema)
        return windows
    with refusing_overlap(tables):
        tables.windows.commit_files([], app_id=tables.app_id, version=run)
    tables.refresh()
    return None


def end(tables: StreamTables, on_moved: OnMoved = lambda end: None) -> None:
    """Records that a stream has ended with its last sealed window.

    An existing end is kept.

    Args:
        tables: the stream.
        on_moved: called with the end before it is recorded.

    Raises:
        InputError: nothing is sealed.

    Rules: X21
    """
    if tables.last is None:
        raise InputError(f'stream "{tables.name}" cannot end: it has no tuples')
    if tables.end is None:
        on_moved(tables.last)
        with refusing_overlap(tables):
            row = end_row(tables.data, tables.last)
            tables.windows.commit_arrow(row, app_id=tables.app_id, version=max(tables.run, 0))
        tables.refresh()


def take_back_end(tables: StreamTables, on_moved: OnMoved = lambda end: None) -> None:
    """Removes the end row of a stream that continues after all.

    Before that, `on_moved` is called with None.
    """
    on_moved(None)
    tables.windows.delta.delete("end_window is not null")
    tables.refresh()


def check_grid(spark: SparkSession, name: str, data: Table, grid: Grid) -> None:
    """Checks that a stream's tuples were recorded on a grid, before they are sealed on it.

    Raises:
        InputError: no tuple exists, or one is not in its window of the grid.
    """
    files = data.files()
    if not files:
        raise InputError(
            f'stream "{name}" has no tuples to seal',
            hint=f"Record the stream again: rewindow record {name}",
        )
    frame = spark.read.schema(spark_schema(data.schema)).parquet(*paths_of(files))
    window = F.expr(f"(unix_micros(arrived_at) - {grid.origin_us}) div {grid.width_us}")
    astray = frame.where(F.col("window_id") != window).count()
    if astray:
        raise InputError(
            f'stream "{name}" was recorded with another window width or origin: {astray:,} tuples '
            "are not in the windows of the current settings",
            hint="Restore the old width and origin in rewindow.toml.",
        )


@dataclass(frozen=True)
class Sealed:
    """The result of sealing: the bytes of the new files, and the number of windows without a
    tuple.
    """

    size: int
    empty: int


def seal(
    spark: SparkSession,
    tables: StreamTables,
    good: DataFrame,
    windows: WindowRange,
    arrivals: ArrivalCounts,
    check: Callable[[], None] = lambda: None,
    *,
    by_content: bool = False,
) -> Sealed:
    """Records and seals windows.

    Args:
        spark: the session.
        tables: the stream.
        good: tuples that are not malformed, of all windows.
        windows: the windows to seal; the first one follows the last sealed window.
        arrivals: number of tuples in each window.
        check: called after the tuples are written and before they are committed.
        by_content: whether tuples with the same arrival are ordered by their content, instead of
            their position in the source.

    Raises:
        OverlapError: another recording of the stream has committed in the meantime; nothing of this
            one is visible.
        InputError: there are too many windows, so an arrival timestamp must be wrong; or the source
            has changed in the meantime.
    """
    check_count(tables.name, windows)
    run = tables.run + 1
    folder = tables.data.path / f"{_prefix(run)}{uuid.uuid4().hex[:8]}"
    schema = spark_schema(tables.data.schema)
    places = FileLayout.of(arrivals, windows)
    order = content_order(schema) if by_content else None
    if places.tuples:
        ordered = places.put(spark, good, order).select(*map(quoted_column, schema.names))
        write_files(ordered, folder)
    files = data_files(folder) if places.tuples else []
    written = read_files(spark, folder, schema) if places.tuples else empty_frame(spark, schema)
    digests = places.check(tables.name, written)
    check()
    with refusing_overlap(tables):
        tables.data.commit_files(files, app_id=tables.app_id, version=run)
    crash_point("record_after_data")
    empty = _seal(tables, run, windows, digests, schema)
    return Sealed(total_size(files), empty)


def check_count(name: str, windows: WindowRange) -> None:
    """Checks that the number of windows to seal is plausible.

    Raises:
        InputError: too many windows would be sealed; states their number.
    """
    if len(windows) > WINDOWS_MAX:
        raise InputError(
            f'stream "{name}" cannot seal {len(windows):,} windows {windows} in one run: the '
            f"maximum is {WINDOWS_MAX:,}",
            detail="A single tuple with a wrong arrival timestamp can cause this.",
            hint="Check the stream's settings arrived_at and width.",
        )


def empty_windows(tables: StreamTables, windows: WindowRange) -> int:
    """Returns the number of sealed windows of a range that have no tuple."""
    sql = (
        f"select count(*) as n from w where tuples = 0 and window_id between {windows.first} "
        f"and {windows.last}"
    )
    return int(query(sql, w=tables.windows)["n"].to_pylist()[0])


def _prefix(run: int) -> str:
    return f"run-{run:06}-"


def _seal(
    tables: StreamTables,
    run: int,
    windows: WindowRange,
    found: pa.Table,
    schema: T.StructType,
) -> int:
    """Seals windows with the digests of the written tuples. Returns the number of empty windows."""
    tables.note_files()
    crash_point("record_after_files")
    rows = seal_rows(
        every_window(found, [windows], empty_digests(schema)),
        tables.data,
        tables.columns,
    )
    with refusing_overlap(tables):
        tables.windows.commit_arrow(rows, app_id=tables.app_id, version=run)
    crash_point("record_after_windows")
    tables.refresh()
    return len(windows) - found.num_rows


def every_window(
    found: pa.Table,
    windows: Sequence[WindowRange],
    empty: tuple[str, str | None],
) -> pa.Table:
    """Returns window_id, tuples and digests of every window in the given ranges.

    Windows that are not in `found` are empty.
    """
    every = [np.arange(part.first, part.last + 1, dtype=np.int64) for part in windows]
    ids = pa.array(np.concatenate(every))
    place = pc.index_in(ids, found["window_id"].combine_chunks())
    placed = found.select(["tuples", "digest", "float_digest"]).take(place)
    tuples, digest, float_digest = placed.columns
    return pa.table(
        {
            "window_id": ids,
            "tuples": pc.fill_null(tuples, 0),
            "digest": pc.fill_null(digest, empty[0]),
            "float_digest": pc.if_else(
                pc.is_null(place),
                pa.scalar(empty[1], pa.string()),
                float_digest,
            ),
        }
    )


@contextmanager
def refusing_overlap(tables: StreamTables) -> Iterator[None]:
    """Turns a commit conflict between two recordings into an `OverlapError`."""
    try:
        yield
    except FencedError as error:
        raise OverlapError(
            f'stream "{tables.name}" is being recorded by another process',
            detail="Windows that this run had not sealed yet are not visible.",
            hint="Run the command again when the other process has finished.",
        ) from error


def remove_strays(tables: StreamTables) -> None:
    """Removes folders of runs that were interrupted or rejected before their commit.

    Only folders with a committed run number are removed. A folder with the next number may belong
    to a recording on another machine.
    """
    held = {location(file.path).parent.name for file in tables.data.files()}
    for folder in tables.data.path.folders("run-*"):
        if folder.name not in held and int(folder.name.split("-")[1]) <= tables.run:
            folder.delete_tree()
