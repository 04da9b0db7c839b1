"""Creates the request of a replay from the parameters of a DAG run. Only tasks call this module,
because it reads tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rewindow.application.overrides import FORM
from rewindow.errors import InputError
from rewindow.windows import Grid, WindowRange, format_time, parse_time
from rewindow_airflow.failures import Nothing, NotYet
from rewindow_airflow.forms import (
    UNPUBLISHED,
    applications,
    parse_form,
    parse_properties,
    refuse_unknown,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.planning import ReplayRequest
    from rewindow.planning.request import ReplayOptions
    from rewindow.recovery import Plan
    from rewindow.settings.config import Config

_log = logging.getLogger(__name__)


def form_request(config: Config, context: Context) -> ReplayRequest:
    """Returns the replay request from a form of replay_windows.

    Windows in its range that will never be recorded are left out, as for a data interval, unless
    missing windows are allowed.

    Raises:
        Nothing: the form requests the windows that are not published yet, and all are published.
        InputError: see parse_form.
    """
    from rewindow.planning import ReplayRequest

    params = context["params"]
    application = params["application"]
    options = parse_form(params, drills=config.replay.drills, known=_declared(context))
    if params["range_as"] == UNPUBLISHED:
        windows: WindowRange | None = _unpublished(config, application)
    else:
        windows = _recorded_part(config, application, options)
    if windows is not None:
        options |= {"first": windows.first, "last": windows.last}
        options |= {"from_time": None, "to_time": None}
    return ReplayRequest(application, **options)


def _recorded_part(config: Config, application: str, options: ReplayOptions) -> WindowRange | None:
    """Returns the part of a form's range that is or will be recorded; None if the plan should
    report what is wrong.
    """
    if options["allow_missing"]:
        return None
    try:
        grid, sealed, final = sealed_range(config, application)
    except NotYet:
        return None
    begin, end = options["from_time"], options["to_time"]
    if begin is not None and end is not None:
        wanted = grid.aligned_range(parse_time(begin), parse_time(end))
    else:
        wanted = WindowRange(options["first"] or 0, options["last"] or 0)
    return _said(grid, wanted, clip(wanted, sealed, final), sealed=sealed)


def _said(
    grid: Grid,
    wanted: WindowRange,
    windows: WindowRange | None,
    sealed: WindowRange,
) -> WindowRange | None:
    """Logs the omitted part of a requested range, and returns the remaining part."""
    if windows is not None and windows != wanted:
        _log.warning(
            "%s of the %s requested windows %s are omitted, because they will never be recorded: "
            "the sealed windows are %s, %s to %s",
            f"{len(wanted) - len(windows):,}",
            f"{len(wanted):,}",
            wanted,
            sealed,
            format_time(grid.start_us(sealed.first)),
            format_time(grid.end_us(sealed.last)),
        )
    return windows


def interval_request(config: Config, context: Context) -> ReplayRequest:
    """Returns the request for a DAG run's data interval.

    Airflow passes `initial_state` to every day of a backfill. It applies to days before which no
    state was published.

    Raises:
        Nothing: no window of the interval will ever be recorded.
        NotYet: windows of the interval are not sealed yet.
        InputError: a parameter is unknown to the DAG, or the run has no data interval.
    """
    application = _application(config, context)
    grid, sealed, final = sealed_range(config, application)
    wanted = _windows_of(grid, context)
    windows = _said(grid, wanted, clip(wanted, sealed, final), sealed=sealed)
    if windows is None:
        raise Nothing(
            f"no window of {grid.describe(wanted)} will be recorded: the sealed windows are "
            f"{sealed}"
        )
    if windows.last > sealed.last:
        raise NotYet(
            f"windows {grid.describe(windows)} are not all sealed yet, only {sealed}; the DAG "
            "record_streams seals them"
        )
    return _request(config, context, application, windows=windows)


def unpublished_request(config: Config, context: Context) -> ReplayRequest:
    """Returns the request for all windows that are sealed and not yet published, independent of the
    event that started the run.

    Raises:
        Nothing: all of them are published, or an input is not recorded.
        InputError: a parameter is unknown to the DAG.
    """
    application = _application(config, context)
    return _request(config, context, application, windows=_unpublished(config, application))


def _unpublished(config: Config, application: str) -> WindowRange:
    """Returns the windows of an application that its inputs have sealed and that are not yet
    published.

    Raises:
        Nothing: all of them are published, or an input is not recorded.
    """
    from rewindow.planning.unpublished import unpublished

    try:
        grid, sealed, _ = sealed_range(config, application)
    except NotYet as lack:
        raise Nothing(str(lack)) from lack
    windows = unpublished(config, application)
    if windows is None:
        raise Nothing(
            f'all windows {grid.describe(sealed)} that the inputs of "{application}" have sealed '
            "are published"
        )
    return windows


def _application(config: Config, context: Context) -> str:
    """Returns the application that a run replays.

    Raises:
        InputError: a parameter is unknown to the DAG, or no application is named and there are
            several.
    """
    params = context["params"]
    refuse_unknown(params, _declared(context))
    if params["application"] is None:
        raise InputError(
            "the run names no application, and there is more than one",
            detail=f"Available applications: {', '.join(applications(config))}.",
            hint='Name it for all runs in rewindow.toml, [airflow] application = "NAME", or for '
            "this run in its configuration.",
        )
    return str(params["application"])


def _declared(context: Context) -> set[str]:
    """Returns the names of the parameters that a run's DAG and task declare."""
    return {*context["dag"].params, *context["task"].params}


