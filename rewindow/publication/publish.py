"""Publishing: makes the range of a replay visible in the published tables.

A publication is first an entry in the ledger, then one commit to each of its tables, and is then
closed. Its process may be killed at any time: the next publication or undo finishes it first. The
protocol is described in `rewindow.ledger.publications`, its steps in `rewindow.publication.steps`.
"""

from __future__ import annotations

import getpass
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rewindow.crash import crash_point
from rewindow.errors import GateError, InputError, TableError
from rewindow.facts.losses import losses_of
from rewindow.facts.published_acts import tables_lacking
from rewindow.facts.readers import sealed_counts
from rewindow.ledger import Ledger, Publication, Replay, ReplayState
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.ledger.publication_rows import PUBLISH, effective_publications
from rewindow.names import check_whole
from rewindow.publication.by_files import reason_to_publish_with_spark
from rewindow.publication.contents import (
    checkpoint_rows,
    kept_checkpoints,
    saved_states,
    start_state,
)
from rewindow.publication.effects import related_acts, stale_ranges, states_in_effect
from rewindow.publication.finish import Publisher
from rewindow.publication.objections import Flaws, flaws_of, objections_to
from rewindow.publication.orphans import exclusive_publisher
from rewindow.publication.prepare import check_tables, prepare_tables
from rewindow.publication.preview import PublicationPreview, check_room
from rewindow.publication.repetition import repeated_publications
from rewindow.publication.result import PublicationResult, result_of
from rewindow.publication.steps import Crash, PublishStep
from rewindow.recovery import Plan
from rewindow.recovery.staleness import EffectivePublication
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, position
from rewindow.storage.damage import damaged_error, damaged_now, resolve_damage
from rewindow.storage.layout import (
    CHECKPOINTS,
    FACTS,
    Contents,
    app_id,
    check_replay_format,
    staged_contents,
    versions_of,
)
from rewindow.storage.names import data_name, open_published
from rewindow.storage.published_tables import Kind, targets_of
from rewindow.storage.snapshots import snapshot_cache
from rewindow.storage.staged_marks import check_sealed_rows, lost_commits, staged_positions
from rewindow.storage.staged_replay import StagedReplay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

STATES_MAX = 200


@dataclass(frozen=True)
class Publishable:
    """A replay that passed all checks before its publication.

    Attributes:
        replay: the replay, with its staged tables at the versions that are published.
        staged: contents of its staged tables when the gate checked them, or a user accepted them;
            only these contents are published.
        flaws: its windows that are missing, lost or affected.
        accepted: the user's reason for publishing in spite of objections.
        overrides: the objections, one line each.
    """

    replay: StagedReplay
    staged: Contents
    flaws: Flaws = field(default_factory=dict)
    accepted: str | None = None
    overrides: tuple[str, ...] = ()


def publish(
    config: Config,
    replay_id: str,
    *,
    spark: SparkSession | None = None,
    accept: str | None = None,
    who: str | None = None,
    leave_out_damaged: bool = False,
    crash: Crash = crash_point,
) -> PublicationResult:
    """Publishes the whole range of a replay.

    If the range is already published, the call has no effect.

    Args:
        config: current settings.
        replay_id: the replay.
        spark: session for tables that cannot be written without Spark (see `spark_needed`); None:
            such tables are rejected.
        accept: reason for publishing although the gate has not passed, or although published
            windows are replaced by flawed ones or by those of an older plan; it is stored together
            with the objections.
        who: the user who accepts; by default the user of this process.
        leave_out_damaged: whether to remove damaged files from the published tables; their other
            windows are then missing.
        crash: called after each step.

    Raises:
        InputError: the replay is unknown, has not ended, or is abandoned; its plan was purged.
        GateError: its gate has not passed, or it would replace windows by missing, lost, affected
            or older ones, and `accept` is not given.
        OverlapError: another process publishes one of its tables, or another replay runs on its
            range.
        SparkNeeded: a table cannot be written without Spark, and `spark` is None; nothing was
            committed.
        TableError: a published table was not created by Rewindow or does not match, or a staged
            table differs from its seals.
    """
    ledger = Ledger.open(config.ledger_url)
    plan = ledger.replays.get(check_whole(replay_id)).read_plan()
    tables = targets_of(plan)
    with (
        snapshot_cache(),
        ledger.publications.publishing(names_of(tables)) as unfinished,
        exclusive_publisher(config, plan.application, spark),
    ):
        publisher = Publisher(spark, config, ledger, crash=crash)
        rolled = publisher.roll_all_forward(unfinished)
        replay = ledger.replays.get(replay_id)
        visible = _visible(config, ledger, replay_id)
        if visible is not None:
            return result_of(config, ledger, visible, already=True, rolled=rolled)
        checked = check_publishable(
            config,
            ledger,
            replay,
            plan=plan,
            accept=accept,
            who=who or getpass.getuser(),
        )
        details = publication_details(config, ledger, checked)
        for table in tables:
            is_data = table.kind is Kind.DATA
            if is_data and (reason := reason_to_publish_with_spark(config, table.name, plan.range)):
                publisher.spark_for(table.name, reason)
        check_room(config, publisher.expected(checked.replay))
        damage = damaged_now(config, names_of(tables), plan.range)
        resolve_damage(config, damage, leave_out_damaged, command=f"rewindow publish {replay_id}")
        publication = _open(config, ledger, checked.replay, details, crash)
        crash(PublishStep.OPENED, 1)
        return result_of(config, ledger, publisher.finish(publication), rolled=rolled)


