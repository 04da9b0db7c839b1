"""Fingerprints of an application, the same in every process: what a checkpoint is bound to (W65, R83)."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from rewindow.application import Application, FrameOperator
from rewindow.errors import InputError
from rewindow.version import VERSION


def code_version(app: Application, sources: Iterable[Path]) -> str:
    """Returns what changes with an application's files, with those of its operators' classes and their bases, and with
    Rewindow's release and library.

    Args:
        app: the application.
        sources: files of the application itself and of the modules that it brought along.
    """
    kinds = {kind for node in app.nodes.values() for kind in type(node.operator).__mro__} - {*FrameOperator.__mro__}
    files = {Path(file) for kind in kinds if (file := _file(kind))} | {*sources, *Path(__file__).parent.glob("*.py")}
    digest = hashlib.sha256(VERSION.encode())
    for _, content in sorted((path.name, path.read_bytes()) for path in {path.resolve() for path in files}):
        digest.update(content)
    return digest.hexdigest()[:16]


def configuration_digest(app: Application) -> str:
    """Returns what changes with the graph, a property or the grid.

    Raises:
        InputError: a property cannot be written as JSON.
    """
    graph = {
        "window": app.window,
        "origin_ms": app.origin_ms,
        "nodes": {
            node.name: {
                "kind": type(node.operator).__qualname__,
                "properties": _properties(node.name, node.operator),
                "feeds": {port: str(end) for port, end in node.feeds.items()},
            }
            for node in app.nodes.values()
        },
    }
    return hashlib.sha256(_text(graph).encode()).hexdigest()[:16]


def _file(kind: type) -> str | None:
    is_python = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    return None if is_python else getattr(sys.modules.get(kind.__module__), "__file__", None)


def _properties(name: str, operator: FrameOperator) -> Any:
    """Returns properties as JSON has them."""
    try:
        return _canonical(operator.model_dump(warnings=False))
    except PydanticSerializationError as error:
        raise InputError(
            f'operator "{name}" has a property that cannot be written as JSON: {error}',
            hint="Say how with a @field_serializer: checkpoints are bound to what it returns.",
        ) from error


def _canonical(value: Any) -> Any:
    """Returns a value as JSON has it, in one order: that of a set is another in every process."""
    if isinstance(value, Mapping):
        return {_text(_canonical(key)): _canonical(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(item) for item in value), key=_text)
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return to_jsonable_python(value)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
