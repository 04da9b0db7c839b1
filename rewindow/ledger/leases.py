"""Leases on window ranges of published tables prevent two replays from computing the same windows.

Leases only save work. The transaction ids of the tables ensure that no wrong data is written. A
lease belongs to a replay, so that the next attempt of the replay inherits it. It is kept only while
the replay runs or publishes. It ends with the attempt, with the publication, or when the replay is
abandoned. A launcher that was killed leaves its lease behind; then the replay is resumed or
abandoned. Several replays can have leases on different ranges of one table.

Rules: R97
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
    """A replay's lease on a window range of a published table."""

    table_name: str
    replay_id: str
    first: int
    last: int
    granted_at: datetime


class Leases(LedgerPart):
    """The leases in the ledger."""

    def acquire(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> None:
        """Leases a range on all given tables or on none.

        Existing leases of the same replay on these tables are replaced.

        Raises:
            OverlapError: another replay has leased windows of the range; the error names it, its
                range and its state.
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
        """Grants leases within a transaction, see `acquire`."""
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
        """Returns the current leases of all replays or of one replay."""
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
        f'which replay "{holder.replay_id}" has locked',
        holder=holder.replay_id,
        detail=f"It is {holder.state}{', and being published' if publishes else ''}; it has locked "
        f"them since {since}.",
        hint=f"Wait until it has ended. If no process works on it any more, {act}"
        f"{'' if publishes else f' or abandon it (rewindow abandon {holder.replay_id})'}.",
    )
