"""Formats of our tables: each carries its number as a table property, and is refused by name when
it is another one.

A table without a number has format 1. A change of a kind's columns, or of what a column means,
raises its number here. Reading a table as Delta is never refused; what is refused is a command that
would take old values for new ones.
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
    """What a table of ours holds."""

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
"""Kind to the format that this version reads and writes. 2: float digests bind floats to their row,
seals have a checksum, a generation, their columns and the table's id, checkpoints name the tables
that they were computed from. 3: checkpoints may name files of their states, and a state's digest is
a sum of row hashes; staged outputs have an offset and an arrival time, facts have measures. 4:
checkpoints have the code version and the configuration digest of each operator, and those of the
operators upstream of it."""

_STAGED = frozenset({TableKind.OUTPUT, TableKind.FACTS, TableKind.CHECKPOINTS})


def format_property(kind: TableKind) -> dict[str, str]:
    """Returns the table property with which a new table of a kind is created."""
    return {PROPERTY: str(CURRENT[kind])}


def format_of(table: Table) -> int:
    """Returns a table's format.

    Raises:
        TableError: the property is no number.
    """
    text = table.properties.get(PROPERTY, str(FIRST))
    try:
        return int(text)
    except ValueError as error:
        raise TableError(
            f'table "{table.path.name}" has the format "{text}", which is no number',
            hint=restore_hint(table.path),
        ) from error


def check_format(table: Table, kind: TableKind) -> Table:
    """Returns the table if it has the format that this version works with.

    Raises:
        TableError: it has an older format, or a newer one; names both and what to do.
    """
    number = format_of(table)
    wanted = CURRENT[kind]
    if number == wanted:
        return table
    name = table.path.name
    older = number < wanted
    subject = f'replay "{table.path.parent.name}"' if kind in _STAGED else f'table "{name}"'
    raise TableError(
        f"{subject} has format {number}, this version of Rewindow works with format {wanted}",
        detail=f"It was written by an {'older' if older else 'unknown, newer'} version. Nothing "
        "was changed; every "
        "program that reads Delta can still read it.",
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
