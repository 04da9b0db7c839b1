"""Plans single containers. The plan of a container is the plan of the replay, restricted to a part
of the graph. Streams of other containers are its inputs.

The plan of a container is created when the containers that it reads have ended. It pins the
versions of their tables, so that all attempts read the same rows.

Rules: R62, X53
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from rewindow.application import Application, Output, PortHandle, describe_graph
from rewindow.engine.ports import stateful_operators
from rewindow.errors import InputError
from rewindow.facts.losses import unfed_windows
from rewindow.facts.readers import seals_digest, staged_seals
from rewindow.facts.window_facts import ids_of
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE
from rewindow.loading.catalog import load_planned
from rewindow.names import container_id
from rewindow.planning.creation import create_tables
from rewindow.recovery import (
    ContainerPlan,
    InputPlan,
    OutputPlan,
    Plan,
    StartState,
    guarantee,
    path_in,
)
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.delta import total_size
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.storage.staged_marks import lost_commits, plan_in, staged_positions
from rewindow.windows import WindowRange, to_ranges

SHORT_GROUPS = 4
"""Commit groups of a short replay."""
SHORT_WINDOWS_MIN = 64
"""A short replay with fewer windows is not divided into several groups."""
SHORT_TUPLES_MAX = 2_000_000
"""A replay of more tuples is not short."""


def unfinished(config: Config, plan: Plan) -> list[ContainerPlan]:
    """Returns the containers of a replay that have not ended, in the order of the graph."""
    replays = Ledger.open(config.ledger_url).replays
    remaining = []
    for container in plan.containers if plan.is_divided else ():
        replay_id = container_id(plan.replay_id, container.name)
        known = replays.find(replay_id)
        if known is None or known.state in RUNNABLE or _has_lost_commits(config, replay_id):
            remaining.append(container)
    return remaining


def container_to_run(config: Config, plan: Plan, name: str = "") -> ContainerPlan | None:
    """Returns the named container if it has not ended. Without a name, returns the first container
    that has not ended.

    Returns None if the container has ended, or if all have.

    Raises:
        InputError: the container does not exist, or one that it reads has not ended.
    """
    remaining = unfinished(config, plan)
    names = names_of(remaining)
    if not name:
        return remaining[0] if remaining else None
    container = plan.container_named(name)
    for upstream in container.after:
        if upstream in names:
            raise InputError(
                f'container "{name}" of replay "{plan.replay_id}" reads container "{upstream}", '
                "which has not ended",
                hint=f"Resume the replay: rewindow replay --resume {plan.replay_id}",
            )
    return container if name in names else None


def plan_container(config: Config, plan: Plan, container: ContainerPlan) -> str:
    """Creates the plan of a container if it has none yet, and returns the container's replay id.

    The upstream containers must have ended.

    Raises:
        TableError: a stream between two containers is damaged, or lacks its last commits.
    """
    replays = Ledger.open(config.ledger_url).replays
    replay_id = container_id(plan.replay_id, container.name)
    if replays.find(replay_id) is None:
        narrowed = container_plan(config, plan, container)
        planned = create_tables(config, narrowed, _part(config, plan, container))
        replays.create(
            replay_id,
            planned.application,
            planned.first,
            planned.last,
            planned.mode.name,
            planned.model_dump(mode="json"),
            planned.code_version,
        )
    return replay_id


def _has_lost_commits(config: Config, replay_id: str) -> bool:
    """Returns whether the tables of an ended container have lost commits.

    Then the container must compute windows again.
    """
    root = config.replay_root(replay_id)
    plan = plan_in(root)
    return bool(lost_commits(plan, staged_positions(root, plan)))


def _part(
    config: Config,
    plan: Plan,
    container: ContainerPlan,
) -> Application:
    return load_planned(config, plan).app.part(container.operators)


def container_plan(
    config: Config,
    plan: Plan,
    container: ContainerPlan,
) -> Plan:
    """Returns the plan of a container whose upstream containers have ended."""
    part = _part(
        config,
        plan,
        container,
    )
    inputs = []
    for entry in plan.inputs:
        if entry.stream in part.streams:
            inputs.append(entry)
    # A stream ends where the streams upstream of it end, also those that this part does not read.
    ends = (part.whole or part).ends(plan.ends)
    for source in part.cut_streams():
        end = ends.get(str(source.operator))
        inputs.append(_pinned(config, plan, source, end))
    start = plan.start
    if not stateful_operators(part):
        start = StartState(source="none", window=plan.first - 1)
    elif start.taken_from:
        # The replay has copied the states to its own checkpoints when it was created.
        checkpoints = config.replay_root(plan.replay_id) / CHECKPOINTS
        changed = {
            "taken_from": path_in(config.state, checkpoints),
            "version": None,
            "window": plan.first - 1,
        }
        start = start.model_copy(update=changed)
    narrowed = in_container(config, plan, container).model_copy(
        update={
            "replay_id": container_id(plan.replay_id, container.name),
            "container": container.name,
            "reused": container.reused,
            "checkpoint_multiple": part.checkpoint_multiple,
            "inputs": inputs,
            "start": start,
            "graph": describe_graph(part),
            "warnings": [],
            "outputs": [],
            "errors": [],
        }
    )
    if not plan.group_windows:
        bound = config.replay.loss_windows_max if container.mode.may_lose else None
        narrowed = narrowed.model_copy(
            update={"group_windows_max": group_bound(plan.range, inputs, bound)}
        )
    outputs = []
    for output in part.outputs.values():
        outputs.append(output_plan(part, output, narrowed))
    errors = []
    for output in part.errors().values():
        errors.append(output_plan(part, output, narrowed))
    return narrowed.model_copy(update={"outputs": outputs, "errors": errors})


def in_container(
    config: Config,
    plan: Plan,
    container: ContainerPlan,
) -> Plan:
    """Returns a plan with the mode of a container, and with the limit of windows that a crash may
    lose there.
    """
    bound = config.replay.loss_windows_max if container.mode.may_lose else None
    changed = {"mode": container.mode, "containers": [], "group_windows_max": bound}
    return plan.model_copy(update=changed)


def output_plan(
    app: Application,
    output: Output,
    plan: Plan,
) -> OutputPlan:
    """Returns the entry of an output in a plan.

    Args:
        app: the application, or the part of it that the plan covers.
        output: the output.
        plan: a plan with the mode in which the output is written.
    """
    # States in other containers decide rows too, so the whole graph counts.
    whole = app.whole or app
    operator = str(output.source.operator)
    upstream = whole.upstream(operator)
    nodes = whole.nodes
    stateful = any(nodes[node].operator.is_stateful for node in upstream)
    port = nodes[operator].output_ports().get(output.source.port)
    outside = []
    for name in sorted(upstream):
        if nodes[name].operator.reads_outside:
            outside.append(name)
    columns = []
    for column in app.columns(output):
        columns.append((column.name, str(column.type)))
    return OutputPlan(
        name=output.name,
        operator=operator,
        port=output.source.port,
        key=list(output.key),
        suite=output.suite,
        suite_parameters=dict(output.suite_parameters),
        columns=columns,
        stateful=stateful,
        guarantee=guarantee(
            plan.mode,
            stateful=stateful,
            lost=plan.loss_windows_max,
            unseen=plan.unseen_windows_max,
        ),
        tolerance=output.tolerance,
        errors=output.is_error or (port is not None and port.error),
        errors_max=nodes[operator].error_bound(output.source.port),
        upstream=sorted(upstream),
        reads_outside=outside,
        sorted_by=list(output.sorted_by),
    )


def group_bound(
    windows: WindowRange,
    inputs: list[InputPlan],
    bound: int | None,
) -> int | None:
    """Returns the largest number of windows in a commit group whose size is chosen by time.

    A short replay would fit into one group. Then it would show no progress, and a crash would lose
    all of its windows. So it is divided into a few groups. Each additional group costs about half a
    second. A longer replay starts with a smaller group anyway.
    """
    tuples = 0
    for entry in inputs:
        tuples += entry.tuples
    if len(windows) < SHORT_WINDOWS_MIN or tuples > SHORT_TUPLES_MAX:
        return bound
    share = -(-len(windows) // SHORT_GROUPS)
    return min(bound or share, share)


def _pinned(
    config: Config,
    plan: Plan,
    source: PortHandle,
    end: int | None,
) -> InputPlan:
    """Returns a port of another container as an input, pinned at the current versions of its table
    and its seals.
    """
    container = next(part.name for part in plan.containers if source.operator in part.operators)
    root = config.replay_root(container_id(plan.replay_id, container))
    upstream = plan_in(root)
    wanted = (source.operator, source.port)
    output = next(staged for staged in upstream.staged if (staged.operator, staged.port) == wanted)
    table = Table.open(root / output.name)
    facts = Table.open(root / FACTS)
    sealed = staged_seals(
        facts,
        output.name,
        plan.range,
    )
    present = np.setdiff1d(sealed["window_id"].to_numpy(), unfed_windows(upstream))
    absent = np.setdiff1d(ids_of(plan.range), present, assume_unique=True)
    lost = to_ranges(absent)
    # Only at most once may lose windows. In other modes a table has lost its last commits.
    if lost and not upstream.mode.may_lose:
        raise InputError(
            f'stream "{source}" of container "{container}" lacks windows '
            f"{plan.grid.describe(lost[0])}",
            hint=f"Resume the replay: rewindow replay --resume {plan.replay_id}",
        )
    missing = []
    for part in lost:
        missing.append((part.first, part.last))
    return InputPlan(
        stream=str(source),
        path=path_in(config.state, table.path),
        version=table.version,
        windows_version=facts.version,
        table_id=table.id,
        tuples=int(pc.sum(sealed["tuples"]).as_py() or 0),
        bytes=total_size(table.files()),
        missing=missing,
        end=end,
        container=container,
        seals_digest=seals_digest(sealed),
    )
