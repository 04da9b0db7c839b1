"""Upgrade: streams of the first release, which may be the only copy, lifted to the format of this one.

Every window is read once: the digests that the first release took are compared with what its files hold now, and the
new ones are taken in the same pass. A window that does not match keeps its old seal, without a checksum, and is named:
planning refuses it, and every other window can be used. Nothing is deleted, Delta keeps the versions from before. Each
step can be repeated, so that a run that dies is begun again; a stream in the present format is only looked at.

It also mends a stream of the present format whose table of data files is gone, or to which another program has added
files, such as by compacting it: these are noted once all windows match their seals.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from rewindow.config import Config
from rewindow.errors import InputError, OverlapError
from rewindow.facts.seals import FIRST_GENERATION, columns_text, intact, seal_rows
from rewindow.location import Location
from rewindow.recording.stream import recording_lock
from rewindow.spark.digests import NOT_DIGESTED, digest_columns, empty_digests, first_float_digest
from rewindow.spark.frames import read_windows
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table, query
from rewindow.storage.files import FILES_SCHEMA, files_path, name_in, note_files, noted_files
from rewindow.storage.formats import CURRENT, TableKind, check_format, format_of, format_property
from rewindow.storage.streams import QUARANTINE_SCHEMA, WINDOWS_SCHEMA, sealed_streams, stored_settings
from rewindow.windows import WindowRange, to_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DERIVED_ARRIVAL = "start of the window"
"""The stored setting `arrived_at` of a published stream whose output has no arrival of its own."""


_EVERY_WINDOW = WindowRange(-(1 << 62), 1 << 62)


@dataclass
class UpgradeResult:
    """What the upgrade of a stream came to.

    Attributes:
        lifted: windows whose seals were lifted.
        files: data files that were noted.
        differing: windows whose tuples are not what their seals say, as [first, last] pairs.
        already: nothing had to be done, and no tuple was read.
    """

    stream: str
    lifted: int = 0
    files: int = 0
    differing: list[tuple[int, int]] = field(default_factory=list)
    already: bool = False

    def lines(self) -> list[str]:
        """Returns what a person should read."""
        if self.already:
            return [f"{self.stream}: is in format {CURRENT[TableKind.SEALS]} already"]
        lines = [f"{self.stream}: {self.lifted:,} seals lifted, {self.files:,} data files noted"]
        if self.differing:
            windows = ", ".join(str(WindowRange(*pair)) for pair in self.differing[:10])
            more = " ..." if len(self.differing) > 10 else ""
            lines.append(
                f"{self.stream}: windows {windows}{more} do not hold what was sealed; their seals stay as they are"
            )
        return lines


def upgradable(config: Config, names: Sequence[str]) -> list[str]:
    """Returns the streams to lift: those that are named, all of a named application, or all that there are.

    Raises:
        InputError: there is no such stream or application.
    """
    known = sealed_streams(config.state / "streams")
    found = [stream for stream in known if not names or any(_is_of(stream, name) for name in names)]
    for name in names:
        if not any(_is_of(stream, name) for stream in known):
            raise InputError(
                f'stream or application "{name}" is not there', detail=f"There are: {', '.join(known) or 'none'}."
            )
    return found


def _is_of(stream: str, name: str) -> bool:
    return stream == name or stream.startswith(f"{name}.")


def upgrade_stream(spark: SparkSession, config: Config, name: str) -> UpgradeResult:
    """Lifts a stream's tables to the present format, and returns what was done.

    Raises:
        TableError: a table is not there, or has a newer format.
        OverlapError: the stream is being recorded.
    """
    with recording_lock(config, name):
        data, windows = Table.open(config.stream_table(name)), Table.open(config.windows_table(name))
        _refuse_newer(data, TableKind.STREAM)
        _refuse_newer(windows, TableKind.SEALS)
        seals = _stored_seals(windows)
        if _is_current(data, windows, seals):
            return UpgradeResult(name, already=True)
        compared = _compare(spark, data, windows, seals)
        result = UpgradeResult(name, compared.lifted.num_rows, differing=_ranges(compared.differing))
        if not result.differing or format_of(data) < CURRENT[TableKind.STREAM]:
            result.files = _note_files(data)
        data.set_properties(format_property(TableKind.STREAM))
        _replace_seals(windows, [compared.lifted, compared.intact, compared.differing])
        windows.set_properties(format_property(TableKind.SEALS))
        return result


def upgrade_others(config: Config, names: Sequence[str]) -> None:
    """Lifts what is no stream: published checkpoints, all or those of named applications, and the quarantine."""
    for path in (config.state / "streams").entries("*.checkpoints"):
        if not names or path.name.removesuffix(".checkpoints") in names:
            _add_columns(path, stored.SCHEMA, TableKind.STATES)
    _add_columns(config.quarantine_table, QUARANTINE_SCHEMA, TableKind.QUARANTINE)


def _add_columns(path: Location, schema: pa.Schema, kind: TableKind) -> None:
    if not Table.exists(path):
        return
    table = Table.open(path)
    _refuse_newer(table, kind)
    if format_of(table) == CURRENT[kind]:
        return
    new = [column for column in schema if column.name not in table.schema.names]
    if new:
        write_deltalake(table.delta, pa.schema([*table.schema, *new]).empty_table(), mode="append", schema_mode="merge")
        table.refresh()
    table.set_properties(format_property(kind))


def _refuse_newer(table: Table, kind: TableKind) -> None:
    if format_of(table) > CURRENT[kind]:
        check_format(table, kind)


def _stored_seals(windows: Table) -> pa.Table:
    """Returns the seals as they are, with columns that they lack as null."""
    rows = query("select * from w where window_id is not null order by window_id", w=windows)
    for column in WINDOWS_SCHEMA:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)


def _is_current(data: Table, windows: Table, seals: pa.Table) -> bool:
    """Returns whether a stream is in the present format, all its files are noted and all its seals are whole."""
    formats = (format_of(data), format_of(windows)) == (CURRENT[TableKind.STREAM], CURRENT[TableKind.SEALS])
    if not (formats and Table.exists(files_path(data.path)) and pc.all(intact(seals)).as_py() is not False):
        return False
    noted = noted_files(Table.open(files_path(data.path)))
    return all(name_in(data, file) in noted for file in data.files())


@dataclass(frozen=True)
class _Compared:
    """Seals by what their windows hold: lifted ones, ones that were whole already, and ones that do not match."""

    lifted: pa.Table
    intact: pa.Table
    differing: pa.Table


def _compare(spark: SparkSession, data: Table, windows: Table, seals: pa.Table) -> _Compared:
    """Holds every seal against its window, over the columns that the stream had when it was sealed."""
    parts = [_Compared(*(seals.slice(0, 0) for _ in range(3)))]
    for text in pc.unique(seals["columns"]).to_pylist():
        of_text = pc.is_null(seals["columns"]) if text is None else pc.equal(seals["columns"], text)
        part = seals.filter(pc.fill_null(of_text, False))
        columns = columns_text(_events(data, windows)) if text is None else text
        names = _names_in(columns, data)
        if names is None:
            parts.append(_Compared(seals.slice(0, 0), seals.slice(0, 0), part))
            continue
        found = _digests(spark, data, names)
        matching, whole = _matching(part, found), intact(part)
        lifted = _lifted(part.filter(pc.and_(matching, pc.invert(whole))), found, data, columns)
        differing = part.filter(pc.invert(matching))
        parts.append(_Compared(lifted, part.filter(pc.and_(matching, whole)), differing))
    return _Compared(*(pa.concat_tables(getattr(part, name) for part in parts) for name in _Compared.__annotations__))


def _names_in(columns: str, data: Table) -> set[str] | None:
    """Returns the event columns that a seal names; None when that text is damaged, or names what the table lacks."""
    try:
        names = set(json.loads(columns))
    except ValueError:
        return None
    return names if names <= set(data.schema.names) else None


def _digests(spark: SparkSession, data: Table, names: set[str]) -> pa.Table:
    """Returns what the windows hold: tuples, digests, and the float digest as the first release took it."""
    frame = read_windows(spark, data, _EVERY_WINDOW)
    exclude = {*NOT_DIGESTED, *(set(frame.columns) - names)}
    first = first_float_digest(frame.schema, exclude).alias("first_float")
    found = frame.groupBy("window_id").agg(*digest_columns(frame.schema, exclude), first).toArrow()
    digest, float_digest = empty_digests(frame.schema, exclude)
    empty = [None, 0, digest, float_digest, float_digest]
    return pa.concat_tables([found, pa.table([[value] for value in empty], schema=found.schema)])


def _places(seals: pa.Table, found: pa.Table) -> pa.Array:
    """Returns for every seal the row of what its window holds; of an empty window that is the last row."""
    places = pc.index_in(seals["window_id"], found["window_id"].combine_chunks().slice(0, found.num_rows - 1))
    return pc.fill_null(places, found.num_rows - 1)


def _matching(seals: pa.Table, found: pa.Table) -> pa.ChunkedArray:
    """Returns for every seal whether its window holds what it says: by its own float digest, or the first release's."""
    now = found.take(_places(seals, found))
    exact = pc.and_(pc.equal(seals["tuples"], now["tuples"]), pc.equal(seals["digest"], now["digest"]))
    stored_float = pc.fill_null(seals["float_digest"], "")
    older = pc.and_(pc.is_null(seals["checksum"]), pc.equal(stored_float, pc.fill_null(now["first_float"], "")))
    same = pc.or_(older, pc.equal(stored_float, pc.fill_null(now["float_digest"], "")))
    return pc.fill_null(pc.and_(exact, same), False)


