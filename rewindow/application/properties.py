"""Invalid properties as pydantic reports them, and a constraint that pydantic lacks
(docs/rules/operators.md O53).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pydantic import AfterValidator, ValidationError

from rewindow.errors import InputError
from rewindow.names import did_you_mean


class WrongProperty(NamedTuple):
    """A property that violates a constraint: its path, such as `inner.code`, the constraint's
    message, and the value.
    """

    path: str
    message: str
    value: object


def wrong_properties(
    error: ValidationError | InputError,
    given: Mapping[str, Any],
    known: Collection[str] = (),
) -> list[WrongProperty]:
    """Returns the invalid properties that an exception refers to. The message of a custom
    constraint is kept unchanged.

    An InputError does not name a property, for example if `parse_duration` raises it in a
    validator.

    Rules: O54
    """
    if isinstance(error, InputError):
        return [WrongProperty("properties", error.primary, given)]
    wrong = []
    for item in error.errors(include_url=False):
        path = list(map(str, item["loc"]))
        is_unknown = item["type"] == "extra_forbidden"
        message = _unknown(path[-1], known) if is_unknown else _words(item["msg"])
        wrong.append(WrongProperty(".".join(path) or "properties", message, item["input"]))
    return wrong


def _unknown(name: str, known: Collection[str]) -> str:
    return (
        f"the property does not exist. {did_you_mean(name, known)}Existing properties: "
        f"{', '.join(known) or 'none'}"
    )


def _words(message: str) -> str:
    """Returns the message of a constraint without pydantic's prefixes, and with "it must" instead
    of "Input should".
    """
    own = re.sub("^(Value error|Assertion failed), ", "", message)
    return re.sub("^Input should", "it must", own)


def matches(pattern: str) -> AfterValidator:
    """Returns a constraint that requires the whole text to match a pattern.

    Pydantic's constraint accepts a match within the text.

    Example:
        code: Annotated[str, matches("[a-z]+|[0-9]+")]

    Rules: O53
    """

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"the whole text must match pattern '{pattern}'")
        return text

    return AfterValidator(check)
