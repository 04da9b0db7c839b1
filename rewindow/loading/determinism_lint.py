"""Finds lines in an application's files whose results can differ in the next run: clocks, random
numbers, and undefined orders.

The files are parsed, not run. A warning is a hint, not a proof; `rewindow check-determinism` runs
the application. A comment `# repeatable: REASON` on a line, or alone above it, marks it as
deterministic; it has no effect without a reason.

Rules: R86
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rewindow.errors import InputError
from rewindow.loading.reached_code import import_targets

_SPARK = "pyspark.sql.functions."
_CLOCK = (
    "reads the clock, which differs between replays: use arrived_at, or the window's time from the "
    "context"
)
_CHANCE = "differs between replays: use rewindow.operators.seeds.random_number"
_SPREAD = "depends on how Spark divides the rows: number them by a key, or by offset"
_ORDER = "iterates over a set, whose order differs between processes: use sorted()"
_SPARK_CLOCK = ("current_timestamp", "current_date", "now", "localtimestamp", "curdate")
_CALLS = {
    _CLOCK: (
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.perf_counter",
        "time.localtime",
        "time.gmtime",
        *map(_SPARK.__add__, _SPARK_CLOCK),
    ),
    _CHANCE: (
        "uuid.uuid1",
        "uuid.uuid4",
        "os.urandom",
        "secrets.*",
        "random.*",
        "numpy.random.*",
        "hash",
        *map(_SPARK.__add__, ("rand", "randn", "randstr", "uniform", "shuffle", "uuid")),
    ),
    _SPREAD: (
        f"{_SPARK}monotonically_increasing_id",
        f"{_SPARK}spark_partition_id",
        f"{_SPARK}collect_set",
    ),
}
_SEEDED = (
    "random.Random",
    "numpy.random.default_rng",
    "numpy.random.RandomState",
    "numpy.random.Generator",
)
"""Deterministic if a seed is given."""
_IN_SQL = {
    _CLOCK: re.compile(
        r"\b(current_timestamp|current_date|now\s*\(\s*\)|localtimestamp|curdate\s*\()",
        re.IGNORECASE,
    ),
    _CHANCE: re.compile(r"\b(rand|randn|random|uuid|shuffle)\s*\(", re.IGNORECASE),
    _SPREAD: re.compile(
        r"\b(monotonically_increasing_id|spark_partition_id|collect_set)\s*\(",
        re.IGNORECASE,
    ),
}
_TAKES_SQL = ("expr", "selectExpr", "sql", "where", "filter")
_KEEPS_ORDER = ("list", "tuple", "enumerate", "iter", "join", "next", "zip", "map")
_SETS = ("set", "frozenset")
_SOUND = re.compile(r"#+\s*repeatable:\s*\S.*")


class ShakyLine(NamedTuple):
    """A line whose results can differ in the next run."""

    file: str
    line: int
    code: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code} {self.why}"


def doubts(files: Iterable[Path]) -> list[ShakyLine]:
    """Returns the lines in the given files whose results can differ in the next run, by file and
    line.

    Raises:
        InputError: a file cannot be parsed as Python.
    """
    found = []
    for path in sorted(files):
        try:
            source = path.read_bytes()
            tree = ast.parse(source)
            sound = _said_to_be_sound(source)
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f'file "{path}" cannot be read as Python: {error}') from error
        for line, code, why in sorted(set(_of(tree))):
            if line not in sound:
                found.append(ShakyLine(path.name, line, code, why=why))
    return found


def _said_to_be_sound(source: bytes) -> set[int]:
    """Returns the lines that a comment with a reason marks as deterministic."""
    found = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT and _SOUND.fullmatch(token.string):
            stands_alone = not token.line[: token.start[1]].strip()
            found.add(token.start[0] + stands_alone)
    return found


def _of(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    names = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _call(node, names)
        elif isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            yield node.iter.lineno, "a loop", _ORDER


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns the modules or attributes of modules that the imported names in a file refer to."""
    found = {}
    for node in ast.walk(tree):
        for name, target in import_targets(node):
            found[name] = ".".join(target)
    return found


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    name = _dotted(node.func)
    first, stop, rest = name.partition(".")
    known = name if name == "hash" else ""
    if first in names:
        known = f"{names[first]}{stop}{rest}"
    for why, calls in _CALLS.items():
        if any(_matches(known, call) for call in calls) and not (
            known in _SEEDED and (node.args or node.keywords)
        ):
            yield node.lineno, f"{name}()", why
    if isinstance(node.func, ast.Attribute | ast.Name) and name.rpartition(".")[2] in _TAKES_SQL:
        yield from _in_sql(node)
    own = node.func.attr if isinstance(node.func, ast.Attribute) else name
    if own in _KEEPS_ORDER and any(map(_is_set, node.args)):
        yield node.lineno, f"{own}()", _ORDER


def _in_sql(node: ast.Call) -> Iterator[tuple[int, str, str]]:
    """Yields calls in SQL texts. A function in SQL, such as `F.expr("rand()")`, is not a call in
    Python.
    """
    for argument in node.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            for why, pattern in _IN_SQL.items():
                if match := pattern.search(argument.value):
                    yield argument.lineno, f"{match[1].rstrip('( )').lower()}() in SQL", why


def _matches(known: str, call: str) -> bool:
    return known.startswith(call[:-1]) if call.endswith("*") else known == call


def _is_set(node: ast.AST) -> bool:
    """Returns whether an expression is obviously a set: a display, a comprehension, or a call of
    `set`.
    """
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Call) and _dotted(node.func) in _SETS
    )


def _dotted(node: ast.AST) -> str:
    """Returns a name as it is written, such as F.rand; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""
