"""The inputs of a replay.

Opens recorded streams, compares them with the application's grid, and pins their versions and
missing windows.
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
from rewindow.retention.horizon import log_days, retention_days
from rewindow.settings.config import HEARTBEAT, Config
from rewindow.storage import Table, TuplesInPlace
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
    """A recorded stream at its newest version.

    Attributes:
        table, seals: its tuples and its seals.
        sealed: the range from the first seal to the last.
        end: the last window of a stream that has ended: every later one is sealed and empty.

    Rules: X21
    """

    table: Table
    seals: Table
    sealed: WindowRange
    end: int | None = None


def open_recorded_stream(config: Config, name: str) -> RecordedStream:
    """Returns a recorded stream.

    Raises:
        InputError: it is not recorded, or its settings have changed since it was recorded.
        RangeError: it has no sealed window.
        TableError: its tables have the format of another version; one is missing, or lacks its last
            commits.

    Rules: W4, W15
    """
    if new_name := renamed_stream(config, name):
        raise InputError(
            f'stream "{name}" was renamed to "{new_name}"',
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
    """Returns the new name of an output of `heartbeat_<stream>` that was formerly called `filled`;
    None for other streams.
    """
    application, _, output = name.rpartition(".")
    is_made = application.startswith(HEARTBEAT) and stream_of(config, application) is not None
    return f"{application}.ticks" if is_made and output == "filled" else None


def _not_recorded(config: Config, name: str, recorded: list[str]) -> InputError:
    """Returns the error for an input that is not recorded.

    Its hint is to record it, to publish it, or to correct its name.
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
    listed = f"Recorded streams: {', '.join(recorded) or 'none'}."
    return InputError(f'stream "{name}" is not recorded', detail=listed, hint=hint)


def check_grids(app: Application, recorded: Mapping[str, RecordedStream]) -> None:
    """Checks that all streams have the same windows as the application.

    Rules: W15
    """
    for name, stream in recorded.items():
        grid = stored_grid(stream.seals)
        if grid != app.grid:
            raise InputError(
                f'stream "{name}" has windows of {grid}, but application "{app.name}" has windows '
                f"of {app.grid}",
                detail="Ids of different grids cannot be compared.",
                hint=_same_grid(app, name, grid),
            )


def check_application(
    app: Application,
    mode: Mode,
    recorded: Mapping[str, RecordedStream],
    flaws: Iterable[Violation],
) -> None:
    """Checks an application, including the windows of its inputs, and reports all violations at
    once.

    Raises:
        ValidationFailed: lists every violation.
        InputError: the only problem is that an input has other windows.

    Rules: O46, W15
    """
    schemas = {name: stream.table.schema for name, stream in recorded.items()}
    flaws = list(flaws)
    violations = list(find_violations(app, mode, schemas, further=flaws))
    # Other windows count as a violation only if there are other violations, too. Otherwise
    # `check_grids` raises an error for them.
    others: list[Violation] = []
    for name, stream in recorded.items():
        others += other_grid(app, name, stored_grid(stream.seals))
    if violations and others:
        flaws = [*flaws, *others]
    validate(app, mode, schemas, flaws)
    check_grids(app, recorded)


