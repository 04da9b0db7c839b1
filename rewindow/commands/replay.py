"""`rewindow replay`: plans a range and runs it to its end, attempt after attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.backfill.steps import plan_steps, run_steps
from rewindow.commands.completion import applications, replays
from rewindow.commands.plan import Unpublished, say_nothing_to_replay
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import of_unpublished, with_replay_options
from rewindow.commands.screen import AsJson, JobScreen, out, print_json
from rewindow.errors import InputError
from rewindow.inspection.next_steps import next_step
from rewindow.launcher import verbs
from rewindow.launcher.verbs import ReplayResult
from rewindow.ledger.replays import ReplayState
from rewindow.planning import ReplayRequest
from rewindow.planning.request import ReplayOptions
from rewindow.sequences import quantity

WITH_RESUME = frozenset({"resume", "again", "as_json", "crash"})
"""Parameters of the attempt. All others belong to the plan, which a resumed replay already has."""
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="Start another attempt even if the maximum number of attempts is reached."
    ),
]


@with_replay_options()
def replay(
    context: typer.Context,
    application: Annotated[
        str | None, typer.Argument(help="Name of the application.", autocompletion=applications)
    ] = None,
    *,
    unpublished: Unpublished = False,
    resume: Annotated[
        str | None, typer.Option(help="Id of a replay to resume.", autocompletion=replays)
    ] = None,
    again: Again = False,
    step: Annotated[
        str | None,
        typer.Option(
            help="Divide the range into steps of this duration, such as 36h, 1d or 1w, with a "
            "replay for each; a repeated command continues with the next step."
        ),
    ] = None,
    newest_first: Annotated[
        bool,
        typer.Option(
            "--newest-first",
            help="With --step: start with the newest step, in an application without state.",
        ),
    ] = False,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish", help="With --step: check and publish each step before the next one."
        ),
    ] = False,
    options: ReplayOptions,
    crash: Annotated[
        str | None, typer.Option(help="Drill: kill the job at STEP:GROUP@ATTEMPT.", hidden=True)
    ] = None,
    run: Annotated[
        str, typer.Option(help="With --step: run of Airflow, as DAG/RUN.", hidden=True)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Replay a range of windows into staged tables. Readers do not see the output before `rewindow
    publish`.

    After a crash, the next attempt starts automatically and resumes the replay. Ctrl-C stops it at
    the end of a commit group.

    Examples:

        rewindow replay flight_delays --from 2013-06-01 --to 2013-07-01

        rewindow replay flight_delays --first 377000 --last 377099 --mode at_most_once

        rewindow replay flight_delays --unpublished

        rewindow replay flight_delays --from 2013-01-01 --to 2014-01-01 --step 1w --publish

        rewindow replay --resume flight_delays-377000-377099-1f2e3d
    """
    config = load_project()
    if resume is not None:
        _reject_options(context, resume)
        result = verbs.resume(config, resume, again=again, listener=JobScreen(), crash=crash)
    elif application:
        if unpublished:
            rest = of_unpublished(config, application, options)
            if rest is None:
                return say_nothing_to_replay(application, as_json=as_json)
            options = rest
        if step is not None:
            dag, _, run_id = run.partition("/")
            request = ReplayRequest(application, **options | {"dag": dag}, run=run_id)
            steps = plan_steps(config, request, step, newest_first=newest_first, publish=publish)
            results = run_steps(config, steps, publish=publish, listener=JobScreen())
            return _show_steps(results, as_json=as_json)
        if newest_first or publish:
            raise InputError("--newest-first and --publish can only be used with --step")
        result = verbs.replay(config, application, listener=JobScreen(), crash=crash, **options)
    else:
        raise InputError(
            "cannot replay: neither an application nor --resume is given",
            hint="Start a replay: rewindow replay APPLICATION; or resume one: rewindow replay "
            "--resume REPLAY",
        )
    if as_json:
        return print_json({"exit_code": 0, **result.to_json()})
    state = "staged" if result.state is ReplayState.ENDED else result.state.value
    return out.print(
        escape(f"replay {result.replay_id} is {state}. {next_step(result.replay_id, result.state)}")
    )


def _show_steps(results: Sequence[ReplayResult], *, as_json: bool) -> None:
    if as_json:
        steps = [result.to_json() for result in results]
        return print_json({"exit_code": 0, "steps": steps})
    last = results[-1]
    return out.print(
        escape(
            f"{quantity(len(results), 'step')}, the last one is {last.replay_id} "
            f"({last.state.value})"
        )
    )


def _reject_options(context: typer.Context, replay_id: str) -> None:
    """Rejects options that a resumed replay would ignore, even if a value equals its default."""
    given = [
        parameter
        for parameter in context.command.params
        if parameter.name not in WITH_RESUME and _is_given(context, parameter.name or "")
    ]
    if given:
        names = ", ".join(
            max(one.opts, key=len) if one.opts[0].startswith("-") else one.opts[0].upper()
            for one in given
        )
        raise InputError(
            f'replay "{replay_id}" resumes with its plan, so {names} cannot be combined with '
            "--resume",
            detail="Nothing was started.",
            hint=f"Leave out {names}: rewindow replay --resume {replay_id}; or start another "
            "replay, without --resume.",
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
