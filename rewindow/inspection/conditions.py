"""Finds the conditions that a person on duty should know, from the ledger and the tables.

It looks at the present state only, so a caller may ask at any time and as often as it likes. The
conditions of DAG runs and of questions are not in the ledger; `rewindow_airflow.notices` adds them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from rewindow.errors import RewindowError
from rewindow.inspection.next_steps import cause, next_steps
from rewindow.inspection.replay_status import list_replays
from rewindow.ledger import Condition, Ledger, Replay, ReplayState
from rewindow.ledger.checks import FAILED
from rewindow.recording.inventory import StreamEntry, find_stream
from rewindow.settings.conditions import (
    GATE_FAILED,
    LATE_TUPLES,
    NOTHING_SEALED,
    REPLAY_FAILED,
    STREAM_SILENT,
    WINDOWS_STALE,
)
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.streams import stored_grid
from rewindow.windows import WindowRange, format_duration, format_time, to_datetime

logger = logging.getLogger(__name__)

STREAM_KINDS = (LATE_TUPLES, STREAM_SILENT, NOTHING_SEALED)
_REPLAYS_MAX = 1000
_RANGES_MAX = 3
_RESUMED_AFTER_MAX = timedelta(minutes=10)
"""How long after a failure a command may still be started again."""
_INTERVALS_MIN = 2
"""Number of intervals of the recording DAG after which a stream without a new seal is reported."""


@dataclass(frozen=True)
class Scope:
    """The part of a project whose conditions are evaluated; None and empty texts mean everything.

    Stale windows are in every scope, because a publication makes windows of any application stale.

    Attributes:
        dag, run: only conditions of replays and questions of this DAG run.
        streams: only conditions of these recorded streams.
    """

    dag: str = ""
    run: str = ""
    streams: frozenset[str] | None = None

    def covers(self, condition: Condition) -> bool:
        """Returns whether a condition is in the scope."""
        if condition.kind in STREAM_KINDS:
            return self.streams is None or condition.subject in self.streams
        if condition.kind == WINDOWS_STALE:
            return True
        return self.run in ("", condition.run) and self.dag in ("", condition.dag)


def find_conditions(
    config: Config,
    kinds: Collection[str],
    scope: Scope,
) -> tuple[list[Condition], set[str]]:
    """Returns the conditions that are true now, and the streams that could not be read.

    Args:
        config: current settings.
        kinds: the conditions to look for.
        scope: where to look.
    """
    ledger = Ledger.open(config.ledger_url)
    found: list[Condition] = []
    unreadable = set()
    if GATE_FAILED in kinds:
        found += _failed_gates(config, ledger)
    if REPLAY_FAILED in kinds:
        found += _failed_replays(config, ledger)
    if WINDOWS_STALE in kinds:
        found += _stale_outputs(config, ledger)
    if set(kinds).intersection(STREAM_KINDS):
        for name in config.streams if scope.streams is None else scope.streams:
            try:
                found += _of_stream(
                    config,
                    ledger,
                    name,
                )
            except RewindowError as error:
                # A damaged stream must not hide the conditions of the others.
                logger.warning(
                    'Conditions of stream "%s" are not known: %s',
                    name,
                    error,
                )
                unreadable.add(name)
    return [one for one in found if one.kind in kinds and scope.covers(one)], unreadable


def describe_replay(row: Replay) -> str:
    """Returns the application, the windows and the times of a replay."""
    times = row.times()
    shown = f", {times[0]} to {times[1]}" if times else ""
    return f"{row.application}, windows {row.range}{shown}"


def _of_replay(
    config: Config,
    row: Replay,
    kind: str,
    what: str,
) -> Condition:
    """Returns the condition of a replay.

    The subject is the DAG run, because a run may have several replays, one after the other.
    """
    dag, run = (row.plan.get(name, "") for name in ("dag", "run"))
    return Condition(
        kind,
        f"{dag}/{run}" if run else row.replay_id,
        measure=1,
        what=what,
        where=describe_replay(row),
        next_step=_next_step(config, row),
        dag=dag,
        run=run,
        replay=row.replay_id,
    )


def _next_step(config: Config, row: Replay) -> str:
    try:
        return next_steps(config, row)[0]
    except RewindowError:
        # One damaged replay must not hide all other conditions.
        return f"Read its state: rewindow status {row.replay_id}"


def _failed_gates(config: Config, ledger: Ledger) -> Iterator[Condition]:
    """Yields the replays that wait for a decision because their newest gate failed.

    A run plans a new replay only after its last one was closed, so at most one of its replays is
    ended.
    """
    for row in ledger.replays.newest(state=ReplayState.ENDED, limit=_REPLAYS_MAX):
        # Candidates are never published, so their gates need no decision.
        checks = ledger.checks.newest(row.replay_id, limit=1)
        if row.plan.get("candidate") or not checks or checks[0].verdict != FAILED:
            continue
        failed = []
        for output in checks[0].summary.get("outputs", []):
            failed += [f"{output['output']}: {name}" for name in output["failed"]]
        names = ", ".join(failed) or checks[0].summary.get("error", "no result")
        what = f'the gate of replay "{row.replay_id}" did not pass: {names}'
        yield _of_replay(
            config,
            row,
            GATE_FAILED,
            what,
        )


def _failed_replays(config: Config, ledger: Ledger) -> Iterator[Condition]:
    """Yields the failed replays of the command line.

    Airflow retries the replays of a DAG run, so their state does not show a failure for good. It
    also retries the steps of a backfill, which are commands.
    """
    until = ledger.notices.clock() - _RESUMED_AFTER_MAX
    for row in list_replays(
        config,
        state=ReplayState.FAILED,
        limit=_REPLAYS_MAX,
    ):
        is_other = row.plan.get("run") or row.plan.get("candidate")
        if not is_other and row.changed_at <= until:
            reason = cause(row.message) or "its process has ended"
            what = f'replay "{row.replay_id}" failed: {reason}'
            yield _of_replay(
                config,
                row,
                REPLAY_FAILED,
                what,
            )


def _stale_outputs(config: Config, ledger: Ledger) -> Iterator[Condition]:
    stale: dict[tuple[str, str], list[WindowRange]] = {}
    for part in ledger.stale.ranges():
        key = (part.application, part.table_name)
        stale.setdefault(key, []).append(WindowRange(part.first, part.last))
    for (_, table), ranges in stale.items():
        count = sum(map(len, ranges))
        yield Condition(
            WINDOWS_STALE,
            table,
            count,
            what=f"{count:,} published windows of {table} are stale: their inputs or the state "
            "before them have changed",
            where=_times(
                config,
                table,
                ranges,
            )
            or table,
            next_step="To show what to replay: rewindow repair. To replay and publish it: rewindow "
            "repair --run",
        )


def _times(
    config: Config,
    table: str,
    ranges: list[WindowRange],
) -> str:
    """Returns the first ranges of a table with their times; empty if the table is damaged."""
    try:
        grid = stored_grid(Table.open(config.windows_table(table)))
    except RewindowError:
        return ""
    shown = []
    for part in ranges[:_RANGES_MAX]:
        start, end = grid.start_us(part.first), grid.end_us(part.last)
        shown.append(f"windows {part}, {format_time(start)} to {format_time(end)}")
    if len(ranges) > _RANGES_MAX:
        shown.append(f"and {len(ranges) - _RANGES_MAX:,} more ranges")
    return "; ".join(shown)


def _of_stream(
    config: Config,
    ledger: Ledger,
    name: str,
) -> Iterator[Condition]:
    if not Table.exists(config.stream_table(name)):
        return
    entry = find_stream(config, name)
    where = f"{name}, {entry.sealed and f'sealed windows {entry.sealed}, '}{entry.span()}"
    if entry.late:
        yield Condition(
            LATE_TUPLES,
            name,
            entry.late,
            what=f"{entry.late:,} tuples of stream {name} arrived after their windows were sealed",
            where=where,
            next_step=f"To add them to their windows: rewindow record {name} --reopen. To list "
            f"them: rewindow streams quarantine {name}",
        )
    if entry.sealed is not None and entry.end is None:
        newest = _newest(config, name)
        yield from _silence(
            config,
            entry,
            newest,
            where=where,
        )
        yield from _standstill(
            config,
            ledger,
            name,
            newest,
            where=where,
        )


@dataclass(frozen=True)
class _Newest:
    """Times of the newest data of a stream.

    Attributes:
        sealed_at: when its newest window was sealed.
        tuple_us: when its newest tuple arrived; None if it has no tuple.
    """

    sealed_at: datetime
    tuple_us: int | None


def _newest(config: Config, name: str) -> _Newest:
    sql = """select max(sealed_at) as sealed_at,
             max(case when tuples > 0 then window_id end) as last from w"""
    seals = query(sql, w=config.windows_table(name)).to_pylist()[0]
    # Only one window of the tuples is read: a stream may have millions.
    if seals["last"] is None:
        return _Newest(seals["sealed_at"], None)
    sql = f"select max(arrived_at) as at from s where window_id = {seals['last']}"
    newest = query(sql, s=config.stream_table(name)).to_pylist()[0]["at"]
    return _Newest(seals["sealed_at"], (newest - to_datetime(0)) // timedelta(microseconds=1))


def _silence(
    config: Config,
    entry: StreamEntry,
    newest: _Newest,
    where: str,
) -> Iterator[Condition]:
    """Yields a condition if a stream has no tuple at the end of what is sealed.

    The measure is the silence as a multiple of interval and slack.
    """
    settings = config.stream(entry.name)
    if settings.interval_us is None or entry.sealed is None:
        return
    since_us = newest.tuple_us
    if since_us is None:
        since_us = entry.grid.start_us(entry.sealed.first)
    silent_us = entry.grid.end_us(entry.sealed.last) - since_us
    allowed_us = settings.interval_us + settings.slack_us
    if silent_us > allowed_us:
        yield Condition(
            STREAM_SILENT,
            entry.name,
            silent_us // allowed_us,
            what=f"stream {entry.name} has no tuple since {format_time(since_us)}, but one is "
            f"expected every {format_duration(settings.interval_us)}",
            where=where,
            next_step=f"Check the source. To list the silences: rewindow gaps {entry.name}",
        )


def _standstill(
    config: Config,
    ledger: Ledger,
    name: str,
    newest: _Newest,
    where: str,
) -> Iterator[Condition]:
    """Yields a condition if a DAG records a stream, but no window was sealed for two intervals.

    The DAG may be paused, or its scheduler may have ended. A stream with a bound is complete.
    """
    recording = ledger.notices.recordings().get(name)
    settings = config.stream(name)
    if recording is None or settings.sealed_to is not None:
        return
    seal_after = timedelta(microseconds=settings.seal_after_us)
    # The clock of the ledger is the same for all machines.
    quiet = ledger.notices.clock() - newest.sealed_at - seal_after
    intervals = quiet // timedelta(microseconds=recording.interval_us)
    if intervals >= _INTERVALS_MIN:
        dag = recording.dag_id
        yield Condition(
            NOTHING_SEALED,
            name,
            intervals,
            what=f"no window of stream {name} was sealed for {intervals:,} intervals of the DAG "
            f"{dag}",
            where=where,
            next_step=f"Check whether the DAG {dag} is paused, waits or fails",
            dag=dag,
        )
