"""Converts exceptions of libraries into errors of Rewindow, and distinguishes damaged files from
temporary faults of the machine.

delta-rs, DataFusion and pyarrow raise their own exceptions, often with frames of native code in the
text, and with the operating system's error number only as text. Damage in a table is permanent; a
full disk or a read-only file system may be gone at the next attempt.

`reading_table` is the one place where an exception about a damaged file of a table becomes an
error: it finds the file, and names the file, its table and the next step.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from rewindow.errors import ResourceError, RewindowError, TableError
from rewindow.location import Location
from rewindow.storage.log_gaps import check_log, restore_hint

LASTING = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
"""Error numbers that a retry will meet again: a file is missing, or is of another kind."""

DAMAGE = (
    DeltaError,
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    NotImplementedError,
    OverflowError,
)
"""Classes of exceptions that the libraries raise for damaged bytes. A ValueError is raised for text
that is not UTF-8, truncated JSON, or an argument derived from damaged bytes; a KeyError for a
column whose name was changed."""

MISSING = "It is missing, or the log that describes it has a wrong path"
"""Reason why a data file of a table cannot be read: its path is known from the log only."""
TEXT_MAX = 400
_RESTORE = "Restore the damaged file from a backup, and run the same command again."
_BATCH_ROWS = 65_536
_FILES = (
    "Parquet error",
    "Parquet argument error",
    "Object Store error",
    "Unexpected end of stream",
    "Corrupt",
    "thrift",
)
_NUMBER = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(
    r"\s*\d+: \S+|\s*at \S+:\d+(:\d+)?|stack backtrace:.*|note: .*BACKTRACE.*|thread '.*panicked "
    r"at.*"
)


def error_number(error: BaseException) -> int | None:
    """Returns the operating system's number of an error, even if a library has only included it in
    the text.

    >>> error_number(ValueError("Unable to open file x: Read-only file system (os error 30)"))
    30
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = _NUMBER.search(str(error))
    return int(match[1] or match[2]) if match else None


def may_be_whole(error: BaseException) -> bool:
    """Returns whether a file that could not be read may still be intact, because the machine caused
    the error.

    >>> may_be_whole(OSError(5, "Input/output error")), may_be_whole(FileNotFoundError(2, "gone"))
    (True, False)
    """
    number = error_number(error)
    return number is not None and number not in LASTING


def is_about_files(error: BaseException) -> bool:
    """Returns whether a query failed because a file could not be read, and not because the query is
    wrong.
    """
    return error_number(error) is not None or any(word in str(error) for word in _FILES)


class reading_tables:  # noqa: N801  (a context manager, like those of contextlib)
    """Turns exceptions of libraries during the reading of tables into an error that names the
    damaged file.

    It is a class, because no `except` clause can name all these exceptions: delta-rs raises some as
    plain `Exception`, and a panic of its native code has a class that cannot be imported.

    Args:
        tables: folder of each table, to a function that returns the data files that are read. The
            log is examined first.
        what: the part that cannot be read, as the end of the error's first line.
        certain: whether every exception is about the tables. Otherwise an exception that is not
            about a file is passed on unchanged.

    Raises:
        TableError: a file is damaged or missing; the message names it, its table and the next step.
        ResourceError: the machine cannot read it now.
    """

    def __init__(
        self,
        tables: Mapping[Location, Callable[[], Iterable[Location]]],
        what: str = "",
        *,
        certain: bool = True,
    ) -> None:
        self._tables = tables
        self._what = what
        self._certain = certain

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not _is_of_a_library(error):
            return
        if not may_be_whole(error):
            for table, files in self._tables.items():
                if damage := _damage(table, files):
                    raise damage from error
        if self._certain or is_about_files(error):
            names = " or ".join(f'"{table.name}"' for table in self._tables)
            first = next(iter(self._tables))
            primary = f"table {names} cannot be read{self._what}"
            raise table_failure(primary, error, first) from error


