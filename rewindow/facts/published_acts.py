"""Checks that published tables contain the publications and undos that the ledger lists as done. No
JVM.

The check fails for a table that another program has deleted, or whose log has lost its last
commits.
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
    """Returns whether a published table contains the commit of a publication or undo.

    The table must also have the Delta id for which the publication or undo was created.
    """
    name = table.path.name
    is_same = act.details.table_ids.get(name, table.id) == table.id
    return is_same and table.txn(publish_app_id(name)) >= act.number


def done_on(acts: Iterable[Publication], name: str) -> list[Publication]:
    """Returns the completed publications and undos of a table in their order."""
    done = []
    for act in acts:
        entry = find_named(act.tables, name)
        if entry is not None and entry.done:
            done.append(act)
    return done


def tables_lacking(config: Config, act: Publication) -> list[str]:
    """Returns the tables of a publication or undo that lack its commit, because they were deleted
    or have lost commits.
    """
    lacking = []
    for name in names_of(act.tables):
        is_present = Table.exists(config.stream_table(name))
        if not is_present or not holds(open_published(config, name), act):
            lacking.append(name)
    return lacking


def newest_held(acts: Iterable[Publication], table: Table) -> Publication | None:
    """Returns the newest publication or undo in a published table; None if the ledger does not list
    it as done.

    Args:
        acts: publications and undos of its application, newest first.
        table: the published table, at its newest version.

    Raises:
        TableError: the ledger lists one as done that the table lacks.
    """
    name = table.path.name
    number = table.txn(publish_app_id(name))
    done = done_on(acts, name)
    act = done[0] if done else None
    if act is None or holds(table, act):
        return act if act is not None and act.number == number else None
    again = f" Or publish it again: rewindow publish {act.replay_id}"
    raise TableError(
        f'table "{name}" lacks publication {act.number}, which the ledger lists as done',
        detail=f"The table has id {table.id}, version {table.version} and publication {number}: "
        "its log has lost the last commits, or another program has deleted the table.",
        hint=f"Restore the files of {table.path / '_delta_log'} from a backup."
        f"{again if act.kind == PUBLISH else ''}",
    )
