"""Reuses containers of another replay.

A container is not computed if another replay has computed it from the same code, settings, inputs
and start state. The files of that replay are linked instead.
"""

from __future__ import annotations

from rewindow.application import Application
from rewindow.errors import InputError
from rewindow.facts.losses import losses_of
from rewindow.facts.seals import read_seals
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.replays import ReplayState
from rewindow.names import container_id
from rewindow.recovery import ContainerPlan, InputPlan, OperatorVersion, Plan
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS, FACTS, check_replay_format

_SEALED = ["window_id", "tuples", "digest", "float_digest"]
"""Columns of the seals that must be equal for two windows to count as equal."""


def with_reused(
    config: Config,
    plan: Plan,
    app: Application,
    reuse: str,
) -> Plan:
    """Returns a plan that reuses containers of another replay, or the reasons why they must be
    computed.

    Args:
        config: current settings.
        plan: a plan with the outputs and the versions of its operators.
        app: its application.
        reuse: id of the other replay.

    Raises:
        InputError: the other replay is running, was purged, or has another application or range; or
            no container can be reused: the detail has the reason for each.
    """
    other = Ledger.open(config.ledger_url).replays.get(reuse)
    theirs = _usable(
        config,
        plan,
        other,
    )
    containers: list[ContainerPlan] = []
    # Containers that are computed in this replay; each comes before those that read it.
    computed: list[str] = []
    for container in plan.containers:
        source = _same_operators(theirs.containers, container)
        computed_sources = []
        for name in computed:
            if name in container.after:
                computed_sources.append(name)
        if computed_sources:
            why = f"it reads {', '.join(computed_sources)}, which is computed"
        elif source is None:
            why = f"replay {reuse} has no container with exactly these operators"
        else:
            why = _difference(
                config,
                plan,
                theirs,
                app,
                container,
                source,
            )
        reused = ""
        if source is not None and not why:
            reused = container_id(reuse, source.name)
        else:
            computed.append(container.name)
        changed = {"reused": reused, "why": why}
        containers.append(container.model_copy(update=changed))
    if len(computed) == len(containers):
        reasons = []
        for container in containers:
            reasons.append(f"{container.name}: {container.why}.")
        raise InputError(
            f'no container of replay "{reuse}" can be reused',
            detail=" ".join(reasons),
            hint="Leave --reuse out. To reuse operators in the next replay, put those that do not "
            "change into a separate container: container= in app.add.",
        )
    return plan.model_copy(update={"containers": containers})


def _usable(
    config: Config,
    plan: Plan,
    other: Replay,
) -> Plan:
    """Checks that the containers of the other replay can be compared, and returns its plan."""
    hint = "`rewindow list` shows replays with their application, range and state."
    what = f'replay "{other.replay_id}" cannot be reused'
    if other.state in (ReplayState.RUNNING, ReplayState.PLANNED):
        raise InputError(f"{what}: it is {other.state}", hint="Wait until it has ended.")
    theirs_is_of = (other.application, other.range)
    if theirs_is_of != (plan.application, plan.range):
        raise InputError(
            f"{what}: it has application {other.application}, windows {other.range}; this replay "
            f"has {plan.application}, windows {plan.range}",
            hint=hint,
        )
    theirs = other.read_plan()
    root = config.replay_root(other.replay_id)
    if not Table.exists(root / CHECKPOINTS):
        raise InputError(f"{what}: its tables were purged", hint=hint)
    check_replay_format(root)
    if not theirs.is_divided or not plan.is_divided:
        divided = plan if theirs.is_divided else theirs
        raise InputError(
            f'{what}: replay "{divided.replay_id}" has one container only',
            detail="A container is reused as a whole or not at all.",
            hint="Put the operators that do not change into a separate container: --set "
            "OPERATOR.container=NAME",
        )
    return theirs


def _same_operators(
    containers: list[ContainerPlan],
    wanted: ContainerPlan,
) -> ContainerPlan | None:
    """Returns the container that has the same operators as another one; None if there is none."""
    for container in containers:
        if set(container.operators) == set(wanted.operators):
            return container
    return None


def _difference(
    config: Config,
    plan: Plan,
    theirs: Plan,
    app: Application,
    container: ContainerPlan,
    source: ContainerPlan,
) -> str:
    """Returns the reason why a container of another replay may have another result; empty if there
    is no such reason.
    """
    source_id = container_id(theirs.replay_id, source.name)
    row = Ledger.open(config.ledger_url).replays.find(source_id)
    root = config.replay_root(source_id)
    # A container that had ended may be abandoned later, together with its replay.
    has_ended = row is not None and (
        row.state is ReplayState.ENDED
        or (row.state is ReplayState.ABANDONED and row.mark == len(row.range))
    )
    if row is None or not has_ended or not Table.exists(root / CHECKPOINTS):
        return "it has not ended there"
    if source.mode is not container.mode:
        return f"it was computed {source.mode.words}, and is {container.mode.words} now"
    facts = Table.open(root / FACTS)
    checkpoints = Table.open(root / CHECKPOINTS)
    if losses_of(row.read_plan(), facts, checkpoints, plan.range).lost:
        return "it has lost windows"
    changed = _changed_versions(
        plan,
        theirs,
        container,
    )
    if changed:
        return changed
    changes = []
    for side in (plan, theirs):
        changes.append(
            [change for change in side.changes if change.operator in container.operators]
        )
    part = app.part(container.operators)
    operators = set(container.operators)
    reasons = {
        "properties of its operators were changed while it ran": changes[0] != changes[1],
        "it was computed with another order of tuples": theirs.tuple_order != plan.tuple_order,
        "the parameters of the application have changed": theirs.parameters != plan.parameters,
        "setting replay.quarantine_failing has changed": (
            plan.quarantining & operators != theirs.quarantining & operators
        ),
    }
    for reason, is_other in reasons.items():
        if is_other:
            return reason
    inputs_before = {entry.stream: entry for entry in theirs.inputs}
    for entry in plan.inputs:
        if entry.stream not in part.streams:
            continue
        if not _same_windows(config, plan, inputs_before.get(entry.stream), entry):
            return f"windows of stream {entry.stream} have changed"
    # The start state does not matter if no operator has a state.
    is_stateful = any(node.operator.is_stateful for node in part.nodes.values())
    own_start = (plan.start.source, plan.start.digest)
    if is_stateful and own_start != (theirs.start.source, theirs.start.digest):
        return "it starts with another state"
    return ""


def _changed_versions(
    plan: Plan,
    theirs: Plan,
    container: ContainerPlan,
) -> str:
    """Returns the operators of a container whose version has changed, as text; empty if there are
    none.
    """
    code = []
    configuration = []
    for name in container.operators:
        version = plan.versions[name]
        before = theirs.versions.get(name, OperatorVersion())
        if before.code_version != version.code_version:
            code.append(name)
        if before.configuration_digest != version.configuration_digest:
            configuration.append(name)
    if code:
        return f"the code of {', '.join(code)} has changed"
    if configuration:
        return f"the configuration of {', '.join(configuration)} has changed"
    return ""


def _same_windows(
    config: Config,
    plan: Plan,
    other: InputPlan | None,
    entry: InputPlan,
) -> bool:
    """Returns whether both replays read equal windows of a stream.

    `other` is the input of the other replay.
    """
    if other is None or (other.table_id, other.end) != (entry.table_id, entry.end):
        return False
    seals = []
    for side in (entry, other):
        table = Table.open(side.windows_table(config.state), side.windows_version)
        seals.append(read_seals(table, plan.range).select(_SEALED))
    return bool(seals[0].equals(seals[1]))
