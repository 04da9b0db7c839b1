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
        typer.Argument(help="Folder for the jars; by default the setting spark.jars."),
    ] = None,
) -> None:
    """Download Delta's jars from Maven Central, and verify their checksums.

    Existing jars with the right checksum are not downloaded again, so a second call needs no
    network. To use a mirror, set REWINDOW_IVY_SETTINGS to an Ivy settings file, such as
    REWINDOW_IVY_SETTINGS=/path/ivysettings.xml.

    Examples:

        rewindow jars

        rewindow jars /opt/rewindow/jars
    """
    target = folder or Config.load().jars
    fetched = fetch_jars(target)
    typer.echo(f"{target}: {len(fetched)} jars downloaded, {len(expected_jars())} in place")
