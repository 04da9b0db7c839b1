"""The code version and the configuration digest of an application. A checkpoint is bound to both.

Both are the same in every process.

Rules: R83, W65
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from rewindow.application import Application, FrameOperator, Node
from rewindow.errors import InputError
from rewindow.sequences import excluding, map_values
from rewindow.version import PACKAGE, VERSION

FORMAT = 3
"""Version number of the rules for computing code versions. Versions of different formats are never
equal.
"""
DECIDES_ROWS = (
    "application/cycles.py",
    "application/error_tuples.py",
    "application/failing.py",
    "application/overrides.py",
    "application/graph.py",
    "application/node.py",
    "application/operator.py",
    "application/placing.py",
    "application/properties.py",
    "application/windowing.py",
    "engine/cut_streams.py",
    "engine/error_tuples.py",
    "engine/failing_tuples.py",
    "engine/group.py",
    "engine/group_cache.py",
    "engine/ports.py",
    "engine/shared_passes.py",
    "engine/shuffle.py",
    "engine/spark_engine.py",
    "engine/warm_up.py",
    "facts/readers.py",
    "loading/defined_applications.py",
    "loading/stream_applications.py",
    "operators",
    "sequences.py",
    "spark/columns.py",
    "spark/digests.py",
    "spark/frames.py",
    "spark/functions.py",
    "spark/session.py",
    "spark/settings.py",
    "state/changes.py",
    "state/files.py",
    "state/row_hash.py",
    "state/store.py",
    "storage/fields.py",
    "storage/in_place.py",
    "storage/inputs.py",
    "storage/streams.py",
    "tuple_engine",
    "windows.py",
)
"""Files and folders of the package whose code decides which rows or which state an operator
returns."""
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}(?:[^\\]|\\.)*?\'{3}'''
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*""",
    re.DOTALL,
)
"""A string literal or a comment: a `#` in a string does not start a comment."""


@dataclass(frozen=True)
class _Span:
    """A piece of source text.

    Lines count from 0, columns in characters. The end column is exclusive.
    """

    first_line: int
    first_column: int
    last_line: int
    last_column: int


def code_version(modules: Mapping[str, Path]) -> str:
    """Returns a fingerprint of the code that computes an application's rows.

    It covers the application's own files, Rewindow's release, and the modules of Rewindow in
    `DECIDES_ROWS`. Comments, docstrings and blank lines do not count. The path of a module of
    Rewindow does not count either, so an import from Rewindow counts by the names that it imports.

    Args:
        modules: module name to file, of the application's modules.
    """
    own = (f"{path.name}\n{_code(path)}" for path in modules.values())
    return version_of([library_code(), *own])


def library_code() -> str:
    """Returns the digests of Rewindow's code, as part of a code version."""
    return " ".join(sorted(map(_sha256, map(_code, library_files()))))


def version_of(parts: Iterable[str]) -> str:
    """Returns the code version of the given texts. Their order does not matter."""
    text = " ".join([VERSION, *sorted(map(_sha256, parts))])
    return f"{FORMAT}-{_sha256(text)[:16]}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def own_modules(app: Application, modules: Mapping[str, Path]) -> dict[str, Path]:
    """Returns the files of an application's modules, by module name.

    These are the given modules, and the modules of its operators' classes and base classes. Modules
    of Rewindow are left out.
    """
    own = {**modules}
    for node in app.nodes.values():
        for kind in excluding(type(node.operator).__mro__, FrameOperator.__mro__):
            file = _file(kind)
            if file is not None:
                own[kind.__module__] = Path(file)
    paths = map_values(Path.resolve, own)
    return {name: path for name, path in paths.items() if not path.is_relative_to(PACKAGE)}


def configuration_digest(app: Application) -> str:
    """Returns a digest that changes with the graph, a property, the grid or the windows of an
    operator.

    Raises:
        InputError: a property cannot be written as JSON.

    Rules: W65, X8
    """
    nodes = {node.name: described(node) for node in app.nodes.values()}
    return digest_of({"window": app.window, "origin_ms": app.origin_ms, "nodes": nodes})


def described(node: Node) -> dict[str, Any]:
    """Returns the configuration that determines the rows of an operator, as values for JSON.

    Raises:
        InputError: a property cannot be written as JSON.
    """
    values = {
        "kind": type(node.operator).__qualname__,
        "properties": _properties(node.name, node.operator),
        "feeds": {port: str(end) for port, end in node.feeds.items()},
    }
    if node.has_longer_windows:
        values["windows"] = [node.windowing.application, node.windowing.slide]
    return values


def digest_of(value: Any) -> str:
    """Returns the digest of a value that can be written as JSON."""
    return _sha256(_text(value))[:16]


