"""Rewindow replays recorded streams from Delta tables by window id and proves what came out.

The verbs of the command line are functions here, with the settings as their first argument:

    import rewindow

    config = rewindow.Config.load("rewindow.toml")
    draft = rewindow.plan(config, "spending")

Each is loaded when it is asked for: importing the package loads neither pyspark nor Airflow nor
deltalake.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rewindow.version import VERSION

if TYPE_CHECKING:
    from rewindow.candidates.comparison import compare
    from rewindow.candidates.determinism import check_determinism
    from rewindow.candidates.drills import drill
    from rewindow.certificate import certify
    from rewindow.inspection.error_tuples import list_errors
    from rewindow.inspection.gaps import gaps
    from rewindow.inspection.operator_states import operator_states
    from rewindow.inspection.replay_status import list_replays
    from rewindow.inspection.replay_status import replay_status as status
    from rewindow.inspection.window_life import window_life as why
    from rewindow.launcher.verbs import (
        abandon,
        plan,
        publish,
        record,
        replay,
        resume,
        undo,
        withdraw,
    )
    from rewindow.planning.changing import set_property
    from rewindow.planning.unpublished import unpublished
    from rewindow.planning.validation import validate
    from rewindow.playback import play
    from rewindow.progress.listener import Lines, Listener
    from rewindow.publication.read import read_published
    from rewindow.quality import check
    from rewindow.recording.inventory import list_streams as streams
    from rewindow.repairs.find import find_repairs
    from rewindow.repairs.run import repair
    from rewindow.retention.purge import purge
    from rewindow.settings.config import Config

_MODULE_OF = {
    "Config": "settings.config:Config",
    "Lines": "progress.listener:Lines",
    "Listener": "progress.listener:Listener",
    "abandon": "launcher.verbs:abandon",
    "certify": "certificate:certify",
    "check": "quality:check",
    "check_determinism": "candidates.determinism:check_determinism",
    "compare": "candidates.comparison:compare",
    "drill": "candidates.drills:drill",
    "find_repairs": "repairs.find:find_repairs",
    "gaps": "inspection.gaps:gaps",
    "list_errors": "inspection.error_tuples:list_errors",
    "list_replays": "inspection.replay_status:list_replays",
    "operator_states": "inspection.operator_states:operator_states",
    "plan": "launcher.verbs:plan",
    "play": "playback:play",
    "publish": "launcher.verbs:publish",
    "purge": "retention.purge:purge",
    "read_published": "publication.read:read_published",
    "record": "launcher.verbs:record",
    "repair": "repairs.run:repair",
    "replay": "launcher.verbs:replay",
    "resume": "launcher.verbs:resume",
    "set_property": "planning.changing:set_property",
    "status": "inspection.replay_status:replay_status",
    "streams": "recording.inventory:list_streams",
    "undo": "launcher.verbs:undo",
    "unpublished": "planning.unpublished:unpublished",
    "validate": "planning.validation:validate",
    "why": "inspection.window_life:window_life",
    "withdraw": "launcher.verbs:withdraw",
}
"""Name to module and function: each lives in the room that does its work, those that need a job in
the launcher's."""

__version__ = VERSION
__all__ = [
    "Config",
    "Lines",
    "Listener",
    "abandon",
    "certify",
    "check",
    "check_determinism",
    "compare",
    "drill",
    "find_repairs",
    "gaps",
    "list_errors",
    "list_replays",
    "operator_states",
    "plan",
    "play",
    "publish",
    "purge",
    "read_published",
    "record",
    "repair",
    "replay",
    "resume",
    "set_property",
    "status",
    "streams",
    "undo",
    "unpublished",
    "validate",
    "why",
    "withdraw",
]


def __getattr__(name: str) -> Any:
    """Returns a verb, or what it needs."""
    if name in _MODULE_OF:
        module, _, attribute = _MODULE_OF[name].partition(":")
        return getattr(import_module(f"{__name__}.{module}"), attribute)
    raise AttributeError(f'module "{__name__}" has no "{name}"')


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