@snapshot_cache()
def expected_publication(
    config: Config,
    replay_id: str,
    *,
    accept: str | None = None,
    leave_out_damaged: bool = False,
) -> PublicationPreview | PublicationResult:
    """Returns the effect of publishing a replay, after all checks of `publish`, without changing
    anything. No JVM.

    Args:
        config: current settings.
        replay_id: the replay.
        accept: assume that a user accepts the publication for this reason; nothing is stored.
        leave_out_damaged: assume that windows of damaged files are left out.

    Returns:
        The effect; the existing result if the replay is already published.

    Raises:
        RewindowError: the error that `publish` would raise.
    """
    ledger = Ledger.open(config.ledger_url)
    replay = ledger.replays.get(check_whole(replay_id))
    plan = replay.read_plan()
    visible = _visible(config, ledger, replay_id)
    if visible is not None and visible.closed_at:
        return result_of(config, ledger, visible, already=True, rolled=[])
    checked = check_publishable(config, ledger, replay, plan, accept)
    publisher = Publisher(None, config, ledger, crash=crash_point)
    tables = publisher.expected(checked.replay)
    check_tables(config, checked.replay)
    names = names_of(targets_of(plan))
    if not leave_out_damaged and (damage := damaged_now(config, names, plan.range)):
        raise damaged_error(damage, f"rewindow publish {replay_id}")
    check_room(config, tables)
    unfinished = ledger.publications.unfinished(names)
    return PublicationPreview(
        PUBLISH,
        replay_id,
        plan.application,
        first=plan.first,
        last=plan.last,
        windows=len(plan.range),
        tables=tuple(tables),
        unfinished=tuple(sorted(publication.number for publication in unfinished)),
        flaws=checked.flaws,
        objections=checked.overrides,
    )


def check_publishable(
    config: Config,
    ledger: Ledger,
    replay: Replay,
    plan: Plan,
    accept: str | None = None,
    who: str | None = None,
) -> Publishable:
    """Checks that a replay has ended, that its gate has passed, and that it replaces no windows
    with flawed or older ones.

    No JVM. An earlier acceptance by a user only overrides the gate, because the published windows
    may have changed since then.

    Args:
        config: current settings.
        ledger: the ledger.
        replay: the replay.
        plan: its plan.
        accept: reason for overriding the gate and all other objections.
        who: the user who accepts, to be stored; None: nothing is stored.

    Raises:
        InputError: it has not ended, is abandoned or a candidate, or its staged tables were purged.
        GateError: its gate has not passed, was never run, or checked other contents than the
            current ones; or it would replace windows by missing, lost, affected or older ones.
        TableError: one of its tables, or a file of them, is missing.

    Rules: X19
    """
    replay_id = replay.replay_id
    staged = check_ended(config, replay, plan)
    pinned = StagedReplay(plan, config.replay_root(replay_id), versions_of(staged))
    flaws = flaws_of(pinned)
    others = objections_to(config, ledger, replay, plan, flaws)
    accepted, gate = _gate_objection(config, ledger, replay_id, staged)
    refusal = None if accepted else gate
    if not accept and (refusal or others):
        also = others if refusal else others[1:]
        refusal = refusal or GateError(
            f'replay "{replay_id}" cannot be published: {others[0]}',
            hint="Replay its range again, or publish it anyway with a reason, which is stored: "
            f'rewindow publish {replay_id} --accept "REASON"',
        )
        if also:
            refusal.detail = f"{refusal.detail} Also: {'; '.join(also)}.".strip()
        raise refusal
    if accept is not None and who is not None:
        ledger.checks.accept(replay_id, accept, who, staged)
    by_gate = [gate.primary.partition(": ")[2]] if gate is not None else []
    return Publishable(
        pinned,
        staged,
        flaws=flaws,
        accepted=accept or (accepted if gate is not None else None),
        overrides=(*by_gate, *others),
    )