def library_files() -> list[Path]:
    """Returns the modules of `DECIDES_ROWS`.

    `__init__.py` files are left out, because they only list the names that users import.

    Raises:
        FileNotFoundError: an entry of `DECIDES_ROWS` does not exist. If code is moved, its entry
            must be changed.
    """
    files: set[Path] = set()
    for entry in DECIDES_ROWS:
        path = PACKAGE / entry
        files.update(path.rglob("*.py") if path.is_dir() else [path.resolve(strict=True)])
    return sorted(path for path in files if path.name != "__init__.py")


def _code(path: Path) -> str:
    """Returns the part of a file that counts: the code of a Python module, or the whole text of any
    other file.
    """
    source = path.read_bytes()
    return _python_code(source) if path.suffix == ".py" else source.decode(errors="replace")


@lru_cache(maxsize=1024)
def _python_code(source: bytes) -> str:
    names, lines = code_lines(source)
    return "\n".join([*sorted(names), *lines.values()])


def code_lines(source: bytes) -> tuple[list[str], dict[int, str]]:
    """Returns the lines of Python source by number, without comments, docstrings and blank lines,
    and the names that it imports from Rewindow.

    Imports from Rewindow are removed from the lines. Any other string that is a statement is
    dropped like a docstring, because it has no effect either.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    lines = re.split("\r\n|\r|\n", source.decode(encoding))
    names: list[str] = []
    spans = [*_comments("\n".join(lines))]
    in_strings: set[int] = set()
    # Removes spans from the text instead of generating text from the tree, whose format differs
    # between versions of Python.
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] == PACKAGE.name
        ):
            names += [f"{alias.name} as {alias.asname or alias.name}" for alias in node.names]
            spans.append(_span(node, lines))
        elif isinstance(node, ast.Expr) and _is_string(node.value):
            spans.append(_span(node, lines))
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            in_strings.update(range(node.lineno, node.end_lineno or node.lineno))
    for span in spans:
        in_strings.difference_update(range(span.first_line, span.last_line + 1))
    code = {}
    for number, line in enumerate(_without(lines, spans)):
        # A blank line in a string that counts is part of its value.
        if line.strip() or number in in_strings:
            code[number + 1] = line
    return names, code


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _comments(text: str) -> Iterator[_Span]:
    # Tokenizing in pure Python takes longer than all other steps together. Since Python 3.12 it is
    # done in C, and an f-string may contain its own quotes, which the pattern does not support.
    if sys.version_info >= (3, 12):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line = token.start[0] - 1
                yield _Span(line, token.start[1], line, last_column=token.end[1])
        return
    for match in _STRING_OR_COMMENT.finditer(text) if "#" in text else ():
        if match.group().startswith("#"):
            line = text.count("\n", 0, match.start())
            line_start = text.rfind("\n", 0, match.start()) + 1
            yield _Span(
                line, match.start() - line_start, line, last_column=match.end() - line_start
            )


def _span(node: ast.stmt | ast.expr, lines: list[str]) -> _Span:
    """Converts a node's position. `ast` counts lines from 1, and columns in UTF-8 bytes."""
    first = node.lineno - 1
    last = (node.end_lineno or node.lineno) - 1
    first_column = len(lines[first].encode()[: node.col_offset].decode())
    last_column = len(lines[last].encode()[: node.end_col_offset].decode())
    return _Span(first, first_column, last, last_column=last_column)


def _without(lines: list[str], spans: Iterable[_Span]) -> list[str]:
    """Returns the lines with the text of each span removed. Spans may be nested."""
    left = [*lines]
    # From the end to the start, so that the columns of the spans that follow stay correct.
    for span in sorted(spans, key=lambda span: (span.first_line, span.first_column), reverse=True):
        rest = left[span.last_line][span.last_column :]
        left[span.first_line] = (left[span.first_line][: span.first_column] + rest).rstrip()
        for line in range(span.first_line + 1, span.last_line + 1):
            left[line] = ""
    return left


def _file(kind: type) -> str | None:
    is_python = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    return None if is_python else getattr(sys.modules.get(kind.__module__), "__file__", None)


def _properties(name: str, operator: FrameOperator) -> Any:
    """Returns properties as values for JSON."""
    try:
        return _canonical(
            operator.model_dump(warnings=False, exclude=set(type(operator).changeable))
        )
    except PydanticSerializationError as error:
        raise InputError(
            f'operator "{name}" has a property that cannot be written as JSON: {error}',
            hint="Add a @field_serializer for it: checkpoints are bound to what it returns.",
        ) from error


def _canonical(value: Any) -> Any:
    """Returns a value for JSON in a canonical order.

    The order of a set differs between processes.
    """
    if isinstance(value, Mapping):
        return {_text(_canonical(key)): _canonical(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_canonical, value), key=_text)
    if isinstance(value, list | tuple):
        return list(map(_canonical, value))
    return to_jsonable_python(value)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
