"""Finds all errors in the suites of an application before a replay runs.

Great Expectations is not imported for it, because that takes seconds: the types of expectations are
the names of its modules, and those of plugins the names of their classes. DataFusion plans the
measures on empty tables with the outputs' columns.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rewindow.application import Application, Output, Violation
from rewindow.errors import GateError, InputError
from rewindow.loading.measures import (
    NOT_ENDED,
    Measure,
    for_datafusion,
    query_of,
    recorded_name,
    refusal,
    table_name,
)
from rewindow.loading.suites import COLUMNS, Suite, suite_for
from rewindow.location import location
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import Config
from rewindow.storage import Table, create_table, query
from rewindow.storage.layout import staged_schema
from rewindow.windows import WindowRange

RULE = "O60"
_NAMES = ("column", "column_A", "column_B", "column_list", "column_set")
_OWN_VALUES = {
    "windows": 1,
    "first_window": 0,
    "last_window": 0,
    "width_us": 1,
    "origin_us": 0,
    "begins_empty": "false",
    "ended_us": NOT_ENDED,
}
"""Placeholders for the values of a plan; see measures.values_of."""


def suite_flaws(
    config: Config,
    app: Application,
    recorded: Mapping[str, Table],
) -> Iterator[Violation]:
    """Yields a violation for each error in a suite of an output of the application.

    Args:
        config: current settings, with the folder of expectations.
        app: the application to launch.
        recorded: its inputs.
    """
    types, broken = _types(config.expectations)
    for path, why in broken:
        yield Violation(
            RULE, "", "", value=path, message=f"plugin of the expectations is not Python: {why}"
        )
    for output in app.outputs.values():
        columns = _columns(app, output)
        try:
            suite = suite_for(config.expectations, output.suite)
        except InputError:
            continue  # Validation reports a wrong name.
        except GateError as error:
            yield Violation(
                RULE, output.name, "", value=output.suite or "every_output", message=error.primary
            )
            continue
        known = _OWN_VALUES | dict(output.suite_parameters)
        yield from _expectation_flaws(output.name, suite, types, known=known, recorded=recorded)
        if columns is not None and suite.measures:
            yield from _measure_flaws(output, suite, columns, known=known, recorded=recorded)


def _columns(app: Application, output: Output) -> pa.Schema | None:
    """Returns an output's event columns; None if they cannot be determined because of errors in the
    graph.
    """
    node = app.nodes.get(str(output.source.operator))
    if node is None or not node.has_known_ports or output.source.port not in node.output_ports():
        return None
    return app.columns(output)


def _expectation_flaws(
    output: str,
    suite: Suite,
    types: frozenset[str],
    known: Mapping[str, Any],
    recorded: Iterable[str],
) -> Iterator[Violation]:
    columns = {*COLUMNS, *(f"tuples_in_{table_name(name)}" for name in recorded)}
    columns |= set(names_of(suite.measures))
    for entry in suite.expectations:
        which = f'check "{entry["meta"]["check"]}" of suite "{suite.name}"'
        kind = str(entry.get("type"))
        kwargs = entry.get("kwargs") or {}
        if types and kind not in types:
            yield Violation(
                RULE,
                output,
                "",
                value=kind,
                message=f"{which} is of an unknown type{_perhaps(kind, types)}",
            )
        for name in _named(kwargs):
            if name not in columns:
                words = (
                    f'{which} names column "{name}", which is neither of the window report '
                    "nor a measure"
                )
                yield Violation(
                    RULE, output, "", value=name, message=words + _perhaps(name, columns)
                )
        for name in _parameters(kwargs):
            if name not in known:
                yield Violation(
                    RULE,
                    output,
                    "",
                    value=name,
                    message=f"{which} uses a value that is not set{_perhaps(name, known)}",
                )


def _named(kwargs: Mapping[str, Any]) -> Iterator[str]:
    for key in _NAMES:
        given = kwargs.get(key, [])
        for name in [given] if isinstance(given, str) else given:
            if isinstance(name, str):
                yield name


def _parameters(value: Any) -> Iterator[str]:
    """Yields the values that an expectation uses by name.

    Sums of values are left to Great Expectations.
    """
    if isinstance(value, dict):
        name = value.get("$PARAMETER")
        if isinstance(name, str) and name.isidentifier():
            yield name
        value = list(value.values())
    if isinstance(value, list):
        yield from chain.from_iterable(map(_parameters, value))


def _perhaps(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1)
    return f', perhaps "{near[0]}" is meant' if near else ""


def _measure_flaws(
    output: Output,
    suite: Suite,
    columns: pa.Schema,
    known: Mapping[str, Any],
    recorded: Mapping[str, Table],
) -> Iterator[Violation]:
    """Yields a violation for each measure that DataFusion cannot plan."""
    inputs = {table_name(name): table for name, table in recorded.items()}
    with tempfile.TemporaryDirectory(prefix="rewindow-suites-") as folder:
        staged = create_table(location(folder) / "output", staged_schema(columns))
        bound = []
        whys = {}
        for measure in suite.measures:
            try:
                bound.append(measure.bound(known))
            except GateError as error:
                whys[measure.name] = error.primary
        aggregates = [measure for measure in bound if not measure.over_rows]
        fine = not aggregates or not _why_not(aggregates, staged, inputs, output=output)
        for measure in bound:
            why = (
                ""
                if fine and not measure.over_rows
                else _why_not([measure], staged, inputs, output=output)
            )
            whys |= {measure.name: why} if why else {}
    for name, why in whys.items():
        words = f'measure "{name}" of suite "{suite.name}" cannot be computed: {why}'
        yield Violation(RULE, output.name, "", value=name, message=words)


def _why_not(
    measures: Sequence[Measure],
    staged: Table,
    inputs: Mapping[str, Table],
    output: Output,
) -> str:
    """Returns the reason why a query, or several aggregates together, cannot be planned; empty if
    they can.

    Reads no rows.
    """
    measure = measures[0]
    unknown = excluding(measure.inputs, inputs)
    if unknown:
        return f'it sees the input "{unknown[0]}", inputs are {", ".join(sorted(inputs)) or "none"}'
    if measure.over_rows:
        nothing = dict.fromkeys(measure.inputs, ())
        sql = query_of(measure, output.name, WindowRange(0, 0), inputs=nothing, several=False)
    else:
        listed = ", ".join(f"{one.sql} as {one.name}" for one in measures)
        sql = f"select {listed} from staged group by window_id"
    tables = {recorded_name(name): inputs[name] for name in measure.inputs}
    try:
        query(f"explain {for_datafusion(sql)}", staged=staged, **tables)
    except DeltaError as error:
        return refusal(error)
    return ""


def _types(folder: Path) -> tuple[frozenset[str], list[tuple[str, str]]]:
    """Returns the types that expectations can have, and broken plugins.

    If Great Expectations is not installed, there are no types.
    """
    types = set(_library_types())
    broken = []
    for path in sorted((folder / "plugins").glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            broken.append((path.name, str(error)))
            continue
        for node in ast.walk(tree) if types else ():
            if isinstance(node, ast.ClassDef):
                types.add(_snake(node.name))
    return frozenset(types), broken


@cache
def _library_types() -> frozenset[str]:
    spec = find_spec("great_expectations")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    core = Path(spec.submodule_search_locations[0]) / "expectations" / "core"
    return frozenset(path.stem for path in core.glob("*.py") if not path.stem.startswith("_"))


def _snake(name: str) -> str:
    """Returns the type of an expectation class in Great Expectations.

    >>> _snake("ExpectColumnPairValuesAToBeGreaterThanB")
    'expect_column_pair_values_a_to_be_greater_than_b'
    """
    words = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", words).lower()
