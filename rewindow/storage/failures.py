"""Failures of the libraries below, as errors of ours: what passes with the machine's trouble, and
what is damaged.

delta-rs, DataFusion and pyarrow raise their own errors, often with frames of native code in their
text, and with the operating system's error number only as text. What a table holds does not mend
itself; a full disk or a read-only file system may be another one at the next attempt.
"""

from __future__ import annotations

import errno
import json
import os
import re

from rewindow.errors import ResourceError, RewindowError, TableError

LASTING = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
"""Error numbers that the next attempt meets again: something is not there, or is something else."""

TEXT_MAX = 400
_FILES = ("Parquet error", "Object Store error", "Unexpected end of stream", "Corrupt", "thrift")
_NUMBER = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(
    r"\s*\d+: \S+|\s*at \S+:\d+(:\d+)?|stack backtrace:.*|note: .*BACKTRACE.*|thread '.*panicked "
    r"at.*"
)


def error_number(error: BaseException) -> int | None:
    """Returns the operating system's number of an error, also where a library has it as text only.

    >>> error_number(ValueError("Unable to open file x: Read-only file system (os error 30)"))
    30
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _NUMBER.search(str(error))
    return int(found[1] or found[2]) if found else None


def may_be_whole(error: BaseException) -> bool:
    """Returns whether a file that could not be read may be as it was written: the machine was in
    trouble, not the file.

    >>> may_be_whole(OSError(5, "Input/output error")), may_be_whole(FileNotFoundError(2, "gone"))
    (True, False)
    """
    number = error_number(error)
    return number is not None and number not in LASTING


def is_about_files(error: BaseException) -> bool:
    """Returns whether a query failed since a file could not be read, not since it is wrong."""
    return error_number(error) is not None or any(word in str(error) for word in _FILES)


def plain_text(error: BaseException) -> str:
    """Returns what a library says of a failure in one line, without colours and frames of native
    code.
    """
    lines = _COLOR.sub("", str(error)).splitlines()
    words = " ".join(
        line.strip(" \t↳") for line in lines if line.strip() and not _FRAME.fullmatch(line)
    )
    words = words or type(error).__name__
    return words if len(words) <= TEXT_MAX else f"{words[:TEXT_MAX]}..."


def library_failure(error: BaseException) -> RewindowError | None:
    """Returns an error of ours for one that a library or the operating system raised; None for what
    is a bug.

    The last resort of a command: whoever knows the table says it better.
    """
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) and error.filename is not None:
        return table_failure(f'"{error.filename}" cannot be used', error)
    if isinstance(error, json.JSONDecodeError):
        return TableError(
            f"a file is not JSON: {error}",
            hint="It was cut short or changed; look at the newest ones.",
        )
    if module in ("deltalake", "_internal", "pyo3_runtime", "pyarrow") or isinstance(
        error,
        OSError,
    ):
        return table_failure("a table cannot be read", error)
    return None


def table_failure(primary: str, error: BaseException) -> RewindowError:
    """Returns what a library raised about a table as one of our errors.

    Args:
        primary: what could not be done, with the table's name.
    """
    number = error_number(error)
    if number is not None and number not in LASTING:
        return ResourceError(
            f"{primary}: {os.strerror(number).lower()}",
            detail=f"{plain_text(error)}.",
            hint="Make room, or mend the file system, and run the same command again; what was "
            "committed is kept.",
        )
    return TableError(primary, detail=f"{plain_text(error)}.")
