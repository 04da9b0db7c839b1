"""Forecasts how long a replay takes, what prevents it from running, and how its next attempt
resumes.

Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewindow.application import Mode
from rewindow.facts.readers import sealed_to
from rewindow.ledger import Ledger
from rewindow.planning.experience import Experience, experience_of
from rewindow.recovery import (
    CheckpointSchedule,
    Plan,
    RecoveryTimes,
    after_crash,
    recovery_times,
)
from rewindow.sequences import names_of, quantity
from rewindow.settings.config import Config
from rewindow.spark.settings import local_threads
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, STARTED, app_id
from rewindow.storage.staged_marks import held_marks
from rewindow.windows import WindowRange, describe_seconds


@dataclass(frozen=True)
class Recovery:
    """How the next attempt of a replay resumes.

    Attributes:
        restored: window after which the state is restored.
        first: first window to compute; one past the end if none is left.
        again: windows that are computed again although some output has them, None if there are
            none.
        lost: output name to the windows that at most once gives up.
        lacking: windows that will be missing from the state, None if there are none.
        seconds: expected time to the end, None if unknown.

    Rules: R8
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
            f"restores the state after window {self.restored} and continues with window "
            f"{self.first}"
        ]
        if self.again:
            what = (
                "written only to tables that lack them"
                if self.mode.writes_only_missing
                else "and then stored twice"
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
    """Returns how the next attempt will resume, based on the current tables.

    The attempt makes the decision again, with the same functions, after it has fenced the tables.
    From then on, no other process can commit.

    Args:
        config: current settings.
        plan: a replay of one container, or a container.
        usable: marks of the checkpoints that can be restored; by default all in the table.

    Raises:
        CheckpointError: no checkpoint can be restored.
        TableError: a table of the replay is missing.
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
    crash = after_crash(
        plan.mode,
        plan.range,
        saved,
        done,
        started,
        sealed,
    )
    # The facts are not an output, so their losses are not shown to users.
    lost = {**crash.lost}
    lost.pop(FACTS, None)
    return Recovery(
        mode=plan.mode,
        restored=crash.restored,
        first=crash.first,
        again=crash.recomputed,
        lost=lost,
        lacking=crash.skipped,
        seconds=_seconds(ledger, plan, plan.last - crash.first + 1),
    )


def estimate(config: Config, plan: Plan) -> tuple[float | None, str]:
    """Returns the expected duration of a whole replay in seconds, and a text about the measurements
    that it is based on.

    Rules: L30, R47
    """
    windows = len(plan.range)
    if plan.start.source == "warm_up" and plan.start.warm_up_first is not None:
        windows += plan.first - plan.start.warm_up_first
    experience = experience_of(Ledger.open(config.ledger_url), plan.application)
    if experience is None:
        return None, "no earlier replay of this application has committed anything"
    further_starts = max(len(plan.containers) - 1, 0) * experience.start_seconds
    seconds = experience.predict(windows, plan.input_tuples) + further_starts
    slower, basis = _with_limit(config, plan, experience)
    return seconds * slower, f"{experience}{basis}"


def _with_limit(config: Config, plan: Plan, experience: Experience) -> tuple[float, str]:
    """Returns the factor by which a smaller number of cores than that of the earlier replays
    prolongs a replay, and a text about it.

    The factor assumes that all work is divided among the cores, so the estimate is too long rather
    than too short.
    """
    limit = plan.cores_max or config.replay.cores_max
    if limit is None:
        return 1.0, ""
    threads = local_threads(config.spark.master)
    if not threads:
        return 1.0, f"; this does not include the limit of {quantity(limit, 'core')}"
    cores = min(limit, threads)
    before = min(experience.cores_max or threads, threads)
    if cores >= before:
        return 1.0, ""
    return before / cores, f"; estimated for {quantity(cores, 'core')} instead of {before}"


def costs_of_crashes(config: Config, plan: Plan) -> dict[str, RecoveryTimes]:
    """Returns the cost of a crash in each container, from the times of earlier replays.

    A commit group without a fixed size is assumed to take the seconds that the plan aims at.

    Rules: R43 to R47
    """
    experience = experience_of(Ledger.open(config.ledger_url), plan.application)
    if experience is None:
        return {}
    # A container that was not measured gets an equal share, because its real share is unknown.
    share_s = experience.seconds / experience.windows / len(plan.containers)
    schedule = CheckpointSchedule(plan.checkpoint_windows, plan.checkpoint_multiple)
    costs = {}
    for container in plan.containers:
        measured_s = experience.containers.get((container.name, *container.operators))
        window_s = share_s if measured_s is None else measured_s
        size = plan.group_windows
        if not size:
            size = max(1, round(plan.group_seconds / max(window_s, 1e-9)))
        size = min(filter(None, [size, plan.group_windows_max, len(plan.range)]))
        if not container.mode.saves_every_group:
            # In these modes a group ends where a checkpoint is due.
            size = min(size, schedule.gap_max)
        cost = recovery_times(
            container.mode,
            schedule,
            group_windows=size,
            window_seconds=window_s,
            start_seconds=experience.start_seconds,
        )
        costs[container.name] = replace(cost, is_measured=measured_s is not None)
    return costs


def window_seconds(config: Config, plan: Plan) -> float | None:
    """Returns the expected duration of a window in a container in seconds; None without
    measurements.
    """
    experience = experience_of(Ledger.open(config.ledger_url), plan.application)
    if experience is None:
        return None
    return experience.seconds / experience.windows / max(len(plan.containers), 1)


def blockers(config: Config, plan: Plan) -> list[str]:
    """Returns the reasons why a replay could not be run and published now, as texts."""
    ledger = Ledger.open(config.ledger_url)
    reasons = []
    for lease in ledger.leases.held():
        held = WindowRange(lease.first, lease.last)
        if lease.table_name in plan.tables and held.overlap(plan.range):
            reasons.append(f'replay "{lease.replay_id}" has locked {lease.table_name} {held}')
    for row in ledger.stale.ranges(plan.application):
        if row.first > plan.last:
            stale = f"{row.table_name} [{row.first}, {row.last}]"
            reasons.append(f"{stale} is stale: replay it after this one")
    for entry in plan.inputs:
        if entry.missing:
            reasons.append(f"{entry.stream}: {len(entry.missing)} ranges of missing windows")
    return reasons


def _seconds(
    ledger: Ledger,
    plan: Plan,
    windows: int,
) -> float | None:
    experience = experience_of(ledger, plan.application)
    return None if experience is None else experience.predict(max(windows, 0))
