"""Fingerprints of an application, the same in every process: what a checkpoint is bound to (W65, R83)."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from rewindow.application import Application, FrameOperator
from rewindow.errors import InputError
from rewindow.version import PACKAGE, VERSION

FORMAT = 2
"""Number of the way in which code versions are made; 1, which was not written, counted the loader and places."""
LIBRARY = PACKAGE / "operators"
_DROPPED = "\0"


def code_version(app: Application, sources: Iterable[Path]) -> str:
    """Returns what changes with an application's files, with those of its operators' classes and their bases, and with
    Rewindow's release and library of operators.

    Where a module of ours lies is no part of it: of ours only the content counts, and in every file an import from
    Rewindow counts by the names that it brings.

    Args:
        app: the application.
        sources: files of the application itself and of the modules that it brought along.
    """
    theirs = own_files(app, sources)
    parts = [_content(path) for path in _library()] + [f"{path.name}\n{_content(path)}" for path in theirs]
    digests = sorted(hashlib.sha256(part.encode()).hexdigest() for part in parts)
    return f"{FORMAT}-{hashlib.sha256(' '.join([VERSION, *digests]).encode()).hexdigest()[:16]}"


def own_files(app: Application, sources: Iterable[Path]) -> set[Path]:
    """Returns an application's own files: those given, and those of its operators' classes; none of Rewindow's."""
    kinds = {kind for node in app.nodes.values() for kind in type(node.operator).__mro__} - {*FrameOperator.__mro__}
    classes = {Path(file) for kind in kinds if (file := _file(kind))}
    return {path.resolve() for path in (*classes, *sources) if not path.resolve().is_relative_to(PACKAGE)}


def configuration_digest(app: Application) -> str:
    """Returns what changes with the graph, a property, the grid or the windows of an operator (W65, X8).

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
                **({"windows": [node.windowing.application, node.windowing.slide]} if node.has_longer_windows else {}),
            }
            for node in app.nodes.values()
        },
    }
    return hashlib.sha256(_text(graph).encode()).hexdigest()[:16]


def _library() -> list[Path]:
    """Returns the files of the operators that come with Rewindow; an `__init__.py` only says what users import."""
    return [path for path in LIBRARY.rglob("*.py") if path.name != "__init__.py"]


def _content(path: Path) -> str:
    """Returns a file's text, its imports from Rewindow replaced by the names that they bring, in one order."""
    source = path.read_bytes()
    lines, names = source.decode(errors="replace").split("\n"), []
    for node in ast.walk(ast.parse(source if path.suffix == ".py" else "")):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != PACKAGE.name:
            continue
        place = slice(node.lineno - 1, node.end_lineno)
        if ";" not in "".join(lines[place]):
            names += [f"{alias.name} as {alias.asname or alias.name}" for alias in node.names]
            lines[place] = [_DROPPED] * len(lines[place])
    return "\n".join([*sorted(names), *(line for line in lines if line is not _DROPPED)])


def _file(kind: type) -> str | None:
    is_python = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    return None if is_python else getattr(sys.modules.get(kind.__module__), "__file__", None)


def _properties(name: str, operator: FrameOperator) -> Any:
    """Returns properties as JSON has them."""
    try:
        return _canonical(operator.model_dump(warnings=False, exclude=set(type(operator).changeable)))
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