def reading_table(
    table: Location,
    files: Callable[[], Iterable[Location]] = tuple,
    what: str = "",
) -> reading_tables:
    """Returns a context for reading one table; see `reading_tables`."""
    return reading_tables({table: files}, what)


def _damage(table: Location, files: Callable[[], Iterable[Location]]) -> TableError | None:
    check_log(table)
    log = (table / "_delta_log").entries()
    for file in (*log, *files()):
        if why := damage_of(file):
            return TableError(
                f'file "{file.name}" of table "{table.name}" is damaged',
                detail=f"{why}. It is in {file.parent}.",
                hint=restore_hint(table),
            )
    return None


def _is_of_a_library(error: BaseException) -> bool:
    kind = type(error)
    return isinstance(error, DAMAGE) or kind is Exception or kind.__name__ == "PanicException"


def damage_of(file: Location) -> str:
    """Returns the reason why a file of a table or of its log cannot be decoded; empty if it can be
    decoded.

    The text has no full stop.
    """
    try:
        if file.name.endswith(".parquet"):
            with pq.ParquetFile(file.uri) as parquet:
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    batch.validate(full=True)
        elif file.is_file():
            for line in file.read_text().splitlines():
                _check_entry(json.loads(line))
        return ""
    except FileNotFoundError:
        return MISSING if file.name.endswith(".parquet") else "It is missing"
    except DAMAGE as error:
        return plain_text(error).rstrip(".")


def _check_entry(entry: object) -> None:
    """Raises a ValueError if an entry of a log cannot be decoded."""
    if not isinstance(entry, dict):
        raise ValueError("the file has a line that is not an entry of a log")
    add = entry.get("add")
    statistics = add.get("stats") if isinstance(add, dict) else None
    if isinstance(statistics, str) and statistics:
        json.loads(statistics)  # JSON within a text of JSON.


def plain_text(error: BaseException) -> str:
    """Returns the message of an exception in one line, without colours and frames of
    native code.
    """
    lines = _COLOR.sub("", str(error)).splitlines()
    words = " ".join(
        line.strip(" \t↳") for line in lines if line.strip() and not _FRAME.fullmatch(line)
    )
    words = words or type(error).__name__
    return words if len(words) <= TEXT_MAX else f"{words[:TEXT_MAX]}..."


def library_failure(error: BaseException) -> RewindowError | None:
    """Returns an error of Rewindow for an exception of a library or the operating system; None for
    a bug.

    A command uses it as the last resort. Code that knows the table raises a better error.
    """
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) and error.filename is not None:
        return table_failure(f'"{error.filename}" cannot be used', error)
    if isinstance(error, json.JSONDecodeError):
        return TableError(
            f"a file is not JSON: {error}",
            hint="It was cut short or changed; check the newest JSON files.",
        )
    if module in ("deltalake", "_internal", "pyo3_runtime", "pyarrow") or isinstance(
        error,
        OSError,
    ):
        failure = table_failure("a table cannot be read", error)
        failure.hint = failure.hint or _RESTORE
        return failure
    return None


def table_failure(
    primary: str,
    error: BaseException,
    table: Location | None = None,
) -> RewindowError:
    """Returns an error of Rewindow for an exception of a library about a table.

    Args:
        primary: first line of the error: the failed action, with the table's name.
        error: the exception.
        table: its folder, if known.
    """
    number = error_number(error)
    if number is not None and number not in LASTING:
        return ResourceError(
            f"{primary}: {os.strerror(number).lower()}",
            detail=f"{plain_text(error)}.",
            hint="Free disk space, or repair the file system, and run the same command again; "
            "committed windows are kept.",
        )
    detail = f"{plain_text(error).rstrip('.')}."
    return TableError(
        primary,
        detail=f"{detail} The table is in {table}." if table else detail,
        hint=restore_hint(table) if table else "",
    )
