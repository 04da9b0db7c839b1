"""Decides which errors are retryable. An error is retryable if the machine or Spark caused it and
the same work need not cause it again.

In at most once, every failed attempt costs windows, so an error that every attempt would meet must
end the replay.
"""

from __future__ import annotations

import re

from rewindow import errors
from rewindow.errors import RewindowError
from rewindow.storage.failures import LASTING, error_number, plain_text

_LASTING_CLASSES = frozenset({"0A", "21", "22", "23", "38", "39", "42", "46", "P0", "XX"})
"""Classes of SQLSTATE: unsupported, wrong cardinality, data (overflow, cast, division),
constraints, user functions, names and types, settings, errors raised on purpose by an operator,
bugs of Spark.
"""
_READ_FAILED = "KD"
_CRASHED = "Python worker exited unexpectedly"
OUT_OF_MEMORY = "OutOfMemoryError: "
"""Name of the error that a JVM without memory raises, in Java and Spark."""
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\][^\n]*")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?:\. Hint: (.*))? SQLSTATE: P0001")
"""The message of `raise_error`, and its hint if it has one."""
_IN_PYTHON = (
    "org.apache.spark.api.python.PythonException",
    "pyspark.errors.exceptions.base.PySpark",
)
_OURS = re.compile(r"^rewindow\.errors\.(\w+): ", re.MULTILINE)
_FULL = re.compile(r"no space left|disk quota", re.IGNORECASE)
_MACHINE = re.compile(
    r"input/output error|too many open files|no space left|disk quota|read-only file system|stale "
    r"file handle|"
    r"cannot allocate memory|connection (reset|refused|timed out)|resource temporarily unavailable",
    re.IGNORECASE,
)


def is_passing(error: BaseException) -> bool:
    """Returns whether an error may not occur in the next attempt.

    For Spark's errors, the SQLSTATE decides. A file that cannot be read counts as damaged or
    missing, unless the operating system reports a fault. An error without SQLSTATE, such as a lost
    worker or JVM, is transient.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PythonException
    from pyspark.errors.exceptions.captured import CapturedException

    if isinstance(error, RewindowError):
        return error.retryable
    if isinstance(error, PythonException):
        return _is_retryable_in_worker(str(error))
    if isinstance(error, PySparkException) and not isinstance(error, CapturedException):
        return False  # An invalid call of pyspark.
    if isinstance(error, Py4JError | PySparkException):
        return _passes_in_spark(spark_text(error))
    if isinstance(error, OSError):
        return _passes_in_system(error)
    return isinstance(error, MemoryError)


def has_lost_jvm(error: BaseException) -> bool:
    """Returns whether an error shows that the JVM no longer responds."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, ConnectionError | Py4JNetworkError)


def has_lost_worker(error: BaseException) -> bool:
    """Returns whether an error shows that the process that ran Python code for Spark has
    crashed.
    """
    return _CRASHED in spark_text(error)


def spark_text(error: BaseException) -> str:
    """Returns the full text of an error from the JVM, including its causes.

    If the JVM has ended, returns the text that Python has.
    """
    try:
        text = str(error)
        trace = error.getStackTrace() if hasattr(error, "getStackTrace") else ""
    except Exception:  # noqa: BLE001  (py4j asks the JVM, which may have ended)
        return str(getattr(error, "errmsg", "")) or type(error).__name__
    return f"{text}\n{trace}"


def describe(error: BaseException) -> str:
    """Returns a description of an error that Rewindow did not raise, in one or two lines: Spark's
    condition instead of the JVM's frames.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PythonException

    if isinstance(error, PythonException):
        return _of_worker(str(error))
    if isinstance(error, Py4JError | PySparkException):
        text = spark_text(error)
        if raised := _RAISED.search(text):
            return raised[1]
        found = None if _MACHINE.search(text) else _CONDITION.search(text)
        return f"Spark failed: {found[0] if found else _root_cause(text)}"
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {plain_text(error)}"
    return f"{type(error).__name__}: {error}"


def hint_on(error: BaseException) -> str:
    """Returns a hint about an error that Rewindow did not raise, for example for a full disk; empty
    if there is none.

    If a query that stops itself raised the error, its hint is returned.
    """
    text = spark_text(error)
    if (raised := _RAISED.search(text)) and raised[2]:
        return raised[2]
    if not _FULL.search(text):
        return ""
    return (
        "Free disk space, or move the state folder (REWINDOW_STATE), and run it again: it "
        "continues where it stopped."
    )


def _is_retryable_in_worker(text: str) -> bool:
    """Returns whether Python code in a worker raised a retryable `RewindowError`."""
    kinds = _OURS.findall(text)
    return bool(kinds) and getattr(errors, kinds[-1], RewindowError).retryable


def _of_worker(text: str) -> str:
    """Returns the error in a Python traceback from a Spark worker, with its notes."""
    _, _, trace = text.rpartition("Traceback (most recent call last):")
    # Lines of frames are indented; the error and its notes are not.
    lines = []
    for line in trace.splitlines():
        if line.strip() and not line.startswith((" ", "\t")):
            lines.append(line)
    if not lines:
        return "PythonException: " + " ".join(text.split())[:300]
    notes = [line for line in lines[1:] if line.startswith("in ")]
    return ", ".join([re.sub(r"^rewindow\.errors\.\w+: ", "", lines[0]), *notes])


def _passes_in_spark(text: str) -> bool:
    classes = {state[:2] for state in _STATE.findall(text)}
    if OUT_OF_MEMORY in text:
        return True
    if classes & _LASTING_CLASSES or any(name in text for name in _IN_PYTHON):
        return False
    return _READ_FAILED not in classes or bool(_MACHINE.search(text))


def _passes_in_system(error: OSError) -> bool:
    """Returns whether the machine caused an error.

    pyarrow raises errors about damaged files without a number.
    """
    number = error_number(error)
    if number is not None:
        return number not in LASTING
    return isinstance(error, ConnectionError | TimeoutError | InterruptedError | BlockingIOError)


def _root_cause(text: str) -> str:
    """Returns the innermost cause that a Java stack trace names."""
    # Java lists causes from the outermost to the innermost. Without causes, the first line that is
    # not a frame is the error.
    cause = message = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("Caused by: "):
            cause = line.removeprefix("Caused by: ")
        if line and not line.startswith("at "):
            message = message or line
    return cause or message or "without a message"
