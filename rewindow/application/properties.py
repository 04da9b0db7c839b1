"""Constraints of properties where pydantic's own are not those of docs/rules/operators.md O53."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from rewindow.errors import InputError


def wrong_values(error: ValidationError | InputError, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns location, message and value of each error; a constraint's own message is shown unchanged (O54).

    An InputError, such as that of `parse_duration` in a validator, does not tell where it comes from.
    """
    if isinstance(error, InputError):
        return [{"loc": (), "msg": error.primary, "input": given}]
    found: list[dict[str, Any]] = [dict(item) for item in error.errors(include_url=False)]
    return [item | {"msg": re.sub("^(Value error|Assertion failed), ", "", item["msg"])} for item in found]


def half_matched(
    value: object, kind: Any = None, constraints: Sequence[object] = (), place: tuple[str, ...] = (), engine: str = ""
) -> Iterator[dict[str, Any]]:
    """Yields texts of which a pattern matches only a part, in nested objects too: for pydantic that is enough.

    Where a value may be one of several kinds, it is not told which of them it was taken for, and only constraints that
    hold for all of them are looked at.

    Args:
        value: a property, or an object with properties.
        kind: what it is declared to be.
        constraints: those that its field sets.
        place: where it is found.
        engine: what reads patterns, as pydantic's `regex_engine`; an object with properties says it for them.
    """
    kind, constraints = _bare(kind, constraints)
    parts = get_args(kind)
    if isinstance(value, BaseModel):
        own = type(value).model_config.get("regex_engine", "rust-regex")
        for name, field in type(value).model_fields.items():
            yield from half_matched(getattr(value, name, None), field.annotation, field.metadata, (*place, name), own)
    elif isinstance(value, str):
        for pattern in {pattern for one in constraints if (pattern := getattr(one, "pattern", None))}:
            if not _matches_whole(pattern, value, engine):
                text = getattr(pattern, "pattern", pattern)
                yield {"loc": place, "msg": f"the whole text must match pattern '{text}'", "input": value}
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from half_matched(item, parts[-1] if parts else None, (), (*place, str(key)), engine)
    elif isinstance(value, list | tuple | set | frozenset):
        is_fixed = get_origin(kind) is tuple and Ellipsis not in parts
        for index, item in enumerate(value):
            part = next(iter(parts[index if is_fixed else 0 :]), None)
            yield from half_matched(item, part, (), (*place, str(index)), engine)


def _bare(kind: Any, constraints: Sequence[object]) -> tuple[Any, Sequence[object]]:
    """Returns what a value is declared to be when it is not null, and all constraints on it."""
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        return _bare(kind, [*constraints, *(one for extra in more for one in getattr(extra, "metadata", [extra]))])
    if get_origin(kind) not in (Union, UnionType):
        return kind, constraints
    options = [part for part in get_args(kind) if part is not NoneType]
    return _bare(options[0], constraints) if len(options) == 1 else (None, constraints)


def _matches_whole(pattern: str | re.Pattern[str], text: str, engine: str) -> bool:
    if engine == "python-re" or isinstance(pattern, re.Pattern):
        return re.fullmatch(pattern, text) is not None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=f"^(?:{pattern})$")).isinstance_python(text)
    except SchemaError:
        return True  # It ends with a comment, say; pydantic has held the pattern as it is against the text.
