"""Replays: their plans and their states.

    planned ──> running ──> ended ──> checked ──> published <──> undone
                 │   ^        ^─────────┘ (a later gate fails)
                 v   │
                failed <── ended, checked (their tables have lost commits)
                                               all but published ones ──> abandoned

`checked` means that the newest gate passed or that a user accepted the replay; only then it can be
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
"""States in which a new attempt may start."""

SAMPLE = "plan --verify"
"""Reason for which a replay that only tried a sample was abandoned; such replays need
no attention.
"""
_PLANNED = ("application", "first", "last", "mode", "code_version", "plan")


@dataclass(frozen=True)
class Replay:
    """A replay in the ledger.

    Attributes:
        epoch: newest epoch; 0 before the first attempt.
        plan: the plan as JSON values, see `read_plan`; empty if the replay was purged and the
            ledger rebuilt after that.
        mark: number of committed windows, as the newest attempt reported it.
        checkpoint_mark: mark of the newest reported checkpoint.
        message: reason for its state; empty if there is none.
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

    @property
    def grid(self) -> Grid | None:
        """The grid of its windows; None if the replay was purged and the ledger rebuilt."""
        if "width_ms" not in self.plan:
            return None
        return Grid(self.plan["width_ms"], self.plan.get("origin_ms", 0))

    def times(self) -> tuple[str, str] | None:
        """Returns the start and the end of the range as times; None without a grid."""
        if self.grid is None:
            return None
        return format_time(self.grid.start_us(self.first)), format_time(self.grid.end_us(self.last))

    def describe(self, windows: WindowRange) -> str:
        """Returns a window range, with its times if the grid is known."""
        return self.grid.describe(windows) if self.grid else str(windows)

    def read_plan(self) -> Plan:
        """Returns the validated plan.

        Raises:
            InputError: it was purged together with the replay's tables, or another version of
                Rewindow wrote it.
        """
        from pydantic import ValidationError

        from rewindow.recovery import Plan

        if not self.plan:
            raise InputError(
                f'the plan of replay "{self.replay_id}" was purged with its tables',
                detail="The ledger was rebuilt after that; only the replay's publications could be "
                "restored.",
                hint=f"Plan the range again: rewindow replay {self.application}. Published windows "
                "remain.",
            )
        try:
            return Plan.model_validate(self.plan)
        except ValidationError as error:
            wrong = ", ".join(
                sorted({".".join(map(str, detail["loc"])) for detail in error.errors()})
            )
            raise InputError(
                f'the plan of replay "{self.replay_id}" cannot be read',
                detail=f"This version of Rewindow writes these fields differently: {wrong}.",
                hint="Use the version that wrote it, or plan the range again.",
            ) from error


_SUGGESTED_FROM = 1000
"""Number of newest replays that are searched for ids similar to an unknown one."""
_COLUMNS = list(replays.c[tuple(Replay.__dataclass_fields__)])


def to_replay(row: Row[Any]) -> Replay:
    """Converts a row of the replays table to a Replay."""
    return Replay(**{**row._mapping, "state": ReplayState(row.state)})