def other_grid(app: Application, name: str, grid: Grid) -> Iterator[Violation]:
    """Yields a violation if a stream has other windows than the application.

    Yields none if the grid of the application itself is invalid.

    Rules: W3, W15
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
            message=f"the stream has windows of {grid}, but the application has windows of {ours}",
        )


def _same_grid(app: Application, name: str, grid: Grid) -> str:
    """Returns a hint how to set the same windows for an application and a stream."""
    if grid.width_ms == app.grid.width_ms:
        return f'Set origin_ms={grid.origin_ms} of application "{app.name}".'
    return (
        f'Set window="{grid.width}" of application "{app.name}"; or set width = '
        f'"{app.grid.width}" of the stream and record it again: rewindow record {name} '
        "--start-over"
    )


def common_range(recorded: Mapping[str, RecordedStream]) -> WindowRange:
    """Returns the range from the first to the last window that all inputs have sealed.

    A stream that has ended does not limit the range. If all streams have ended, the range extends
    to the end of the last one.

    Rules: W34, W36, W39, X21
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
    """Returns an input at its current version.

    If missing windows are allowed, they are included.

    Raises:
        RangeError: windows are missing, and that is not allowed.
        TableError: a seal is damaged; a data file is missing or has another size than was recorded.

    Rules: W40
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
    """Returns a warning for each input that has files without recorded checksums, because another
    program has written them.
    """
    return [
        f'{entry.foreign_files:,} files of stream "{entry.stream}" were written by another '
        "program, so they have no checksum that their bytes could be compared with; to compare "
        f"all windows once: rewindow streams upgrade {entry.stream}"
        for entry in inputs
        if entry.foreign_files
    ]


def end_warnings(recorded: Mapping[str, RecordedStream], windows: WindowRange) -> list[str]:
    """Returns a warning if the range continues after all inputs have ended, so that its last
    windows are empty.

    Rules: X21
    """
    ends = [stream.end for stream in recorded.values() if stream.end is not None]
    if len(ends) < len(recorded) or windows.last <= max(ends):
        return []
    beyond = windows.last - max(max(ends), windows.first - 1)
    return [
        f"{beyond:,} windows are after the end of {', '.join(recorded)}, window {max(ends)}: they "
        "are empty"
    ]


def expiry_warnings(recorded: Mapping[str, RecordedStream]) -> list[str]:
    """Returns a warning for each input that is a published stream or a table in place, with the
    time until which the plan can be run.

    Publications rewrite such a table, and users change a table in place, so the pinned version is
    deleted after its retention period. A copy only grows.
    """
    warnings = []
    for name, stream in recorded.items():
        if isinstance(stream.table, TuplesInPlace):
            committed_ms = stream.table.history(1)[0]["timestamp"]
            until_us = int(committed_ms * 1000 + log_days(stream.table) * 86_400_000_000)
            warnings.append(
                f'input "{name}" is a table in place, {stream.table.columns.source}: this plan can '
                f"be run until {format_time(until_us)}, because the log of the table keeps version "
                f"{stream.table.version} until then, unless VACUUM removes its files"
            )
        elif "application" in stored_settings(stream.seals):
            committed_ms = stream.table.history(1)[0]["timestamp"]
            until_us = int(committed_ms * 1000 + retention_days(stream.table) * 86_400_000_000)
            warnings.append(
                f'input "{name}" is a published stream: this plan can be run until '
                f"{format_time(until_us)}, because its table keeps version "
                f"{stream.table.version} until then"
            )
    return warnings


def check_warm_up(
    recorded: Mapping[str, RecordedStream],
    start: StartState,
    windows: WindowRange,
    allow_missing: bool,
) -> list[str]:
    """Returns a warning for each input with missing windows, which a warm-up would treat as empty.

    Raises:
        RangeError: windows are missing, and that is not allowed.

    Rules: W40
    """
    if start.warm_up_first is None:
        return []
    before = WindowRange(start.warm_up_first, windows.first - 1)
    warnings = []
    for name, stream in recorded.items():
        _, missing = _sealed_in(stream, before)
        if missing and not allow_missing:
            raise _missing_error(name, stream, before, missing=missing, where="of the warm-up ")
        if missing:
            number = sum(map(len, missing))
            warnings.append(
                f'the warm-up skips {number} missing windows of stream "{name}", first {missing[0]}'
            )
    return warnings


def _sealed_in(stream: RecordedStream, windows: WindowRange) -> tuple[int, list[WindowRange]]:
    """Returns the number of sealed tuples in a range, and the ranges without a seal."""
    ids, tuples = sealed_windows(stream.seals, windows, table_id=stream.table.id)
    last = windows.last if stream.end is None else min(windows.last, stream.end)
    return tuples, holes(ids, WindowRange(windows.first, last)) if last >= windows.first else []


def sealed_parts(stream: RecordedStream, windows: WindowRange) -> list[WindowRange]:
    """Returns the parts of a range that a stream has sealed, in ascending order.

    Windows after the end of the stream count as sealed.

    Rules: X21
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
        detail=f"A missing window is not sealed; it is not empty. Sealed windows: {stream.sealed}.",
        hint=f"Record more (rewindow record {name}), shorten the range, or pass --allow-missing, "
        "which is stored with the replay.",
    )
