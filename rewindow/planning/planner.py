"""Plans a replay: range, pinned inputs, start state, guarantees, and blockers. Starts no JVM."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rewindow.application import Application, Mode, Output, describe_graph
from rewindow.application.configuring import check_changes
from rewindow.application.containers import Container, containers_of, modes_of
from rewindow.application.failing import failing_tables
from rewindow.application.overrides import FILE, PropertyChange
from rewindow.application.port_recording import record_every_port
from rewindow.errors import InputError, RangeError
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.replays import RUNNABLE
from rewindow.loading.catalog import LoadedApplication, load_application, overrides_in_file
from rewindow.loading.suite_flaws import suite_flaws
from rewindow.names import check_replay_id, whole_replay
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.planning.changing import change_log
from rewindow.planning.containers import group_bound, in_container, output_plan
from rewindow.planning.creation import create_tables
from rewindow.planning.forecast import blockers, costs_of_crashes, estimate
from rewindow.planning.inputs import (
    RecordedStream,
    check_application,
    check_warm_up,
    common_range,
    end_warnings,
    expiry_warnings,
    foreign_files,
    open_recorded_stream,
    pin,
)
from rewindow.planning.request import PlanPreview, ReplayRequest
from rewindow.planning.reuse import with_reused
from rewindow.planning.start_flaws import AFFECTED, refusal
from rewindow.planning.start_state import find_start_state
from rewindow.recovery import (
    TUPLE_ORDER,
    CheckpointSchedule,
    ContainerPlan,
    InputPlan,
    OutputPlan,
    Plan,
    StartState,
    guarantees,
)
from rewindow.sequences import map_values, names_of
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange, format_time, parse_time

MARKS_MANY = 100
_OTHER_ID = "Use another --id for the new replay."
OTHER_CODE = "a start state computed by other code was allowed"


def create_replay(config: Config, request: ReplayRequest) -> Plan:
    """Plans a replay, creates its tables and its entry in the ledger, and returns the plan.

    The same request with the same id returns the same replay, so that a repeated task continues it.

    Raises:
        InputError: something in the request does not exist, or cannot be replayed.
        RangeError: the range is empty, reversed, unaligned, or has missing windows.
        ValidationFailed: the application breaks rules.
        CheckpointError: the start state lacks windows or is stale, and that is not allowed.
        TableError: tables with this id exist, but the ledger does not list a replay for them.
    """
    _check_ids(request)
    ledger = Ledger.open(config.ledger_url)
    known = ledger.replays.find(request.replay_id) if request.replay_id else None
    if known is not None:
        return _same(known.read_plan(), request, _hint_for_id(known))
    draft = draft_plan(config, request)
    draft.check()
    plan = create_tables(config, draft.plan, draft.loaded.app, code=request.code)
    if plan != draft.plan:
        _check_left_behind(config, plan, draft.plan, request=request)
    ledger.replays.create(
        plan.replay_id,
        plan.application,
        plan.first,
        plan.last,
        plan.mode_name,
        plan.model_dump(mode="json"),
        plan.code_version,
    )
    return plan


def draft_plan(config: Config, request: ReplayRequest) -> PlanPreview:
    """Returns the plan that a request leads to, without creating anything."""
    _check_ids(request)
    mode = Mode.parse(request.mode)
    given = [*overrides_in_file(config, request.application), *request.given()]
    folder = request.code.local() if request.code is not None else None
    loaded = load_application(
        config, request.application, request.parameters, given=given, code=folder
    )
    recorded = {name: open_recorded_stream(config, name) for name in loaded.app.streams}
    tables = {name: stream.table for name, stream in recorded.items()}
    flaws = suite_flaws(config, loaded.app, tables)
    check_application(loaded.app, mode, recorded, flaws)
    if request.sample_seed is not None:
        record_every_port(loaded.app)
    # The order decides which error is reported first: all violations of the application, then an
    # invalid range, then inputs with missing windows.
    windows = _range(loaded.app, recorded, request)
    inputs = [
        pin(config, name, stream, windows=windows, allow_missing=request.allow_missing)
        for name, stream in recorded.items()
    ]
    common = common_range(recorded)
    ids = {name: stream.table.id for name, stream in recorded.items()}
    start = find_start_state(
        config,
        loaded,
        windows,
        first_sealed=common.first,
        request=request,
        tables=ids,
    )
    holes = check_warm_up(
        recorded, start, windows, allow_missing=request.allow_missing
    ) + expiry_warnings(recorded)
    holes += end_warnings(recorded, windows)
    containers = _containers(loaded.app, mode, request)
    if config.replay.quarantine_failing and request.sample_seed is None:
        schemas = map_values(lambda table: table.schema, tables)
        loaded.app.failing = failing_tables(loaded.app, _safe_operators(containers), schemas)
    if len(containers) > 1 and start.source == "warm_up":
        raise InputError(
            f'application "{loaded.app.name}" has {len(containers)} containers, and no published '
            f"state can start a replay at window {windows.first}",
            detail="A warm-up computes the state without staging rows, so that no other container "
            "could read them.",
            hint="Start where a published state ends, use --state-from or --initial-state, or set "
            "the same mode and no container for all operators.",
        )
    plan = _plan(
        config,
        request,
        loaded,
        containers,
        windows,
        inputs,
        start,
        holes,
    )
    if request.reuse is not None:
        try:
            plan = with_reused(config, plan, loaded.app, request.reuse)
        except InputError as error:
            # The fixed code of a cleared run may change every container.
            if not request.reuse_optional:
                raise
            warnings = [*plan.warnings, f"all containers are computed: {error.primary}"]
            plan = plan.model_copy(update={"warnings": warnings})
    seconds, basis = estimate(config, plan)
    refused = None if _is_allowed(config, request) else refusal(plan.application, mode, start)
    return PlanPreview(
        plan,
        loaded,
        blockers(config, plan),
        seconds=seconds,
        basis=basis,
        recovery=costs_of_crashes(config, plan),
        refusal=refused,
    )


def _changes(config: Config, request: ReplayRequest, app: Application) -> list[PropertyChange]:
    """Returns the property changes that are copied from the replay `request.changes_from`."""
    if request.changes_from is None:
        return []
    other = Ledger.open(config.ledger_url).replays.get(request.changes_from).read_plan()
    changes = change_log(config, other).changes()
    check_changes(
        load_application(config, app.name, request.parameters, given=app.given).app, changes
    )
    return changes


def _is_allowed(config: Config, request: ReplayRequest) -> bool:
    """Returns whether the request or the settings allow a start state that lacks windows or is
    stale.
    """
    return request.allow_affected or config.replay.allow_affected


def _plan(
    config: Config,
    request: ReplayRequest,
    loaded: LoadedApplication,
    containers: list[ContainerPlan],
    windows: WindowRange,
    inputs: list[InputPlan],
    start: StartState,
    warnings: list[str],
) -> Plan:
    app = loaded.app
    mode = containers[0].mode if len(containers) == 1 else Mode.parse(request.mode)
    losing = any(container.mode.may_lose for container in containers)
    distance = (
        app.checkpoint_windows if request.checkpoint_windows is None else request.checkpoint_windows
    )
    if distance < 1:
        raise InputError(f"checkpoint distance must be at least 1 window, not {distance}")
    if request.group_windows is not None and request.group_windows < 1:
        raise InputError(
            f"group size of {request.group_windows} windows is out of range, at least 1 is needed"
        )
    if request.cores_max is not None and request.cores_max < 1:
        raise InputError(f"cores_max must be at least 1, not {request.cores_max}")
    bound = config.replay.loss_windows_max if losing else None
    if bound and (request.group_windows or 0) > bound:
        raise InputError(
            f"group size of {request.group_windows} windows is out of range, at most {bound} are "
            f"allowed in {Mode.AT_MOST_ONCE.words} (setting replay.loss_windows_max)",
            hint="A crash may lose a whole group: use a smaller one, or another mode.",
        )
    size = request.group_windows or config.replay.group_windows
    plan = Plan(
        replay_id=request.replay_id
        or f"{app.name}-{windows.first}-{windows.last}-{uuid.uuid4().hex[:6]}",
        application=app.name,
        code_version=loaded.code_version,
        configuration_digest=loaded.configuration_digest,
        versions=loaded.versions(distance),
        first=windows.first,
        last=windows.last,
        width_ms=app.grid.width_ms,
        origin_ms=app.grid.origin_ms,
        mode=mode,
        checkpoint_windows=distance,
        checkpoint_multiple=app.checkpoint_multiple,
        group_windows=size,
        group_windows_max=bound if size else group_bound(windows, inputs, bound),
        group_seconds=config.replay.group_seconds,
        attempts=config.replay.attempts,
        errors_max=config.replay.errors_max,
        inputs=inputs,
        outputs=[],
        tuple_order=TUPLE_ORDER,
        containers=containers,
        start=start,
        reason=request.reason,
        options=request.options(),
        graph=describe_graph(app),
        given=app.given,
        changes=_changes(config, request, app),
        sample_seed=request.sample_seed,
        candidate=request.candidate,
        dag=request.dag,
        run=request.run,
        parameters=request.parameters,
        verify_inputs=config.replay.verify_inputs
        if request.verify_inputs is None
        else request.verify_inputs,
        cores_max=request.cores_max,
        warnings=[
            *foreign_files(inputs),
            *app.warnings(),
            *warnings,
            *([OTHER_CODE] if request.allow_other_code else []),
            *([AFFECTED] if start.affects else []),
            *_passed_over(start),
            *_container_warnings(app, containers, request, windows, distance, size, bound),
        ],
    )
    return _with_outputs(config, plan, app)


def _with_outputs(config: Config, plan: Plan, app: Application) -> Plan:
    """Returns a plan with the outputs and error ports of an application."""
    plans: dict[str, Plan] = {}
    modes: dict[str, Mode] = {}
    unset: list[str] = []
    for container in plan.containers:
        own = in_container(config, plan, container) if plan.is_divided else plan
        plans.update(dict.fromkeys(container.operators, own))
        modes.update(dict.fromkeys(container.operators, own.mode))
        unset += container.unset
    sources = {}
    for node in app.order():
        sources[node.name] = sorted(node.sources)
    promised = guarantees(modes, sources, unset)

    def planned(output: Output) -> OutputPlan:
        operator = str(output.source.operator)
        entry = output_plan(app, output, plans[operator])
        reason = promised[operator].reason if plan.is_divided else ""
        return entry.model_copy(update={"reason": reason})

    outputs = []
    for name in _topological(app):
        outputs.append(planned(app.outputs[name]))
    errors = list(map(planned, app.errors().values()))
    return plan.model_copy(update={"outputs": outputs, "errors": errors})


def _containers(
    app: Application,
    default: Mode,
    request: ReplayRequest,
) -> list[ContainerPlan]:
    """Returns the containers of a replay, in the order in which they run.

    Samples and candidates are computed in one container in the mode exactly once, because the
    division into containers does not change a result.

    Rules: O106
    """
    containers = containers_of(app, default)
    unset = modes_of(app, default).unset
    is_candidate = request.candidate is not None and not request.candidate.drill
    is_trial = request.sample_seed is not None or is_candidate
    if len(containers) > 1 and is_trial:
        operators = tuple(names_of(app.order()))
        containers = [Container(app.name, Mode.EXACTLY_ONCE, operators)]
    plans = []
    for container in containers:
        unset_here = []
        for name in container.operators:
            if name in unset:
                unset_here.append(name)
        plans.append(
            ContainerPlan(
                name=container.name,
                mode=container.mode,
                operators=list(container.operators),
                after=list(container.after),
                unset=unset_here,
            )
        )
    return plans


def _safe_operators(containers: list[ContainerPlan]) -> set[str]:
    """Returns the operators of containers that do not lose windows."""
    operators: set[str] = set()
    for container in containers:
        if not container.mode.may_lose:
            operators.update(container.operators)
    return operators


def _container_warnings(
    app: Application,
    containers: list[ContainerPlan],
    request: ReplayRequest,
    windows: WindowRange,
    distance: int,
    size: int | None,
    bound: int | None,
) -> list[str]:
    """Returns the warnings that depend on the mode of a container, without duplicates."""
    warnings: list[str] = []
    # The distance of the request has an effect if a single container has a schedule.
    given = request.checkpoint_windows
    for container in containers:
        if not container.mode.saves_every_group:
            given = None
    for container in containers:
        mode = container.mode
        part = app.part(container.operators) if len(containers) > 1 else app
        own_bound = bound if mode.may_lose else None
        warnings += [
            *_forgotten_timers(part, mode),
            *_idle_distances(part, mode, given),
            *_cut_application_windows(part, mode),
            *_many_checkpoints(mode, windows, distance),
            *_cut_groups(part, mode, size, distance, own_bound),
        ]
        for name, output in part.outputs.items():
            if part is not app and app.outputs.get(name, output) != output:
                warnings.append(
                    f"{name}: another container reads it, so its files are not sorted by "
                    f"{', '.join(app.outputs[name].sorted_by)}"
                )
    return list(dict.fromkeys(warnings))


def _passed_over(start: StartState) -> list[str]:
    """Returns a warning if a newer published state is not used because another version computed it.

    Rules: W65
    """
    if not start.other_versions:
        return []
    names = ", ".join(start.other_versions)
    return [
        f"a newer published state was computed by another version of {names}:"
        f" windows {start.warm_up_first} and later are computed first"
    ]


def _forgotten_timers(app: Application, mode: Mode) -> list[str]:
    """Returns a warning for each Heartbeat without an output.

    After a loss, such a Heartbeat cannot find out which timers it has emitted.

    Rules: H58, X30
    """
    if not mode.may_lose:
        return []
    outputs = {output.source for output in app.outputs.values()}
    warnings = []
    for node in app.nodes.values():
        if isinstance(node.operator, Heartbeat) and node["out"] not in outputs:
            lost = "its tuples are not an output, so after a loss some timers may be repeated"
            warnings.append(f"{node.name}: {lost}")
    return warnings


def _idle_distances(app: Application, mode: Mode, given: int | None) -> list[str]:
    """Returns a warning if checkpoint windows are set but have no effect, because the mode saves
    every group.

    Rules: W51
    """
    waiting = [node.name for node in app.nodes.values() if node.checkpoint_windows > 1]
    if not mode.saves_every_group or not (waiting or given):
        return []
    whose = f"of {', '.join(waiting)}" if waiting else "of this replay"
    return [
        f"checkpoint windows {whose} have no effect: {mode.words} saves a checkpoint after every "
        "group"
    ]


def _cut_application_windows(app: Application, mode: Mode) -> list[str]:
    """Returns a warning for each operator whose application windows may contain a checkpoint.

    Rules: W48, W50
    """
    if mode.saves_every_group:
        return []
    return [
        f"{node.name}: checkpoints may be saved inside its application windows, since its "
        f"checkpoint_windows are not a multiple of {node.windowing.pane}; values that it keeps "
        "between windows must be in its state"
        for node in app.nodes.values()
        if node.is_cut_by_checkpoints
    ]


def _many_checkpoints(mode: Mode, windows: WindowRange, distance: int) -> list[str]:
    """Returns a warning if checkpoints divide the range into too many commit groups, so that
    commits would take most of the time.

    Rules: W42, W55
    """
    groups = len(windows) // distance
    if mode.saves_every_group or groups <= MARKS_MANY:
        return []
    return [
        f"a checkpoint every {distance} windows leads to {groups:,} commit groups of about a "
        "second each; a larger --checkpoint-windows is faster, but a crash then affects more "
        "windows"
    ]


def _cut_groups(
    app: Application,
    mode: Mode,
    size: int | None,
    distance: int,
    bound: int | None,
) -> list[str]:
    """Returns a warning if a fixed group size is reduced because of checkpoints or the limit of
    lost windows.

    Rules: W42, X1
    """
    gap = CheckpointSchedule(distance, app.checkpoint_multiple).gap_max
    if size and bound and size > bound:
        return [
            f"groups of {size:,} windows are reduced to {bound:,}: in {mode.words} a crash may "
            f"lose a whole group, and setting replay.loss_windows_max allows {bound:,}"
        ]
    if size and size > gap and not mode.saves_every_group:
        return [
            f"groups of {size:,} windows are reduced to {gap:,}: {mode.words} saves a checkpoint "
            f"every {gap:,} windows, and a group ends there; for longer groups set "
            "--checkpoint-windows, too"
        ]
    return []


def _topological(app: Application) -> list[str]:
    """Returns the outputs in the order of their operators.

    Rules: O140
    """
    order = names_of(app.order())
    return sorted(app.outputs, key=lambda name: order.index(str(app.outputs[name].source.operator)))


def _range(
    app: Application,
    recorded: Mapping[str, RecordedStream],
    request: ReplayRequest,
) -> WindowRange:
    common = common_range(recorded)
    by_time = (request.from_time, request.to_time) != (None, None)
    if by_time and (request.first, request.last) != (None, None):
        raise RangeError("a range must be given either as times or as windows, not as both")
    # A range of times is half-open, so its last window is the one of the microsecond before.
    if by_time:
        grid = app.grid
        from_us = parse_time(request.from_time) if request.from_time else None
        to_us = parse_time(request.to_time) if request.to_time else None
        _check_one_end(
            common,
            grid,
            None if from_us is None else grid.window(from_us),
            last=None if to_us is None else grid.window(to_us - 1),
        )
        windows = grid.aligned_range(
            grid.start_us(common.first) if from_us is None else from_us,
            grid.end_us(common.last) if to_us is None else to_us,
        )
    else:
        _check_one_end(common, app.grid, request.first, last=request.last)
        windows = WindowRange(
            common.first if request.first is None else request.first,
            common.last if request.last is None else request.last,
        )
    windows.checked("the replay")
    if windows.overlap(common) is None:
        raise _beside(
            str(windows),
            "after" if windows.first > common.last else "before",
            common,
            app.grid,
        )
    return windows


def _check_one_end(common: WindowRange, grid: Grid, first: int | None, last: int | None) -> None:
    """Checks a range with only one given end.

    It must overlap the sealed windows, which determine the other end.
    """
    if last is None and first is not None and first > common.last:
        raise _beside(f"from {first} on", "after", common, grid)
    if first is None and last is not None and last < common.first:
        raise _beside(f"up to {last}", "before", common, grid)


def _beside(asked: str, word: str, common: WindowRange, grid: Grid) -> RangeError:
    begin = format_time(grid.start_us(common.first))
    end = format_time(grid.end_us(common.last))
    return RangeError(
        f"window range {asked} is {word} the sealed windows, {common}",
        detail=f"All inputs are sealed from {begin} to {end}.",
        hint="Choose a range inside of it, or record more of the inputs first: rewindow record "
        "STREAM",
    )


def _check_ids(request: ReplayRequest) -> None:
    for replay_id in (request.replay_id, request.state_from, request.reuse):
        if replay_id is not None:
            check_replay_id(replay_id)
    if request.replay_id and whole_replay(request.replay_id) != request.replay_id:
        raise InputError(
            f'replay id "{request.replay_id}" contains @, which only ids of containers do',
            hint="Use an id without @.",
        )


def _same(plan: Plan, request: ReplayRequest, hint: str = _OTHER_ID) -> Plan:
    """Returns the plan of an existing replay if the request matches it; otherwise raises an error
    with a hint.
    """
    replay_options: dict[str, Any] = {
        "application": request.application,
        "asked_mode": Mode.parse(request.mode),
        "first": request.first,
        "last": request.last,
        "parameters": request.parameters or None,
        "group_windows": request.group_windows,
        "cores_max": request.cores_max,
        "checkpoint_windows": request.checkpoint_windows,
    }
    if request.from_time:
        replay_options["first"] = plan.grid.window(parse_time(request.from_time))
    if request.to_time:
        replay_options["last"] = plan.grid.window(parse_time(request.to_time)) - 1
    if request.initial_state and plan.start.source not in ("initial", "none"):
        raise _another(
            plan, f"start state from {plan.start.source}", "the initial state", hint=hint
        )
    source = PurePath(plan.start.taken_from).parent.name
    if request.state_from and plan.start.source != "none" and source != request.state_from:
        raise _another(
            plan,
            f"start state from {plan.start.source}",
            f"that of {request.state_from}",
            hint=hint,
        )
    asked = {override.path: override.value for override in plan.given if override.source != FILE}
    if request.properties and request.properties != asked:
        raise _another(plan, f"properties {asked}", str(request.properties), hint=hint)
    for name, value in replay_options.items():
        if value is not None and getattr(plan, name) != value:
            shown = name.removeprefix("asked_")
            raise _another(plan, f"{shown} {getattr(plan, name)}", str(value), hint=hint)
    return plan


def _check_left_behind(config: Config, plan: Plan, asked: Plan, request: ReplayRequest) -> None:
    """Checks that the tables that a killed planner left behind match the request."""
    _same(plan, request)
    if (plan.code_version, plan.configuration_digest) != (
        asked.code_version,
        asked.configuration_digest,
    ):
        raise InputError(
            f'tables of replay "{plan.replay_id}" were created for other code '
            f"({plan.code_version}), and never used",
            detail=f"They are in {config.replay_root(plan.replay_id)} and are empty except for "
            "that plan.",
            hint="Use another id for the new replay, or delete that folder.",
        )


def _another(plan: Plan, have: str, requested: str, hint: str) -> InputError:
    return InputError(
        f'replay "{plan.replay_id}" already exists with {have}, but the request has {requested}',
        hint=hint,
    )


def _hint_for_id(known: Replay) -> str:
    """Returns a hint for a request that has the id of another replay."""
    if known.state in RUNNABLE:
        resume = f"rewindow replay --resume {known.replay_id}"
        return (
            f"It is {known.state}. To continue it as it was planned: {resume}; otherwise use "
            "another --id for the new replay."
        )
    return f"It is {known.state} (rewindow status {known.replay_id}). {_OTHER_ID}"
