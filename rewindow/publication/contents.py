"""The rows that a publication writes to each table.

They are computed only from the publication's entry in the ledger, so that any later process can
finish the publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import CheckpointError, TableError
from rewindow.facts.seals import FIRST_GENERATION, read_seals, seal_rows
from rewindow.ledger.publication_details import PutBack, StartedFrom
from rewindow.location import location
from rewindow.names import windows_name
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, query
from rewindow.storage.delta import DataFile
from rewindow.storage.fields import column_pairs
from rewindow.storage.names import open_published
from rewindow.windows import WindowRange

THINNED_MAX = 8
"""Maximum number of older checkpoints of a replay that are published in addition to the one at its
end."""


def saved_states(checkpoints: Table) -> dict[int, str]:
    """Returns the state digest of each checkpoint of a replay by window, including the start state.

    If several attempts saved a window, the newest attempt counts. The checkpoints of a warm-up are
    before the range and are not part of the replay's results.
    """
    rows = query(
        "select window_id, attempt, operator, digest from c where mark >= 0",
        c=checkpoints,
    )
    states = {}
    for window in pc.unique(rows["window_id"]).to_pylist():
        of_window = rows.filter(pc.equal(rows["window_id"], window))
        states[window] = stored.state_digest(
            of_window.filter(pc.equal(of_window["attempt"], pc.max(of_window["attempt"])))
        )
    return states


def kept_checkpoints(plan: Plan, saved: Iterable[int], windows: WindowRange) -> list[int]:
    """Returns the windows whose checkpoints are published: the last window, and a few older windows
    at regular distances.

    Raises:
        CheckpointError: the replay has no checkpoint at its end.
    """
    if windows.last not in set(saved):
        raise CheckpointError(
            f'replay "{plan.replay_id}" has no checkpoint at window {windows.last}, where its '
            "range ends",
            hint="Run it to its end first, or plan the range again.",
        )
    apart = max(plan.checkpoint_windows, len(windows) // THINNED_MAX)
    kept = [windows.last]
    for window in sorted(saved, reverse=True):
        if window in windows and kept[-1] - window >= apart:
            kept.append(window)
    return sorted(kept)


def checkpoint_rows(checkpoints: Table, windows: Iterable[int]) -> pa.Table:
    """Returns the rows of a table of checkpoints for the given windows, including states."""
    listed = ", ".join(map(str, windows))
    rows = query(f"select * from c where window_id in ({listed})", c=checkpoints).select(
        stored.SCHEMA.names
    )
    rows = rows.cast(stored.SCHEMA)
    # Several attempts may have saved the same window. Only rows of its newest attempt count.
    newest = rows.group_by("window_id").aggregate([("attempt", "max")])
    newest = newest.rename_columns(["window_id", "attempt"])
    pairs = set(column_pairs(newest, "window_id", "attempt"))
    is_newest = map(pairs.__contains__, column_pairs(rows, "window_id", "attempt"))
    return rows.filter(pa.array(list(is_newest), pa.bool_()))


def published_seals(
    config: Config,
    name: str,
    seals: pa.Table,
    columns: str,
    sealed_at: datetime,
    data_version: int,
) -> pa.Table:
    """Returns the seals of a published stream.

    Lost windows have no seal, so they count as missing. A window that was published before is
    sealed again with the next generation.

    Rules: X52
    """
    newest = open_published(config, name)
    data = newest if newest.version == data_version else open_published(config, name, data_version)
    new = seals.select(["window_id", "tuples", "digest", "float_digest"])
    if new.num_rows:
        asked = WindowRange(*pc.min_max(new["window_id"]).as_py().values())
        before = read_seals(open_published(config, windows_name(name)), asked)
        generations = before["generation"].take(
            pc.index_in(new["window_id"], before["window_id"].combine_chunks())
        )
        new = new.append_column(
            "generation", pc.fill_null(pc.add(generations, 1), FIRST_GENERATION)
        )
    return seal_rows(new, data, columns, sealed_at=sealed_at)


def rows_before(config: Config, name: str, pieces: Sequence[PutBack]) -> pa.Table:
    """Returns the rows of a small published table in disjoint ranges, each from an earlier version
    of the table.

    Columns that were added later are null.
    """
    now = open_published(config, name)
    parts = [now.schema.empty_table()]
    for piece in pieces:
        windows = piece.windows
        version = piece.version
        table = open_published(config, name, version)
        rows = query(
            f"select * from t where window_id between {windows.first} and {windows.last}",
            t=table,
        )
        parts.append(rows.select(table.schema.names).cast(table.schema))
    return pa.concat_tables(parts, promote_options="default").select(now.schema.names)


def start_state(config: Config, plan: Plan) -> StartedFrom:
    """Returns the published state with which a replay started, and its digest if it can be read.

    It is used to find stale windows.
    """
    start = plan.start
    if not start.taken_from or start.source not in ("published", "warm_up"):
        return StartedFrom(start.source)
    digest = start.digest
    if not digest and start.window is not None:
        try:
            rows = stored.rows_at(
                Table.open(start.table(config.state), start.version),
                start.window,
            )
            digest = stored.state_digest(rows) if rows.num_rows else ""
        except TableError:
            digest = ""
    return StartedFrom(start.source, start.window, digest)


def files_of(config: Config, name: str, piece: PutBack) -> list[DataFile]:
    """Checks that the files of an earlier version of a published table exist, and returns the files
    in a range.

    Raises:
        TableError: the version or a file of it was removed.
    """
    try:
        files = open_published(config, name, piece.version).files(
            piece.windows.first,
            piece.windows.last,
        )
    except TableError as error:
        raise _gone(name, piece.version, error.detail) from error
    missing = [file.path for file in files if not location(file.path).exists()]
    if missing:
        raise _gone(
            name,
            piece.version,
            f"{len(missing)} of {len(files)} files are missing, such as "
            f"{location(missing[0]).name}.",
        )
    return files


def check_states(config: Config, name: str, piece: PutBack) -> None:
    """Checks that the state files exist for an earlier version of published checkpoints.

    Raises:
        TableError: a file was removed.
    """
    windows = piece.windows
    table = open_published(config, name, piece.version)
    for rows in stored.stored_rows(table):
        inside = pc.and_(
            pc.greater_equal(rows["window_id"], windows.first),
            pc.less_equal(rows["window_id"], windows.last),
        )
        try:
            stored.check_there(rows.filter(inside), table.path)
        except CheckpointError as error:
            raise _gone(name, piece.version, f"{error.primary}.") from error


def _gone(name: str, version: int, detail: str) -> TableError:
    return TableError(
        f'version {version} of table "{name}" no longer exists, so it cannot be restored',
        detail=f"{detail} VACUUM or a log cleanup removed it. Nothing was changed.",
        hint="Replay the range with the code and inputs of that version, and publish the result.",
    )
