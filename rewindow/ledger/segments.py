"""Index of window facts: one row describes a stretch of windows of one port, so that a million
windows need few rows.

The facts themselves are a Delta table of the replay, from which the index can be rebuilt
(`facts_index`). A stretch is extended by the commit groups that follow it, up to SEGMENT_WINDOWS.
It ends at each checkpoint, because an attempt may resume there. Then recomputed windows replace
whole stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import starmap
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select, update

from rewindow.ledger.connection import LedgerPart
from rewindow.ledger.models import replays, segments
from rewindow.ledger.stretches import SEGMENT_WINDOWS, PortCount, PortStretch, PortTotal
from rewindow.windows import WindowRange

_COLUMNS = list(segments.c[tuple(PortStretch.__dataclass_fields__)])
_WIDTH = segments.c.last - segments.c.first + 1


class CountsIndex(LedgerPart):
    """The windows and tuples of each port in the ledger. It is the index of the window facts."""

    def index(self, replay_id: str, port: str | None = None) -> list[PortStretch]:
        """Returns the stretches of a replay, ordered by direction, port and window."""
        query = select(*_COLUMNS).where(segments.c.replay_id == replay_id)
        query = query.order_by(segments.c.direction, segments.c.port, segments.c.first)
        if port is not None:
            query = query.where(segments.c.port == port)
        with self.reading() as connection:
            return list(starmap(PortStretch, connection.execute(query)))

    def totals(self, replay_id: str) -> list[PortTotal]:
        """Returns the number of windows and tuples of each port of a replay."""
        c = segments.c

        def total(value: Any, lost: bool) -> Any:
            return func.coalesce(func.sum(case((c.lost.is_(lost), value), else_=0)), 0)

        sums = [
            total(_WIDTH, False),
            total(c.tuples, False),
            total(_WIDTH, True),
            total(c.tuples, True),
        ]
        query = select(c.direction, c.port, *sums).where(c.replay_id == replay_id)
        query = query.group_by(c.direction, c.port).order_by(c.direction, c.port)
        with self.reading() as connection:
            return [
                PortTotal(row[0], row[1], *map(int, row[2:])) for row in connection.execute(query)
            ]

    def lost_windows(self, replay_ids: Sequence[str]) -> dict[str, int]:
        """Returns the number of windows of each replay that are lost in any output.

        Replays without lost windows are left out.
        """
        return {
            replay_id: _count(set().union(*by_port.values()))
            for replay_id, by_port in self.lost_ranges(replay_ids).items()
        }

    def lost_ranges(self, replay_ids: Sequence[str]) -> dict[str, dict[str, set[WindowRange]]]:
        """Returns the lost windows of replays, by replay and output. Replays without lost windows
        are left out.
        """
        c = segments.c
        query = select(c.replay_id, c.port, c.first, c.last).where(
            c.replay_id.in_(replay_ids),
            c.lost,
            c.direction == "out",
        )
        lost: dict[str, dict[str, set[WindowRange]]] = {}
        with self.reading() as connection:
            for replay_id, port, first, last in connection.execute(query):
                by_port = lost.setdefault(replay_id, {})
                by_port.setdefault(port, set()).add(WindowRange(first, last))
        return lost

    def is_whole(self, replay_id: str) -> bool:
        """Returns whether all windows of each port up to the replay's mark are indexed.

        Windows are missing if a process was killed between its commit and its report. `rebuild`
        adds them.
        """
        with self.reading() as connection:
            its_mark = select(replays.c.mark).where(replays.c.replay_id == replay_id)
            mark = connection.execute(its_mark).scalar_one_or_none() or 0
            c = segments.c
            counted = (
                select(func.sum(_WIDTH))
                .where(c.replay_id == replay_id)
                .group_by(c.direction, c.port)
            )
            indexed = list(map(int, connection.execute(counted).scalars()))
        return all(windows == mark for windows in indexed or [0])

    def add(
        self,
        connection: Connection,
        replay_id: str,
        epoch: int,
        counts: Sequence[PortCount],
        began_at: datetime,
        at_checkpoint: bool,
    ) -> None:
        """Adds the counts of a commit group.

        Entries of earlier attempts are deleted, from the first window of the group on.
        """
        for count in counts:
            its = _port(replay_id, count)
            connection.execute(delete(segments).where(its, segments.c.last >= count.first))
            if not self._extend(connection, its, epoch, count=count, at_checkpoint=at_checkpoint):
                row = {
                    **vars(count),
                    "replay_id": replay_id,
                    "epoch": epoch,
                    "after_checkpoint": not at_checkpoint,
                }
                connection.execute(
                    insert(segments).values(**row, began_at=began_at, ended_at=self.now)
                )

    def _extend(
        self,
        connection: Connection,
        its: Any,
        epoch: int,
        count: PortCount,
        at_checkpoint: bool,
    ) -> bool:
        """Extends the stretch that ends just before the group. Returns whether there was such a
        stretch.

        A stretch that ends at the newest checkpoint is extended only by a group that ends at the
        next checkpoint.
        """
        # One row describes many groups; otherwise the ledger would grow with each of them. The
        # condition of the update tests whether the row can grow, which saves a query per port.
        c = segments.c
        before = its & (c.last == count.first - 1) & (c.epoch == epoch) & c.lost.is_(count.lost)
        small = count.last - c.first < SEGMENT_WINDOWS
        open_end = before & small if at_checkpoint else before & small & c.after_checkpoint
        grown = {
            "last": count.last,
            "tuples": c.tuples + count.tuples,
            "after_checkpoint": not at_checkpoint,
        }
        return (
            connection.execute(
                update(segments).where(open_end).values(**grown, ended_at=self.now)
            ).rowcount
            > 0
        )

    def replace(self, connection: Connection, replay_id: str, parts: Iterable[PortStretch]) -> None:
        """Replaces the whole index of a replay within a transaction."""
        connection.execute(delete(segments).where(segments.c.replay_id == replay_id))
        rows = [{**vars(part), "replay_id": replay_id, "after_checkpoint": False} for part in parts]
        if rows:
            connection.execute(insert(segments), rows)

    def rebuild(self, replay_id: str, parts: Iterable[PortStretch]) -> None:
        """Replaces the whole index of a replay in a separate transaction; see
        `facts_index.segments_of`.
        """
        with self.serialised() as connection:
            self.replace(connection, replay_id, parts)


def _port(replay_id: str, count: PortCount) -> Any:
    c = segments.c
    return (c.replay_id == replay_id) & (c.direction == count.direction) & (c.port == count.port)


def _count(ranges: Iterable[WindowRange]) -> int:
    """Returns the number of windows in ranges, which may overlap."""
    count, end = 0, -1
    for part in sorted(ranges):
        count += max(0, part.last - max(part.first, end + 1) + 1)
        end = max(end, part.last)
    return count
