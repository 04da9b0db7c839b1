"""The tables of a recorded or published stream, and the grid and settings stored with them (W4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.errors import TableError
from rewindow.location import Location
from rewindow.names import stream_of, windows_name
from rewindow.storage.delta import Table, create_table
from rewindow.storage.files import FILES_SCHEMA, files_path
from rewindow.storage.formats import TableKind, check_format, format_property
from rewindow.storage.log_gaps import restore_hint
from rewindow.storage.queries import query
from rewindow.windows import Grid, WindowRange

_TIME = pa.timestamp("us", tz="UTC")
CHECKPOINT_COMMITS = "16"
"""So many commits at most are read one by one when a stream is opened: of 100, Delta's own number,
that takes longer than reading a day of a stream to which a day was added each day."""
WINDOWS_SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("tuples", pa.int64()),
        ("digest", pa.string()),
        ("float_digest", pa.string()),
        ("sealed_at", _TIME),
        ("data_version", pa.int64()),
        ("generation", pa.int64()),
        ("columns", pa.string()),
        ("table_id", pa.string()),
        ("end_window", pa.int64()),
        ("checksum", pa.int64()),
    ]
)
"""A seal: what the window holds, when it was sealed, the data table's version then and its Delta
id, how often the window has been sealed (1: once), and the event columns of its tuples as
`columns_text` writes them."""

QUARANTINE_SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("source", pa.string()),
        ("port", pa.string()),
        ("reason", pa.string()),
        ("position", pa.string()),
        ("payload", pa.string()),
        ("recorded_at", _TIME),
    ]
)
"""A row per tuple that could not be taken; reasons are "late" or "changed", or begin with
"malformed: ", or with "refused: " before that where there were so many that nothing was
recorded."""
LATE = "late"
CHANGED = "changed"
"""A tuple that the source has now in a sealed window from which it has lost others."""

_PREFIX = "rewindow."


def stream_properties(values: Mapping[str, object]) -> dict[str, str]:
    """Returns settings as table properties; what is None is left out."""
    return {f"{_PREFIX}{key}": str(value) for key, value in values.items() if value is not None}


def stored_settings(windows: Table) -> dict[str, str]:
    """Returns the settings stored with a stream."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in windows.properties.items()
        if key.startswith(_PREFIX)
    }


def stored_grid(windows: Table) -> Grid:
    """Returns the grid that a stream was recorded on.

    Raises:
        TableError: the table has none, so it is not ours.
    """
    settings = stored_settings(windows)
    try:
        return Grid(int(settings["width_ms"]), int(settings["origin_ms"]))
    except (KeyError, ValueError) as error:
        raise TableError(
            f'table "{windows.path.name}" is not ours: no window grid is stored with it',
            hint=restore_hint(windows.path),
        ) from error


def check_reaches(name: str, data: Table, windows: Table) -> None:
    """Refuses a stream whose seals name a version of its tuples that is not there: the end of that
    table's log is gone.

    Raises:
        TableError: says which version is named, and which is there.
    """
    sql = f"select max(data_version) as version from w where table_id = '{data.id}'"
    named = query(sql, w=windows)["version"].to_pylist()[0]
    if named is not None and named > data.version:
        raise TableError(
            f'table "{name}" is at version {data.version}, but its seals name version {named}',
            detail=f'The last commits of "{name}" are missing from its log, or the seals in '
            f'"{windows.path.name}" are damaged.',
            hint=f"Put the files of {data.path / '_delta_log'} back from a copy.",
        )


def open_sealed(
    data: Location,
    version: int,
    seals: Location,
    seals_version: int,
    windows: WindowRange,
) -> Table:
    """Returns a stream's tuples at a version, with the windows of a range hidden that the seals do
    not name.

    A recording that died between its tuples and their seals leaves rows that nobody may read (W40).
    """
    table = Table.open(data, version)
    sql = f"select window_id from w where window_id between {windows.first} and {windows.last}"
    table.hidden = tuple(
        holes(query(sql, w=Table.open(seals, seals_version))["window_id"], windows)
    )
    return table


def holes(
    sealed: pa.ChunkedArray | npt.NDArray[np.int64],
    windows: WindowRange,
) -> list[WindowRange]:
    """Returns the stretches of a range without a seal: arithmetic on the seals, however long the
    range is.
    """
    ids = sealed if isinstance(sealed, np.ndarray) else sealed.to_numpy()
    if not (np.diff(ids) > 0).all():
        ids = np.unique(ids)
    # With a seal on either side of the range, every gap between two seals is a stretch, also at the
    # ends of the range.
    framed = np.concatenate(([windows.first - 1], ids, [windows.last + 1]))
    before = np.flatnonzero(np.diff(framed) > 1)
    pairs = zip((framed[before] + 1).tolist(), (framed[before + 1] - 1).tolist(), strict=True)
    return [WindowRange(first, last) for first, last in pairs]


def create_stream(
    data: Location,
    schema: pa.Schema,
    settings: Mapping[str, object],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Creates the tables of a stream that are not there: tuples, seals (`.windows`) and data files
    (`.files`).

    Args:
        data: folder of the tuples' table; the others lie beside it.
        schema: window_id, offset, arrived_at, then the event columns.
        settings: grid and other settings, stored with the seals (W4).
        properties: further properties for tuples and seals, such as how long Delta keeps their
            history.
    """
    given = {"delta.checkpointInterval": CHECKPOINT_COMMITS, **(properties or {})}
    create_table(data, schema, {**given, **format_property(TableKind.STREAM)})
    create_table(files_path(data), FILES_SCHEMA, {**given, **format_property(TableKind.FILES)})
    stored = {**given, **stream_properties(settings), **format_property(TableKind.SEALS)}
    create_table(data.with_name(windows_name(data.name)), WINDOWS_SCHEMA, stored)


def sealed_streams(folder: Location) -> list[str]:
    """Returns the names of all streams below a folder that have a table of seals, recorded or
    published, sorted.
    """
    return sorted(
        stream_of(path.name) for path in folder.entries(windows_name("*")) if Table.exists(path)
    )


def create_quarantine(path: Location) -> Table:
    """Returns the quarantine table, created when it is not there.

    Raises:
        TableError: it has another format than this version writes.
    """
    return check_format(
        create_table(path, QUARANTINE_SCHEMA, format_property(TableKind.QUARANTINE)),
        TableKind.QUARANTINE,
    )