def _gate_objection(
    config: Config,
    ledger: Ledger,
    replay_id: str,
    staged: Contents,
) -> tuple[str | None, GateError | None]:
    """Returns a user's reason for overriding the gate if it is still valid, and the error of a gate
    that has not passed.
    """
    checks = ledger.checks.newest(replay_id, limit=1)
    accepted = next(iter(ledger.checks.acceptances(replay_id)), None)
    if accepted and checks and checks[0].checked_at > accepted.accepted_at:
        accepted = None
    reason = accepted.reason if accepted else None
    if accepted:
        changed = _changed_error(replay_id, accepted.tables, staged, act="a user accepted")
        if changed is not None:
            return None, changed
    if checks and checks[0].verdict == "passed":
        return reason, _changed_error(replay_id, checks[0].tables, staged, act="its gate judged")
    verdict = f"its gate {checks[0].verdict}" if checks else "its gate was not run"
    error = GateError(
        f'replay "{replay_id}" cannot be published: {verdict}',
        detail=f"It remains staged. Results: {config.state / checks[0].results}."
        if checks
        else "It remains staged.",
        hint=(
            "Correct the cause and replay the range again"
            if checks
            else f"Run it: rewindow check {replay_id}"
        )
        + "; or publish it with --accept and a reason, which is stored.",
    )
    return reason, error


def check_ended(config: Config, replay: Replay, plan: Plan) -> Contents:
    """Checks that a replay has ended and that none of its tables is missing.

    Returns the contents of its tables.

    Raises:
        RewindowError: see check_publishable.
    """
    replay_id = replay.replay_id
    root = config.replay_root(replay_id)
    if plan.candidate is not None:
        raise InputError(
            f'replay "{replay_id}" is a candidate, and cannot be published',
            detail=f"It was {plan.candidate.words}.",
            hint="Move the new code into a folder of applications, and replay the range: "
            f"rewindow replay {plan.application} --first {plan.first} --last {plan.last}",
        )
    if replay.state is ReplayState.ABANDONED or not Table.exists(root / CHECKPOINTS):
        why = (
            "is abandoned"
            if replay.state is ReplayState.ABANDONED
            else "no longer has staged tables"
        )
        raise InputError(
            f'replay "{replay_id}" {why} and cannot be published',
            hint=f"Replay its range again: {plan.command}",
        )
    positions = staged_positions(root, plan)
    check_replay_format(root)
    check_sealed_rows(root, plan, positions)
    done = min(
        position(Table.open(root / name), app_id(replay_id, name)).mark
        for name in (FACTS, CHECKPOINTS)
    )
    lost = lost_commits(plan, positions)
    if lost and replay.state in (ReplayState.ENDED, ReplayState.CHECKED):
        raise TableError(
            f'replay "{replay_id}" had ended, but has lost commits since: {lost}',
            detail="The newest commits of these tables are missing; the other staged windows are "
            "kept.",
            hint=f"Compute the missing windows again: rewindow replay --resume {replay_id}; then "
            "check it again.",
        )
    if done < len(plan.range):
        raise InputError(
            f'replay "{replay_id}" has not ended: {done} of {len(plan.range)} windows are '
            "committed",
            hint=f"Run it to its end first: rewindow replay --resume {replay_id}",
        )
    for output in plan.staged:
        Table.open(root / output.name)  # Raises an error that names a missing table.
    return staged_contents(root)


