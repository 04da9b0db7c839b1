"""`rewindow validate`: checks an application and its inputs, without a range, a replay or a JVM."""

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
    """The result of checking an application.

    Attributes:
        mode: the recovery mode that it was checked for.
        violations: broken rules, ordered by operator, then rule number; a single one prevents a
            replay.
        warnings: problems that do not prevent a replay, and checks that were not possible.
        graph: the application's graph.
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
        """Returns the result for programs (docs/json.md)."""
        return {
            "application": self.application,
            "mode": self.mode.name,
            "valid": self.is_valid,
            "violations": [
                {**vars(violation), "advice": ADVICE.get(violation.rule, "")}
                for violation in self.violations
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
    """Returns all violations and warnings of an application at once. It creates nothing.

    The inputs need not be recorded yet. Then the columns that they will have are checked, as far as
    they are known.

    Args:
        config: current settings.
        application: its name.
        mode: name of the recovery mode.
        parameters: values of the application's parameters.
        properties: values of properties and attributes, by operator.property.
        columns_of: returns the columns of a stream in the settings that is not recorded yet, with
            type null for unknown types; None if the columns are unknown.
            `rewindow.recording.expected_columns` implements it.

    Raises:
        InputError: the application or mode is unknown, or its module cannot be loaded.

    Rules: O45, O46, O60
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
    for stream in streams:
        if stream.table is not None:
            tables[stream.name] = stream.table
            schemas[stream.name] = stream.table.schema
        if stream.columns is not None:
            schemas[stream.name] = stream.columns
        further += stream.flaws
        if stream.warning:
            warnings.append(stream.warning)
    further += _unwritable(loaded)
    warnings += map(str, doubts(loaded.files))
    if len(tables) == len(streams):
        further += suite_flaws(config, loaded.app, tables)
    elif any(output.suite for output in loaded.app.outputs.values()):
        warnings.append(
            "suites were not checked: their measures may read inputs that do not exist yet"
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
    """An input with its violations, as far as the input exists."""

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
    """Returns an input with its violations.

    If the input is not recorded or published yet, that is only a warning.
    """
    exists = Table.exists(config.stream_table(name))
    if not exists and renamed_stream(config, name) is None:
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
        "the stream does not exist: it is not recorded, and rewindow.toml has no "
        f"[streams.{name}]. {meant}"
    ).rstrip()
    return _Stream(name, flaws=(Violation("O50", "", name, value=name, message=message),))


def _unwritable(loaded: LoadedApplication) -> Iterator[Violation]:
    """Yields a violation for a property that cannot be serialized, unless there are invalid
    properties.

    Rules: W65
    """
    if any(node.operator.wrong_properties() for node in loaded.app.nodes.values()):
        return
    try:
        loaded.configuration_digest  # noqa: B018
    except InputError as error:
        yield Violation("W65", "", "", value=loaded.app.name, message=error.primary)
