"""Damaged files of published tables: found before anything is begun, named, and left out on
request. No JVM.

A file that a publication or an undo must read is read here first, as a whole, and held against its
noted checksum, or decoded where it has none: Spark tells of a damaged one late, after retries, and
by stack traces of Java. To leave files out is to take them out of the table, with all rows and
seals of the windows that they hold: these are then missing, and can be replayed. The files
themselves are kept, in a folder of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from deltalake import CommitProperties

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.names import files_name, stream_of, windows_name
from rewindow.progress.steps import counted
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.checksums import with_noted
from rewindow.storage.delta import DataFile, total_size
from rewindow.storage.failures import damage_of, plain_text
from rewindow.storage.files import file_checksum
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.windows import WindowRange

KEPT_IN = "_damaged"
LEFT_OUT = "left out"
_THREADS = 4
_SHOWN = 3


@dataclass(frozen=True)
class DamagedFile:
    """A file that cannot be read.

    Attributes:
        table: name of its table.
        file: path.
        windows: those that it holds, None when the table's log does not say.
        why: what was wrong, in a line.
    """

    table: str
    file: Location
    windows: WindowRange | None
    why: str


def find_damage(table: Table, name: str, windows: WindowRange) -> list[DamagedFile]:
    """Returns the files of a table's snapshot that hold windows of a range and cannot be read."""
    found = []
    touched = with_noted(table, table.files(windows.first, windows.last))
    size = total_size(touched)
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = zip(touched, pool.map(partial(_damage, table), touched), strict=True)
        for file, why in counted(
            f"{name}: reading its files",
            looked_at,
            size,
            "bytes",
            lambda pair: pair[0].size,
        ):
            if why:
                bounds = (
                    None
                    if file.first is None or file.last is None
                    else WindowRange(file.first, file.last)
                )
                found.append(DamagedFile(name, location(file.path), bounds, why=why))
    return found


def damaged_now(config: Config, names: Iterable[str], windows: WindowRange) -> list[DamagedFile]:
    """Returns the damaged files of published tables in a range, as they are now; a table that is
    not there has none.
    """
    damage: list[DamagedFile] = []
    for name in names:
        if Table.exists(config.stream_table(name)):
            damage += find_damage(open_published(config, name), name, windows)
    return damage


def damaged_error(damage: Sequence[DamagedFile], command: str) -> TableError:
    """Returns the error that names table, file and windows.

    Args:
        command: what to repeat in order to leave the files out; empty when that is no way.
    """
    first = damage[0]
    held = (
        f"windows {first.windows.first} to {first.windows.last}"
        if first.windows
        else "windows that are not known"
    )
    more = (
        f" So are {len(damage) - 1} other files: {_listed(damage[1:])}." if len(damage) > 1 else ""
    )
    hint = (
        f"To go on with all other windows: {command} --leave-out-damaged. These are then "
        "missing; replay them."
    )
    return TableError(
        f'file "{first.file.name}" of table "{first.table}" is damaged: {held} cannot be read',
        detail=f"{first.why}.{more} Nothing was changed now.",
        hint=hint if command else "Put the file back from a copy, or plan the range again.",
    )


def resolve_damage(
    config: Config,
    damage: Sequence[DamagedFile],
    leave_out_damaged: bool,
    command: str,
    say: Callable[[str], object],
) -> None:
    """Refuses to go on over damaged files, or takes them out when that was asked for.

    Raises:
        TableError: names the files; or they cannot be left out.
    """
    if not damage:
        return
    if not leave_out_damaged:
        raise damaged_error(damage, command)
    leave_out(config, damage)
    for entry in damage:
        say(
            f'{entry.table}: windows {entry.windows} of damaged file "{entry.file.name}" are left '
            "out"
        )


def leave_out(config: Config, damage: Sequence[DamagedFile]) -> None:
    """Takes damaged files out of the newest version of their tables, with the rows and seals of
    their windows.

    Raises:
        TableError: nobody knows which windows a file holds; other files of a table are missing too.
    """
    for entry in damage:
        if entry.windows is None:
            raise TableError(
                f'file "{entry.file.name}" of table "{entry.table}" cannot be left out: its '
                "windows are not known",
                hint="Put the file back from a copy.",
            )
    for name in sorted({entry.table for entry in damage}):
        _take_out(config, name, [entry for entry in damage if entry.table == name])
    for entry in damage:
        if kind_of(entry.table) is not Kind.CHECKPOINTS and entry.windows is not None:
            _delete_windows(config, stream_of(entry.table), entry.windows)


def _damage(table: Table, file: DataFile) -> str:
    path = location(file.path)
    try:
        size = path.size()
        if size != file.size:
            return f"It has {size} bytes, written were {file.size}"
        if not file.checksum:
            return damage_of(path)
        if file_checksum(path) == file.checksum:
            return ""
        # The note may be what is damaged.
        notes = files_name(table.path.name)
        return f'It has other bytes than were written, as noted in table "{notes}" or in the log'
    except FileNotFoundError:
        return "It is missing"
    except OSError as error:
        return plain_text(error).rstrip(".")


def _take_out(config: Config, name: str, damage: Sequence[DamagedFile]) -> None:
    """Moves files aside and removes them from the log, in one commit; may be repeated after a
    crash.
    """
    table = open_published(config, name)
    mine = {entry.file.relative_to(table.path) for entry in damage}
    missing = set(table.delta.repair(dry_run=True)["files_removed"]) - mine
    if missing:
        raise TableError(
            f'table "{name}" lacks files of other windows too, such as "{min(missing)}"',
            hint="Put them back from a copy first. Nothing was changed now.",
        )
    for entry in damage:
        if entry.file.exists():
            target = table.path / KEPT_IN / entry.file.relative_to(table.path)
            entry.file.copy_to(target)
            entry.file.delete()
    left_out = [[entry.windows.first, entry.windows.last] for entry in damage if entry.windows]
    told = {"userMetadata": json.dumps({"rewindow": LEFT_OUT, "windows": left_out})}
    table.delta.repair(dry_run=False, commit_properties=CommitProperties(custom_metadata=told))


def _delete_windows(config: Config, output: str, windows: WindowRange) -> None:
    """Deletes what is left of windows in other files, and their seals."""
    told = {
        "userMetadata": json.dumps(
            {"rewindow": LEFT_OUT, "windows": [[windows.first, windows.last]]}
        )
    }
    predicate = f"window_id >= {windows.first} and window_id <= {windows.last}"
    for name in (windows_name(output), output):
        open_published(config, name).delta.delete(
            predicate,
            commit_properties=CommitProperties(custom_metadata=told),
        )


def _listed(damage: Sequence[DamagedFile]) -> str:
    named = [
        f'"{entry.file.name}" ({entry.table}, windows {entry.windows or "unknown"})'
        for entry in damage[:_SHOWN]
    ]
    return ", ".join(named) + (" ..." if len(damage) > _SHOWN else "")
