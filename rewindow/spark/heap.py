"""Reports an exhausted heap of a job's JVM together with the operators that were being computed and
their states.

Spark ends its JVM at the first OutOfMemoryError of a task, and the driver ends with it. Therefore a
job writes what it computes to a file next to its outcome file. Readers of the outcome report the
content of that file.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from rewindow.errors import ResourceError
from rewindow.location import Location, location
from rewindow.spark.job_log import OUTCOME_VARIABLE
from rewindow.spark.transient_errors import OUT_OF_MEMORY

EXIT_CODE = 52
"""Exit code of a JVM that Spark ended because of an OutOfMemoryError."""
_PRIMARY = "the JVM ran out of memory"
MEMORY_VARIABLE = "REWINDOW_SPARK__DRIVER_MEMORY"
_LOCK = threading.Lock()
_COMPUTED: dict[int, Sequence[str]] = {}
_STATES: dict[str, str] = {}


def note_states(states: Mapping[str, str]) -> None:
    """Sets the sizes of the operators' states, as text, for the notes of this group."""
    _STATES.clear()
    _STATES.update(states)


@contextmanager
def computing(operators: Sequence[str]) -> Iterator[None]:
    """Notes the operators that this thread computes. The note remains after an error."""
    _note(operators)
    yield
    _note(())


def exhausted_heap(
    outcome: Location,
    exit_code: int = 0,
    text: str = "",
    *,
    has_died: bool,
) -> ResourceError | None:
    """Returns the error about an exhausted heap; None if a job ended for another reason.

    Args:
        outcome: path of the job's outcome file, which may not exist.
        exit_code: exit code of its JVM.
        text: an error that Spark reported.
        has_died: the JVM has ended, and its log may show the reason.
    """
    log = outcome.with_name(f"{outcome.stem}.log")
    shown = text + _text(log) if has_died else text
    if exit_code != EXIT_CODE and OUT_OF_MEMORY not in shown:
        return None
    note: dict[str, Any] = {}
    with suppress(ValueError):  # Its writer may have died while writing it.
        note = json.loads(_text(_note_file(outcome)))
    named = [
        f'operator "{name}"{f" with a state of {size}" if size else ""}'
        for name, size in note.get("operators", {}).items()
    ]
    memory = [f"spark.driver_memory = {note['memory']}"] if note else []
    return ResourceError(
        ", ".join([_PRIMARY, *named, *memory]),
        detail=f"Committed windows are kept. The log is {log}.",
        hint="Set a larger spark.driver_memory in rewindow.toml, or let the operator keep less, "
        "and run the same command again.",
    )


def is_repeated(message: str, before: str, memory: str) -> bool:
    """Returns whether two messages report the same exhausted heap, with the currently configured
    size.
    """
    line = message.partition("\n")[0]
    is_same = line == before.partition("\n")[0]
    return is_same and line.startswith(_PRIMARY) and line.endswith(f"= {memory}")


def _note(operators: Sequence[str]) -> None:
    path = os.environ.get(OUTCOME_VARIABLE)
    if not path:
        return
    with _LOCK:
        _COMPUTED[threading.get_ident()] = operators
        names = sorted(set(chain.from_iterable(_COMPUTED.values())))
        note = {
            "memory": os.environ.get(MEMORY_VARIABLE, ""),
            "operators": {name: _STATES.get(name, "") for name in names},
        }
        # Not synced to disk: it is read after a crash of this process, not of the machine.
        _note_file(location(path)).local().write_text(json.dumps(note))


def _note_file(outcome: Location) -> Location:
    return outcome.with_name(f"{outcome.stem}.computing")


def _text(file: Location) -> str:
    with suppress(OSError):
        return file.read_bytes().decode(errors="replace")
    return ""
