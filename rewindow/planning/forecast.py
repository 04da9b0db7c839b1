"""What to expect: how long a replay takes, what is in its way, and how its next attempt goes on.
Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewindow.application import Mode
from rewindow.facts.readers import sealed_to
from rewindow.ledger import Ledger
from rewindow.planning.experience import experience_of
from rewindow.recovery import (
    CheckpointSchedule,
    Plan,
    RecoveryTimes,
    after_crash,
    recovery_times,
)
from rewindow.sequences import names_of, quantity
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, STARTED, app_id
from rewindow.storage.staged_marks import held_marks
from rewindow.windows import WindowRange, describe_seconds


@dataclass(frozen=True)
class Recovery:
    """How the next attempt of a replay goes on (R8).

    Attributes:
        restored: window after which the state is restored.
        first: first window to compute; one past the end when nothing is left.
        again: windows computed again that some output holds already, None when there are none.
        lost: per output, the windows that at most once gives up.
        lacking: windows that the state will never have seen, None when there are none.
        seconds: expected time to the end, None without a basis.
    """

    mode: Mode
    restored: int
    first: int
    again: WindowRange | None
    lost: dict[str, WindowRange]
    lacking: WindowRange | None
    seconds: float | None

    def __str__(self) -> str:
        parts = [
            f"restores the state after window {self.restored} and goes on with window {self.first}"
        ]
        if self.again:
            what = (
                "written only where they are lacking"
                if self.mode.writes_only_missing
                else "then there twice"
            )
            parts.append(
                f"{quantity(len(self.again), 'window')} up to {self.again.last} are computed "
                f"again, {what}"
            )
        parts += [
            f"{name} loses {quantity(len(lost), 'window')} {lost}"
            for name, lost in self.lost.items()
        ]
        if self.lacking:
            parts.append(f"the state lacks windows {self.lacking}")
        if self.seconds is not None:
            parts.append(f"about {describe_seconds(round(self.seconds))} to the end")
        return "expected: " + "; ".join(parts)


def expect_recovery(
    config: Config,
    plan: Plan,
    usable: Sequence[int] | None = None,
) -> Recovery:
    """Returns how the next attempt will go on, from the tables as they are now.

    The attempt decides anew, by the same arithmetic, once it has fenced the tables: only then can
    nobody else commit.

    Args:
        config: settings in force.
        plan: a replay of one container, or a container.
        usable: marks of the checkpoints that can be restored; all in the table by default.

    Raises:
        CheckpointError: no checkpoint can be restored.
        TableError: a table of the replay is gone.
    """
    root = config.replay_root(plan.replay_id)
    ledger = Ledger.open(config.ledger_url)
    names = [*names_of(plan.staged), FACTS]
    positions = {}
    for name in names:
        positions[name] = position(Table.open(root / name), app_id(plan.replay_id, name))
    done = held_marks(plan, positions)
    checkpoints = Table.open(root / CHECKPOINTS)
    started = position(checkpoints, app_id(plan.replay_id, STARTED)).mark
    marks = stored.marks(checkpoints) if usable is None else usable
    saved = marks or ([0] if plan.start.source == "warm_up" else [])
    sealed = 0
    if plan.mode.may_repeat:
        sealed = plan.mark_of(sealed_to(Table.open(root / FACTS), plan.first - 1))
    found = after_crash(
        plan.mode,
        plan.range,
        saved,
        done,
        started,
        sealed,
    )
    # The facts are not an output, so a user does not see what they lack.
    lost = {**found.lost}
    lost.pop(FACTS, None)
    return Recovery(
        mode=plan.mode,
        restored=found.restored,
        first=found.first,
        again=found.recomputed,
        lost=lost,
        lacking=found.skipped,
        seconds=_seconds(ledger, plan, plan.last - found.first + 1),
    )


def estimate(config: Config, plan: Plan) -> tuple[float | None, str]:
    """Returns the expected time of a whole replay and what that rests on (R47, L30)."""
    windows = len(plan.range)
    if plan.start.source == "warm_up" and plan.start.warm_up_first is not None:
        windows += plan.first - plan.start.warm_up_first
    found = experience_of(Ledger.open(config.ledger_url), plan.application)
    if found is None:
        return None, "no earlier replay of this application has committed anything"
    further_starts = max(len(plan.containers) - 1, 0) * found.start_seconds
    return found.predict(windows, plan.input_tuples) + further_starts, str(found)


def costs_of_crashes(config: Config, plan: Plan) -> dict[str, RecoveryTimes]:
    """Returns the cost of a crash in each container, from the times of earlier replays (R43 to
    R47).

    A commit group without a fixed size is assumed to take the seconds that the plan aims at.
    """
    found = experience_of(Ledger.open(config.ledger_url), plan.application)
    if found is None:
        return {}
    # A container that was not measured gets an equal share, because its real share is unknown.
    share_s = found.seconds / found.windows / len(plan.containers)
    schedule = CheckpointSchedule(plan.checkpoint_windows, plan.checkpoint_multiple)
    costs = {}
    for one in plan.containers:
        measured_s = found.containers.get((one.name, *one.operators))
        window_s = share_s if measured_s is None else measured_s
        size = plan.group_windows
        if not size:
            size = max(1, round(plan.group_seconds / max(window_s, 1e-9)))
        size = min(filter(None, [size, plan.group_windows_max, len(plan.range)]))
        if not one.mode.saves_every_group:
            # In these modes a group ends where a checkpoint is due.
            size = min(size, schedule.gap_max)
        cost = recovery_times(
            one.mode,
            schedule,
            group_windows=size,
            window_seconds=window_s,
            start_seconds=found.start_seconds,
        )
        costs[one.name] = replace(cost, is_measured=measured_s is not None)
    return costs


def window_seconds(config: Config, plan: Plan) -> float | None:
    """Returns the expected seconds of a window in a container, None without a basis."""
    found = experience_of(Ledger.open(config.ledger_url), plan.application)
    return None if found is None else found.seconds / found.windows / max(len(plan.containers), 1)


def blockers(config: Config, plan: Plan) -> list[str]:
    """Returns what would stop a replay from being run and published now, in words."""
    ledger = Ledger.open(config.ledger_url)
    found = []
    for lease in ledger.leases.held():
        held = WindowRange(lease.first, lease.last)
        if lease.table_name in plan.tables and held.overlap(plan.range):
            found.append(f'replay "{lease.replay_id}" holds {lease.table_name} {held}')
    for row in ledger.stale.ranges(plan.application):
        if row.first > plan.last:
            stale = f"{row.table_name} [{row.first}, {row.last}]"
            found.append(f"{stale} is stale: replay it after this one")
    for entry in plan.inputs:
        if entry.missing:
            found.append(f"{entry.stream}: {len(entry.missing)} stretches of missing windows")
    return found


def _seconds(
    ledger: Ledger,
    plan: Plan,
    windows: int,
) -> float | None:
    found = experience_of(ledger, plan.application)
    return None if found is None else found.predict(max(windows, 0))
