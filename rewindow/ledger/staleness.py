"""Stale ranges: published windows that were computed from a state that has changed since.

They should be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from rewindow.ledger.connection import LedgerPart, read_rows
from rewindow.ledger.models import stale_ranges
from rewindow.windows import WindowRange

REOPENED = 0
"""Used instead of a publication's number if windows of an input were reopened after the output was
computed.

Rules: X52
"""


@dataclass(frozen=True)
class StaleRange:
    """Windows of an output table that are stale.

    Attributes:
        since: number of the publication that made them stale, or REOPENED.
    """

    application: str
    table_name: str
    first: int
    last: int
    since: int
    marked_at: datetime


class Staleness(LedgerPart):
    """The stale ranges in the ledger. Ranges of one table never overlap."""

    def add(self, application: str, table_name: str, first: int, last: int, since: int) -> None:
        """Records windows of an output as stale since a publication.

        Replaces overlapping entries.
        """
        with self.serialised() as connection:
            self.add_in(
                connection, application, table_name, windows=WindowRange(first, last), since=since
            )

    def add_in(
        self,
        connection: Connection,
        application: str,
        table_name: str,
        windows: WindowRange,
        since: int,
    ) -> None:
        """Records windows as stale within a transaction."""
        self._clear(connection, application, table_name, windows)
        self._insert_range(
            connection,
            application,
            table_name,
            windows=windows,
            since=since,
            at=self.now,
        )

    def clear(self, application: str, table_name: str, first: int, last: int) -> None:
        """Removes windows of an output from the stale ranges.

        Other windows of these ranges remain stale.
        """
        with self.serialised() as connection:
            self._clear(connection, application, table_name, WindowRange(first, last))

    def ranges(self, application: str | None = None) -> list[StaleRange]:
        """Returns the stale ranges of all applications or of one application, by table and
        window.
        """
        c = stale_ranges.c
        query = select(stale_ranges).order_by(c.application, c.table_name, c.first)
        if application is not None:
            query = query.where(c.application == application)
        with self.reading() as connection:
            return read_rows(connection, query, StaleRange)

    def _clear(
        self,
        connection: Connection,
        application: str,
        table_name: str,
        windows: WindowRange,
    ) -> None:
        c = stale_ranges.c
        its = (c.application == application) & (c.table_name == table_name)
        touched = its & (c.first <= windows.last) & (c.last >= windows.first)
        rows = read_rows(connection, select(stale_ranges).where(touched), StaleRange)
        connection.execute(delete(stale_ranges).where(touched))
        for row in rows:
            if row.first < windows.first:
                rest = WindowRange(row.first, windows.first - 1)
                self._insert_range(
                    connection,
                    application,
                    table_name,
                    windows=rest,
                    since=row.since,
                    at=row.marked_at,
                )
            if row.last > windows.last:
                rest = WindowRange(windows.last + 1, row.last)
                self._insert_range(
                    connection,
                    application,
                    table_name,
                    windows=rest,
                    since=row.since,
                    at=row.marked_at,
                )

    def _insert_range(
        self,
        connection: Connection,
        application: str,
        table_name: str,
        windows: WindowRange,
        since: int,
        at: Any,
    ) -> None:
        values = {
            "application": application,
            "table_name": table_name,
            "first": windows.first,
            "last": windows.last,
        }
        connection.execute(insert(stale_ranges).values(**values, since=since, marked_at=at))
