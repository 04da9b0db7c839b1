"""Replays: what was planned, and the state that each is in.

    planned ──> running ──> ended ──> checked ──> published <──> undone
                 │   ^        ^─────────┘ (a later gate fails)
                 v   │
                failed <── ended, checked (their tables have lost commits)
                                               all but published ones ──> abandoned

`checked` means that the newest gate passed or that somebody accepted the replay; only then is it
published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from rewindow.errors import FencedError, InputError, OverlapError
from rewindow.ledger.connection import LedgerPart
from rewindow.ledger.models import leases, publications, replays
from rewindow.names import container_id, did_you_mean
from rewindow.sequences import excluding
from rewindow.windows import Grid, WindowRange, format_time

if TYPE_CHECKING:
    from rewindow.application.overrides import PropertyChange
    from rewindow.recovery import Plan


class ReplayState(StrEnum):
    """The state of a replay."""

    PLANNED = "planned"
    RUNNING = "running"
    FAILED = "failed"
    ENDED = "ended"
    CHECKED = "checked"
    PUBLISHED = "published"
    UNDONE = "undone"
    ABANDONED = "abandoned"


_MAY_FOLLOW: Mapping[ReplayState, frozenset[ReplayState]] = {
    ReplayState.PLANNED: frozenset(
        {ReplayState.RUNNING, ReplayState.FAILED, ReplayState.ABANDONED}
    ),
    ReplayState.RUNNING: frozenset(
        {ReplayState.RUNNING, ReplayState.FAILED, ReplayState.ENDED, ReplayState.ABANDONED}
    ),
    ReplayState.FAILED: frozenset({ReplayState.RUNNING, ReplayState.FAILED, ReplayState.ABANDONED}),
    ReplayState.ENDED: frozenset(
        {ReplayState.ENDED, ReplayState.CHECKED, ReplayState.FAILED, ReplayState.ABANDONED}
    ),
    ReplayState.CHECKED: frozenset(
        {
            ReplayState.CHECKED,
            ReplayState.ENDED,
            ReplayState.FAILED,
            ReplayState.PUBLISHED,
            ReplayState.ABANDONED,
        }
    ),
    ReplayState.PUBLISHED: frozenset({ReplayState.PUBLISHED, ReplayState.UNDONE}),
    ReplayState.UNDONE: frozenset(
        {ReplayState.PUBLISHED, ReplayState.UNDONE, ReplayState.ABANDONED}
    ),
    ReplayState.ABANDONED: frozenset({ReplayState.ABANDONED}),
}
RUNNABLE = (ReplayState.PLANNED, ReplayState.RUNNING, ReplayState.FAILED)
"""States in which a new attempt may begin."""

SAMPLE = "plan --verify"
"""Why a replay was abandoned that has only tried a sample: it is nothing to look after."""
_PLANNED = ("application", "first", "last", "mode", "code_version", "plan")


@dataclass(frozen=True)
class Replay:
    """A replay as the ledger knows it.

    Attributes:
        epoch: the newest one given out; 0 before the first attempt.
        plan: the plan as it was entered, see `read_plan`; empty when it was purged and the ledger
            rebuilt after that.
        mark: windows committed, as the newest attempt reported them.
        checkpoint_mark: mark of the newest checkpoint reported.
        message: why it is in its state, empty when there is nothing to say.
    """

    replay_id: str
    application: str
    first: int
    last: int
    mode: str
    code_version: str
    plan: dict[str, Any]
    state: ReplayState
    epoch: int
    mark: int
    checkpoint_mark: int
    message: str
    created_at: datetime
    changed_at: datetime

    @property
    def range(self) -> WindowRange:
        """The windows to replay."""
        return WindowRange(self.first, self.last)

    def times(self) -> tuple[str, str] | None:
        """Returns begin and end of the range as times, None when the plan was purged and the ledger
        rebuilt.
        """
        if "width_ms" not in self.plan:
            return None
        grid = Grid(self.plan["width_ms"], self.plan.get("origin_ms", 0))
        return format_time(grid.start_us(self.first)), format_time(grid.end_us(self.last))

    def read_plan(self) -> Plan:
        """Returns the plan, validated.

        Raises:
            InputError: it was purged with the replay's tables, or another version of Rewindow made
                it.
        """
        from pydantic import ValidationError

        from rewindow.recovery import Plan

        if not self.plan:
            raise InputError(
                f'the plan of replay "{self.replay_id}" was purged with its tables',
                detail="The ledger was rebuilt after that; it knows of this replay what its "
                "publications tell.",
                hint=f"Plan the range again: rewindow replay {self.application}. What is published "
                "stays.",
            )
        try:
            return Plan.model_validate(self.plan)
        except ValidationError as error:
            wrong = ", ".join(
                sorted({".".join(map(str, found["loc"])) for found in error.errors()})
            )
            raise InputError(
                f'the plan of replay "{self.replay_id}" cannot be read',
                detail=f"These fields are not as this version of Rewindow writes them: {wrong}.",
                hint="Use the version that made it, or plan the range again.",
            ) from error


_SUGGESTED_FROM = 1000
"""So many of the newest replays are looked at for what an unknown id was meant to be."""
_COLUMNS = list(replays.c[tuple(Replay.__dataclass_fields__)])


def to_replay(row: Row[Any]) -> Replay:
    """Returns a row of the replays table as a value."""
    return Replay(**{**row._mapping, "state": ReplayState(row.state)})


class Replays(LedgerPart):
    """The part of the ledger that keeps replays."""

    def create(
        self,
        replay_id: str,
        application: str,
        first: int,
        last: int,
        mode: str,
        plan: Mapping[str, Any],
        code_version: str,
    ) -> Replay:
        """Enters a planned replay and returns it; one that is there with an equal plan is returned
        as it is.

        Raises:
            InputError: a replay of this id is there with another plan; names what differs.
            RangeError: the range is empty.
        """
        windows = WindowRange(first, last)
        values = {
            "application": application,
            "first": windows.first,
            "last": windows.last,
            "mode": str(mode),
            "code_version": code_version,
            "plan": json.loads(json.dumps(plan)),
        }
        with self.serialised() as connection:
            there = find_replay(connection, replay_id)
            if there is None:
                self.insert(connection, replay_id, values)
                return read_replay(connection, replay_id)
            _refuse_other_plan(there, values)
            return there

    def insert(
        self,
        connection: Connection,
        replay_id: str,
        values: Mapping[str, Any],
        **more: Any,
    ) -> None:
        """Inserts a replay; `more` overrides what a new one begins with."""
        begin = {
            "state": ReplayState.PLANNED,
            "epoch": 0,
            "mark": 0,
            "checkpoint_mark": 0,
            "checkpoint_epoch": 0,
            "message": "",
            "created_at": self.now,
            "changed_at": self.now,
        }
        connection.execute(
            insert(replays).values(replay_id=replay_id, **{**values, **begin, **more})
        )

    def get(self, replay_id: str) -> Replay:
        """Returns a replay.

        Raises:
            InputError: there is none of this id.
        """
        with self.reading() as connection:
            return read_replay(connection, replay_id)

    def find(self, replay_id: str) -> Replay | None:
        """Returns a replay, None if there is none of this id."""
        with self.reading() as connection:
            return find_replay(connection, replay_id)

    def ids(self, prefix: str) -> list[str]:
        """Returns the ids that begin with some text."""
        query = select(replays.c.replay_id).where(
            replays.c.replay_id.startswith(prefix, autoescape=True)
        )
        with self.reading() as connection:
            return list(connection.scalars(query))

    def newest(
        self,
        application: str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 100,
        *,
        without_samples: bool = False,
    ) -> list[Replay]:
        """Returns replays, newest first; of one application, in some states, or without samples, if
        so asked. Containers are left out, see `containers`.
        """
        query = (
            select(*_COLUMNS)
            .order_by(replays.c.created_at.desc(), replays.c.replay_id.desc())
            .limit(limit)
        )
        if application is not None:
            query = query.where(replays.c.application == application)
        if state is not None:
            query = query.where(
                replays.c.state.in_([state] if isinstance(state, str) else list(state))
            )
        query = query.where(~replays.c.replay_id.contains("@"))
        if without_samples:
            query = query.where(
                (replays.c.state != ReplayState.ABANDONED) | (replays.c.message != SAMPLE)
            )
        with self.reading() as connection:
            return list(map(to_replay, connection.execute(query)))

    def containers(self, replay_id: str) -> list[Replay]:
        """Returns the containers of a replay that have a plan already, oldest first."""
        query = (
            select(*_COLUMNS)
            .where(replays.c.replay_id.startswith(container_id(replay_id, ""), autoescape=True))
            .order_by(replays.c.created_at, replays.c.replay_id)
        )
        with self.reading() as connection:
            return list(map(to_replay, connection.execute(query)))

    def abandon(self, replay_id: str, reason: str = "") -> Replay:
        """Gives a replay up for good: its leases end, and an attempt that still runs is fenced off
        the ledger.

        One that was given up before keeps its reason unless there is a new one.

        Raises:
            InputError: it is published; undo it instead.
            OverlapError: a publication of it is open and must be rolled forward first.
        """
        with self.serialised() as connection:
            its = (publications.c.replay_id == replay_id) & publications.c.closed_at.is_(None)
            open_one = connection.execute(select(publications.c.number).where(its)).scalar()
            if open_one is not None:
                raise OverlapError(
                    f'replay "{replay_id}" cannot be abandoned while its publication {open_one} is '
                    "open",
                    holder=replay_id,
                    hint=f"Roll it forward: rewindow publish {replay_id}; or take it back: add "
                    "--withdraw.",
                )
            before = read_replay(connection, replay_id)
            kept = before.message if before.state is ReplayState.ABANDONED else ""
            self.move(
                connection,
                replay_id,
                ReplayState.ABANDONED,
                message=reason or kept,
                epoch=replays.c.epoch + 1,
            )
            return read_replay(connection, replay_id)

    def reopen(self, replay_id: str, message: str) -> None:
        """Makes a replay that had ended one that can go on, since its tables have lost some of what
        it committed.

        Raises:
            InputError: it is published, undone or abandoned.
        """
        with self.writing() as connection:
            self.move(connection, replay_id, ReplayState.FAILED, message=message)

    def keep_changes(self, replay_id: str, changes: Sequence[PropertyChange]) -> None:
        """Enters into the plan which properties were changed while it ran, so that a purge does not
        lose them.
        """
        with self.serialised() as connection:
            plan = {**read_replay(connection, replay_id).plan}
            plan["changes"] = [one.model_dump(mode="json") for one in changes]
            connection.execute(
                update(replays).where(replays.c.replay_id == replay_id).values(plan=plan)
            )

    def hold_epoch(self, connection: Connection, replay_id: str, epoch: int) -> None:
        """Locks a replay's row for an attempt's write, if no newer epoch was given out.

        Raises:
            FencedError: one was.
        """
        mine = (replays.c.replay_id == replay_id) & (replays.c.epoch == epoch)
        if (
            connection.execute(update(replays).where(mine).values(changed_at=self.now)).rowcount
            == 0
        ):
            now = read_replay(connection, replay_id)
            raise FencedError(
                f'attempt {epoch} of replay "{replay_id}" is not its newest one any more, which is '
                f"{now.epoch}",
                detail="It stops; what it had committed is kept."
                if now.state != ReplayState.ABANDONED
                else "The replay was abandoned.",
            )

    def move(
        self,
        connection: Connection,
        replay_id: str,
        state: ReplayState,
        message: str = "",
        **values: Any,
    ) -> None:
        """Moves a replay to a state; one that ends work also ends its leases.

        Raises:
            InputError: this state cannot follow the present one.
        """
        before = tuple(known for known, following in _MAY_FOLLOW.items() if state in following)
        allowed = (replays.c.replay_id == replay_id) & replays.c.state.in_(before)
        change = (
            update(replays)
            .where(allowed)
            .values(state=state, message=message, changed_at=self.now, **values)
        )
        if connection.execute(change).rowcount == 0:
            now = read_replay(connection, replay_id)
            raise InputError(
                f'replay "{replay_id}" is {now.state} and cannot become {state}',
                hint=next_steps(now),
            )
        if state is not ReplayState.RUNNING:
            end_leases(connection, replay_id)


def end_leases(connection: Connection, replay_id: str) -> None:
    """Ends all leases of a replay."""
    connection.execute(delete(leases).where(leases.c.replay_id == replay_id))


def find_replay(connection: Connection, replay_id: str) -> Replay | None:
    """Returns a replay, None if there is none of this id."""
    row = connection.execute(
        select(*_COLUMNS).where(replays.c.replay_id == replay_id)
    ).one_or_none()
    return None if row is None else to_replay(row)


def read_replay(connection: Connection, replay_id: str) -> Replay:
    """Returns a replay.

    Raises:
        InputError: there is none of this id.
    """
    found = find_replay(connection, replay_id)
    if found is None:
        newest = (
            select(replays.c.replay_id).order_by(replays.c.created_at.desc()).limit(_SUGGESTED_FROM)
        )
        meant = did_you_mean(replay_id, connection.execute(newest).scalars())
        raise InputError(
            f'replay "{replay_id}" is unknown',
            hint=f"{meant}`rewindow list` shows those that there are.",
        )
    return found


def _refuse_other_plan(there: Replay, values: Mapping[str, Any]) -> None:
    differences = [_difference(name, getattr(there, name), values[name]) for name in _PLANNED[:-1]]
    keys = dict.fromkeys([*there.plan, *values["plan"]])
    differences += [
        _difference(f"plan.{key}", there.plan.get(key), values["plan"].get(key))
        # The ledger adds the changes that are made while the replay runs.
        for key in excluding(keys, (*_PLANNED, "changes"))
    ]
    found = list(filter(None, differences))
    if found:
        raise InputError(
            f'replay "{there.replay_id}" is there already with another plan',
            detail=f"{'; '.join(found[:5])}.",
            hint="Take another replay id, or none: then one is made from the plan.",
        )


def _difference(name: str, there: object, now: object) -> str:
    return "" if there == now else f"{name} is {_short(there)} there and {_short(now)} now"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def next_steps(replay: Replay) -> str:
    """Returns what must come before a replay can become what was asked for, as a hint."""
    match replay.state:
        case ReplayState.PUBLISHED:
            return f"Take it back first: rewindow undo {replay.replay_id}"
        case ReplayState.ABANDONED:
            again = (
                f"rewindow replay {replay.application} --first {replay.first} --last {replay.last}"
            )
            return f"It was abandoned. Replay its range again: {again}"
        case ReplayState.ENDED:
            return f"Check it first: rewindow check {replay.replay_id}"
        case ReplayState.CHECKED | ReplayState.UNDONE:
            return f"It is ready: rewindow publish {replay.replay_id}"
        case ReplayState.RUNNING:
            return (
                "Wait for its end; if its process is gone, go on: rewindow replay --resume "
                f"{replay.replay_id}."
                f" Which it is: rewindow status {replay.replay_id}"
            )
        case ReplayState.FAILED:
            return f"Resume it: rewindow replay --resume {replay.replay_id}"
    return f"Run it to its end first: rewindow replay --resume {replay.replay_id}"
