"""Options of a replay on the command line, from their declarations in `ReplayRequest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from rewindow.commands.completion import modes, replays
from rewindow.errors import RangeError
from rewindow.planning import ReplayRequest
from rewindow.planning.request import HELP, METAVAR, OPTIONS, SHOWN_DEFAULT, WORDS, ReplayOptions
from rewindow.planning.unpublished import unpublished
from rewindow.settings.config import Config

_COMPLETIONS = {"mode": modes} | dict.fromkeys(("state_from", "changes_from", "reuse"), replays)
_RANGE = ("from_time", "to_time", "first", "last")
OF_SAMPLE = (*_RANGE, "initial_state", "parameters", "properties")
"""Options of a replay whose results are compared and deleted."""


def with_replay_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that gives a command the options of a replay.

    The command has the parameter `options`, a `ReplayOptions`. On the command line, the options
    replace it at its position.

    Args:
        names: fields of `ReplayRequest`, in order; by default all that have a help text.
    """
    names = names or tuple(OPTIONS)
    hints = get_type_hints(ReplayRequest)

    def parameter(name: str) -> Parameter:
        field = OPTIONS[name]
        is_mapping = field.default is MISSING
        info = typer.Option(
            *field.metadata[WORDS],
            help=field.metadata[HELP],
            metavar=field.metadata[METAVAR],
            show_default=field.metadata[SHOWN_DEFAULT] or True,
            autocompletion=_COMPLETIONS.get(name),
        )
        kind = list[str] | None if is_mapping else hints[name]
        default = None if is_mapping else field.default
        return Parameter(
            name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
        )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            options: dict[str, Any] = {}
            for name in names:
                value = given.pop(name)
                options[name] = pairs(value) if OPTIONS[name].default is MISSING else value
            command(options=options, **given)

        parameters: list[Parameter] = []
        for own in signature(command, eval_str=True).parameters.values():
            if own.name == "options":
                parameters += map(parameter, names)
            else:
                parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY))
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def pairs(given: list[str] | None) -> dict[str, str]:
    """Returns name=value options as a mapping."""
    found = {}
    for text in given or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f'"{name}" is not in the form name=value')
        found[name] = value
    return found


def of_unpublished(
    config: Config, application: str, options: ReplayOptions
) -> ReplayOptions | None:
    """Returns the options of a replay of all windows that are sealed and not published yet; None
    if there are none.

    Raises:
        RangeError: the options already have a range.
    """
    if any(options.get(name) is not None for name in _RANGE):
        raise RangeError("--unpublished cannot be combined with --from, --to, --first or --last")
    windows = unpublished(config, application, options["parameters"])
    if windows is None:
        return None
    return {**options, "first": windows.first, "last": windows.last}