def _note_files(data: Table) -> int:
    create_table(files_path(data.path), FILES_SCHEMA, format_property(TableKind.FILES))
    return note_files(data, Table.open(files_path(data.path)))


def _lifted(old: pa.Table, found: pa.Table, data: Table, columns: str) -> pa.Table:
    """Returns new seals in the place of old ones; when they were sealed, and in which version, stays."""
    now = found.take(_places(old, found)).select(["tuples", "digest", "float_digest"])
    for name in ("window_id", "sealed_at", "data_version"):
        now = now.append_column(name, old[name])
    now = now.append_column("generation", pc.fill_null(old["generation"], FIRST_GENERATION))
    return seal_rows(now, data, columns)


def _replace_seals(windows: Table, parts: list[pa.Table]) -> None:
    rows = pa.concat_tables([*parts, *_end_rows(windows)]).sort_by("window_id")
    try:
        write_deltalake(windows.delta, rows, mode="overwrite", schema_mode="overwrite")
    except CommitFailedError as error:
        raise OverlapError(
            f'table "{windows.path.name}" was written to by somebody else while it was lifted',
            detail="Its seals are what the other one left.", hint="Do it again: rewindow streams upgrade",
        ) from error  # fmt: skip
    windows.refresh()


def _end_rows(windows: Table) -> list[pa.Table]:
    if "end_window" not in windows.schema.names:
        return []
    rows = query("select * from w where window_id is null", w=windows)
    return [rows.select(WINDOWS_SCHEMA.names).cast(WINDOWS_SCHEMA)]


def _events(data: Table, windows: Table) -> pa.Schema:
    """Returns the columns that a digest covers, as the seals of this release name them."""
    derived = stored_settings(windows).get("arrived_at") == DERIVED_ARRIVAL
    return pa.schema([column for column in data.schema if not (derived and column.name == "arrived_at")])


def _ranges(seals: pa.Table) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in to_ranges(seals["window_id"].to_pylist())]
