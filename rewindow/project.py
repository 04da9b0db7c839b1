"""A project with the verbs of the command line as methods.

project = rewindow.Project("rewindow.toml")
replay = project.replay("spending", mode="at_least_once")
if project.check(replay.replay_id).verdict == "passed":
    project.publish(replay.replay_id)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from rewindow.settings.config import Config

if TYPE_CHECKING:
    from rewindow.candidates.comparison import compare
    from rewindow.candidates.determinism import check_determinism
    from rewindow.candidates.drills import drill
    from rewindow.certificate import certify
    from rewindow.delivery.targets import deliver_to
    from rewindow.inspection.error_tuples import list_errors
    from rewindow.inspection.gaps import gaps
    from rewindow.inspection.operator_states import operator_states
    from rewindow.inspection.replay_status import list_replays, replay_status
    from rewindow.inspection.window_life import window_life
    from rewindow.launcher import verbs
    from rewindow.planning.changing import limit_cores, set_property
    from rewindow.planning.unpublished import unpublished
    from rewindow.planning.validation import validate
    from rewindow.playback import play
    from rewindow.publication.read import read_published
    from rewindow.quality import check
    from rewindow.recording.inventory import list_streams
    from rewindow.repairs.find import find_repairs
    from rewindow.repairs.run import repair
    from rewindow.retention.purge import purge

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Verb = Callable[Concatenate[Config, Arguments], Result]


class VerbMethod(Generic[Arguments, Result]):
    """A function whose first argument is the settings, as a method of a project.

    Its module is imported when it is called. Importing a project loads neither pyspark nor Airflow.

    Args:
        verb: MODULE:FUNCTION, without the package; the function itself for type checkers only.
    """

    def __init__(self, verb: Verb[Arguments, Result] | str) -> None:
        self._place = str(verb)

    @overload
    def __get__(self, project: None, owner: type) -> Verb[Arguments, Result]: ...

    @overload
    def __get__(self, project: Project, owner: type) -> Callable[Arguments, Result]: ...

    def __get__(self, project: Project | None, owner: type) -> Any:
        """Returns the function. When accessed on a project, the first argument is already bound."""
        # A bound function rather than a method of this class, so that its signature and docstring
        # exist once.
        module, _, name = self._place.partition(":")
        verb = getattr(import_module(f"rewindow.{module}"), name)
        return verb if project is None else partial(verb, project.config)


class Project:
    """A project: the settings, and the verbs of the command line as methods.

    Methods raise errors and print nothing. They log messages, and those with an argument `listener`
    report progress and results to it, such as `Lines(print)`.

    Args:
        settings: the settings, the path of their file, or None to search for the file in the
            working directory and its parents, as the command line does.

    Raises:
        InputError: the file does not exist, or a setting is wrong.
    """

    if TYPE_CHECKING:
        # The same methods as in VERBS, with the types of their functions.
        abandon = VerbMethod(verbs.abandon)
        certify = VerbMethod(certify)
        check = VerbMethod(check)
        check_determinism = VerbMethod(check_determinism)
        compare = VerbMethod(compare)
        deliver = VerbMethod(deliver_to)
        drill = VerbMethod(drill)
        find_repairs = VerbMethod(find_repairs)
        gaps = VerbMethod(gaps)
        list_errors = VerbMethod(list_errors)
        list_replays = VerbMethod(list_replays)
        operator_states = VerbMethod(operator_states)
        plan = VerbMethod(verbs.plan)
        play = VerbMethod(play)
        publish = VerbMethod(verbs.publish)
        purge = VerbMethod(purge)
        read_published = VerbMethod(read_published)
        record = VerbMethod(verbs.record)
        repair = VerbMethod(repair)
        replay = VerbMethod(verbs.replay)
        resume = VerbMethod(verbs.resume)
        set_property = VerbMethod(set_property)
        limit_cores = VerbMethod(limit_cores)
        status = VerbMethod(replay_status)
        streams = VerbMethod(list_streams)
        undo = VerbMethod(verbs.undo)
        unpublished = VerbMethod(unpublished)
        validate = VerbMethod(validate)
        why = VerbMethod(window_life)
        withdraw = VerbMethod(verbs.withdraw)

    def __init__(self, settings: Config | PathLike[str] | str | None = None) -> None:
        if not isinstance(settings, Config):
            settings = Config.load(None if settings is None else str(settings))
        self.config = settings


VERBS = {
    "abandon": "launcher.verbs:abandon",
    "certify": "certificate:certify",
    "check": "quality:check",
    "check_determinism": "candidates.determinism:check_determinism",
    "compare": "candidates.comparison:compare",
    "deliver": "delivery.targets:deliver_to",
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
    "limit_cores": "planning.changing:limit_cores",
    "status": "inspection.replay_status:replay_status",
    "streams": "recording.inventory:list_streams",
    "undo": "launcher.verbs:undo",
    "unpublished": "planning.unpublished:unpublished",
    "validate": "planning.validation:validate",
    "why": "inspection.window_life:window_life",
    "withdraw": "launcher.verbs:withdraw",
}
"""Method to the module and function that do its work; those that need a job are the launcher's."""
for _name, _place in VERBS.items():
    setattr(Project, _name, VerbMethod(_place))
