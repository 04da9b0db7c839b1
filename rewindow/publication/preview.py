"""Computes the effect and the cost of a publication or undo for each table, without changing
anything. No JVM.

A publication uses it to check for free disk space; `rewindow publish --dry-run` and `rewindow undo
--dry-run` show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import pyarrow.compute as pc

from rewindow.errors import ResourceError
from rewindow.facts.seals import read_seals
from rewindow.ledger.publication_details import PutBack
from rewindow.location import Location, location
from rewindow.names import windows_name
from rewindow.publication.by_files import (
    reason_to_publish_with_spark,
    reason_to_put_back_with_spark,
    within,
)
from rewindow.publication.contents import files_of
from rewindow.publication.joining import files_to_join
from rewindow.publication.objections import Flaws
from rewindow.publication.staged_files import StagedFiles
from rewindow.publication.staged_output import StagedOutput, inside
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.delta import DataFile, total_size
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import Kind, targets_of
from rewindow.storage.queries import read_rows
from rewindow.windows import WindowRange

_START_S = 0.5
_SPARK_START_S = 12.0
_READ_PER_S = 500e6
_COPIED_PER_S = 150e6
_ROWS_PER_S = 400_000
_SPARK_ROWS_PER_S = 150_000
_FILES_PER_S = 1_500
"""Approximate rates on two cores, in bytes, rows and files per second: 20 M rows in 1,000 files
took about 2 s."""


class Way(StrEnum):
    """How rows are added to a published table."""

    LINKS = "links"
    COPIES = "copies"
    SPARK = "Spark"


@dataclass(frozen=True)
class TablePreview:
    """The effect of a publication or undo on the tuples of one table.

    Attributes:
        why: the reason why files cannot be linked.
        rows: rows that it publishes or restores.
        files: number of files that are linked or copied completely, with `bytes`.
        rows_written: rows of files that are used in part, or all rows with Spark.
        files_cut: files on the edge of the range, whose other rows are rewritten.
        files_removed: files of the range that are removed from the newest version.
        files_joined: small files next to the range that are joined into one, see `joining`.
        bytes_written: disk space that it needs.
        seconds: estimated duration.
    """

    table: str
    way: Way
    why: str
    rows: int
    files: int
    bytes: int
    rows_written: int
    files_cut: int
    files_removed: int
    bytes_written: int
    seconds: float
    files_joined: int = 0


@dataclass(frozen=True)
class ShownWindows:
    """Windows that show a replay's publication after an undo.

    `replay` is None if they show no publication.
    """

    first: int
    last: int
    replay: str | None


@dataclass(frozen=True)
class PublicationPreview:
    """The effect of publishing a replay, or of an undo.

    Attributes:
        kind: "publish" or "undo".
        windows: number of windows in the range.
        unfinished: publications of other processes that were left open and will be finished first.
        shows: content of the range after an undo, ascending.
        flaws: windows of the replay that are missing, lost or affected.
        objections: objections that a user has to accept, one line each.
    """

    kind: str
    replay_id: str
    application: str
    first: int
    last: int
    windows: int
    tables: tuple[TablePreview, ...]
    unfinished: tuple[int, ...] = ()
    shows: tuple[ShownWindows, ...] = ()
    flaws: Flaws = field(default_factory=dict)
    objections: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The estimated duration, including the start of Spark if it is needed."""
        start = _SPARK_START_S if any(table.way is Way.SPARK for table in self.tables) else _START_S
        return round(start + sum(table.seconds for table in self.tables), 1)

    def to_json(self) -> dict[str, Any]:
        """Returns the preview as JSON values."""
        return {**asdict(self), "seconds": self.seconds}


def table_preview(
    config: Config,
    name: str,
    staged: StagedOutput,
    files: StagedFiles,
) -> TablePreview:
    """Returns the effect of publishing a staged output on its table.

    Args:
        config: current settings.
        name: name of the published table.
        staged: the output.
        files: the files that can be linked, see `staged_files`.
    """
    windows = staged.plan.range
    reason = reason_to_publish_with_spark(config, name, windows)
    every = staged.table.files(windows.first, windows.last)
    new = _NewRows(_rows(staged), files.whole, _rows(files.rows), every=every)
    expected = _expected(config, name, windows, reason, new)
    if reason or not Table.exists(config.stream_table(name)):
        return expected
    joined = files_to_join(open_published(config, name), windows)
    size = total_size(joined)
    rows = sum(file.rows for file in joined)
    return replace(
        expected,
        files_joined=len(joined),
        bytes_written=expected.bytes_written + size,
        seconds=expected.seconds + rows / _ROWS_PER_S,
    )


