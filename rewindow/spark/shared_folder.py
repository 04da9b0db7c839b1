"""Errors of a cluster whose executors and driver do not see the same folders.

If an executor has a separate state folder, the driver does not find the files that it writes, and
it does not find the driver's files. Spark does not report this cause.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Set
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rewindow.errors import RewindowError
from rewindow.location import Location, location

if TYPE_CHECKING:
    from pyspark import SparkContext

_MISSING = re.compile(r"reading file file:(?://)?(/\S+?)\.? File does not exist")
_EXECUTOR = re.compile(r"\(([^()\s]+) executor \w+\)")
_HINT = (
    "Mount the state folder at the same path, on the same shared file system, on the driver and on "
    "every executor. Then run the command again; a replay continues with: rewindow replay --resume "
    "REPLAY"
)


def lost_rows(folder: Location, written: int, found: int, hosts: Set[str]) -> RewindowError:
    """Returns the error for rows that tasks have written but the driver does not find.

    Args:
        folder: the folder that both used.
        written: number of rows that the tasks have counted.
        found: number of rows in the files that the driver finds.
        hosts: hosts of the executors.
    """
    return RewindowError(
        f"tasks wrote {written:,} rows into folder {folder}, and the driver finds {found:,} there",
        detail=f"The driver is on host {socket.gethostname()}; Spark runs on "
        f"{', '.join(sorted(hosts))}. Executors with their own copy of the state folder cause "
        "this, and so do files that were deleted or damaged meanwhile. Nothing of it was "
        "committed.",
        hint=_HINT,
    )


def missing_on_executor(text: str) -> RewindowError | None:
    """Returns the error for a file that an executor did not find although the driver does; None if
    Spark's error has another cause.
    """
    missing = _MISSING.search(text)
    if missing is None:
        return None
    file = location(unquote(missing[1]))
    if not file.is_file():
        return None
    executor = _EXECUTOR.search(text)
    host = f" on host {executor[1]}" if executor else ""
    return RewindowError(
        f"an executor{host} does not see file {file}",
        detail=f"The driver sees it, on host {socket.gethostname()}: the executor has its own copy "
        "of the state folder, or none.",
        hint=_HINT,
    )


def executor_hosts(context: SparkContext) -> set[str]:
    """Returns the hosts of the driver and of all executors."""
    executors = context._jsc.sc().statusTracker().getExecutorInfos()
    return {executor.host() for executor in executors}
