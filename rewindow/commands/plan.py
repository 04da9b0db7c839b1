"""`rewindow plan`: shows the tables that a replay would change, its duration, its guarantees, and
blockers.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow.commands.completion import applications
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import of_unpublished, with_replay_options
from rewindow.commands.screen import (
    AsJson,
    JobScreen,
    out,
    print_facts,
    print_json,
    print_rows,
)
from rewindow.delivery.targets import promise_of
from rewindow.errors import InputError
from rewindow.launcher import verbs
from rewindow.loading.catalog import load_application
from rewindow.planning import PlanPreview, ReplayRequest
from rewindow.planning.request import OPTIONS, ReplayOptions
from rewindow.publication.preview import reasons_for_spark
from rewindow.recovery import ContainerPlan, Plan, RecoveryTimes
from rewindow.retention import undo_horizon
from rewindow.sequences import excluding, map_values, quantity
from rewindow.settings.config import Config
from rewindow.windows import describe_seconds, format_time

SORTING_COSTS = "This sorts every commit group, which makes writing about half as fast."
App = Annotated[str, typer.Argument(help="Name of the application.", autocompletion=applications)]
Late = Annotated[
    bool,
    typer.Option(
        "--late",
        help="Show the windows that must be replayed because of late tuples or other changed "
        "inputs.",
    ),
]
Unpublished = Annotated[
    bool,
    typer.Option(
        "--unpublished",
        help="Instead of a range: all windows that are sealed and not yet published.",
    ),
]


@with_replay_options(*excluding(OPTIONS, ("replay_id", "reason")))
def plan(
    application: Annotated[
        str | None,
        typer.Argument(
            help="Name of the application; with --late, all applications by default.",
            autocompletion=applications,
        ),
    ] = None,
    *,
    unpublished: Unpublished = False,
    late: Late = False,
    options: ReplayOptions,
    verify: Annotated[
        int | None,
        typer.Option(
            help="Also replay this number of windows to check determinism, like check-determinism."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a replay would do. Starts no JVM and creates no files.

    Examples:

        rewindow plan flight_delays --from 2013-06-01 --to 2013-07-01

        rewindow plan flight_delays --verify 48

        rewindow plan --late
    """
    config = load_project()
    if late or application is None:
        return _show_late(config, application, asked=late, as_json=as_json)
    if unpublished:
        rest = of_unpublished(config, application, options)
        if rest is None:
            return say_nothing_to_replay(application, as_json=as_json)
        options = rest
    draft = verbs.plan(config, application, **options)
    horizon = undo_horizon(config, draft.plan.application)
    deliveries = _deliveries(config, draft.plan)
    if as_json:
        slow = reasons_for_spark(config, draft.plan)
        print_json(
            {
                **as_dict(draft),
                "undo_horizon_days": horizon.days,
                "publishing_needs_spark": slow,
                "deliveries": deliveries,
            }
        )
    else:
        show(draft)
        for one in deliveries:
            out.print(
                escape(
                    f"{one['output']}: rewindow deliver stores each published window "
                    f"{one['promise']} at target {one['target']}"
                )
            )
        for reason in reasons_for_spark(config, draft.plan):
            out.print(
                "[yellow]warning[/yellow]: "
                f"{escape(f'{reason}, so publishing will use Spark, which is slower')}"
            )
        out.print(escape(str(horizon)))
    draft.check()
    if verify:
        from rewindow.candidates.determinism import verify_sample

        verify_sample(
            config,
            ReplayRequest(application, **options),
            draft,
            windows=verify,
            listener=JobScreen(),
        )


def _deliveries(config: Config, plan: Plan) -> list[dict[str, str]]:
    """Returns the outputs of a plan that the settings deliver, with the guarantee of each
    target.
    """
    names = {f"{plan.application}.{output.name}" for output in plan.outputs}
    found = []
    for delivery in config.deliveries(plan.application):
        if delivery.output in names:
            found.append({**asdict(delivery), "promise": promise_of(config, delivery.target)})
    return found


def _show_late(config: Config, application: str | None, *, asked: bool, as_json: bool) -> None:
    """Shows the replays that `rewindow repair --run` would start, of one application or of all."""
    from rewindow.commands.repair import show_repairs
    from rewindow.repairs.find import find_repairs

    if not asked:
        raise InputError(
            "cannot plan: no application is given",
            hint="Give an application: rewindow plan APPLICATION; or show the repairs that late "
            "tuples require: rewindow plan --late",
        )

    if application is not None:
        load_application(config, application)
    found = find_repairs(config)
    found = found if application is None else found.of(application)
    return print_json(found.to_dict()) if as_json else show_repairs(found)


def say_nothing_to_replay(application: str, *, as_json: bool) -> None:
    """Reports that --unpublished found no windows, which is not a failure."""
    if as_json:
        print_json({"exit_code": 0, "application": application, "replay": None, "windows": 0})
    else:
        out.print(
            escape(
                f"nothing to replay: all sealed windows of the inputs of {application} are "
                "published"
            )
        )


