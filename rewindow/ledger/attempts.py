"""Attempts and epochs: which attempt may write for a replay, how each attempt ended, and how many
failed.

An epoch is the number of an attempt. A launcher calls, in this order: `attempts.since_checkpoint`
(to stop after the allowed number of failures), `take_over` (leases and the next epoch),
`attempts.begin` after it has started the process, and `attempts.end` after the process has ended in
any way. The job itself calls `attempts.report_progress` after each commit group.

Each write of an attempt first locks the replay's row, on condition that the attempt's epoch is
still the newest. Otherwise it raises a FencedError and nothing is written.

Rules: R89, R90, R91
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from rewindow.errors import InputError
from rewindow.ledger.connection import Database, LedgerPart, read_rows
from rewindow.ledger.models import attempts, group_timings, replays
from rewindow.ledger.replays import RUNNABLE, Replays, ReplayState, read_replay
from rewindow.ledger.segments import CountsIndex
from rewindow.ledger.stretches import PortCount
from rewindow.names import whole_replay


class AttemptEnd(StrEnum):
    """How an attempt ended.

    done: the last window is committed. failed: it stopped with an error. killed: its process ended
    without an outcome. interrupted: a user stopped it at the end of a commit group. stuck: it
    committed nothing for too long and ended itself. lost: the next attempt started
    before its end was recorded.
    """

    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"
    LOST = "lost"


FAILURES = (AttemptEnd.FAILED, AttemptEnd.KILLED, AttemptEnd.STUCK, AttemptEnd.LOST)
"""Ends of attempts that failed."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt of a replay.

    Attributes:
        host, pid, process_group, process_identity: its process, which is compared before it is
            killed; None if the process was not started.
        mark: the last mark that it reported; None if it committed nothing.
        outcome: None while it runs, or if its end was not recorded.
    """

    replay_id: str
    epoch: int
    host: str | None
    pid: int | None
    process_group: int | None
    process_identity: str | None
    mark: int | None
    outcome: AttemptEnd | None
    message: str
    began_at: datetime
    heard_at: datetime
    ended_at: datetime | None


_PARTITIONS = "partitions"


@dataclass(frozen=True)
class GroupTiming:
    """The duration in seconds of each step of one commit group.

    Attributes:
        mark: mark of the group: number of windows that were committed after it.
        partitions: operator to its partitions, as (number, rows, seconds), and the number of tuples
            that it emitted.
    """

    epoch: int
    mark: int
    timings: dict[str, float]
    reported_at: datetime
    partitions: dict[str, tuple[list[tuple[int, int, float]], int]] = field(default_factory=dict)


class Attempts(LedgerPart):
    """The epochs, the attempts and their progress in the ledger."""

    def __init__(self, database: Database, replays: Replays, counts: CountsIndex) -> None:
        super().__init__(database)
        self._replays = replays
        self._counts = counts

    def next_epoch(self, replay_id: str) -> int:
        """Returns the next epoch of a replay. All older attempts can no longer write to the ledger.

        Raises:
            InputError: the replay is unknown, or in a state in which no attempt can start.
        """
        with self.writing() as connection:
            return self.give_epoch(connection, replay_id)

    def give_epoch(self, connection: Connection, replay_id: str) -> int:
        """Returns the next epoch of a replay within a transaction, see `next_epoch`."""
        may_run = (replays.c.replay_id == replay_id) & replays.c.state.in_(RUNNABLE)
        step = update(replays).where(may_run).values(epoch=replays.c.epoch + 1, changed_at=self.now)
        epoch = connection.execute(step.returning(replays.c.epoch)).scalar_one_or_none()
        if epoch is None:
            state = read_replay(connection, replay_id).state
            raise InputError(
                f'replay "{replay_id}" is {state}: no attempt can start',
                hint="To run its range again, plan a new replay with another --id.",
            )
        self._end(
            connection,
            replay_id,
            AttemptEnd.LOST,
            f"attempt {epoch} started before it had ended",
        )
        values = {"replay_id": replay_id, "epoch": epoch, "message": ""}
        connection.execute(insert(attempts).values(**values, began_at=self.now, heard_at=self.now))
        return int(epoch)

    def begin(
        self,
        replay_id: str,
        epoch: int,
        host: str,
        pid: int,
        process_group: int,
        process_identity: str,
    ) -> None:
        """Records the process of an attempt and sets the replay to running.

        Raises:
            FencedError: a newer attempt has taken over.
        """
        process = {
            "host": host,
            "pid": pid,
            "process_group": process_group,
            "process_identity": process_identity,
        }
        with self.writing() as connection:
            self._replays.hold_epoch(connection, replay_id, epoch)
            mine = _attempt(replay_id, epoch) & attempts.c.ended_at.is_(None)
            if connection.execute(
                update(attempts).where(mine).values(**process, heard_at=self.now)
            ).rowcount:
                self._replays.move(connection, replay_id, ReplayState.RUNNING)

    def end(self, replay_id: str, epoch: int, outcome: str, message: str = "") -> None:
        """Records how an attempt ended and ends the replay's leases. Repeated calls change nothing.

        Raises:
            FencedError: a newer attempt has taken over.
        """
        end = AttemptEnd(outcome)
        with self.writing() as connection:
            self._replays.hold_epoch(connection, replay_id, epoch)
            if not self._end(connection, replay_id, end, message, epoch):
                return
            if end is AttemptEnd.DONE:
                windows = replays.c.last - replays.c.first + 1
                self._replays.move(
                    connection, replay_id, ReplayState.ENDED, message=message, mark=windows
                )
                return
            self._replays.move(connection, replay_id, ReplayState.FAILED, message=message)
            whole = whole_replay(replay_id)
            if read_replay(connection, whole).state is ReplayState.RUNNING:
                self._replays.move(connection, whole, ReplayState.FAILED, message=message)

    def _end(
        self,
        connection: Connection,
        replay_id: str,
        end: AttemptEnd,
        message: str,
        epoch: int | None = None,
    ) -> bool:
        which = (attempts.c.replay_id == replay_id) & attempts.c.ended_at.is_(None)
        if epoch is not None:
            which &= attempts.c.epoch == epoch
        change = (
            update(attempts).where(which).values(outcome=end, message=message, ended_at=self.now)
        )
        return connection.execute(change).rowcount > 0

    def report_progress(
        self,
        replay_id: str,
        epoch: int,
        mark: int,
        checkpoint_mark: int | None = None,
        timings: Mapping[str, float] | None = None,
        counts: Sequence[PortCount] = (),
        partitions: Mapping[str, object] | None = None,
    ) -> None:
        """Records a commit group.

        A repeated report changes nothing. A checkpoint counts as new if its mark is higher than
        those of all checkpoints before.

        Args:
            replay_id: the replay.
            epoch: the attempt.
            mark: number of windows that are committed after the group.
            checkpoint_mark: mark of its checkpoint; None if it wrote none.
            timings: seconds per step.
            counts: tuples per port.
            partitions: operator to its partitions and the number of tuples that it emitted, see
                `GroupTiming`.

        Raises:
            FencedError: a newer attempt has taken over.
        """
        with self.writing() as connection:
            self._replays.hold_epoch(connection, replay_id, epoch)
            mine = _attempt(replay_id, epoch)
            heard = connection.execute(
                select(attempts.c.mark, attempts.c.heard_at).where(mine)
            ).one()
            if heard.mark is not None and heard.mark >= mark:
                return
            connection.execute(update(attempts).where(mine).values(mark=mark, heard_at=self.now))
            connection.execute(
                update(replays).where(replays.c.replay_id == replay_id).values(mark=mark)
            )
            if checkpoint_mark is not None:
                newer = (replays.c.replay_id == replay_id) & (
                    replays.c.checkpoint_mark < checkpoint_mark
                )
                values = {"checkpoint_mark": checkpoint_mark, "checkpoint_epoch": epoch}
                connection.execute(update(replays).where(newer).values(**values))
            row = {
                "replay_id": replay_id,
                "epoch": epoch,
                "mark": mark,
                "timings": {**(timings or {}), _PARTITIONS: partitions or {}},
            }
            connection.execute(insert(group_timings).values(**row, reported_at=self.now))
            at_checkpoint = checkpoint_mark == mark
            self._counts.add(
                connection,
                replay_id,
                epoch,
                counts,
                heard.heard_at,
                at_checkpoint,
            )

    def report_warm_up(self, replay_id: str, epoch: int) -> None:
        """Records a checkpoint of a warm-up.

        Earlier failures no longer count.

        Raises:
            FencedError: a newer attempt has taken over.

        Rules: R90
        """
        with self.writing() as connection:
            self._replays.hold_epoch(connection, replay_id, epoch)
            change = (
                update(replays)
                .where(replays.c.replay_id == replay_id)
                .values(checkpoint_epoch=epoch)
            )
            connection.execute(change)
            connection.execute(
                update(attempts).where(_attempt(replay_id, epoch)).values(heard_at=self.now)
            )

    def of(self, replay_id: str) -> list[AttemptRecord]:
        """Returns the attempts of a replay, oldest first."""
        query = select(attempts).where(attempts.c.replay_id == replay_id).order_by(attempts.c.epoch)
        with self.reading() as connection:
            return list(map(_to_attempt, connection.execute(query)))

    def begun(self, replay_ids: Sequence[str]) -> dict[str, int]:
        """Returns the number of attempts of each replay. Replays without attempts are left out."""
        c = attempts.c
        query = (
            select(c.replay_id, func.count())
            .where(c.replay_id.in_(replay_ids))
            .group_by(c.replay_id)
        )
        with self.reading() as connection:
            return {name: int(count) for name, count in connection.execute(query)}

    def last(self, replay_id: str) -> AttemptRecord | None:
        """Returns the newest attempt of a replay; None before the first attempt."""
        query = (
            select(attempts)
            .where(attempts.c.replay_id == replay_id)
            .order_by(attempts.c.epoch.desc())
            .limit(1)
        )
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _to_attempt(row)

    def since_checkpoint(self, replay_id: str) -> int:
        """Returns how many attempts have failed since the last new checkpoint was reported.

        The attempt that reported the checkpoint counts if it failed afterwards. Attempts that a
        user interrupted, or that still run, do not count. After `next_epoch`, attempts whose end
        was not recorded count, too. The launcher stops if the number is greater than the allowed
        one.

        Rules: R90, R91
        """
        since = (
            select(replays.c.checkpoint_epoch)
            .where(replays.c.replay_id == replay_id)
            .scalar_subquery()
        )
        failed = attempts.c.outcome.in_(FAILURES) & (attempts.c.epoch >= since)
        query = (
            select(func.count())
            .select_from(attempts)
            .where(attempts.c.replay_id == replay_id, failed)
        )
        with self.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def timings(self, replay_id: str, limit: int = 100) -> list[GroupTiming]:
        """Returns the seconds per step of the newest commit groups, newest first."""
        c = group_timings.c
        query = select(c.epoch, c.mark, c.timings, c.reported_at).where(c.replay_id == replay_id)
        query = query.order_by(c.epoch.desc(), c.mark.desc()).limit(limit)
        with self.reading() as connection:
            rows = read_rows(connection, query, GroupTiming)
        groups = []
        for row in rows:
            timings: dict[str, Any] = dict(row.timings)
            partitions = timings.pop(_PARTITIONS, {})
            groups.append(replace(row, timings=timings, partitions=partitions))
        return groups


def _attempt(replay_id: str, epoch: int) -> Any:
    return (attempts.c.replay_id == replay_id) & (attempts.c.epoch == epoch)


def _to_attempt(row: Row[Any]) -> AttemptRecord:
    return AttemptRecord(
        **{**row._mapping, "outcome": AttemptEnd(row.outcome) if row.outcome else None}
    )
