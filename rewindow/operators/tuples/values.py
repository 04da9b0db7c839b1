"""Converts an operator's values to Arrow columns. Errors show the invalid value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rewindow.errors import InputError


def to_array(values: Sequence[Any], field: pa.Field, what: str) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
    ) as error:
        # Arrow does not report which value was wrong, so they are converted one by one. This
        # happens only after a failure.
        wrong = next((value for value in values if not _fits(value, field.type)), values[0])
        raise InputError(
            f'column "{field.name}" of {what} must be {field.type}, not {type(wrong).__name__} '
            f"{shown(wrong)}",
            detail=f"{error}.",
        ) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError, TypeError):
        return False
    return True


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."
