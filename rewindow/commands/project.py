"""The project that a verb works in: the settings of the folder, or of one above it."""

from __future__ import annotations

from pathlib import Path

from rewindow.errors import InputError
from rewindow.settings.config import Config
from rewindow.settings.file import SETTINGS_FILE


def load_project() -> Config:
    """Returns the settings of the project that the working directory lies in; makes nothing.

    Raises:
        InputError: there is no settings file, so that a state folder would be made where nobody
            looks for it; or it is wrong.
    """
    config = Config.load()
    if config.file is None:
        here = Path.cwd()
        searched = ", ".join(map(str, (here, *here.parents)))
        raise InputError(
            f"no {SETTINGS_FILE} was found",
            detail=f"Searched: {searched}. Nothing was made.",
            hint="Go to your project's folder, name its file in REWINDOW_CONFIG, or begin one "
            "here: rewindow init FILE",
        )
    return config
