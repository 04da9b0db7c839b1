"""Finds damaged files of published tables before a publication or undo starts, and leaves them out
on request. No JVM.

All files that a publication or an undo must read are read completely in advance and compared with
their recorded checksums, or decoded if they have none. Spark would report damage late, after
retries, and with Java stack traces. To leave out a file means to remove it from the table, together
with all rows and seals of its windows. These windows are then missing and can be replayed. The
files themselves are moved to a subfolder of the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
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
from rewindow.storage.failures import MISSING, damage_of, plain_text
from rewindow.storage.files import file_checksum
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.windows import WindowRange

logger = logging.getLogger(__name__)

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
        windows: the windows that it contains, None if the table's log has no bounds for it.
        why: description of the damage, in one line.
    """

    table: str
    file: Location
    windows: WindowRange | None
    why: str


def find_damage(table: Table, name: str, windows: WindowRange) -> list[DamagedFile]:
    """Returns the files of a table's snapshot that contain windows of a range and cannot be
    read.
    """
    damage = []
    touched = with_noted(table, table.files(windows.first, windows.last))
    size = total_size(touched)
    with ThreadPoolExecutor(_THREADS) as pool:
        checked = zip(touched, pool.map(partial(_damage, table), touched), strict=True)
        for file, why in counted(
            f"{name}: reading its files",
            checked,
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
                damage.append(DamagedFile(name, location(file.path), bounds, why=why))
    return damage


def damaged_now(config: Config, names: Iterable[str], windows: WindowRange) -> list[DamagedFile]:
    """Returns the damaged files in a range of the current versions of published tables.

    Missing tables are ignored.
    """
    damage: list[DamagedFile] = []
    for name in names:
        if Table.exists(config.stream_table(name)):
            damage += find_damage(open_published(config, name), name, windows)
    return damage


def damaged_error(damage: Sequence[DamagedFile], command: str) -> TableError:
    """Returns an error that names the table, the file and the windows.

    Args:
        damage: the damaged files, at least one.
        command: the command to repeat with `--leave-out-damaged`; empty if that is not possible.
    """
    first = damage[0]
    held = (
        f"windows {first.windows.first} to {first.windows.last}"
        if first.windows
        else "unknown windows"
    )
    more = (
        f" {len(damage) - 1} other files are damaged, too: {_listed(damage[1:])}."
        if len(damage) > 1
        else ""
    )
    hint = (
        f"To continue without these windows: {command} --leave-out-damaged. They are then "
        "missing; replay them."
    )
    return TableError(
        f'file "{first.file.name}" of table "{first.table}" is damaged: {held} cannot be read',
        detail=f"{first.why}.{more} Nothing was changed.",
        hint=hint if command else "Restore the file from a backup, or plan the range again.",
    )


def resolve_damage(
    config: Config,
    damage: Sequence[DamagedFile],
    leave_out_damaged: bool,
    command: str,
) -> None:
    """Raises an error if there are damaged files, or leaves the files out if the user requested it.

    Raises:
        TableError: names the files; or they cannot be left out.
    """
    if not damage:
        return
    if not leave_out_damaged:
        raise damaged_error(damage, command)
    leave_out(config, damage)
    for entry in damage:
        logger.warning(
            f'{entry.table}: windows {entry.windows} of damaged file "{entry.file.name}" are left '
            "out"
        )


def leave_out(config: Config, damage: Sequence[DamagedFile]) -> None:
    """Removes damaged files from the newest version of their tables, with the rows and seals of
    their windows.

    Raises:
        TableError: the windows of a file are unknown, or other files of a table are missing, too.
    """
    for entry in damage:
        if entry.windows is None:
            raise TableError(
                f'file "{entry.file.name}" of table "{entry.table}" cannot be left out: its '
                "windows are unknown",
                hint="Restore the file from a backup.",
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
            return f"It has {size} bytes, but {file.size} were written"
        if not file.checksum:
            return damage_of(path)
        if file_checksum(path) == file.checksum:
            return ""
        # The recorded checksum may be damaged instead of the file.
        recorded_in = files_name(table.path.name)
        return f'Its bytes do not match the checksum in table "{recorded_in}" or in the log'
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return plain_text(error).rstrip(".")


def _take_out(config: Config, name: str, damage: Sequence[DamagedFile]) -> None:
    """Moves files to a subfolder and removes them from the log, in one commit.

    Can be repeated after a crash.
    """
    table = open_published(config, name)
    mine = {entry.file.relative_to(table.path) for entry in damage}
    missing = set(table.delta.repair(dry_run=True)["files_removed"]) - mine
    if missing:
        raise TableError(
            f'table "{name}" lacks files of other windows, too, such as "{min(missing)}"',
            hint="Restore them from a backup first. Nothing was changed.",
        )
    for entry in damage:
        if entry.file.exists():
            target = table.path / KEPT_IN / entry.file.relative_to(table.path)
            entry.file.copy_to(target)
            entry.file.delete()
    left_out = [[entry.windows.first, entry.windows.last] for entry in damage if entry.windows]
    metadata = {"userMetadata": json.dumps({"rewindow": LEFT_OUT, "windows": left_out})}
    table.delta.repair(dry_run=False, commit_properties=CommitProperties(custom_metadata=metadata))


def _delete_windows(config: Config, output: str, windows: WindowRange) -> None:
    """Deletes the seals of windows, and their remaining rows in other files."""
    metadata = {
        "userMetadata": json.dumps(
            {"rewindow": LEFT_OUT, "windows": [[windows.first, windows.last]]}
        )
    }
    predicate = f"window_id >= {windows.first} and window_id <= {windows.last}"
    for name in (windows_name(output), output):
        open_published(config, name).delta.delete(
            predicate,
            commit_properties=CommitProperties(custom_metadata=metadata),
        )


def _listed(damage: Sequence[DamagedFile]) -> str:
    named = [
        f'"{entry.file.name}" ({entry.table}, windows {entry.windows or "unknown"})'
        for entry in damage[:_SHOWN]
    ]
    return ", ".join(named) + (" ..." if len(damage) > _SHOWN else "")
