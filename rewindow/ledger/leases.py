"""Leases on (published table, window range): they keep two replays from doing the same work; safety
is the fence's.

The holder is the replay, so its next attempt takes its leases over. They are held only while it
runs or publishes: the end of an attempt, of a publication, and abandoning the replay end them. A
launcher that was killed leaves them; then its replay is resumed or abandoned. Disjoint ranges of
one table stand side by side (R97).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from rewindow.errors import InputError, OverlapError
from rewindow.ledger.connection import LedgerPart, read_rows
from rewindow.ledger.models import leases
from rewindow.ledger.replays import RUNNABLE, Replay, ReplayState, end_leases, read_replay
from rewindow.windows import WindowRange, format_time


@dataclass(frozen=True)
class Lease:
    """A replay's claim on a window range of a published table."""

    table_name: str
    replay_id: str
    first: int
    last: int
    granted_at: datetime


class Leases(LedgerPart):
    """The part of the ledger that grants leases."""

    def acquire(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> None:
        """Grants a replay the range on all tables, or on none; what it holds of them already is
        replaced.

        Raises:
            OverlapError: another replay holds windows of the range; names it, its range and its
                state.
            InputError: the replay is unknown or abandoned.
        """
        with self.serialised() as connection:
            self.grant(connection, replay_id, tables, windows=WindowRange(first, last))

    def grant(
        self,
        connection: Connection,
        replay_id: str,
        tables: Iterable[str],
        windows: WindowRange,
    ) -> None:
        """Grants leases inside a transaction, see `acquire`."""
        names = sorted(set(tables))
        if read_replay(connection, replay_id).state is ReplayState.ABANDONED:
            raise InputError(f'replay "{replay_id}" is abandoned', hint="Plan the range again.")
        held = _first_overlap(connection, replay_id, names, windows=windows)
        if held is not None:
            raise _overlap(held, read_replay(connection, held.replay_id), windows)
        its = (leases.c.replay_id == replay_id) & leases.c.table_name.in_(names)
        connection.execute(delete(leases).where(its))
        for name in names:
            row = {
                "table_name": name,
                "replay_id": replay_id,
                "first": windows.first,
                "last": windows.last,
            }
            connection.execute(insert(leases).values(**row, granted_at=self.now))

    def release(self, replay_id: str) -> None:
        """Ends all leases of a replay."""
        with self.writing() as connection:
            end_leases(connection, replay_id)

    def held(self, replay_id: str | None = None) -> list[Lease]:
        """Returns the leases that are held, of one replay if so asked."""
        query = select(leases).order_by(leases.c.table_name, leases.c.first)
        if replay_id is not None:
            query = query.where(leases.c.replay_id == replay_id)
        with self.reading() as connection:
            return read_rows(connection, query, Lease)


def _first_overlap(
    connection: Connection,
    replay_id: str,
    names: list[str],
    windows: WindowRange,
) -> Lease | None:
    c = leases.c
    others = c.table_name.in_(names) & (c.replay_id != replay_id)
    overlapping = others & (c.first <= windows.last) & (c.last >= windows.first)
    row = connection.execute(
        select(leases).where(overlapping).order_by(c.table_name, c.first).limit(1)
    ).one_or_none()
    return None if row is None else Lease(**row._mapping)


def _overlap(held: Lease, holder: Replay, wanted: WindowRange) -> OverlapError:
    publishes = holder.state not in RUNNABLE
    since = format_time(round(held.granted_at.timestamp()) * 1_000_000)
    act = (
        "publish or undo it again"
        if publishes
        else f"resume it (rewindow replay --resume {holder.replay_id})"
    )
    return OverlapError(
        f'windows {wanted} of table "{held.table_name}" overlap '
        f"{WindowRange(held.first, held.last)}, "
        f'which replay "{holder.replay_id}" holds',
        holder=holder.replay_id,
        detail=f"It is {holder.state}{', and being published' if publishes else ''}; it has held "
        f"them since {since}.",
        hint=f"Wait until it has ended. If nothing works on it any more, {act}"
        f"{'' if publishes else f' or give it up (rewindow abandon {holder.replay_id})'}.",
    )
