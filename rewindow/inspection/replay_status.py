"""The status of a replay: attempts, progress, losses, gate, publication, stale windows, and the
next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rewindow.errors import InputError, RewindowError, TableError
from rewindow.facts.losses import Losses, losses_of
from rewindow.inspection.counts import count_replay
from rewindow.inspection.next_steps import cause, has_stopped_unnoticed, next_steps
from rewindow.inspection.partitions import OperatorPartitions, partitions_of
from rewindow.inspection.visibility import (
    Visibility,
    outcome,
    state_words,
    visibilities,
    visibility,
)
from rewindow.inspection.window_runs import ReplayCounts
from rewindow.ledger import AttemptRecord, Check, Ledger, PortTotal, Publication, StaleRange
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.location import Location
from rewindow.names import did_you_mean
from rewindow.planning.forecast import expect_recovery
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state.sizes import StateSize, state_sizes
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import to_ranges


@dataclass(frozen=True)
class ReplayStatus:
    """The status of a replay.

    Attributes:
        row: its row in the ledger.
        attempts: oldest first.
        ports: tuples and lost windows of each input, output and error port.
        checks: gate runs, newest first.
        stale: stale windows in the published tables of its application.
        losses: windows that at most once gave up.
        states: sizes of the states in its newest checkpoint; empty if its tables were purged.
        recovery: how the next attempt of a stopped replay would resume, as text; otherwise None.
        lost: windows lost in any output.
        counts: counts such as windows repeated and affected; None if its tables were purged.
        publications: its publications and undos, newest first.
        seen: later publications that cover it, if it is published.
        is_gone: whether it is recorded as running although its process has ended without a recorded
            outcome.
        next_steps: the next step, with the command.
        log: log file of the newest attempt if it failed; None if no log exists.
        containers: its containers that have a plan already; empty for a replay of one container.
        partitions: partitions of its tuple operators.
    """

    row: Replay
    plan: Plan
    attempts: list[AttemptRecord]
    ports: list[PortTotal]
    checks: list[Check]
    stale: list[StaleRange]
    losses: Losses
    states: list[StateSize]
    recovery: str | None
    lost: int
    counts: ReplayCounts | None
    publications: list[Publication]
    seen: Visibility
    is_gone: bool
    next_steps: str
    log: Location | None
    containers: list[Replay]
    partitions: list[OperatorPartitions]

    @property
    def mark(self) -> int:
        """The number of windows that every container has committed, called the committed window in
        Apex.

        Rules: W74
        """
        if not self.plan.is_divided or len(self.containers) < len(self.plan.containers):
            return self.row.mark
        return min(container.mark for container in self.containers)

    @property
    def progress(self) -> str:
        """The number of committed windows, and how many of them are lost, repeated or affected, as
        text.
        """
        committed = f"{self.mark:,} of {len(self.row.range):,} committed"
        if self.counts is not None:
            return f"{committed}, {self.counts.fate}"
        return (
            f"{committed}, {self.lost:,} lost (repeated and affected are not known: its tables "
            "were purged)"
        )

    @property
    def state(self) -> str:
        """The state of the replay as text, including the replays that cover it."""
        return state_words(self.row, self.seen, self.is_gone)

    @property
    def cause(self) -> str:
        """The reason for the replay's state, in a few lines."""
        return cause(self.row.message) or (
            "the attempt's process has ended, and no outcome was recorded" if self.is_gone else ""
        )

    @property
    def error_tuples(self) -> int:
        """The number of tuples on error ports."""
        return sum(total.tuples for total in self.ports if total.direction == "error")

    @property
    def lost_to_states(self) -> list[str]:
        """The effects of skipped windows on states, as text.

        Rules: X2, X3
        """
        found = [
            f"state_lost: the state of {name} lacks windows {', '.join(map(str, parts))}; their "
            "outputs stay"
            for name, parts in self.losses.state_lost.items()
        ]
        for name, counts in self.losses.skipped.items():
            where = ", ".join(map(str, to_ranges(counts.ids)))
            found.append(
                f"skipped: {name} dropped {counts.tuples:,} tuples of windows {where} from its "
                "state"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Returns the status as plain values for programs."""
        row = self.row
        return {
            "replay": row.replay_id,
            "application": row.application,
            "state": row.state,
            "covered_by": list(self.seen.covered_by),
            "mode": row.mode,
            "first": row.first,
            "last": row.last,
            "mark": self.mark,
            "containers": list(map(_container_data, self.containers)),
            "checkpoint_mark": row.checkpoint_mark,
            "windows": len(row.range),
            "message": row.message or self.cause,
            "attempts": list(map(vars, self.attempts)),
            "ports": list(map(vars, self.ports)),
            "checks": list(map(vars, self.checks)),
            "stale": list(map(vars, self.stale)),
            "publications": [
                {
                    "number": act.number,
                    "kind": act.kind,
                    "first": act.first,
                    "last": act.last,
                    "opened_at": act.opened_at,
                    "closed_at": act.closed_at,
                    "outcome": outcome(act, self.publications),
                    "accepted": act.details.accepted,
                    "overrides": list(act.details.overrides),
                }
                for act in self.publications
            ],
            "state_lost": self.losses.state_lost,
            "skipped": {
                name: dict(zip(*counts.rows.to_pydict().values(), strict=True))
                for name, counts in self.losses.skipped.items()
            },
            "states": list(map(vars, self.states)),
            "partitions": list(map(vars, self.partitions)),
            "recovery": self.recovery,
            "lost": self.lost,
            "repeated": self.counts and self.counts.repeated,
            "affected": self.counts and self.counts.affected,
            "next": self.next_steps,
            "log": self.log and str(self.log),
        }


def replay_status(config: Config, replay_id: str) -> ReplayStatus:
    """Returns the status of a replay.

    Raises:
        InputError: the replay does not exist.
    """
    ledger = Ledger.open(config.ledger_url)
    row = ledger.replays.get(replay_id)
    plan = row.read_plan()
    gone = has_stopped_unnoticed(ledger, row)
    act, can_go_on = next_steps(config, row)
    containers = ledger.replays.containers(replay_id)
    stopped = next((one for one in containers if one.state is ReplayState.FAILED), row)
    facts = config.replay_root(replay_id) / FACTS
    losses = (
        losses_of(plan, Table.open(facts), None, windows=plan.range)
        if Table.exists(facts)
        else Losses()
    )
    return ReplayStatus(
        row,
        plan,
        ledger.attempts.of(replay_id),
        ports=ledger.counts.totals(replay_id),
        checks=ledger.checks.newest(replay_id),
        stale=ledger.stale.ranges(row.application),
        losses=losses,
        states=_states(config, row),
        recovery=_expected(config, stopped)
        if can_go_on and (gone or row.state is ReplayState.FAILED)
        else None,
        lost=lost_windows(config, [row])[replay_id],
        counts=_counts(config, row, plan),
        publications=ledger.publications.newest(replay_id),
        seen=visibility(ledger, row),
        is_gone=gone,
        next_steps=act,
        log=_log(config, stopped),
        containers=containers,
        partitions=partitions_of(ledger, row),
    )


def list_replays(
    config: Config,
    application: str | None = None,
    *,
    state: str | None = None,
    limit: int = 20,
) -> list[Replay]:
    """Returns replays from the ledger, newest first. Samples of `plan --verify` are included only
    if a state is given.

    Args:
        config: current settings.
        application: only replays of this application.
        state: only replays in this state. "failed" includes running replays whose process has
            ended.
        limit: maximum number of replays.

    Raises:
        InputError: the state does not exist.
    """
    if state is not None and state not in list(ReplayState):
        hint = f"{did_you_mean(state, ReplayState)}Available states: {', '.join(ReplayState)}."
        raise InputError(f'state "{state}" is unknown', hint=hint)
    ledger = Ledger.open(config.ledger_url)
    found = ledger.replays.newest(application, state, limit, without_samples=state is None)
    if state == ReplayState.FAILED:
        for row in ledger.replays.newest(application, ReplayState.RUNNING):
            if has_stopped_unnoticed(ledger, row):
                found.append(row)
        found.sort(key=lambda row: (row.created_at, row.replay_id), reverse=True)
    return found[:limit]


def stopped_unnoticed(config: Config, rows: Sequence[Replay]) -> frozenset[str]:
    """Returns the ids of replays that are recorded as running although their process has ended."""
    ledger = Ledger.open(config.ledger_url)
    return frozenset(row.replay_id for row in rows if has_stopped_unnoticed(ledger, row))


def covers(config: Config, rows: Sequence[Replay]) -> dict[str, Visibility]:
    """Returns the later publications that cover each published replay."""
    return visibilities(Ledger.open(config.ledger_url), rows)


def attempts_begun(config: Config, rows: Sequence[Replay]) -> dict[str, int]:
    """Returns the number of started attempts for each replay."""
    ids = [row.replay_id for row in rows]
    return dict.fromkeys(ids, 0) | Ledger.open(config.ledger_url).attempts.begun(ids)


def lost_windows(config: Config, rows: Sequence[Replay]) -> dict[str, int]:
    """Returns the number of windows that each replay has lost in any output, according to the
    ledger.
    """
    ids = [row.replay_id for row in rows]
    return dict.fromkeys(ids, 0) | Ledger.open(config.ledger_url).counts.lost_windows(ids)


def _counts(config: Config, row: Replay, plan: Plan) -> ReplayCounts | None:
    """Returns the counts of a replay's tables; None if the tables were purged.

    The tables are read only if windows can be lost, repeated or affected. A single attempt loses
    and repeats nothing, and neither does the mode exactly once.
    """
    if plan.is_divided:
        is_plain = not (plan.may_lose or plan.may_repeat)
    else:
        is_plain = plan.mode.writes_only_missing or row.epoch <= 1
    if is_plain and not plan.start.affects:
        return ReplayCounts(windows=row.mark)
    try:
        return count_replay(plan, config.replay_root(row.replay_id)).summary()
    except TableError:
        return None


def _container_data(row: Replay) -> dict[str, Any]:
    """Returns the fields of a container that are shown in the JSON output."""
    return {
        "name": row.replay_id.partition("@")[2],
        "state": row.state,
        "mode": row.mode,
        "mark": row.mark,
        "epoch": row.epoch,
    }


def _states(config: Config, row: Replay) -> list[StateSize]:
    path = config.replay_root(row.replay_id) / CHECKPOINTS
    return (
        state_sizes(Table.open(path), row.checkpoint_mark)
        if row.checkpoint_mark and Table.exists(path)
        else []
    )


def _expected(config: Config, row: Replay) -> str:
    """Returns how the next attempt of a stopped replay would resume, as text.

    Rules: R8
    """
    try:
        return str(expect_recovery(config, row.read_plan()))
    except RewindowError as error:
        return f"none: {error.primary}"


def _log(config: Config, row: Replay) -> Location | None:
    """Returns the log of the newest attempt, which has full tracebacks; None if there is no log."""
    path = config.replay_root(row.replay_id) / f"outcome-{row.epoch}.log"
    return path if row.message and path.is_file() else None
