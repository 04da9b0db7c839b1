"""The inputs of a replay: recorded streams, held against the application's grid, and pinned with what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Application
from rewindow.config import Config
from rewindow.errors import InputError, RangeError
from rewindow.recovery import InputPlan, StartState
from rewindow.tables import Table, query
from rewindow.tables.streams import check_reaches, holes, stored_grid
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class Recorded:
    """A recorded stream as it is now: its table, its seals, and the range from the first seal to the last."""

    table: Table
    seals: Table
    sealed: WindowRange


def open_stream(config: Config, name: str) -> Recorded:
    """Returns a recorded stream.

    Raises:
        InputError: it is not recorded.
        RangeError: it has no sealed window.
        TableError: one of its tables is missing, or lacks its last commits.
    """
    path = config.stream_table(name)
    if not Table.exists(path):
        known = sorted(
            table.name.removesuffix(".windows") for table in path.parent.glob("*.windows") if Table.exists(table)
        )
        raise InputError(
            f'stream "{name}" is not recorded',
            detail=f"Recorded are: {', '.join(known) or 'none'}.",
            hint=f"Record it first: rewindow record {name}",
        )
    seals = Table.open(config.windows_table(name))
    found = query("select min(window_id) as a, max(window_id) as b from w", w=seals).to_pylist()[0]
    if found["a"] is None:
        raise RangeError(f'stream "{name}" has no sealed window', hint=f"Record it: rewindow record {name}")
    table = Table.open(path)
    check_reaches(name, table, seals)
    return Recorded(table, seals, WindowRange(found["a"], found["b"]))


def check_grids(app: Application, recorded: Mapping[str, Recorded]) -> None:
    """Refuses streams whose windows are not the application's (W15)."""
    for name, stream in recorded.items():
        grid = stored_grid(stream.seals)
        have = (grid.width_ms, grid.origin_ms)
        want = (app.grid.width_ms, app.grid.origin_ms)
        if have != want:
            raise InputError(
                f'stream "{name}" has windows of {have[0]} ms from {have[1]} ms, application "{app.name}" {want[0]} ms '
                f"from {want[1]} ms (W15)",
                hint="Ids of different grids cannot be compared; record the stream with the application's width.",
            )


def common_range(recorded: Mapping[str, Recorded]) -> WindowRange:
    """Returns the range from the first window that all inputs have sealed to the last one."""
    first = max(stream.sealed.first for stream in recorded.values())
    last = min(stream.sealed.last for stream in recorded.values())
    if first > last:
        raise RangeError("the inputs have no sealed window in common")
    return WindowRange(first, last)


def pin(name: str, stream: Recorded, windows: WindowRange, allow_missing: bool) -> InputPlan:
    """Returns an input at its present version, with its missing windows where these are allowed (W40)."""
    rows, missing = _sealed_in(stream, windows)
    if missing and not allow_missing:
        raise _missing_error(name, stream, windows, missing)
    return InputPlan(
        stream=name,
        path=str(stream.table.path),
        version=stream.table.version,
        windows_version=stream.seals.version,
        tuples=pc.sum(rows["tuples"]).as_py() or 0,
        bytes=sum(file.size for file in stream.table.files(windows.first, windows.last)),
        missing=[(part.first, part.last) for part in missing],
    )


def check_warm_up(
    recorded: Mapping[str, Recorded], start: StartState, windows: WindowRange, allow_missing: bool
) -> list[str]:
    """Returns a warning for each input that lacks windows which a warm-up would take for empty (W40).

    Raises:
        RangeError: windows are missing, and that is not allowed.
    """
    if start.warm_up_first is None:
        return []
    before, found = WindowRange(start.warm_up_first, windows.first - 1), []
    for name, stream in recorded.items():
        _, missing = _sealed_in(stream, before)
        if missing and not allow_missing:
            raise _missing_error(name, stream, before, missing, "of the warm-up ")
        if missing:
            number = sum(map(len, missing))
            found.append(f'the warm-up goes over {number} missing windows of stream "{name}", first {missing[0]}')
    return found


def _sealed_in(stream: Recorded, windows: WindowRange) -> tuple[pa.Table, list[WindowRange]]:
    """Returns the seals of a range, and its stretches without any."""
    sql = f"select window_id, tuples from w where window_id between {windows.first} and {windows.last}"
    rows = query(sql, w=stream.seals)
    return rows, holes(rows["window_id"], windows)


def _missing_error(
    name: str, stream: Recorded, windows: WindowRange, missing: list[WindowRange], where: str = ""
) -> RangeError:
    listed = ", ".join(str(part) for part in missing[:5]) + (" ..." if len(missing) > 5 else "")
    return RangeError(
        f'stream "{name}" has {sum(map(len, missing))} missing windows {where}in {windows}: {listed}',
        detail=f"Missing means not sealed, never empty (W40). Sealed are {stream.sealed}.",
        hint=f"Record more (rewindow record {name}), shorten the range, or pass --allow-missing, which is kept.",
    )
