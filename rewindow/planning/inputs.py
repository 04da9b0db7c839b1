"""The inputs of a replay: recorded streams, held against the application's grid, and pinned with
what they lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rewindow.application import Application, Mode, Violation, find_violations, validate
from rewindow.errors import InputError, RangeError
from rewindow.facts.seals import sealed_range, sealed_windows, stream_end
from rewindow.loading.catalog import stream_of
from rewindow.names import did_you_mean
from rewindow.recovery import InputPlan, StartState, path_in
from rewindow.retention.horizon import retention_days
from rewindow.settings.config import HEARTBEAT, Config
from rewindow.storage import Table
from rewindow.storage.formats import TableKind, check_format
from rewindow.storage.inputs import InputFiles
from rewindow.storage.stream_settings import check_recorded_settings
from rewindow.storage.streams import (
    check_reaches,
    holes,
    sealed_streams,
    stored_grid,
    stored_settings,
)
from rewindow.windows import Grid, WindowRange, format_time, without


@dataclass(frozen=True)
class RecordedStream:
    """A recorded stream as it is now.

    Attributes:
        table, seals: its tuples and its seals.
        sealed: the range from the first seal to the last one.
        end: the last window of a stream that has ended (X21): every later one is sealed and empty.
    """

    table: Table
    seals: Table
    sealed: WindowRange
    end: int | None = None


def open_recorded_stream(config: Config, name: str) -> RecordedStream:
    """Returns a recorded stream.

    Raises:
        InputError: it is not recorded, or with other settings than those in force (W4, W15).
        RangeError: it has no sealed window.
        TableError: its tables have the format of another version; one is missing, or lacks its last
            commits.
    """
    if new_name := renamed_stream(config, name):
        raise InputError(
            f'stream "{name}" is called "{new_name}" now',
            hint=f"Read {new_name}; it appears when {name.rpartition('.')[0]} is published again.",
        )
    path = config.stream_table(name)
    if not Table.exists(path):
        raise _not_recorded(config, name, sealed_streams(path.parent))
    table = check_format(Table.open(path), TableKind.STREAM)
    seals = check_format(Table.open(config.windows_table(name)), TableKind.SEALS)
    check_recorded_settings(config, name, seals)
    sealed = sealed_range(seals)
    if sealed is None:
        raise RangeError(
            f'stream "{name}" has no sealed window',
            hint=f"Record it: rewindow record {name}",
        )
    check_reaches(name, table, seals)
    return RecordedStream(table, seals, sealed, end=stream_end(seals))


def renamed_stream(config: Config, name: str) -> str | None:
    """Returns the name that an output of `heartbeat_<stream>` has since it is not called `filled`
    any more; None for other streams.
    """
    application, _, output = name.rpartition(".")
    is_made = application.startswith(HEARTBEAT) and stream_of(config, application) is not None
    return f"{application}.ticks" if is_made and output == "filled" else None


def _not_recorded(config: Config, name: str, recorded: list[str]) -> InputError:
    """Returns the error for an input that is not recorded: to be recorded, to be published, or a
    slip.
    """
    application = name.rpartition(".")[0]
    if name in config.streams:
        hint = f"Record it first: rewindow record {name}"
    elif application:
        hint = f"Publish it first: rewindow replay {application}"
    else:
        hint = (
            f"{did_you_mean(name, [*config.streams, *recorded])}rewindow.toml has no "
            f"[streams.{name}] to record."
        )
    listed = f"Recorded are: {', '.join(recorded) or 'none'}."
    return InputError(f'stream "{name}" is not recorded', detail=listed, hint=hint)


def check_grids(app: Application, recorded: Mapping[str, RecordedStream]) -> None:
    """Refuses streams whose windows are not the application's (W15)."""
    for name, stream in recorded.items():
        grid = stored_grid(stream.seals)
        if grid != app.grid:
            raise InputError(
                f'stream "{name}" has windows of {grid}, application "{app.name}" has windows of '
                f"{app.grid}",
                detail="Ids of different grids cannot be compared.",
                hint=_same_grid(app, name, grid),
            )


def check_application(
    app: Application,
    mode: Mode,
    recorded: Mapping[str, RecordedStream],
    flaws: Iterable[Violation],
) -> None:
    """Refuses an application with all that is wrong with it at once, the windows of its inputs too
    (O46, W15).

    Raises:
        ValidationFailed: names every violation.
        InputError: nothing else is wrong, but an input has other windows.
    """
    schemas = {name: stream.table.schema for name, stream in recorded.items()}
    flaws = list(flaws)
    found = list(find_violations(app, mode, schemas, further=flaws))
    # Other windows count as a flaw only if something else is wrong too. Otherwise they are an error
    # of another kind, see `check_grids`.
    others: list[Violation] = []
    for name, stream in recorded.items():
        others += other_grid(app, name, stored_grid(stream.seals))
    if found and others:
        flaws = [*flaws, *others]
    validate(app, mode, schemas, flaws)
    check_grids(app, recorded)


def other_grid(app: Application, name: str, grid: Grid) -> Iterator[Violation]:
    """Yields that a stream has other windows than the application (W15), whose own may be wrong
    (W3).
    """
    try:
        ours = app.grid
    except InputError:
        return
    if grid != ours:
        yield Violation(
            "W15",
            "",
            name,
            value=name,
            message=f"the stream has windows of {grid}, the application has windows of {ours}",
        )


def _same_grid(app: Application, name: str, grid: Grid) -> str:
    """Returns how an application and a stream come to the same windows."""
    if grid.width_ms == app.grid.width_ms:
        return f'Give application "{app.name}" origin_ms={grid.origin_ms}.'
    return (
        f'Write window="{grid.width}" into application "{app.name}"; or width = "{app.grid.width}" '
        "for the stream, and "
        f"record it anew: rewindow record {name} --start-over"
    )


