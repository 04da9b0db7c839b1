"""`rewindow drill`: kills jobs on purpose, and shows the cost of each kill."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.candidates.drills import DRILL_KILLS, DRILL_WINDOWS
from rewindow.candidates.drills import drill as run_drill
from rewindow.commands.plan import App
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import OF_SAMPLE, with_replay_options
from rewindow.commands.screen import AsJson, JobScreen, out, print_json, print_rows
from rewindow.errors import RewindowError
from rewindow.planning.request import ReplayOptions


@with_replay_options(*OF_SAMPLE, "state_from")
def drill(
    application: App,
    options: ReplayOptions,
    modes: Annotated[
        list[str] | None,
        typer.Option(help="Recovery mode of operators without a mode; repeatable."),
    ] = None,
    windows: Annotated[
        int,
        typer.Option(
            help="Number of windows to replay: the last ones of the range or, if the application "
            "has a state, those after a published state."
        ),
    ] = DRILL_WINDOWS,
    kills: Annotated[int, typer.Option(help="Number of kills in each mode.")] = DRILL_KILLS,
    every_step: Annotated[
        bool,
        typer.Option(
            "--every-step",
            help="Instead of random kills, kill once at every step of every container.",
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed for the random steps and groups; random by default.", min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kill jobs of candidate replays on purpose, and show what each crash costs.

    Each kill is a SIGKILL of the driver's process group, at a random step of the commit protocol.
    The candidate is resumed and compared with one that was not disturbed. Candidates cannot be
    published. They are deleted, unless a kill cost more than its recovery mode allows. Needs
    [replay] drills = true.

    Examples:

        rewindow drill flight_delays

        rewindow drill flight_delays --modes exactly_once --modes at_most_once --kills 3 --seed 7

        rewindow drill flight_delays --windows 120 --every-step
    """
    report = run_drill(
        load_project(),
        application,
        modes=modes or (),
        windows=windows,
        kills=kills,
        every_step=every_step,
        seed=seed,
        listener=JobScreen(),
        **options,
    )
    if as_json:
        print_json(report.to_json())
    else:
        out.print(
            f"[bold]{escape(report.application)}[/bold]: windows {report.first} to {report.last}, "
            f"seed {report.seed}"
        )
        rows = []
        for kill in report.kills:
            where = f"{kill.container}/{kill.step}" if kill.container else kill.step
            seconds = "" if kill.seconds is None else f"{kill.seconds:.1f} s"
            verdict = "kept" if kill.kept else "BROKEN"
            rows.append((kill.mode, where, kill.group, verdict, kill.promised, kill.seen, seconds))
        columns = ("mode", "killed at", "group", "promise", "allowed", "seen", "to next commit")
        print_rows("", columns, rows)
    broken = [kill.replay for kill in report.kills if not kill.kept]
    if broken:
        raise RewindowError(
            f"{len(broken)} of {len(report.kills)} kills cost more than the recovery mode allows",
            detail=f"The candidates of these kills are kept: {', '.join(broken)}.",
            hint=f"Inspect one: rewindow status {broken[0]}. If windows differ, check whether the "
            f"application is deterministic: rewindow check-determinism {report.application}",
        )
