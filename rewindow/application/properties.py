"""What is wrong with properties, and the constraint that pydantic does not have
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
    """A property that breaks a constraint: its path, such as `inner.code`, what the constraint
    says, and the value.
    """

    path: str
    message: str
    value: object


def wrong_properties(
    error: ValidationError | InputError,
    given: Mapping[str, Any],
    known: Collection[str] = (),
) -> list[WrongProperty]:
    """Returns the properties that an error is about; a constraint's own message is kept unchanged
    (O54).

    An InputError, such as that of `parse_duration` in a validator, does not tell which property it
    is about.
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
        f"there is no such property. {did_you_mean(name, known)}There are: "
        f"{', '.join(known) or 'none'}"
    )


def _words(message: str) -> str:
    """Returns what a constraint says in our form: pydantic's own begin with "Input should"."""
    own = re.sub("^(Value error|Assertion failed), ", "", message)
    return re.sub("^Input should", "it must", own)


def matches(pattern: str) -> AfterValidator:
    """Returns a constraint: the whole text matches a pattern (O53); for pydantic's own a part of it
    is enough.

    Example:
        code: Annotated[str, matches("[a-z]+|[0-9]+")]
    """

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"the whole text must match pattern '{pattern}'")
        return text

    return AfterValidator(check)
