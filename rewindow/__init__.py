"""Rewindow replays recorded streams from Delta tables by window id and verifies the output.

The verbs of the command line are functions of this module, with the settings as their first
argument:

    import rewindow

    project = rewindow.Project("rewindow.toml")
    project.plan("spending").check()

Each function is imported on first use: importing the package loads neither pyspark nor Airflow nor
deltalake.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rewindow.version import VERSION

if TYPE_CHECKING:
    from rewindow.progress.listener import Lines, Listener
    from rewindow.project import Project
    from rewindow.settings.config import Config

_MODULE_OF = {
    "Config": "settings.config",
    "Lines": "progress.listener",
    "Listener": "progress.listener",
    "Project": "project",
}
"""Exported name to its module and the name within it. A verb that needs a Spark job is in
`launcher.verbs`, any other in the room that does its work."""

__version__ = VERSION
__all__ = ["Config", "Lines", "Listener", "Project"]


def __getattr__(name: str) -> Any:
    """Imports an exported name on first use."""
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f'module "{__name__}" has no "{name}"')


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
