"""Format numbers of tables. Each table stores its number as a property, and commands reject a table
with another number.

A table without a number has format 1. A change of the columns of a kind of table, or of the meaning
of a column, increases its number here. Other programs can always read the tables as Delta tables.
"""

from __future__ import annotations

from enum import StrEnum

from rewindow.errors import TableError
from rewindow.names import stream_of, whole_replay
from rewindow.storage.delta import Table
from rewindow.storage.log_gaps import restore_hint

PROPERTY = "rewindow.format"
FIRST = 1


class TableKind(StrEnum):
    """Kinds of tables that Rewindow creates."""

    STREAM = "stream"
    SEALS = "seals"
    FILES = "files"
    QUARANTINE = "quarantine"
    STATES = "published checkpoints"
    OUTPUT = "staged output"
    FACTS = "facts"
    CHECKPOINTS = "checkpoints of a replay"


CURRENT = {
    TableKind.STREAM: 2,
    TableKind.SEALS: 2,
    TableKind.FILES: 2,
    TableKind.QUARANTINE: 2,
    TableKind.STATES: 4,
    TableKind.OUTPUT: 3,
    TableKind.FACTS: 3,
    TableKind.CHECKPOINTS: 4,
}
"""Kind to the format that this version reads and writes. 2: float digests bind floats to the exact
values of their row; seals have a checksum, a generation, their columns and the table's id;
checkpoints name their input tables. 3: checkpoints may name state files, and a state's digest is a
sum of row hashes; staged outputs have an offset and an arrival time; facts have measures. 4:
checkpoints have the code version and configuration digest of each operator and of its upstream
operators."""

_STAGED = frozenset({TableKind.OUTPUT, TableKind.FACTS, TableKind.CHECKPOINTS})


def format_property(kind: TableKind) -> dict[str, str]:
    """Returns the table property for creating a new table of a kind."""
    return {PROPERTY: str(CURRENT[kind])}


def format_of(table: Table) -> int:
    """Returns a table's format.

    Raises:
        TableError: the property is not a number.
    """
    text = table.properties.get(PROPERTY, str(FIRST))
    try:
        return int(text)
    except ValueError as error:
        raise TableError(
            f'table "{table.path.name}" has the format "{text}", which is not a number',
            hint=restore_hint(table.path),
        ) from error


def check_format(table: Table, kind: TableKind) -> Table:
    """Checks that a table has the format of this version, and returns the table.

    Raises:
        TableError: it has an older or a newer format; the message has both and the next step.
    """
    number = format_of(table)
    wanted = CURRENT[kind]
    if number == wanted:
        return table
    name = table.path.name
    older = number < wanted
    subject = f'replay "{table.path.parent.name}"' if kind in _STAGED else f'table "{name}"'
    raise TableError(
        f"{subject} has format {number}, but this version of Rewindow requires format {wanted}",
        detail=f"It was written by an {'older' if older else 'unknown, newer'} version. Nothing "
        "was changed; programs that read Delta can still read it.",
        hint=_way_out(table, kind)
        if older
        else "Use the version of Rewindow that wrote it, or a newer one.",
    )


def _way_out(table: Table, kind: TableKind) -> str:
    name = table.path.name
    if kind in _STAGED:
        replay = whole_replay(table.path.parent.name)
        return f"Abandon the replay and plan its range again: rewindow abandon {replay}"
    if kind in (TableKind.STATES, TableKind.QUARANTINE):
        return (
            f"Use the version of Rewindow that wrote it, or move {table.path} away: a new "
            "table is created."
        )
    return (
        "Use the version of Rewindow that wrote it, or move all tables of stream "
        f"{stream_of(name)} away and record or "
        "publish it again."
    )
