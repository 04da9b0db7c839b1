"""Loads the project of a verb: the settings in the working directory, or in a folder above it."""

from __future__ import annotations

from pathlib import Path

from rewindow.errors import InputError
from rewindow.settings.config import Config
from rewindow.settings.file import SETTINGS_FILE


def load_project() -> Config:
    """Returns the settings of the project that contains the working directory. Creates nothing.

    Raises:
        InputError: no settings file was found, so a state folder would be created in an unexpected
        place; or the file has errors.
    """
    config = Config.load()
    if config.file is None:
        here = Path.cwd()
        searched = ", ".join(map(str, (here, *here.parents)))
        raise InputError(
            f"file {SETTINGS_FILE} not found",
            detail=f"Searched: {searched}. Nothing was created.",
            hint="Change to your project's folder, set REWINDOW_CONFIG to the path of its "
            "settings file, or create a project here: rewindow init FILE",
        )
    return config
