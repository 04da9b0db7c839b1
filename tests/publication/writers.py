"""Other programs that write to a published table while it is published or undone: between read and
commit of that.

    python -m tests.publication.writers rows|vacuum jobs/publish.py --replay fix

runs the job; each time that it is about to commit tuples, another process commits first, until that
has done all its acts. They are fewer than a publisher tries. Its own rows are of windows that
nobody publishes, so what must be there in the end is known; a compaction and a deletion put them
into one file with others, and take that file away again.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from rewindow.publication import by_files

FIRST = 300
LEFT = {"rows": [FIRST + 1, FIRST + 2], "vacuum": [FIRST, FIRST + 1]}
"""The windows that each kind of writer leaves, with a row each."""


def append(path: str, windows: list[int]) -> None:
    table = DeltaTable(path)
    schema = pa.schema(table.schema().to_arrow())
    row = {
        "offset": 0,
        "arrived_at": datetime(2026, 1, 1, tzinfo=UTC),
        "carrier": "??",
        "minutes": 0,
        "share": 0.0,
    }
    write_deltalake(
        table,
        pa.Table.from_pylist([{**row, "window_id": one} for one in windows], schema),
        mode="append",
    )


def compact(path: str) -> None:
    DeltaTable(path).optimize.compact()


def delete(path: str) -> None:
    """Takes the first window out of the file that it lies in."""
    DeltaTable(path).delete(f"window_id = {FIRST}")


def vacuum(path: str) -> None:
    """Deletes every file that the newest version does not have, those of an unfinished publication
    too: two commits.
    """
    DeltaTable(path).vacuum(
        retention_hours=0,
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
    )


ACTS: dict[str, list[Callable[[str], None]]] = {
    "rows": [
        lambda path: append(path, [FIRST, FIRST + 1]),
        compact,
        delete,
        lambda path: append(path, [FIRST + 2]),
    ],
    "vacuum": [lambda path: append(path, [FIRST, FIRST + 1]), compact, vacuum],
}


def disturb(kind: str) -> None:
    """Has an act of another process come before each commit of tuples, one after the other."""
    commit = by_files.Replacement.commit
    numbers = iter(range(len(ACTS[kind])))

    def commit_later(change: by_files.Replacement) -> None:
        number = next(numbers, None)
        if number is not None:
            command = [
                sys.executable,
                "-m",
                "tests.publication.writers",
                kind,
                str(number),
                str(change.table.path),
            ]
            subprocess.run(command, check=True)
        commit(change)

    by_files.Replacement.commit = commit_later  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    kind, what, *others = sys.argv[1:]
    if what.isdigit():
        ACTS[kind][int(what)](others[0])
    else:
        disturb(kind)
        sys.argv = [what, *others]
        runpy.run_path(what, run_name="__main__")