def _request(
    config: Config,
    context: Context,
    application: str,
    windows: WindowRange,
) -> ReplayRequest:
    from rewindow.planning import ReplayRequest

    params = context["params"]
    return ReplayRequest(
        application=application,
        first=windows.first,
        last=windows.last,
        mode=params["mode"],
        group_windows=params["group_windows"],
        cores_max=params.get("cores_max"),
        initial_state=params["initial_state"]
        and not has_state_before(config, application, windows.first),
        allow_affected=params["allow_affected"],
        reason=f"DAG run {context['dag_run'].run_id}",
    )


def gap_request(stream: str, config: Config, context: Context) -> ReplayRequest:
    """Returns the request to fill the recorded windows of a stream that are not yet filled.

    Raises:
        Nothing: all of them are filled.
    """
    from rewindow.planning import ReplayRequest
    from rewindow.settings.config import FILLED, HEARTBEAT

    prefix, output = (
        (FILLED, "filled") if config.stream(stream).fill is not None else (HEARTBEAT, "ticks")
    )
    application = f"{prefix}{stream}"
    recorded = sealed_of(config, stream)
    filled = sealed_of(config, f"{application}.{output}")
    if recorded is None:
        raise Nothing(f'stream "{stream}" is not recorded yet')
    if filled is not None and filled.last >= recorded.last:
        raise Nothing(f'all recorded windows of stream "{stream}", {recorded}, are filled')
    return ReplayRequest(
        application=application,
        first=recorded.first if filled is None else filled.last + 1,
        last=recorded.last,
        reason=f"DAG run {context['dag_run'].run_id}",
    )


def sealed_range(config: Config, application: str) -> tuple[Grid, WindowRange, bool]:
    """Returns an application's grid, the windows that all its inputs have sealed, and whether no
    further windows will follow.

    Raises:
        NotYet: an input is not recorded, or the inputs have no window in common.
    """
    from rewindow.loading.catalog import definition_of, load_application, stream_of
    from rewindow.loading.defined_applications import input_streams

    made_of = stream_of(config, application)
    if made_of is not None and sealed_of(config, made_of) is None:
        raise _not_recorded(made_of)
    definition = definition_of(config, application)
    for stream in input_streams(definition) if definition is not None else []:
        if sealed_of(config, stream) is None:
            raise _not_recorded(stream)
    app = load_application(config, application).app
    ranges = {}
    for stream in app.streams:
        windows = sealed_of(config, stream)
        if windows is None:
            raise _not_recorded(stream)
        ranges[stream] = windows
    # A stream with an end row imposes no limit: all its later windows are sealed and empty.
    growing = {
        stream: windows.last for stream, windows in ranges.items() if not has_ended(config, stream)
    }
    first = max(windows.first for windows in ranges.values())
    last = min(growing.values(), default=max(windows.last for windows in ranges.values()))
    if first > last:
        raise NotYet(f'inputs of application "{application}" have no sealed window in common yet')
    fixed = any(stream in config.streams and config.stream(stream).sealed_to for stream in growing)
    return app.grid, WindowRange(first, last), fixed or not growing


