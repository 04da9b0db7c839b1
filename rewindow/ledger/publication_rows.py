"""Publications as values, and queries for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from rewindow.errors import InputError
from rewindow.ledger.models import publication_tables, publications
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.sequences import names_of
from rewindow.windows import WindowRange

PUBLISH = "publish"
UNDO = "undo"
WITHDRAW = "withdraw"


def publish_app_id(table_name: str) -> str:
    """Returns the transaction id with which publications commit to a table."""
    return f"publish/{table_name}"


@dataclass(frozen=True)
class PublishedTable:
    """A table that a publication writes.

    Attributes:
        version_before: its Delta version before the publication; None if it did not exist.
        version_after: the version that the publication wrote; None until it is known.
    """

    name: str
    version_before: int | None
    version_after: int | None
    done: bool


@dataclass(frozen=True)
class Publication:
    """A publication of a window range of a replay, its undo, or the withdrawal of an unfinished
    one.

    Attributes:
        number: transaction version of its commits; higher than those of all publications before.
        undoes: for an undo or a withdrawal, the number of the publication that it reverts; None
            otherwise. An undo reverts all publications of its replay up to this number.
        details: what a process needs to complete it.
        withdrawn: the reason why it was withdrawn; None if it was not. A separate withdrawal then
            reverts its commits.
        closed_at: None until it is completed or withdrawn.
    """

    number: int
    replay_id: str
    kind: str
    first: int
    last: int
    undoes: int | None
    details: PublicationDetails
    tables: tuple[PublishedTable, ...]
    withdrawn: str | None
    opened_at: datetime
    closed_at: datetime | None

    @property
    def range(self) -> WindowRange:
        """The windows that the publication replaces."""
        return WindowRange(self.first, self.last)

    def commit_metadata(self) -> dict[str, Any]:
        """Returns the user metadata of the publication's commits.

        `rewindow ledger rebuild` restores the publication from it.
        """
        return {
            "publication": self.number,
            "replay": self.replay_id,
            "kind": self.kind,
            "first": self.first,
            "last": self.last,
            "undoes": self.undoes,
            "details": self.details.to_json(),
            "versions_before": {table.name: table.version_before for table in self.tables},
        }


@dataclass(frozen=True)
class StandingRange:
    """The windows of a table that an effective publication replaced."""

    number: int
    replay_id: str
    range: WindowRange


_undo = publications.alias("undo")
_UNDONE = (
    select(_undo.c.number)
    .where(
        _undo.c.kind == UNDO,
        _undo.c.withdrawn.is_(None),
        _undo.c.replay_id == publications.c.replay_id,
        _undo.c.undoes >= publications.c.number,
    )
    .correlate(publications)
    .exists()
)
EFFECTIVE: ColumnElement[bool] = (
    (publications.c.kind == PUBLISH) & publications.c.withdrawn.is_(None) & ~_UNDONE
)
"""Condition: a publication is neither withdrawn nor undone."""


def effective_publications(acts: Iterable[Publication]) -> list[Publication]:
    """Returns the given publications that no other of them withdraws or undoes.

    This is the same condition as EFFECTIVE.
    """
    listed = [act for act in acts if act.withdrawn is None]
    undone: dict[str, int] = {}
    for act in listed:
        if act.kind == UNDO and act.undoes is not None:
            undone[act.replay_id] = max(act.undoes, undone.get(act.replay_id, 0))
    return [
        act for act in listed if act.kind == PUBLISH and act.number > undone.get(act.replay_id, 0)
    ]


def read_publication(connection: Connection, number: int) -> Publication:
    """Returns a publication.

    Raises:
        InputError: no publication has this number.
    """
    acts = find_publications(connection, publications.c.number == number)
    if not acts:
        raise InputError(
            f"publication {number} is unknown",
            hint="`rewindow status` shows the existing ones.",
        )
    return acts[0]


def find_publications(
    connection: Connection,
    wanted: ColumnElement[bool],
    limit: int | None = None,
) -> list[Publication]:
    """Returns publications with their tables, newest first."""
    query = select(publications).where(wanted).order_by(publications.c.number.desc()).limit(limit)
    # Two queries instead of a join, which would repeat the details, the largest column, for every
    # table.
    rows = connection.execute(query).all()
    tables: dict[int, list[PublishedTable]] = {row.number: [] for row in rows}
    c = publication_tables.c
    for row in connection.execute(
        select(publication_tables).where(c.number.in_(tables)).order_by(c.position)
    ):
        table = PublishedTable(
            row.table_name,
            row.version_before,
            row.version_after,
            done=row.done_at is not None,
        )
        tables[row.number].append(table)
    return [
        Publication(
            **{**row._mapping, "details": PublicationDetails.from_json(row.details)},
            tables=tuple(tables[row.number]),
        )
        for row in rows
    ]


def of_tables(names: Iterable[str]) -> ColumnElement[bool]:
    """Returns a condition that is true if a publication includes one of the given tables."""
    c = publication_tables.c
    return publications.c.number.in_(select(c.number).where(c.table_name.in_(sorted(set(names)))))


def overlapping(windows: WindowRange) -> ColumnElement[bool]:
    """Returns a condition that is true if a publication includes a window of a range."""
    return (publications.c.first <= windows.last) & (publications.c.last >= windows.first)


def later_over(connection: Connection, publication: Publication) -> list[Publication]:
    """Returns the later effective publications that overlap a publication in one of its tables,
    newest first.
    """
    later = (publications.c.number > publication.number) & overlapping(publication.range)
    return find_publications(
        connection,
        EFFECTIVE & later & of_tables(names_of(publication.tables)),
    )