def as_dict(draft: PlanPreview) -> dict[str, Any]:
    """Returns a preview of a plan as plain values for programs."""
    return {
        **draft.plan.model_dump(mode="json"),
        "windows": len(draft.plan.range),
        "loss_windows_max": draft.plan.loss_windows_max,
        "recovery": map_values(vars, draft.recovery),
        "estimated_seconds": draft.seconds,
        "estimate_basis": draft.basis,
        "blockers": draft.blockers,
        "refused": str(draft.refusal) if draft.refusal else None,
    }


_BASIS = {
    True: "the cost of a crash is estimated from the times of this container in an earlier replay",
    False: "the cost of a crash is estimated from an equal share of the time of earlier replays, "
    "because none of them computed this container",
}
"""Origin of the cost of a crash, by whether its container was measured."""


def show(draft: PlanPreview) -> None:
    """Prints a preview of a plan for readers."""
    plan = draft.plan
    begin = format_time(plan.grid.start_us(plan.first))
    end = format_time(plan.grid.end_us(plan.last))
    estimate = (
        f"unknown: {draft.basis}"
        if draft.seconds is None
        else f"about {describe_seconds(round(draft.seconds))} ({draft.basis})"
    )
    out.print(
        f"[bold]{escape(plan.application)}[/bold], "
        f"{quantity(len(plan.range), 'window')} {plan.range}, {begin} to {end}"
    )
    facts: dict[str, object] = {
        "mode": plan.mode_words,
        "a crash loses": f"at most {quantity(plan.loss_windows_max, 'window')} of an output"
        if plan.loss_windows_max
        else "nothing",
        "checkpoints": "after every commit group"
        if all(mode.saves_every_group for mode in plan.modes)
        else f"every {plan.checkpoint_windows} windows, and at the end",
        "start state": _start(draft),
        "code version": plan.code_version,
        "time": estimate,
    }
    if not plan.is_divided and draft.recovery:
        facts["a crash costs"] = _cost(*draft.recovery.values())
    print_facts(facts)
    columns = ("input", "tuples", "MB", "version", "missing")
    inputs = [
        (i.stream, i.tuples, round(i.bytes / 1e6, 2), i.version, _missing(i.missing))
        for i in plan.inputs
    ]
    print_rows("", columns, inputs)
    if plan.is_divided:
        columns = ("container", "mode", "operators", "reads", "a crash costs")
        containers = []
        for one in plan.containers:
            containers.append(_container(draft, one))
        print_rows("", columns, containers)
        for name, cost in draft.recovery.items():
            out.print(escape(f"{name}: {_BASIS[cost.is_measured]}"))
    rows = [(o.name, ", ".join(o.key), o.suite or "none", o.guarantee) for o in plan.outputs]
    print_rows("", ("output", "key", "suite", "guarantee"), rows)
    for one in plan.containers:
        if one.reused or one.why:
            how = f"reused from {one.reused}" if one.reused else f"computed: {one.why}"
            out.print(escape(f"{one.name}: {how}"))
    for output in plan.outputs:
        if output.reason:
            out.print(escape(f"{output.name}: {output.reason}"))
    for output in plan.outputs:
        if output.sorted_by:
            out.print(
                escape(
                    f"{output.name}: each file is sorted by {', '.join(output.sorted_by)}. "
                    f"{SORTING_COSTS}"
                )
            )
    for text in plan.warnings:
        out.print(f"[yellow]warning[/yellow]: {escape(text)}")
    for text in draft.blockers:
        out.print(f"[yellow]blocker[/yellow]: {escape(text)}")


def _container(draft: PlanPreview, one: ContainerPlan) -> tuple[object, ...]:
    mode = one.mode.words
    if len(one.unset) == len(one.operators):
        mode += " (default)"
    cost = draft.recovery.get(one.name)
    return (
        one.name,
        mode,
        ", ".join(one.operators),
        ", ".join(one.after) or "streams",
        _cost(cost) if cost else "unknown",
    )


def _cost(cost: RecoveryTimes) -> str:
    """Returns the cost of a crash as text: the mean and the worst case."""
    mean_time = describe_seconds(round(cost.mean_seconds))
    worst_time = describe_seconds(round(cost.worst_seconds))
    mean = f"{cost.mean_windows:g} windows {cost.what}, {mean_time}"
    worst = f"{cost.worst_windows:,} windows, {worst_time}"
    return f"{mean} on average; at worst {worst}"


def _start(draft: PlanPreview) -> str:
    start = draft.plan.start
    at = "" if start.window is None else draft.plan.grid.describe(start.window)
    words = {
        "none": "none: the application has no state",
        "initial": "the initial state",
        "published": f"the published checkpoint at window {at}",
        "replay": f"the checkpoint of {start.taken_from} at window {at}",
        "warm_up": "",
    }
    if start.source != "warm_up":
        return words[start.source]
    base = "a published checkpoint" if start.taken_from else "the initial state"
    windows = draft.plan.first - (start.warm_up_first or 0)
    return f"a warm-up of {windows:,} windows from {base}, which are computed but not written"


def _missing(missing: list[tuple[int, int]]) -> str:
    return ", ".join(f"[{first}, {last}]" for first, last in missing[:4]) or "none"
