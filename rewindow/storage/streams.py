"""The tables of a recorded or published stream, with their grid and settings.

Rules: W4
"""

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
from rewindow.storage.in_place import TuplesInPlace
from rewindow.storage.log_gaps import restore_hint
from rewindow.storage.queries import query
from rewindow.windows import Grid, WindowRange

_TIME = pa.timestamp("us", tz="UTC")
CHECKPOINT_COMMITS = "16"
"""Number of commits between two Delta checkpoints. With Delta's default of 100, up to 100 commits
would be read one by one when a stream is opened; that takes longer than reading one day of a stream
that grows daily."""
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
"""A seal: counts and digests of the window, when it was sealed, the data table's version and Delta
id at that time, how many times the window has been sealed, and the event columns of its tuples as
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
"""One row per tuple that was not recorded. The reason is "late", "changed", or starts with
"malformed: "; a prefix "refused: " means that there were too many malformed tuples, so that nothing
was recorded."""
LATE = "late"
CHANGED = "changed"
"""A tuple that was added to the source in a sealed window from which the source has lost other
tuples."""

_PREFIX = "rewindow."


def stream_properties(values: Mapping[str, object]) -> dict[str, str]:
    """Returns settings as table properties. Settings that are None are left out."""
    return {f"{_PREFIX}{key}": str(value) for key, value in values.items() if value is not None}


def stored_settings(windows: Table) -> dict[str, str]:
    """Returns the settings that are stored with a stream."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in windows.properties.items()
        if key.startswith(_PREFIX)
    }


def stored_grid(windows: Table) -> Grid:
    """Returns the grid on which a stream was recorded.

    Raises:
        TableError: the table has no grid, so Rewindow has not created it.
    """
    settings = stored_settings(windows)
    try:
        return Grid(int(settings["width_ms"]), int(settings["origin_ms"]))
    except (KeyError, ValueError) as error:
        raise TableError(
            f'table "{windows.path.name}" was not created by Rewindow: it has no window grid',
            hint=restore_hint(windows.path),
        ) from error


def check_reaches(name: str, data: Table, windows: Table) -> None:
    """Checks that the table of tuples has at least the version that its seals refer to.

    If not, the end of its log is missing.

    Raises:
        TableError: names both versions.
    """
    sql = f"select max(data_version) as version from w where table_id = '{data.id}'"
    named = query(sql, w=windows)["version"].to_pylist()[0]
    if named is not None and named > data.version:
        raise TableError(
            f'table "{name}" is at version {data.version}, but its seals refer to version {named}',
            detail=f'The last commits of "{name}" are missing from its log, or the seals in '
            f'"{windows.path.name}" are damaged.',
            hint=f"Restore the files of {data.path / '_delta_log'} from a backup.",
        )


def open_sealed(
    data: Location,
    version: int,
    seals: Location,
    seals_version: int,
    windows: WindowRange,
) -> Table:
    """Returns a stream's tuples at a version. The unsealed windows of a range are hidden.

    An interrupted recording leaves rows without seals that must not be read.

    Rules: W40
    """
    table = Table.open(data, version)
    sql = f"""select window_id, tuples from w
              where window_id between {windows.first} and {windows.last}"""
    sealed = query(sql, w=Table.open(seals, seals_version))
    table.hidden = tuple(holes(sealed["window_id"], windows))
    if isinstance(table, TuplesInPlace):
        # The seals count exactly the tuples of this version (X57).
        table.counts = sealed
    return table


def holes(
    sealed: pa.ChunkedArray | npt.NDArray[np.int64],
    windows: WindowRange,
) -> list[WindowRange]:
    """Returns the ranges of windows without a seal.

    The cost depends on the number of seals, not on the length of the range.
    """
    ids = sealed if isinstance(sealed, np.ndarray) else sealed.to_numpy()
    if not (np.diff(ids) > 0).all():
        ids = np.unique(ids)
    # With an artificial seal on either side of the range, every range without a seal is a gap
    # between two seals, even at the ends.
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
    """Creates the missing tables of a stream: tuples, seals (`.windows`) and data files (`.files`).

    Args:
        data: folder of the tuples' table; the others are next to it.
        schema: window_id, offset, arrived_at, then the event columns.
        settings: grid and other settings, stored with the seals.
        properties: further properties for tuples and seals, such as how long Delta keeps their
            history.

    Rules: W4
    """
    given = {"delta.checkpointInterval": CHECKPOINT_COMMITS, **(properties or {})}
    create_table(data, schema, {**given, **format_property(TableKind.STREAM)})
    create_seal_tables(data, settings, given)


def create_seal_tables(
    data: Location,
    settings: Mapping[str, object],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Creates the missing tables of seals and of data files of a stream.

    Args:
        data: folder of the stream's tuples; the tables are next to it.
        settings: grid and other settings, stored with the seals.
        properties: further properties of both tables.
    """
    given = {"delta.checkpointInterval": CHECKPOINT_COMMITS, **(properties or {})}
    create_table(files_path(data), FILES_SCHEMA, {**given, **format_property(TableKind.FILES)})
    stored = {**given, **stream_properties(settings), **format_property(TableKind.SEALS)}
    create_table(data.with_name(windows_name(data.name)), WINDOWS_SCHEMA, stored)


def sealed_streams(folder: Location) -> list[str]:
    """Returns the sorted names of all recorded or published streams in a folder that have a table
    of seals.
    """
    return sorted(
        stream_of(path.name) for path in folder.entries(windows_name("*")) if Table.exists(path)
    )


def create_quarantine(path: Location) -> Table:
    """Returns the quarantine table.

    Creates it if it is missing.

    Raises:
        TableError: the table has a format of another version.
    """
    return check_format(
        create_table(path, QUARANTINE_SCHEMA, format_property(TableKind.QUARANTINE)),
        TableKind.QUARANTINE,
    )
