"""Combines all invalid settings of an operator or a function into one error, with the name and the
allowed values of each setting.
"""

from __future__ import annotations

import re
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rewindow.errors import InputError
from rewindow.names import did_you_mean

_MEANT = {"max_age": "max_carry", "delay": "lag"}
"""Names that users may know from other operators, mapped to the setting here. Spelling alone
does not suggest it.
"""
_SHOWN_MAX = 60


class HintedValueError(ValueError):
    """A validation error with a hint for callers of the function. Users who write rewindow.toml
    do not see the hint.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def refusal(of: str, error: ValidationError, model: type[BaseModel]) -> InputError:
    """Returns one error that names every invalid setting.

    Args:
        of: name of the object that has the settings.
        error: the error of pydantic.
        model: class of the settings; the message lists its allowed values.
    """
    sentences: dict[str, None] = {}
    places = []
    hints = []
    for item in error.errors():
        # Several settings may break the same rule, so its sentence is listed once.
        sentences[_sentence(item, model)] = None
        if item["loc"]:
            places.append(_place(item))
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, HintedValueError):
            hints.append(cause.hint)
    return InputError(
        "; ".join(sentences),
        detail=f"Wrong settings of {of}: {', '.join(places)}." if places else "",
        hint=" ".join(hints),
    )


def _sentence(item: ErrorDetails, model: type[BaseModel]) -> str:
    """Returns a description of an invalid setting and its allowed values.

    The message of a custom validator already contains both.
    """
    place = _place(item)
    kind = item["type"]
    given = _shown(item["input"])
    if kind == "value_error":
        words = item["msg"].removeprefix("Value error, ")
        return f"{place}: {words}" if len(item["loc"]) > 1 else words
    if kind == "missing":
        return f"{place} is missing"
    if kind == "extra_forbidden":
        known = _names(_section(item["loc"][:-1], model))
        name = str(item["loc"][-1])
        meant = did_you_mean(_MEANT.get(name, name), known)
        return f"setting {place} is unknown. {meant}Available settings: {', '.join(known)}"
    if kind == "literal_error":
        allowed = item["ctx"]["expected"].split("'")[1::2]
        meant = did_you_mean(str(item["input"]), allowed).rstrip()
        wrong = f"{place} must be one of {', '.join(allowed)}, not {given}"
        return f"{wrong}. {meant}" if meant else wrong
    if kind == "model_type":
        known = _names(_section(item["loc"], model))
        return f"{place} must be a table with the settings {', '.join(known)}, not {given}"
    words, is_usual = re.subn("^[A-Z][a-z]+ should ", "must ", item["msg"])
    if not is_usual:
        return f"{place} is invalid: {words}"
    # Pydantic may add why it cannot parse the value, or how many items it has.
    return f"{place} {words.partition(', ')[0]}, not {given}"


def _place(item: ErrorDetails) -> str:
    return ".".join(map(str, item["loc"]))


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _section(place: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """Returns the settings class at a location.

    A part of the location that is not the name of a setting is a key, such as a column.
    """
    for part in place:
        if (field := model.model_fields.get(str(part))) is not None:
            for kind in reversed(get_args(field.annotation) or (field.annotation,)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    model = kind
    return model


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def in_one_line(error: InputError) -> str:
    """Combines an error and its hint into one message, for use in another error."""
    return f"{error.primary}. {error.hint.rstrip('.')}" if error.hint else error.primary