def undo_preview(
    config: Config,
    name: str,
    windows: WindowRange,
    pieces: Mapping[str, Sequence[PutBack]],
) -> TablePreview:
    """Returns the effect of an undo on the tuples of a table.

    Args:
        config: current settings.
        name: name of the published table.
        windows: the range of the undone publication.
        pieces: table name to the restored ranges and versions.
    """
    every: list[DataFile] = []
    whole: list[DataFile] = []
    written = 0
    for piece in pieces[name]:
        table = open_published(config, name, piece.version)
        files = files_of(config, name, piece)
        edge: list[DataFile] = []
        for file in files:
            side = whole if within(file, piece.windows) else edge
            side.append(file)
        every = every + files
        with table.reading(*edge):
            rows_cut = read_rows(edge, table.schema, ["window_id"], inside(piece.windows))
        written += rows_cut.num_rows
    rows = 0
    for piece in pieces.get(windows_name(name), ()):
        seals = open_published(config, windows_name(name), piece.version)
        rows += pc.sum(read_seals(seals, piece.windows)["tuples"]).as_py() or 0
    reason = reason_to_put_back_with_spark(config, name, windows, pieces=pieces[name])
    return _expected(config, name, windows, reason, _NewRows(rows, whole, written, every=every))


@dataclass(frozen=True)
class _NewRows:
    """The source of a publication or undo.

    It has the number of rows, the files that are used completely, the rows of other files, and all
    files that are read.
    """

    rows: int
    whole: Sequence[DataFile]
    written: int
    every: Sequence[DataFile]


def _expected(
    config: Config,
    name: str,
    windows: WindowRange,
    reason: str,
    new: _NewRows,
) -> TablePreview:
    """Returns the effect on a table whose range is replaced.

    If there is a reason for Spark, the range is replaced with Spark.
    """
    removed, cut = _replaced(config, name, windows)
    rows = new.rows
    left = new.written
    whole = new.whole
    every = total_size(new.every)
    linked = total_size(whole)
    if reason:
        seconds = rows / _SPARK_ROWS_PER_S
        return TablePreview(
            name,
            Way.SPARK,
            reason,
            rows=rows,
            files=0,
            bytes=0,
            rows_written=rows,
            files_cut=len(cut),
            files_removed=removed,
            bytes_written=2 * every,
            seconds=seconds,
        )
    apart = bool(whole) and not location(whole[0].path).links_to(
        _existing(config.stream_table(name))
    )
    why = "the table is on another file system, where files cannot be linked" if apart else ""
    # Links are almost free. Time is spent on the checksums of linked files, on rows that are
    # rewritten at the borders of the range, and on the entries of the log.
    written = (every - linked) * bool(left) + sum(cut) + linked * apart
    work = (
        linked / (_COPIED_PER_S if apart else _READ_PER_S)
        + (left + _rows_of(every, rows, sum(cut))) / _ROWS_PER_S
    )
    seconds = work + (len(whole) + removed) / _FILES_PER_S
    way = Way.COPIES if apart else Way.LINKS
    return TablePreview(
        name,
        way,
        why,
        rows=rows,
        files=len(whole),
        bytes=linked,
        rows_written=left,
        files_cut=len(cut),
        files_removed=removed,
        bytes_written=written,
        seconds=seconds,
    )


def reasons_for_spark(config: Config, plan: Plan) -> list[str]:
    """Returns the reasons why publishing a planned range will need Spark, one for each table that
    needs it.
    """
    reasons = []
    for target in targets_of(plan):
        if target.kind is Kind.DATA:
            reasons.append(reason_to_publish_with_spark(config, target.name, plan.range))
    return list(filter(None, reasons))


def check_room(config: Config, tables: Iterable[TablePreview]) -> None:
    """Checks that there is enough free disk space for copied and written files.

    Links need no space.

    Raises:
        ResourceError: there is not enough space.
    """
    known = list(tables)
    needed = sum(table.bytes_written for table in known)
    rooms = [
        _existing(config.stream_table(table.table)).free_bytes() for table in known
    ]  # Where tables are, not state.
    free = min((room for room in rooms if room is not None), default=needed)
    if needed and free < needed:
        raise ResourceError(
            f"publishing needs about {_megabytes(needed)} of disk space, but only "
            f"{_megabytes(free)} are free",
            detail="The space is needed for files that are copied or rewritten; linked files need "
            "none. Nothing was published.",
            hint="Free disk space (rewindow purge lists what can be deleted) and publish again.",
        )


def _replaced(config: Config, name: str, windows: WindowRange) -> tuple[int, list[int]]:
    """Returns the number of files that a commit removes from a published table, and the sizes of
    the files of which it removes some rows.
    """
    if not Table.exists(config.stream_table(name)):
        return 0, []
    files = open_published(config, name).files(windows.first, windows.last)
    return len(files), [file.size for file in files if not within(file, windows)]


def _existing(place: Location) -> Location:
    while not place.is_dir() and place.parent != place:
        place = place.parent
    return place


def _rows(staged: StagedOutput) -> int:
    return int(sum(staged.seals["tuples"].to_pylist()))


def _rows_of(size: int, rows: int, part: int) -> float:
    return rows * part / size if size else 0.0


def _megabytes(size: int) -> str:
    return f"{max(0.1, size / 1e6):,.1f} MB"
