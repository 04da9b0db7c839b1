"""`rewindow down`: stops Airflow on this machine."""

from __future__ import annotations

from rewindow.commands.project import load_project
from rewindow.commands.screen import out


def down() -> None:
    """Stop Airflow and everything that its supervisor started. A running replay can be resumed
    afterwards.

    Examples:

        rewindow down
    """
    from rewindow.embedded import down as stop

    was_running = stop(load_project())
    out.print("Airflow is stopped" if was_running else "Airflow was not running")
