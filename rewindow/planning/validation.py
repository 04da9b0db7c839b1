"""`rewindow validate`: all that is wrong with an application and what it needs, without a range, a
replay or a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rewindow.application import (
    Application,
    GraphDescription,
    Mode,
    Violation,
    describe_graph,
    find_violations,
)
from rewindow.application.advice import ADVICE
from rewindow.application.overrides import OPTION, overrides_from
from rewindow.errors import InputError, RangeError, RewindowError
from rewindow.loading.catalog import (
    LoadedApplication,
    application_names,
    load_application,
    overrides_in_file,
)
from rewindow.loading.determinism_lint import doubts
from rewindow.loading.suite_flaws import suite_flaws
from rewindow.names import did_you_mean
from rewindow.planning.inputs import open_recorded_stream, other_grid, renamed_stream
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.streams import stored_grid


@dataclass(frozen=True)
class Validation:
    """What is wrong with an application.

    Attributes:
        mode: the recovery mode that it was checked for.
        violations: broken rules, ordered by operator, then rule number; with one of them nothing is
            replayed.
        warnings: what is odd, or could not be looked at; a replay notes it and runs.
        graph: the application as it is written.
    """

    application: str
    mode: Mode
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]
    graph: GraphDescription

    @property
    def is_valid(self) -> bool:
        """Whether the application can be replayed."""
        return not self.violations

    def to_json(self) -> dict[str, object]:
        """Returns it for programs (docs/json.md)."""
        return {
            "application": self.application,
            "mode": self.mode.name,
            "valid": self.is_valid,
            "violations": [
                {**vars(one), "advice": ADVICE.get(one.rule, "")} for one in self.violations
            ],
            "warnings": list(self.warnings),
            "graph": self.graph.model_dump(mode="json"),
        }


def validate(
    config: Config,
    application: str,
    *,
    mode: str = Mode.EXACTLY_ONCE.name,
    parameters: Mapping[str, str] | None = None,
    properties: Mapping[str, Any] | None = None,
    columns_of: Callable[[str], pa.Schema | None] = lambda name: None,
) -> Validation:
    """Returns all that is wrong with an application at once (O45, O46, O60); creates nothing.

    Its inputs need not be recorded yet: then the columns are compared that they will have, as far
    as that can be told.

    Args:
        columns_of: tells the columns of a stream of the settings that is not recorded yet, with the
            type null for those whose type is not known; None where nothing is known.
            `rewindow.recording.expected_columns` does.

    Raises:
        InputError: there is no such application or mode, or its module cannot be loaded.
    """
    recovery = Mode.parse(mode)
    given = [*overrides_in_file(config, application), *overrides_from(properties or {}, OPTION)]
    loaded = load_application(config, application, parameters, given=given)
    streams = [
        _look_at(config, loaded.app, name, columns_of=columns_of) for name in loaded.app.streams
    ]
    tables: dict[str, Table] = {}
    schemas: dict[str, pa.Schema] = {}
    further: list[Violation] = []
    warnings = list(loaded.app.warnings())
    for one in streams:
        if one.table is not None:
            tables[one.name] = one.table
            schemas[one.name] = one.table.schema
        if one.columns is not None:
            schemas[one.name] = one.columns
        further += one.flaws
        if one.warning:
            warnings.append(one.warning)
    further += _unwritable(loaded)
    warnings += map(str, doubts(loaded.files))
    if len(tables) == len(streams):
        further += suite_flaws(config, loaded.app, tables)
    elif any(output.suite for output in loaded.app.outputs.values()):
        warnings.append(
            "suites were not checked: their measures may read inputs that are not there yet"
        )
    violations = find_violations(loaded.app, recovery, schemas, further=further)
    return Validation(
        loaded.app.name,
        recovery,
        violations,
        warnings=tuple(warnings),
        graph=describe_graph(loaded.app),
    )


@dataclass(frozen=True)
class _Stream:
    """An input as far as it is there, with what is wrong with it."""

    name: str
    table: Table | None = None
    columns: pa.Schema | None = None
    flaws: tuple[Violation, ...] = ()
    warning: str = ""


def _look_at(
    config: Config,
    app: Application,
    name: str,
    columns_of: Callable[[str], pa.Schema | None],
) -> _Stream:
    """Returns an input; one that can still be recorded or published is no fault of the
    application.
    """
    is_there = Table.exists(config.stream_table(name))
    if not is_there and renamed_stream(config, name) is None:
        return _not_there(config, app, name, columns_of)
    try:
        stream = open_recorded_stream(config, name)
    except RangeError as error:
        return _Stream(name, warning=f"{error.primary}: its columns were not compared")
    except RewindowError as error:
        return _Stream(name, flaws=(Violation("W4", "", name, value=name, message=error.primary),))
    return _Stream(
        name,
        stream.table,
        flaws=tuple(other_grid(app, name, stored_grid(stream.seals))),
    )


def _not_there(
    config: Config,
    app: Application,
    name: str,
    columns_of: Callable[[str], pa.Schema | None],
) -> _Stream:
    upstream = name.partition(".")[0]
    if name in config.streams:
        columns = columns_of(name)
        compared = (
            "its columns were not compared"
            if columns is None
            else "the columns of its source were compared"
        )
        warning = f'stream "{name}" is not recorded yet, so {compared}: rewindow record {name}'
        try:
            flaws = tuple(other_grid(app, name, config.stream(name).grid))
        except InputError as error:
            flaws = (Violation("W15", "", name, value=name, message=error.primary),)
        return _Stream(name, None, columns, flaws=flaws, warning=warning)
    known = application_names(config)
    if "." in name and upstream in known:
        return _Stream(
            name,
            warning=f'stream "{name}" is not published yet, so its columns were not compared: '
            "rewindow replay "
            f"{upstream}",
        )
    meant = did_you_mean(name, [*config.streams, *known])
    message = (
        "there is no such stream: it is not recorded, and rewindow.toml has no "
        f"[streams.{name}]. {meant}"
    ).rstrip()
    return _Stream(name, flaws=(Violation("O50", "", name, value=name, message=message),))


def _unwritable(loaded: LoadedApplication) -> Iterator[Violation]:
    """Yields a property that cannot be written down, where all are as they should be (W65)."""
    if any(node.operator.wrong_properties() for node in loaded.app.nodes.values()):
        return
    try:
        loaded.configuration_digest  # noqa: B018
    except InputError as error:
        yield Violation("W65", "", "", value=loaded.app.name, message=error.primary)