def _changed_error(
    replay_id: str,
    judged: Contents | None,
    staged: Contents,
    act: str,
) -> GateError | None:
    """Returns an error that lists the tables that have changed since they were checked; None if no
    table has changed.
    """
    if judged == staged:
        return None
    before = judged or {}
    changed = sorted(name for name in {*before, *staged} if before.get(name) != staged.get(name))
    versions = [
        f"{name} (then {_version(judged, name)}, now {_version(staged, name)})"
        for name in changed
        if judged is not None
    ]
    return GateError(
        f'replay "{replay_id}" cannot be published: its tables are not what {act}',
        detail=f"Changed since: {', '.join(versions)}."
        if versions
        else "The contents at that time are unknown.",
        hint=f"Check the current contents: rewindow check {replay_id}",
    )


def _version(contents: Contents | None, name: str) -> str:
    table = (contents or {}).get(name)
    return f"version {table['version']}" if table else "missing"


def _visible(
    config: Config,
    ledger: Ledger,
    replay_id: str,
) -> Publication | None:
    """Returns the publication that currently makes all of a replay visible; None if there is none.

    A publication that is no longer in a table, for example after a DROP, does not count.
    """
    publication = next(iter(effective_publications(ledger.publications.newest(replay_id))), None)
    if publication is None or ledger.publications.later_overlapping(publication.number):
        return None
    if publication.closed_at and (lacking := tables_lacking(config, publication)):
        logger.warning(
            f"publication {publication.number} is no longer in table {', '.join(lacking)}"
        )
        return None
    return publication


def publication_details(
    config: Config,
    ledger: Ledger,
    checked: Publishable,
) -> PublicationDetails:
    """Returns all values that are needed to finish a publication.

    They refer to the contents that were checked.
    """
    plan = checked.replay.plan
    checkpoints = checked.replay.checkpoints
    facts = checked.replay.facts
    states = saved_states(checkpoints)
    kept = kept_checkpoints(plan, states, plan.range)
    stored.check(checkpoint_rows(checkpoints, windows=kept), checkpoints.path)
    start = start_state(config, plan)
    names = plan.tables
    stateful = [
        data_name(plan.application, output.name) for output in plan.outputs if output.stateful
    ]
    related = related_acts(ledger, plan.application, names)
    in_effect = states_in_effect(related)
    number = 1 + max((publication.number for publication in in_effect), default=0)
    repeats = repeated_publications(config, ledger, plan, related, states=states, facts=facts)
    new = EffectivePublication(
        number,
        plan.range,
        states,
        source=start.source,
        base=start.window,
        base_digest=start.digest,
        repeats=repeats,
    )
    # A later replay may start at any of these states, but each one is an entry of every commit. So
    # at most STATES_MAX are named, evenly spread, and those whose checkpoints are published.
    known = sorted(states)
    step = 1 + len(known) // STATES_MAX
    named = {*known[::step], *kept, plan.first - 1}
    losses = losses_of(plan, facts, checkpoints, windows=plan.range)
    sealed = sealed_counts(facts, plan.range)
    lost = {}
    for output in plan.staged:
        windows_lost = len(plan.range) - sealed.get(output.name, 0)
        if windows_lost:
            lost[output.name] = windows_lost
    return PublicationDetails(
        application=plan.application,
        staged_versions=dict(checked.replay.versions),
        staged=checked.staged,
        checkpoints=tuple(kept),
        states={window: states[window] for window in sorted(named) if window in states},
        started_from=start,
        inputs={entry.stream: entry.table_id for entry in plan.inputs},
        stateful=tuple(stateful),
        lost=lost,
        state_lacks=tuple(losses.lacking),
        accepted=checked.accepted,
        overrides=checked.overrides,
        repeats=repeats,
        stale=stale_ranges(
            ledger,
            plan.application,
            names,
            stateful=stateful,
            acts=related,
            in_effect=[*in_effect, new],
        ),
    )


def _open(
    config: Config,
    ledger: Ledger,
    replay: StagedReplay,
    details: PublicationDetails,
    crash: Crash,
) -> Publication:
    plan = replay.plan
    names = names_of(targets_of(plan))
    ledger.leases.acquire(plan.replay_id, names, plan.first, last=plan.last)
    try:
        versions = prepare_tables(config, replay)
        details = replace(
            details,
            table_ids={name: open_published(config, name).id for name in versions},
        )
        crash(PublishStep.PREPARED, 1)
        return ledger.publications.open(plan.replay_id, versions, plan.first, plan.last, details)
    except Exception:
        ledger.leases.release(plan.replay_id)
        raise
