"""`rewindow jars`: downloads Delta's jars into the folder where Spark looks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewindow.settings.config import Config
from rewindow.spark.jars import expected_jars, fetch_jars


def jars(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder to put them in; by default the setting spark.jars."),
    ] = None,
) -> None:
    """Fetch Delta's jars from Maven Central, and compare each with its checksum.

    What is there and whole is not fetched again, so that a second call needs no network. Name a
    mirror by an Ivy settings file: REWINDOW_IVY_SETTINGS=/path/ivysettings.xml.

    Examples:

        rewindow jars

        rewindow jars /opt/rewindow/jars
    """
    target = folder or Config.load().jars
    fetched = fetch_jars(target)
    typer.echo(f"{target}: {len(fetched)} jars fetched, {len(expected_jars())} in place")