class Replays(LedgerPart):
    """The replays in the ledger."""

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
        """Records a planned replay and returns it.

        An existing replay with an equal plan is returned unchanged.

        Raises:
            InputError: a replay of this id exists with another plan; the error names the
                differences.
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
            existing = find_replay(connection, replay_id)
            if existing is None:
                self.insert(connection, replay_id, values)
                return read_replay(connection, replay_id)
            _refuse_other_plan(existing, values)
            return existing

    def insert(
        self,
        connection: Connection,
        replay_id: str,
        values: Mapping[str, Any],
        **more: Any,
    ) -> None:
        """Inserts a replay. `more` overrides the default values of a new replay."""
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
            InputError: no replay has this id.
        """
        with self.reading() as connection:
            return read_replay(connection, replay_id)

    def find(self, replay_id: str) -> Replay | None:
        """Returns a replay; None if there is no replay with this id."""
        with self.reading() as connection:
            return find_replay(connection, replay_id)

    def named(self, ids: Iterable[str]) -> dict[str, Replay]:
        """Returns the replays with the given ids, by id. Unknown ids are left out."""
        query = select(*_COLUMNS).where(replays.c.replay_id.in_(list(ids)))
        found = {}
        with self.reading() as connection:
            for row in connection.execute(query):
                found[row.replay_id] = to_replay(row)
        return found

    def ids(self, prefix: str) -> list[str]:
        """Returns the ids that start with a prefix."""
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
        skip: int = 0,
    ) -> list[Replay]:
        """Returns replays, newest first, without containers (see `containers`).

        Args:
            application: only those of one application.
            state: only those in one or several states.
            limit: the largest number of replays.
            without_samples: whether to leave out replays that only tried a sample.
            skip: number of newest replays to leave out.
        """
        query = (
            select(*_COLUMNS)
            .order_by(replays.c.created_at.desc(), replays.c.replay_id.desc())
            .limit(limit)
            .offset(skip)
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

    def dags(self, replay_ids: Sequence[str]) -> dict[str, str]:
        """Returns the Airflow DAG of each replay from its plan, without reading the whole plan."""
        query = select(replays.c.replay_id, replays.c.plan["dag"].as_string())
        with self.reading() as connection:
            rows = connection.execute(query.where(replays.c.replay_id.in_(replay_ids)))
            return {replay_id: dag or "" for replay_id, dag in rows}

    def containers(self, replay_id: str) -> list[Replay]:
        """Returns the containers of a replay that already have a plan, oldest first."""
        query = (
            select(*_COLUMNS)
            .where(replays.c.replay_id.startswith(container_id(replay_id, ""), autoescape=True))
            .order_by(replays.c.created_at, replays.c.replay_id)
        )
        with self.reading() as connection:
            return list(map(to_replay, connection.execute(query)))

    def abandon(self, replay_id: str, reason: str = "") -> Replay:
        """Abandons a replay permanently. Its leases end, and an attempt that still runs can no
        longer write to the ledger.

        A replay that was abandoned before keeps its reason unless a new one is given.

        Raises:
            InputError: it is published; undo it instead.
            OverlapError: a publication of it is open and must be completed first.
        """
        with self.serialised() as connection:
            its = (publications.c.replay_id == replay_id) & publications.c.closed_at.is_(None)
            open_one = connection.execute(select(publications.c.number).where(its)).scalar()
            if open_one is not None:
                raise OverlapError(
                    f'replay "{replay_id}" cannot be abandoned while its publication {open_one} is '
                    "open",
                    holder=replay_id,
                    hint=f"Complete it: rewindow publish {replay_id}; to withdraw it, add "
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

    def remark(self, replay_id: str, message: str) -> None:
        """Stores a message with a replay, for example a user's decision. The state stays the same.

        Raises:
            InputError: no replay has this id.
        """
        with self.writing() as connection:
            state = read_replay(connection, replay_id).state
            values = {"message": message, "changed_at": self.now}
            same = (replays.c.replay_id == replay_id) & (replays.c.state == state)
            connection.execute(update(replays).where(same).values(**values))

    def reopen(self, replay_id: str, message: str) -> None:
        """Sets an ended replay to failed because its tables have lost commits, so that it can
        continue.

        Raises:
            InputError: it is published, undone or abandoned.
        """
        with self.writing() as connection:
            self.move(connection, replay_id, ReplayState.FAILED, message=message)

    def keep_changes(self, replay_id: str, changes: Sequence[PropertyChange]) -> None:
        """Stores in the plan which properties were changed while the replay ran, so that a purge
        does not delete them.
        """
        with self.serialised() as connection:
            plan = {**read_replay(connection, replay_id).plan}
            plan["changes"] = [change.model_dump(mode="json") for change in changes]
            connection.execute(
                update(replays).where(replays.c.replay_id == replay_id).values(plan=plan)
            )

    def limit_cores(self, replay_id: str, cores_max: int, *, restart: bool) -> None:
        """Changes the limit of cores for the next attempts of a replay and its containers.

        Args:
            replay_id: the whole replay.
            cores_max: the new limit.
            restart: whether attempts that run now end at the end of their commit group.
        """
        for row in (self.get(replay_id), *self.containers(replay_id)):
            with self.serialised() as connection:
                current = read_replay(connection, row.replay_id)
                plan = {**current.plan, "cores_max": cores_max}
                if restart:
                    plan["restart_epoch"] = current.epoch
                connection.execute(
                    update(replays).where(replays.c.replay_id == row.replay_id).values(plan=plan)
                )

    def hold_epoch(self, connection: Connection, replay_id: str, epoch: int) -> None:
        """Locks a replay's row for a write by an attempt, on condition that the attempt's epoch is
        the newest.

        Raises:
            FencedError: a newer epoch exists.
        """
        mine = (replays.c.replay_id == replay_id) & (replays.c.epoch == epoch)
        if (
            connection.execute(update(replays).where(mine).values(changed_at=self.now)).rowcount
            == 0
        ):
            now = read_replay(connection, replay_id)
            raise FencedError(
                f'attempt {epoch} of replay "{replay_id}" is no longer the newest one, which is '
                f"{now.epoch}",
                detail="It stops; windows that it had committed are kept."
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
        """Sets the state of a replay, and ends its leases unless it is running.

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
    """Returns a replay; None if there is no replay with this id."""
    row = connection.execute(
        select(*_COLUMNS).where(replays.c.replay_id == replay_id)
    ).one_or_none()
    return None if row is None else to_replay(row)


def read_replay(connection: Connection, replay_id: str) -> Replay:
    """Returns a replay.

    Raises:
        InputError: no replay has this id.
    """
    replay = find_replay(connection, replay_id)
    if replay is None:
        newest = (
            select(replays.c.replay_id).order_by(replays.c.created_at.desc()).limit(_SUGGESTED_FROM)
        )
        meant = did_you_mean(replay_id, connection.execute(newest).scalars())
        raise InputError(
            f'replay "{replay_id}" is unknown',
            hint=f"{meant}`rewindow list` shows the existing ones.",
        )
    return replay


def _refuse_other_plan(existing: Replay, values: Mapping[str, Any]) -> None:
    texts = [_difference(name, getattr(existing, name), values[name]) for name in _PLANNED[:-1]]
    keys = dict.fromkeys([*existing.plan, *values["plan"]])
    texts += [
        _difference(f"plan.{key}", existing.plan.get(key), values["plan"].get(key))
        # The ledger adds the changes that are made while the replay runs.
        for key in excluding(keys, (*_PLANNED, "changes"))
    ]
    differences = list(filter(None, texts))
    if differences:
        raise InputError(
            f'replay "{existing.replay_id}" already exists with another plan',
            detail=f"{'; '.join(differences[:5])}.",
            hint="Use another --id, or none: then it is derived from the plan.",
        )


def _difference(name: str, existing: object, new: object) -> str:
    if existing == new:
        return ""
    return f"{name} is {_short(existing)} in the ledger and {_short(new)} now"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def next_steps(replay: Replay) -> str:
    """Returns a hint with what must be done before the replay can change to the requested state."""
    match replay.state:
        case ReplayState.PUBLISHED:
            return f"Undo it first: rewindow undo {replay.replay_id}"
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
                "Wait for its end; if its process has ended, continue: rewindow replay --resume "
                f"{replay.replay_id}."
                f" To see whether it runs: rewindow status {replay.replay_id}"
            )
        case ReplayState.FAILED:
            return f"Resume it: rewindow replay --resume {replay.replay_id}"
    return f"Run it to its end first: rewindow replay --resume {replay.replay_id}"
