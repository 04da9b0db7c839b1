"""`rewindow demo`: shows all of Rewindow on a year of real flights, in about ten minutes."""

from __future__ import annotations

from typing import Annotated

import typer

from rewindow.commands.project import load_project


def demo(
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for the steps at which jobs are killed; by default a random one, which is "
            "printed.",
            min=1,
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Delete the results of earlier demos, and record the streams again."
        ),
    ] = False,
    last: Annotated[
        int | None, typer.Option(help="Last window, for a shorter demo.", hidden=True)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of Airflow's web page on 127.0.0.1.", min=1, max=65535)
    ] = None,
) -> None:
    """Show all features on a year of real flights: the demo records them, replays them with Airflow
    and Spark, kills and recovers jobs, checks the output with Great Expectations, publishes it,
    undoes the publication, and verifies the guarantees.

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
