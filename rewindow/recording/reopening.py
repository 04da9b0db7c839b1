"""Reopens windows and seals them again. Late tuples move from the quarantine into their windows, or
tuples of the source replace recorded ones.

Replays can still read the versions that they have pinned. The next run completes a reopening that
died at any point: a note of its windows is stored with the seals first and removed last.

| died                      | the next run                                                   |
|---------------------------|----------------------------------------------------------------|
| before the tuples' commit | removes the note: nothing was changed                          |
| before the seals' commit  | seals the noted windows from their current tuples              |
| before removing the note  | removes the windows' tuples from the quarantine, and the note  |

Rules: X52
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.crash import crash_point
from rewindow.errors import InputError
from rewindow.facts.seals import read_seals, seal_rows
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.recording.sealing import every_window
from rewindow.recording.sources.source import FILE, ROW
from rewindow.recording.stream import StreamTables
from rewindow.recording.tuples import frame_of
from rewindow.spark.digests import content_order, empty_digests, window_digests
from rewindow.spark.frames import spark_schema, write_files
from rewindow.storage import Table
from rewindow.storage.delta import paths_of
from rewindow.storage.streams import CHANGED, LATE, QUARANTINE_SCHEMA
from rewindow.windows import WindowRange, to_ranges

_NOTE = "rewindow.reopening"
_CORRUPT = "__corrupt"
_RANGES_MAX = 200
_BEHIND_ALL = 2**62
"""Offset of a late tuple before numbering. It is larger than any other, so that recorded tuples
with the same arrival come first.
"""
OnOpened = Callable[[Sequence[WindowRange]], None]


@dataclass(frozen=True)
class Reopening:
    """The windows that are being sealed again, and the number of the run that seals them."""

    run: int
    windows: tuple[WindowRange, ...]

    @classmethod
    def noted(cls, tables: StreamTables) -> Reopening | None:
        """Returns the reopening that an interrupted run has noted; None if there is no note."""
        text = tables.windows.properties.get(_NOTE)
        if not text:
            return None
        run, windows = json.loads(text)
        return cls(run, tuple(starmap(WindowRange, windows)))

    def note(self, tables: StreamTables) -> None:
        """Stores this reopening as a note with the seals."""
        windows = [[part.first, part.last] for part in self.windows]
        tables.windows.set_properties({_NOTE: json.dumps([self.run, windows])})

    @property
    def predicate(self) -> str:
        """A Delta condition that is true for rows in one of the windows."""
        return " or ".join(
            f"(window_id >= {part.first} and window_id <= {part.last})" for part in self.windows
        )

    @property
    def column(self) -> Column:
        """The same condition as `predicate`, for Spark."""
        return F.expr(self.predicate)


def late_tuples(spark: SparkSession, tables: StreamTables, quarantine: Location) -> DataFrame:
    """Returns a stream's late tuples of sealed windows, with the stream's columns, position and
    payload.

    Raises:
        InputError: the payload of a tuple cannot be parsed.
    """
    schema = spark_schema(tables.data.schema)
    events = T.StructType([*schema.fields[2:], T.StructField(_CORRUPT, T.StringType())])
    paths = paths_of(Table.open(quarantine).files())
    rows = spark.read.schema(spark_schema(QUARANTINE_SCHEMA)).parquet(*paths)
    inside = F.col("window_id").between(tables.first, tables.last)
    rows = rows.where((F.col("source") == tables.name) & (F.col("reason") == LATE) & inside)
    parsed = F.from_json("payload", events, {"columnNameOfCorruptRecord": _CORRUPT})
    found = rows.select("window_id", "position", "payload", parsed.alias("tuple"))
    broken = found.where(
        F.col("tuple.arrived_at").isNull() | F.col(f"tuple.{_CORRUPT}").isNotNull()
    ).count()
    if broken:
        raise InputError(
            f'{broken:,} late tuples of stream "{tables.name}" cannot be read back from the '
            "quarantine",
            detail="Nothing was changed.",
            hint="If the type of a column has changed since these tuples arrived, restore the old "
            "type.",
        )
    columns = [F.col("tuple").getField(field.name).alias(field.name) for field in schema.fields[2:]]
    offset = F.lit(_BEHIND_ALL).cast("bigint").alias("offset")
    return found.select("window_id", offset, "position", "payload", *columns)


def source_tuples(sealed: DataFrame) -> DataFrame:
    """Returns a source's tuples with the columns of `late_tuples`.

    Tuples with the same arrival are ordered by their position in the source, which is a number.

    Rules: X51
    """
    offset = F.shiftleft(F.col(FILE).cast("bigint"), 40) + F.col(ROW)
    nothing = F.lit("")
    return sealed.withColumns({"offset": offset, "position": nothing, "payload": nothing})


def reopen(  # noqa: PLR0913 - the caller has opened all of them
    spark: SparkSession,
    tables: StreamTables,
    quarantine: Location,
    folder: Location,
    tuples: DataFrame,
    windows: Sequence[int],
    on_opened: OnOpened,
    *,
    replace: bool = False,
    by_content: bool = False,
) -> Reopening:
    """Writes tuples into their windows, seals these windows again, and returns the reopening.

    Args:
        spark: the session.
        tables: the stream.
        quarantine: the quarantine table, from which tuples of these windows are removed.
        folder: a scratch folder.
        tuples: from `late_tuples`, or all tuples of the source, from `source_tuples`.
        windows: ids of the windows, all sealed.
        on_opened: called with the windows before any of them is changed.
        replace: whether the tuples replace the recorded ones or are added to them.
        by_content: whether tuples with the same arrival are ordered by their content, instead of
            their position in the source.
    """
    opened = Reopening(tables.run + 1, _few_ranges(windows, tables.sealed))
    rows = folder / "reopened"
    inside = tuples.where(opened.column)
    ordered = _in_order(spark, tables, inside, None if replace else opened, by_content=by_content)
    write_files(ordered, rows)
    opened.note(tables)
    crash_point("reopen_after_note")
    on_opened(opened.windows)
    tables.data.replace(
        ds.dataset(rows).scanner(columns=tables.data.schema.names).to_reader(),
        opened.predicate,
        app_id=tables.app_id,
        version=opened.run,
    )
    crash_point("reopen_after_data")
    seal_noted(spark, tables, opened)
    crash_point("reopen_after_seals")
    finish(tables, opened, quarantine)
    return opened


def _few_ranges(windows: Sequence[int], sealed: WindowRange | None) -> tuple[WindowRange, ...]:
    """Returns windows as ranges, at most the number of ranges that a condition may have.

    To stay below this number, nearby windows are merged, and the windows between them are sealed
    again unchanged.
    """
    assert sealed is not None, "only sealed windows are reopened"
    step = 1
    while len(parts := to_ranges(np.asarray(windows, np.int64) // step)) > _RANGES_MAX:
        step *= 2
    wide = [WindowRange(part.first * step, part.last * step + step - 1) for part in parts]
    return tuple(filter(None, map(sealed.overlap, wide)))


def _in_order(
    spark: SparkSession,
    tables: StreamTables,
    tuples: DataFrame,
    opened: Reopening | None,
    *,
    by_content: bool,
) -> DataFrame:
    """Returns tuples in the order of arrival, with their offsets.

    If `opened` is given, the recorded tuples of its windows are included.
    """
    # Position and payload make the order of late tuples the same in every run.
    if opened is not None:
        no_place = {"position": F.lit(""), "payload": F.lit("")}
        tuples = _recorded(spark, tables, opened).withColumns(no_place).unionByName(tuples)
    order = list(map(F.col, ("arrived_at", "offset", "position", "payload")))
    if by_content:
        order = content_order(spark_schema(tables.data.schema))
    in_window = Window.partitionBy("window_id").orderBy(*order)
    numbered = tuples.withColumn("offset", (F.row_number().over(in_window) - 1).cast("bigint"))
    names = map(quoted_column, tables.data.schema.names)
    return numbered.select(*names).sort("window_id", "offset")


def _recorded(spark: SparkSession, tables: StreamTables, opened: Reopening) -> DataFrame:
    schema = spark_schema(tables.data.schema)
    paths: set[str] = set()
    for part in opened.windows:
        paths.update(paths_of(tables.data.files(part.first, part.last)))
    return frame_of(spark, schema, sorted(paths)).where(opened.column)


def seal_noted(spark: SparkSession, tables: StreamTables, opened: Reopening) -> None:
    """Seals reopened windows again from their current tuples, with the next generation."""
    tables.note_files()
    recorded = _recorded(spark, tables, opened)
    found = window_digests(recorded).toArrow()
    empty = empty_digests(recorded.schema)
    digests = every_window(found, opened.windows, empty)
    old = pa.concat_tables(read_seals(tables.windows, part) for part in opened.windows)
    place = pc.index_in(digests["window_id"].combine_chunks(), old["window_id"].combine_chunks())
    generation = pc.add(old["generation"].take(place), 1)
    rows = seal_rows(digests.append_column("generation", generation), tables.data, tables.columns)
    tables.windows.replace(
        rows.to_reader(),
        opened.predicate,
        app_id=tables.app_id,
        version=opened.run,
    )
    tables.refresh()


def finish(tables: StreamTables, opened: Reopening, quarantine: Location) -> None:
    """Removes the late and changed tuples of reopened windows from the quarantine, then removes the
    note.
    """
    name = tables.name.replace("'", "''")
    if Table.exists(quarantine):
        Table.open(quarantine).delta.delete(
            f"source = '{name}' and reason in ('{LATE}', '{CHANGED}') and ({opened.predicate})"
        )
    tables.windows.set_properties({_NOTE: ""})


def complete(
    spark: SparkSession,
    tables: StreamTables,
    quarantine: Location,
    on_opened: OnOpened,
) -> Reopening | None:
    """Completes an interrupted reopening and returns it.

    Returns None if no reopening was noted or if the noted one had changed nothing.
    """
    opened = Reopening.noted(tables)
    if opened is None:
        return None
    if tables.data.txn(tables.app_id) < opened.run:
        tables.windows.set_properties({_NOTE: ""})
        return None
    on_opened(opened.windows)
    if tables.has_unsealed_commit:
        seal_noted(spark, tables, opened)
    finish(tables, opened, quarantine)
    return opened
