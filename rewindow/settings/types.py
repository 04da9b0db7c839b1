"""Types of settings: durations, folders, locations, and their validation."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from rewindow.errors import InputError
from rewindow.location import Location, location
from rewindow.windows import format_duration, parse_duration


def _duration(text: str | int | float) -> int:
    try:
        return parse_duration(text)
    except InputError as error:
        raise PydanticCustomError(
            "duration",
            "{text}",
            {"text": error.primary, "hint": error.hint},
        ) from error


def _as_text(duration_us: int) -> str:
    return format_duration(duration_us) if duration_us else "0"


def above_zero(interval_us: int) -> int:
    """Checks that an interval is greater than zero and returns it."""
    if interval_us <= 0:
        text = "it is {us}; the Tuple Output Interval must be a numeric value greater than zero"
        raise PydanticCustomError("interval", text, {"us": _as_text(interval_us)})
    return interval_us


def zero_or_more(slack_us: int) -> int:
    """Checks that a duration is not negative and returns it."""
    if slack_us < 0:
        raise PydanticCustomError(
            "slack",
            "it is {us}; it must be zero or more",
            {"us": _as_text(slack_us)},
        )
    return slack_us


def known_encoding(name: str) -> str:
    """Returns the Python name of an encoding."""
    try:
        known = codecs.lookup(name)
    except LookupError as error:
        text = 'encoding "{name}" is unknown: use a name such as "utf-8" or "latin-1"'
        raise PydanticCustomError("encoding", text, {"name": name}) from error
    return known.name


DurationUs = Annotated[int, BeforeValidator(_duration)]
"""A duration in microseconds, parsed from text such as "1 hour"; bare numbers are seconds."""


def _location(given: object) -> Location:
    if not isinstance(given, str | Path | Location):
        raise PydanticCustomError(
            "folder",
            "it must be a text",
            {"hint": 'Write it in quotes, as in state = "state".'},
        )
    try:
        return location(given)
    except InputError as error:
        raise PydanticCustomError(
            "folder",
            "{text}",
            {"text": error.primary, "hint": error.hint},
        ) from error


def _folder(given: str | Path) -> str | Path:
    _location(given)
    return given


Folder = Annotated[Path, BeforeValidator(_folder)]
"""A folder of the project. A URL is rejected, because it would be treated as the name of a
folder.
"""

LocationSetting = Annotated[Location, PlainValidator(_location)]
"""Location of the state folder."""


class Section(BaseModel):
    """A section of the file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
