"""`rewindow check-determinism`: computes a sample of windows in several ways that must not change
the results.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.candidates.determinism import SAMPLE_WINDOWS
from rewindow.candidates.determinism import check_determinism as check
from rewindow.commands.plan import App
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import OF_SAMPLE, with_replay_options
from rewindow.commands.screen import AsJson, JobScreen, out, print_json
from rewindow.planning.request import ReplayOptions


@with_replay_options(*OF_SAMPLE, "mode")
def check_determinism(
    application: App,
    options: ReplayOptions,
    windows: Annotated[
        int, typer.Option(help="Number of windows, counted from the first of the range.", min=2)
    ] = (SAMPLE_WINDOWS),
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for the group borders and the order of rows; random by default.", min=1
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a sample with different group borders and a different order of rows, and compare every
    port of every window.

    If results differ, the command reports the first operator and port that differ, and what they
    depend on. The staged tables are deleted afterwards.

    Examples:

        rewindow check-determinism flight_delays

        rewindow check-determinism flight_delays --from 2013-06-01 --windows 200 --seed 7
    """
    found = check(
        load_project(),
        application,
        sample_windows=windows,
        seed=seed,
        listener=JobScreen(),
        **options,
    )
    if as_json:
        print_json(found.to_json())
        return
    begin, end = found.windows
    out.print(
        f"[bold]{escape(found.application)}[/bold]: {end - begin + 1:,} windows from window "
        f"{begin}, seed {found.seed}"
    )
    for words, verdict in found.ways:
        out.print(escape(f"  {verdict} {words}"))