def common_range(recorded: Mapping[str, RecordedStream]) -> WindowRange:
    """Returns the range from the first window that all inputs have sealed to the last one (W34,
    W39).

    A stream that has ended does not limit it (W36, X21); when all have, it goes to the end of the
    last one.
    """
    first = max(stream.sealed.first for stream in recorded.values())
    open_ones = [stream.sealed.last for stream in recorded.values() if stream.end is None]
    last = min(open_ones) if open_ones else max(stream.end or 0 for stream in recorded.values())
    if first > last:
        raise RangeError("the inputs have no sealed window in common")
    return WindowRange(first, last)


def pin(
    config: Config,
    name: str,
    stream: RecordedStream,
    windows: WindowRange,
    allow_missing: bool,
) -> InputPlan:
    """Returns an input at its present version, with its missing windows where these are allowed
    (W40).

    Raises:
        RangeError: windows are missing, and that is not allowed.
        TableError: a seal is damaged; a data file is missing or has another size than was recorded.
    """
    tuples, missing = _sealed_in(stream, windows)
    if missing and not allow_missing:
        raise _missing_error(name, stream, windows, missing=missing)
    files = InputFiles(name, stream.table, checksums=False)
    files.compare(windows)
    return InputPlan(
        stream=name,
        path=path_in(config.state, stream.table.path),
        version=stream.table.version,
        windows_version=stream.seals.version,
        table_id=stream.table.id,
        tuples=tuples,
        bytes=sum(file.size for file in stream.table.files(windows.first, windows.last)),
        missing=[(part.first, part.last) for part in missing],
        foreign_files=len(files.foreign),
        end=stream.end if stream.end is not None and stream.end <= windows.last else None,
    )


def foreign_files(inputs: list[InputPlan]) -> list[str]:
    """Returns a warning for each input with files that another program has written, which have no
    checksums.
    """
    return [
        f'{entry.foreign_files:,} files of stream "{entry.stream}" were written by another '
        "program, so their bytes are "
        f"not compared with what was recorded; rewindow streams upgrade {entry.stream} compares "
        "all windows once"
        for entry in inputs
        if entry.foreign_files
    ]


def end_warnings(recorded: Mapping[str, RecordedStream], windows: WindowRange) -> list[str]:
    """Warns of a range that goes on where all inputs have ended: its windows there are empty
    (X21).
    """
    ends = [stream.end for stream in recorded.values() if stream.end is not None]
    if len(ends) < len(recorded) or windows.last <= max(ends):
        return []
    beyond = windows.last - max(max(ends), windows.first - 1)
    return [
        f"{beyond:,} windows lie behind the end of {', '.join(recorded)}, window {max(ends)}: they "
        "are empty"
    ]


def expiry_warnings(recorded: Mapping[str, RecordedStream]) -> list[str]:
    """Returns until when a plan can be run, for each input that is a published stream.

    Publications rewrite such a table, so that it drops the pinned version once its retention is
    over; a recorded stream only grows.
    """
    found = []
    for name, stream in recorded.items():
        if "application" in stored_settings(stream.seals):
            committed_ms = stream.table.history(1)[0]["timestamp"]
            until_us = int(committed_ms * 1000 + retention_days(stream.table) * 86_400_000_000)
            found.append(
                f'input "{name}" is a published stream: this plan can be run until '
                f"{format_time(until_us)}, for so "
                f"long its table is sure to keep version {stream.table.version}"
            )
    return found


def check_warm_up(
    recorded: Mapping[str, RecordedStream],
    start: StartState,
    windows: WindowRange,
    allow_missing: bool,
) -> list[str]:
    """Returns a warning for each input that lacks windows which a warm-up would take for empty
    (W40).

    Raises:
        RangeError: windows are missing, and that is not allowed.
    """
    if start.warm_up_first is None:
        return []
    before = WindowRange(start.warm_up_first, windows.first - 1)
    found = []
    for name, stream in recorded.items():
        _, missing = _sealed_in(stream, before)
        if missing and not allow_missing:
            raise _missing_error(name, stream, before, missing=missing, where="of the warm-up ")
        if missing:
            number = sum(map(len, missing))
            found.append(
                f'the warm-up goes over {number} missing windows of stream "{name}", first '
                f"{missing[0]}"
            )
    return found


def _sealed_in(stream: RecordedStream, windows: WindowRange) -> tuple[int, list[WindowRange]]:
    """Returns the sealed tuples of a range, and its stretches without a seal."""
    ids, tuples = sealed_windows(stream.seals, windows, table_id=stream.table.id)
    last = windows.last if stream.end is None else min(windows.last, stream.end)
    return tuples, holes(ids, WindowRange(windows.first, last)) if last >= windows.first else []


def sealed_parts(stream: RecordedStream, windows: WindowRange) -> list[WindowRange]:
    """Returns the stretches of a range that a stream has sealed, ascending; those after its end are
    (X21).
    """
    _, missing = _sealed_in(stream, windows)
    return without(windows, missing)


def _missing_error(
    name: str,
    stream: RecordedStream,
    windows: WindowRange,
    missing: list[WindowRange],
    where: str = "",
) -> RangeError:
    listed = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
    return RangeError(
        f'stream "{name}" has {sum(map(len, missing))} missing windows {where}in {windows}: '
        f"{listed}",
        detail=f"Missing means not sealed, never empty. Sealed are {stream.sealed}.",
        hint=f"Record more (rewindow record {name}), shorten the range, or pass --allow-missing, "
        "which is kept.",
    )
