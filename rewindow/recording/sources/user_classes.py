"""Loads the class of a source from a Python file, and creates an instance with the properties in
`source_settings`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from rewindow.application.properties import wrong_properties
from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.operators.generators.by_name import GENERATORS
from rewindow.recording.sources.files import FileSource

_Kind = TypeVar("_Kind", bound=BaseModel)


def class_in_file(source: FileSource, base: type[_Kind], words: str) -> type[_Kind]:
    """Returns the class of a Python file that derives from a base class.

    Args:
        source: the source. If the file has several classes, its `source_settings` name one.
        base: the base class. Classes that the file only imports do not count.
        words: name of such classes in messages, such as "input operator"; its last word is the key
            in `source_settings`.

    Raises:
        InputError: the file is missing, cannot be imported, or does not have the class; the class
            has no `columns`, or they lack the arrival.
    """
    path = Path(source.place)
    stream = f'of stream "{source.name}"'
    key = words.split()[-1]
    found: dict[str, Any] = {}
    for own, kind in vars(_module(path, stream)).items():
        is_one = isinstance(kind, type) and issubclass(kind, base)
        if is_one and kind.__module__ == _module_name(path):
            found[own] = kind
    only = next(iter(found)) if len(found) == 1 else None
    wanted = source.stream.source_settings.get(key, only)
    if wanted not in found:
        number = f'has no {words} "{wanted}"' if wanted else f"has {len(found)} {words}s"
        hint = (
            f"Write a class that derives from rewindow.operators.{base.__name__}. A Generator "
            'needs format = "generator"; an InputOperator needs no format.'
        )
        if found:
            hint = f"Set source_settings.{key} to one of: {', '.join(found)}."
        raise InputError(f'source "{path}" {stream} {number}', hint=hint)
    kind = found[wanted]
    columns = getattr(kind, "columns", None)
    if not isinstance(columns, pa.Schema) or kind.arrival not in columns.names:
        raise InputError(
            f"{words} {wanted} {stream} must declare `columns`, a pyarrow schema with the column "
            f'"{kind.arrival}"'
        )
    return kind  # type: ignore[no-any-return]


def with_properties(source: FileSource, kind: type[_Kind], others: Collection[str]) -> _Kind:
    """Returns an instance of a class with the properties in `source_settings`, except `others`.

    Raises:
        InputError: a property is unknown, missing or has a wrong value.
    """
    settings = source.stream.source_settings
    given = {key: value for key, value in settings.items() if key not in others}
    try:
        return kind(**given)
    except ValidationError as error:
        wrong = wrong_properties(error, given, kind.model_fields)[0]
        words = f"is {wrong.value!r}: {wrong.message}"
        raise wrong_setting(source, wrong.path, words, "") from error


def wrong_setting(source: FileSource, key: str, words: str, hint: str) -> InputError:
    """Returns the error for an invalid value in `source_settings`."""
    return InputError(
        f'setting "source_settings.{key}" of stream "{source.name}" {words}', hint=hint
    )


def _module_name(path: Path) -> str:
    return f"_rewindow_input_{path.stem}"


def _module(path: Path, stream: str) -> ModuleType:
    if not path.is_file():
        raise InputError(
            f'source "{path}" {stream} does not exist',
            hint=f"{did_you_mean(path.name, GENERATORS)}Set source to a Python file, or to a "
            f'generator with format = "generator": {", ".join(GENERATORS)}.',
        )
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Pydantic resolves annotations that are texts by the name of the module. Afterwards the name
    # must be unknown, so that Spark sends the classes themselves to its Python workers.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f'source "{path}" {stream} cannot be imported: {type(error).__name__}: {error}',
            hint="Fix the file. Nothing was recorded.",
        ) from error
    finally:
        sys.modules.pop(name, None)
    return module
