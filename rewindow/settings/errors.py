"""Error texts for invalid settings: the name, the value, and the expected format."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails, PydanticCustomError

from rewindow.names import did_you_mean

_TOPIC = {
    "list_type": "a list",
    "string_type": "a text",
    "dict_type": "a table",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "model_type": "a section",
    "model_attributes_type": "a section",
    "literal_error": "an allowed value",
}
_MAY_BE_SECRET = ("ledger", "spark")
"""Settings, or sections, whose values must not appear in messages."""
_SECRET_WORDS = ("ledger", "://", "secret", "password", "token")


def wrong_setting(error: ErrorDetails, root: type[BaseModel]) -> tuple[str, str]:
    """Returns the primary line and the hint for a setting that pydantic rejects.

    Args:
        error: the first error that it found.
        root: the class of the whole file.
    """
    kind = error["type"]
    place = error["loc"]
    context = error.get("ctx", {})
    where = ".".join(map(str, place))
    if kind == "missing":
        return (
            f'setting "{where}" is missing',
            "Add the setting to rewindow.toml, or create a new project: rewindow init FILE",
        )
    if kind == "extra_forbidden":
        return _unknown(place, root)
    if kind not in _TOPIC:
        words = error["msg"].replace("Input should", f"it is {error['input']}, but must")
        return f'setting "{where}" is wrong: {words}', context.get("hint", "")
    value = None if place[0] in _MAY_BE_SECRET else error["input"]
    shown = "" if value is None else f"{_toml(value)}, "
    if isinstance(place[-1], int):
        entry = (
            f'Put each value in quotes, such as {place[-2]} = ["{value}"].'
            if kind == "string_type"
            else ""
        )
        return (
            f'setting "{".".join(map(str, place[:-1]))}" has {shown}which is not {_TOPIC[kind]}',
            entry,
        )
    return f'setting "{where}" is {shown}not {_TOPIC[kind]}', _form(kind, where, value, context)


def _form(kind: str, where: str, value: Any, context: Mapping[str, Any]) -> str:
    """Returns how to write a setting.

    If the given value could be what the user meant, it is used.
    """
    name = where.rpartition(".")[2]
    if kind == "list_type":
        given = [part.strip() for part in value.split(",")] if isinstance(value, str) else ["..."]
        return f"Write it like this: {name} = {_toml(given)}"
    if kind == "string_type":
        given = value[0] if isinstance(value, list) and value else value
        text = (
            str(given)
            if isinstance(given, str | int | float) and not isinstance(given, bool)
            else "..."
        )
        return f"Put the value in quotes: {name} = {_toml(text)}"
    if kind.startswith("bool"):
        return f"Write {name} = true or {name} = false, without quotes."
    if kind.startswith(("int", "float")):
        return (
            f"Write it without quotes, as in {name} = {'0.5' if kind.startswith('float') else '3'}."
        )
    if kind == "dict_type" and name != "streams":
        return f'Write it as in {name} = {{ NAME = "VALUE" }}.'
    if kind == "literal_error":
        allowed = (
            list(map(str, context.get("allowed", ()))) or str(context["expected"]).split("'")[1::2]
        )
        return f"{did_you_mean(str(value), allowed)}Allowed: {', '.join(map(_toml, allowed))}."
    section = "streams.NAME" if where == "streams" else where
    return f"Use a separate section [{section}], with its settings below it."


def _unknown(place: Sequence[int | str], root: type[BaseModel]) -> tuple[str, str]:
    """Returns the primary line and the hint for an unknown key in a section."""
    section = root
    for part in place[:-1]:
        field = next(
            (f for name, f in section.model_fields.items() if part in (name, f.alias)), None
        )
        if field is not None:  # Otherwise it is a stream's name.
            kinds = get_args(field.annotation) or (field.annotation,)
            section = next(
                kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)
            )
    known = [field.alias or name for name, field in section.model_fields.items()]
    within = f"[{'.'.join(map(str, place[:-1]))}]" if len(place) > 1 else "rewindow.toml"
    hint = f"{did_you_mean(str(place[-1]), known)}Known in {within}: {', '.join(known)}."
    return f'setting "{".".join(map(str, place))}" is unknown', hint


def check_keys(given: Sequence[str | Sequence[str]], keys: Sequence[str]) -> None:
    """Checks that each expected key has a value for each key column."""
    for key in given:
        if len([key] if isinstance(key, str) else key) != len(keys):
            form = "[" + ", ".join(f'"{name.upper()}"' for name in keys) + "]"
            hint = (
                f"Add one value for each of keys, such as expected_keys = [{form}]."
                if keys
                else "Set keys as well."
            )
            text = "it has {key}, which is not a value for each of keys = {keys}"
            raise PydanticCustomError(
                "key",
                text,
                {"key": _toml(key), "keys": _toml(keys), "hint": hint},
            )


def syntax_error(text: str, error: tomllib.TOMLDecodeError) -> tuple[str, str]:
    r"""Returns a description of the syntax error in invalid TOML, and the line with the error.

    >>> import tomllib
    >>> text = 'a = 1\nb = two\n'
    >>> try: tomllib.loads(text)
    ... except tomllib.TOMLDecodeError as error: print(syntax_error(text, error))
    ('invalid value, at line 2, column 5', 'Line 2 is: b = two')
    """
    words, _, place = str(error).rpartition(" (at ")
    words = words[:1].lower() + words[1:]
    if not place.startswith("line "):
        return f"{words}, at its end", "A closing bracket or quote may be missing."
    number = int(place.removeprefix("line ").split(",")[0])
    lines = text.splitlines()
    line = lines[number - 1].strip() if number <= len(lines) else ""
    is_shown = line and not any(word in line.lower() for word in _SECRET_WORDS)
    return f"{words}, at {place.rstrip(')')}", f"Line {number} is: {line}" if is_shown else ""


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
