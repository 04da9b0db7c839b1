"""`rewindow up`: starts Airflow on this machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import out


def up(
    port: Annotated[
        int | None, typer.Option(help="Port of the web page on 127.0.0.1.", min=1, max=65535)
    ] = None,
) -> None:
    """Start Airflow on 127.0.0.1: four processes, which a supervisor restarts if they end.
    `rewindow down` stops them.

    Examples:

        rewindow up

        rewindow up --port 18090
    """
    from rewindow.embedded import up as start

    running = start(load_project(), port=port)
    out.print(
        escape(
            f"Airflow is running at {running.address}; the user is admin, and the password is "
            f"in {running.password_file}"
        )
    )
