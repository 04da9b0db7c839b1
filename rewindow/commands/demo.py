"""`rewindow demo`: shows all of Rewindow on a year of real flights, in about ten minutes."""

from __future__ import annotations

from typing import Annotated

import typer

from rewindow.commands.project import load_project


def demo(
    seed: Annotated[
        int | None,
        typer.Option(
            help="Draws where the jobs are killed; made up, and printed, by default.",
            min=1,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete what earlier demos left, and record anew.")
    ] = False,
    last: Annotated[
        int | None, typer.Option(help="Last window, for a shorter demo.", hidden=True)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of Airflow's web page, on loopback.", min=1, max=65535)
    ] = None,
) -> None:
    """Show all of it on a year of real flights: recorded, replayed by Airflow and Spark, killed,
    recovered, judged by Great Expectations, published, undone and proven.

    Examples:

        rewindow demo

        rewindow demo --seed 7 --fresh
    """
    from rewindow.demo.console import DemoConsole
    from rewindow.demo.show import APPLICATION, STREAMS, show
    from rewindow.demo.start import begin_afresh
    from rewindow.progress.messages import messages_shown

    config = load_project()
    with DemoConsole() as telling, messages_shown(telling.say):
        if fresh:
            begin_afresh(config, STREAMS, APPLICATION)
        show(config, telling, seed, port, last)
