"""Suites: expectations about an output, as JSON in the project's folder `expectations/suites`,
otherwise in Rewindow's folder.

A suite is a Great Expectations suite. Two keys of its `meta` belong to Rewindow and add columns to
the window report:

    "measures": {"flights": "sum(flights)"}
        an aggregate over the output's rows of each window
    "row_measures": {"gone": "select window_id, ... as value from output ..."}
        a query over all rows, if an aggregate is not enough

A measure is null in a window that is lost or has no rows; `{"sql": ..., "empty": 0}` sets a value
for windows without rows. A query lists the inputs that it compares with in `"inputs": ["flights"]`,
and `"windows": "several"` if it depends on other windows (`lag`, `lead`). expectations/README.md
describes the SQL that measures may use.

The suite `every_output` is part of every output's suite. An output without any row in a whole range
fails, because no other check had rows to evaluate, unless `meta` has `"may_be_empty": true`. An
expectation has a slug in `meta.check`, a sentence for readers in `description`, and a severity.
`meta.after_loss: "warning"` makes it a warning in windows that are affected by a loss which at most
once allows, or by a start state.

    python -m rewindow.loading.suites FILE...    writes files in canonical form, with their ids

Rules: R14 (docs/rules/recovery.md)
"""

from __future__ import annotations

import json
import logging
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rewindow.application import Application
from rewindow.errors import GateError, RewindowError
from rewindow.loading.measures import Measure, every_output_has, values_of
from rewindow.names import check_suite
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.version import PACKAGE

