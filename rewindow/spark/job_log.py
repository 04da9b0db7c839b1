"""The log of a job: full tracebacks and all output of the JVM, in a file next to the job's outcome
file.

A terminal or a task's log shows the cause in a few lines and names this file, which the JVM also
writes to.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

LOG_VARIABLE = "REWINDOW_LOG"
OUTCOME_VARIABLE = "REWINDOW_OUTCOME"


def log_file() -> Path | None:
    """Returns the path of this job's log; None in a process that was not launched as a job."""
    path = os.environ.get(LOG_VARIABLE)
    return Path(path) if path else None


def where_all_is() -> str:
    """Returns a sentence that names the log; empty if there is no log."""
    path = log_file()
    return f"The whole traceback is in {path}" if path else ""


def hush_pyspark() -> None:
    """Stops pyspark from printing an error as JSON, with the JVM's stack frames, in addition to
    raising it.
    """
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def keep_traceback(error: BaseException) -> None:
    """Appends an error with its causes to the job's log. Without a log, they are printed."""
    text = "".join(traceback.format_exception(error))
    path = log_file()
    if path is None:
        print(text, flush=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
