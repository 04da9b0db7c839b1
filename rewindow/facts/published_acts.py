"""Whether published tables hold what the ledger has entered for them. No JVM.

A table that another program has deleted, or whose log has lost its last commits, lacks an act that
the ledger counts as done.
"""

from __future__ import annotations

from collections.abc import Iterable

from rewindow.errors import TableError
from rewindow.ledger import Publication, publish_app_id
from rewindow.ledger.publication_rows import PUBLISH
from rewindow.sequences import find_named, names_of
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.names import open_published


def holds(table: Table, act: Publication) -> bool:
    """Returns whether a published table is the one of an act, and has its commit."""
    name = table.path.name
    is_same = act.details.table_ids.get(name, table.id) == table.id
    return is_same and table.txn(publish_app_id(name)) >= act.number


def done_on(acts: Iterable[Publication], name: str) -> list[Publication]:
    """Returns the acts that are done on a table, in their order."""
    done = []
    for act in acts:
        entry = find_named(act.tables, name)
        if entry is not None and entry.done:
            done.append(act)
    return done


def tables_lacking(config: Config, act: Publication) -> list[str]:
    """Returns the tables of an act that do not hold it: they were deleted, or lost its commit."""
    lacking = []
    for name in names_of(act.tables):
        is_present = Table.exists(config.stream_table(name))
        if not is_present or not holds(open_published(config, name), act):
            lacking.append(name)
    return lacking


def newest_held(acts: Iterable[Publication], table: Table) -> Publication | None:
    """Returns the newest act on a published table; None where the ledger does not count it as done.

    Args:
        acts: those of its application, newest first.
        table: the published table, at its newest version.

    Raises:
        TableError: the ledger counts an act as done that the table does not hold.
    """
    name = table.path.name
    number = table.txn(publish_app_id(name))
    done = done_on(acts, name)
    act = done[0] if done else None
    if act is None or holds(table, act):
        return act if act is not None and act.number == number else None
    again = f" Or publish it again: rewindow publish {act.replay_id}"
    raise TableError(
        f'table "{name}" lacks publication {act.number}, which the ledger counts as done',
        detail=f"It is table {table.id} at version {table.version}, with publication {number}: "
        "the last commits are missing from its log, or another program has deleted it.",
        hint=f"Put the files of {table.path / '_delta_log'} back from a copy."
        f"{again if act.kind == PUBLISH else ''}",
    )