logger = logging.getLogger(__name__)

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "rewindow.expectations")
EVERY_OUTPUT = "every_output"
NOT_EMPTY = "not-empty"
"""The check of `every_output` that a suite's `may_be_empty` removes."""
OURS = next(
    (path for path in (PACKAGE.parent / "expectations", PACKAGE / "expectations") if path.is_dir()),
    PACKAGE,
)
"""Rewindow's folder of expectations: in the checkout, or in the installed package."""
HOW_TO = OURS / "README.md"
"""Instructions for suites, with the SQL that measures may use. A user's project has no such file,
so hints name this one.
"""
COLUMNS = (
    *(
        "window_id",
        "starts_at",
        "output_rows",
        "sealed_rows",
        "tuples_in",
        "recorded_tuples",
        "unaccounted_tuples",
    ),
    *(
        "lost",
        "lost_tuples",
        "undeclared_lost",
        "repeated",
        "undeclared_repeated",
        "repeated_keys",
        "null_keys",
    ),
    *(
        "heartbeats",
        "data_rows",
        "late",
        "quarantined",
        "error_tuples",
        "gaps",
        "missing_inputs",
        "attempts",
        "affected",
        "not_verifiable",
    ),
)
"""Columns of every window report; `tuples_in_<input>` for each input and the suite's measures are
added to them.
"""
SEVERITIES = ("critical", "warning", "info")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Suite:
    """The checks of one output, and the measures that they need."""

    name: str
    expectations: tuple[dict[str, Any], ...]
    measures: tuple[Measure, ...] = ()
    notes: str = ""
    may_be_empty: bool = False
    checks: Mapping[str, dict[str, Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", {entry["id"]: entry for entry in self.expectations})


def suite_for(folder: Path, name: str | None, *, may_be_empty: bool = False) -> Suite:
    """Returns the checks of an output: the checks of every output, and the checks of its suite.

    Args:
        folder: the project's expectations.
        name: name of the output's suite; None if it has none.
        may_be_empty: accept an output without rows in the whole range, independent of its suite.

    Raises:
        GateError: a suite file is missing, is not a suite, or has no checks.
    """
    common = read_suite(folder, EVERY_OUTPUT)
    if name is None or name == EVERY_OUTPUT:
        return _without_emptiness(common) if may_be_empty or common.may_be_empty else common
    own = read_suite(folder, name)
    if may_be_empty or own.may_be_empty:
        common = _without_emptiness(common)
    names = names_of((*common.measures, *own.measures))
    _refuse_twice(name, "measure", names)
    return Suite(
        name,
        common.expectations + own.expectations,
        common.measures + own.measures,
        notes=own.notes,
    )


def replay_measures(
    folder: Path,
    plan: Plan,
    app: Application,
) -> dict[str, tuple[Measure, ...]]:
    """Returns the measures of each output's windows with their values filled in. Measures of every
    output come first.

    If a suite cannot be read, or names a value that is not set, the output only has the measures of
    every output, and a warning is logged. The replay continues, because the gate will report the
    error.

    Args:
        folder: the project's expectations.
    """
    found: dict[str, tuple[Measure, ...]] = {}
    for output in plan.outputs:
        known = values_of(plan, output)
        try:
            suite = suite_for(folder, output.suite, may_be_empty=output.errors)
            own = [measure.bound(known) for measure in suite.measures]
        except RewindowError as error:
            logger.warning(
                f'measures of output "{output.name}" are left to the gate: {error.primary}'
            )
            own = []
        found[output.name] = (
            *every_output_has(output.key, app.columns(app.outputs[output.name])),
            *own,
        )
    return found


def _without_emptiness(suite: Suite) -> Suite:
    kept = tuple(entry for entry in suite.expectations if entry["meta"]["check"] != NOT_EMPTY)
    return replace(suite, expectations=kept)


def read_suite(folder: Path, name: str) -> Suite:
    """Returns a suite from its file, with ids added if the file has none. Suites of Rewindow need
    no copy in the project.

    Raises:
        GateError: the file is missing, is not a suite, or has no checks.
        InputError: the name could lead to another folder.
    """
    check_suite(name)
    folders = [folder / "suites", OURS / "suites"]
    paths = [place / f"{name}.json" for place in folders]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        names: set[str] = set()
        for place in folders:
            names.update(file.stem for file in place.glob("*.json"))
        known = ", ".join(sorted(names)) or "none"
        raise GateError(
            f'suite "{name}" has no file',
            detail=f"Looked for {folders[0] / name}.json; available suites: {known}.",
            hint="Write the file, or name another suite at the application's output.",
        )
    try:
        suite = json.loads(path.read_text())
    except ValueError as error:
        raise GateError(
            f'suite "{name}" is not JSON: {error}',
            detail=f"Read from {path}.",
        ) from error
    if not isinstance(suite, dict) or not isinstance(suite.get("expectations"), list):
        raise GateError(
            f'suite "{name}" is not a suite',
            detail=f'{path} needs a list "expectations".',
        )
    if suite.get("name") != name:
        raise GateError(
            f'suite in file "{name}.json" must have the same name, not "{suite.get("name")}"'
        )
    suite = with_ids(suite)
    if not suite["expectations"]:
        raise GateError(
            f'suite "{name}" checks nothing',
            hint="A suite needs at least one expectation.",
        )
    for entry in suite["expectations"]:
        _check_expectation(name, entry)
    _refuse_twice(name, "check", [entry["meta"]["check"] for entry in suite["expectations"]])
    meta = suite.get("meta") or {}
    may_be_empty = meta.get("may_be_empty", False)
    if not isinstance(may_be_empty, bool):
        raise GateError(
            f'suite "{name}" needs true or false as "may_be_empty", not {json.dumps(may_be_empty)}'
        )
    return Suite(
        name,
        tuple(suite["expectations"]),
        tuple(_measures(name, meta)),
        notes=suite.get("notes") or "",
        may_be_empty=may_be_empty,
    )


def with_ids(suite: dict[str, Any]) -> dict[str, Any]:
    """Returns a suite with the ids of the suite and of every check, which are UUIDs of their names.

    >>> suite = {"name": "delays", "expectations": [{"meta": {"check": "no-gap"}}]}
    >>> with_ids(suite)["expectations"][0]["id"]
    'c7aff774-bccf-5443-a09c-208629a06727'
    """
    name = suite["name"]
    entries = []
    for entry in suite.get("expectations", []):
        slug = (entry.get("meta") or {}).get("check", "")
        entries.append({**entry, "id": check_id(name, slug)})
    return {**suite, "id": check_id(name, ""), "expectations": entries}


def check_id(suite: str, slug: str) -> str:
    """Returns the id of a check, or of the suite if the slug is empty."""
    return str(uuid.uuid5(NAMESPACE, f"{suite}/{slug}" if slug else suite))


def canonical(suite: dict[str, Any]) -> str:
    """Returns the text for a suite's file, with ids and sorted keys."""
    return json.dumps(with_ids(suite), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _check_expectation(suite: str, entry: dict[str, Any]) -> None:
    slug = (entry.get("meta") or {}).get("check")
    if not slug or not _SLUG.fullmatch(slug):
        raise GateError(
            f'expectation "{entry.get("type")}" of suite "{suite}" needs a slug in '
            f'meta.check, not "{slug}"',
            hint='Use lower-case letters, digits and hyphens, such as "no-repeated-keys"; findings '
            "are stored under it.",
        )
    if not entry.get("description"):
        raise GateError(
            f'check "{slug}" of suite "{suite}" has no description',
            hint="Describe in a sentence what the check expects.",
        )
    if entry.get("severity", "critical") not in SEVERITIES:
        allowed = ", ".join(SEVERITIES)
        raise GateError(
            f'severity of check "{slug}" of suite "{suite}" must be one of {allowed}, not '
            f'"{entry["severity"]}"'
        )


def _measures(suite: str, meta: Mapping[str, Any]) -> Iterable[Measure]:
    for section in ("measures", "row_measures"):
        for name, value in (meta.get(section) or {}).items():
            if not _NAME.fullmatch(name):
                raise GateError(f'measure "{name}" of suite "{suite}" is not a column name')
            if name in COLUMNS:
                raise GateError(
                    f'measure "{name}" of suite "{suite}" has the name of a column of the window '
                    "report",
                    hint="Give it another name, or remove it and check the column.",
                )
            entry = {"sql": value} if isinstance(value, str) else value
            if not isinstance(entry, dict) or not entry.get("sql"):
                raise GateError(f'measure "{name}" of suite "{suite}" has no SQL')
            yield _measure(
                f'measure "{name}" of suite "{suite}"',
                name,
                entry,
                over_rows=section == "row_measures",
            )


def _measure(which: str, name: str, entry: Mapping[str, Any], *, over_rows: bool) -> Measure:
    known = {"sql", "empty", "inputs", "windows"} if over_rows else {"sql", "empty"}
    if unknown := sorted(entry.keys() - known):
        raise GateError(
            f'{which} has the unknown key "{unknown[0]}"',
            detail=f"Known are {', '.join(sorted(known))}.",
        )
    empty = entry.get("empty", 0 if over_rows else None)
    if isinstance(empty, bool) or not isinstance(empty, int | float | None):
        raise GateError(f'{which} needs a number as "empty", or null, not "{empty}"')
    inputs = entry.get("inputs", [])
    windows = entry.get("windows", "one")
    if not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
        raise GateError(f'{which} needs a list of streams as "inputs", not {json.dumps(inputs)}')
    if windows not in ("one", "several"):
        raise GateError(f'{which} needs "one" or "several" as "windows", not {json.dumps(windows)}')
    return Measure(
        name,
        entry["sql"],
        empty,
        over_rows=over_rows,
        inputs=tuple(inputs),
        across=windows == "several",
    )


def _refuse_twice(suite: str, kind: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GateError(f'{kind} "{twice[0]}" is twice in suite "{suite}"')


def main(paths: Iterable[str]) -> None:
    """Writes suite files in canonical form."""
    for path in map(Path, paths):
        path.write_text(canonical(json.loads(path.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