def has_ended(config: Config, stream: str) -> bool:
    """Returns whether a stream has an end row.

    Then every later window is sealed and empty.

    Rules: X21
    """
    from rewindow.facts.seals import stream_end
    from rewindow.storage import Table

    return stream_end(Table.open(config.windows_table(stream))) is not None


def _not_recorded(stream: str) -> NotYet:
    return NotYet(
        f'stream "{stream}" is not recorded yet; `rewindow record {stream}` or its DAG does'
    )


def sealed_of(config: Config, stream: str) -> WindowRange | None:
    """Returns the range of sealed windows of a recorded or published stream; None if none is
    sealed. Starts no JVM.
    """
    from rewindow.facts.seals import sealed_range
    from rewindow.storage import Table

    path = config.windows_table(stream)
    return sealed_range(Table.open(path)) if Table.exists(path) else None


def has_state_before(config: Config, application: str, window: int) -> bool:
    """Returns whether a state of an application was published for an earlier window, by any version
    of the code.
    """
    from rewindow.storage import Table, query

    path = config.checkpoints_table(application)
    if not Table.exists(path):
        return False
    found = query(f"select count(*) as n from c where window_id < {window}", c=Table.open(path))
    return bool(found["n"].to_pylist()[0])


def clip(windows: WindowRange, sealed: WindowRange, final: bool) -> WindowRange | None:
    """Returns the windows of a range that are or will be recorded; None if there are none.

    Windows before the start of the recording are never recorded. Windows after its end will be
    recorded unless the recording is final.

    >>> str(clip(WindowRange(0, 23), WindowRange(5, 100), final=False))
    '[5, 23]'
    """
    first = max(windows.first, sealed.first)
    last = min(windows.last, sealed.last) if final else windows.last
    return WindowRange(first, last) if first <= last else None


def reject_other_options(plan: Plan, conf: Mapping[str, Any]) -> None:
    """Checks that the options of a run do not contradict the replay that the run has already
    planned.

    Raises:
        InputError: names the first contradiction.
    """
    if conf.get("properties"):
        _refuse_other_properties(plan, conf["properties"])
    for name in ("application", "mode", "group_windows", "cores_max", "checkpoint_windows"):
        wish = conf.get(name)
        if wish is None:
            continue
        # Operators may have declared other modes than the request has.
        have = plan.asked_mode.name if name == "mode" else getattr(plan, name)
        if wish != have:
            raise InputError(
                f'replay "{plan.replay_id}" of this run has {name} {have}, but the run requests '
                f"{wish}",
                hint=f"Abandon it (rewindow abandon {plan.replay_id}) and clear the run, which "
                "then plans a new one.",
            )


def _refuse_other_properties(plan: Plan, text: str) -> None:
    wish = parse_properties(text)
    have = {one.path: one.value for one in plan.given if one.source == FORM}
    if wish != have:
        raise InputError(
            f'replay "{plan.replay_id}" of this run has properties {have}, but the run requests '
            f"{wish}",
            hint=f"Abandon it (rewindow abandon {plan.replay_id}) and clear the run, which then "
            "plans a new one.",
        )


def describe(plan: Plan) -> list[str]:
    """Returns the description of a plan, for the task's log."""
    grid = plan.grid
    lines = [
        f'Replay "{plan.replay_id}": {plan.application}, {len(plan.range):,} windows '
        f"{grid.describe(plan.range)}, {plan.mode.name}",
        f"Start state: {plan.start.source}"
        + (f", window {grid.describe(plan.start.window)}" if plan.start.window is not None else ""),
    ]
    lines += [
        f"Input {entry.stream}: {entry.tuples:,} tuples, version {entry.version}"
        for entry in plan.inputs
    ]
    lines += [f"Output {output.name}: {output.guarantee}" for output in plan.outputs]
    return lines + [f"Warning: {warning}" for warning in plan.warnings]


def _windows_of(grid: Grid, context: Context) -> WindowRange:
    begin = context.get("data_interval_start")
    end = context.get("data_interval_end")
    if begin is None or end is None or begin == end:
        raise InputError(
            "the run has no data interval",
            hint="A DAG that an asset starts needs plan_unpublished. To start a run by hand, set "
            "its logical date, or start the DAG replay_windows with a range.",
        )
    return grid.aligned_range(_micros(begin), _micros(end))


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
