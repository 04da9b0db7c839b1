"""Repairs the seals of a stream and its table of data files.

Every window is read once, and its digests are compared with its seal. A damaged seal is written
again if the window still matches it. A window that does not match keeps its seal and is listed;
every other window can be used. Files without a row in the table of data files, because that table
is missing or another program has written them (for example by compacting the stream), are noted if
all windows match their seals. Nothing is deleted: Delta keeps the earlier versions. Each step can
be repeated, so a run that dies can be started again. If a stream has no fault, none of its tuples
are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from rewindow.errors import InputError, OverlapError
from rewindow.facts.seals import intact, seal_rows
from rewindow.recording.stream import recording_lock
from rewindow.settings.config import Config
from rewindow.spark.digests import NOT_DIGESTED, digest_columns, empty_digests
from rewindow.spark.frames import read_windows
from rewindow.storage import Table, TuplesInPlace, create_table, query
from rewindow.storage.files import FILES_SCHEMA, files_path, name_in, note_files, noted_files
from rewindow.storage.formats import TableKind, check_format, format_property
from rewindow.storage.streams import WINDOWS_SCHEMA, sealed_streams
from rewindow.windows import WindowRange, to_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_WINDOW = WindowRange(-(1 << 62), 1 << 62)


@dataclass
class UpgradeResult:
    """The result of repairing a stream.

    Attributes:
        resealed: number of windows whose damaged seals were written again.
        files: number of data files that were noted.
        differing: windows whose tuples do not match their seals, as [first, last] pairs.
        already: nothing needed repair, and no tuple was read.
    """

    stream: str
    resealed: int = 0
    files: int = 0
    differing: list[tuple[int, int]] = field(default_factory=list)
    already: bool = False

    def lines(self) -> list[str]:
        """Returns the lines to print."""
        if self.already:
            return [f"{self.stream}: nothing to repair"]
        lines = [
            f"{self.stream}: {self.resealed:,} seals repaired, {self.files:,} data files registered"
        ]
        if self.differing:
            windows = ", ".join(str(WindowRange(*pair)) for pair in self.differing[:10])
            more = " ..." if len(self.differing) > 10 else ""
            lines.append(
                f"{self.stream}: windows {windows}{more} differ from their seals; these seals "
                "were not changed"
            )
        return lines


def upgradable(config: Config, names: Sequence[str]) -> list[str]:
    """Returns the streams to repair: the named streams, all streams of a named application, or all
    streams if no name is given.

    Raises:
        InputError: the stream or application does not exist.
    """
    # A stream in place has no registered data files, and each recording compares its seals.
    known = [
        name
        for name in sealed_streams(config.state / "streams")
        if not TuplesInPlace.is_at(config.stream_table(name))
    ]
    found: set[str] = set()
    for name in names:
        streams = [stream for stream in known if _is_of(stream, name)]
        found.update(streams)
        if not streams:
            raise InputError(
                f'stream or application "{name}" does not exist, or is in place',
                detail=f"Existing streams: {', '.join(known) or 'none'}.",
            )
    return sorted(found) if names else known


def _is_of(stream: str, name: str) -> bool:
    return stream == name or stream.startswith(f"{name}.")


def upgrade_stream(spark: SparkSession, config: Config, name: str) -> UpgradeResult:
    """Repairs a stream's seals and its table of data files, and returns the result.

    Raises:
        TableError: a table does not exist, or has the format of another version.
        OverlapError: the stream is being recorded.
    """
    with recording_lock(config, name):
        data = check_format(Table.open(config.stream_table(name)), TableKind.STREAM)
        windows = check_format(Table.open(config.windows_table(name)), TableKind.SEALS)
        seals = _stored_seals(windows)
        if _is_whole(data, seals):
            return UpgradeResult(name, already=True)
        compared = _compare(spark, data, seals)
        result = UpgradeResult(
            name,
            compared.resealed.num_rows,
            differing=_ranges(compared.differing),
        )
        if not result.differing:
            result.files = _note_files(data)
        _replace_seals(windows, list(compared))
        return result


def _stored_seals(windows: Table) -> pa.Table:
    """Returns the seals as stored."""
    rows = query("select * from w where window_id is not null order by window_id", w=windows)
    return rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)


def _is_whole(data: Table, seals: pa.Table) -> bool:
    """Returns whether all files of a stream are noted and no seal is damaged."""
    if not (Table.exists(files_path(data.path)) and pc.all(intact(seals)).as_py() is not False):
        return False
    noted = noted_files(Table.open(files_path(data.path)))
    return all(name_in(data, file) in noted for file in data.files())


class _Compared(NamedTuple):
    """Seals by the result of comparing them with their windows: written again, undamaged, and
    different.
    """

    resealed: pa.Table
    intact: pa.Table
    differing: pa.Table


def _compare(spark: SparkSession, data: Table, seals: pa.Table) -> _Compared:
    """Compares every seal with its window.

    The digests cover the columns that the stream had when the window was sealed.
    """
    none = seals.slice(0, 0)
    parts = [_Compared(none, none, none)]
    # A seal covers the columns that the stream had at that time. Seals of the same columns are
    # compared together, so that each such group takes one pass over the tuples.
    for text in pc.unique(seals["columns"]).to_pylist():
        of_text = pc.is_null(seals["columns"]) if text is None else pc.equal(seals["columns"], text)
        part = seals.filter(pc.fill_null(of_text, False))
        names = _names_in(text, data)
        if names is None:
            parts.append(_Compared(none, none, part))
            continue
        found = _digests(spark, data, names)
        matching = _matching(part, found)
        whole = intact(part)
        resealed = _resealed(
            part.filter(pc.and_(matching, pc.invert(whole))), found, data, columns=text
        )
        differing = part.filter(pc.invert(matching))
        parts.append(_Compared(resealed, part.filter(pc.and_(matching, whole)), differing))
    return _Compared(*map(pa.concat_tables, zip(*parts, strict=True)))


def _names_in(columns: str | None, data: Table) -> set[str] | None:
    """Returns the event columns that a seal names; None if the text is damaged or names columns
    that the table lacks.
    """
    try:
        names = set(json.loads(columns or ""))
    except ValueError:
        return None
    return names if names <= set(data.schema.names) else None


def _digests(spark: SparkSession, data: Table, names: set[str]) -> pa.Table:
    """Returns the number of tuples and the digests of each window."""
    frame = read_windows(spark, data, _EVERY_WINDOW)
    exclude = {*NOT_DIGESTED, *(set(frame.columns) - names)}
    found = frame.groupBy("window_id").agg(*digest_columns(frame.schema, exclude)).toArrow()
    digest, float_digest = empty_digests(frame.schema, exclude)
    empty = [None, 0, digest, float_digest]
    return pa.concat_tables([found, pa.table([[value] for value in empty], schema=found.schema)])


def _places(seals: pa.Table, found: pa.Table) -> pa.Array:
    """Returns, for every seal, the index of the row with the digests of its window.

    For an empty window, it is the last row.
    """
    places = pc.index_in(
        seals["window_id"],
        found["window_id"].combine_chunks().slice(0, found.num_rows - 1),
    )
    return pc.fill_null(places, found.num_rows - 1)


def _matching(seals: pa.Table, found: pa.Table) -> pa.ChunkedArray:
    """Returns, for every seal, whether its window has the sealed number of tuples and digests.

    A window without a row in `found` counts as empty. A seal with a null count or digest does not
    match.
    """
    now = found.take(_places(seals, found))
    exact = pc.and_(
        pc.equal(seals["tuples"], now["tuples"]),
        pc.equal(seals["digest"], now["digest"]),
    )
    same = pc.equal(pc.fill_null(seals["float_digest"], ""), pc.fill_null(now["float_digest"], ""))
    return pc.fill_null(pc.and_(exact, same), False)


def _note_files(data: Table) -> int:
    create_table(files_path(data.path), FILES_SCHEMA, format_property(TableKind.FILES))
    return note_files(data, Table.open(files_path(data.path)))


def _resealed(old: pa.Table, found: pa.Table, data: Table, columns: str) -> pa.Table:
    """Returns new seals that replace damaged ones, with the same generation, time and version of
    the sealing.
    """
    now = found.take(_places(old, found)).select(["tuples", "digest", "float_digest"])
    for name in ("window_id", "sealed_at", "data_version", "generation"):
        now = now.append_column(name, old[name])
    return seal_rows(now, data, columns)


def _replace_seals(windows: Table, parts: list[pa.Table]) -> None:
    rows = pa.concat_tables([*parts, *_end_rows(windows)]).sort_by("window_id")
    try:
        write_deltalake(windows.delta, rows, mode="overwrite", schema_mode="overwrite")
    except CommitFailedError as error:
        raise OverlapError(
            f'table "{windows.path.name}" was changed by another process while it was being '
            "repaired",
            detail="The seals of the table were not repaired.",
            hint="Run the command again: rewindow streams upgrade",
        ) from error
    windows.refresh()


def _end_rows(windows: Table) -> list[pa.Table]:
    rows = query("select * from w where window_id is null", w=windows)
    return [rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)]


def _ranges(seals: pa.Table) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in to_ranges(seals["window_id"].to_pylist())]
