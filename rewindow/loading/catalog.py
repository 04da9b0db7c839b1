"""Finds applications by name.

They are in the folders of the settings, defined in rewindow.toml, or by the settings of streams.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from rewindow.application import Application, PropertyOverride, Violation, apply_overrides
from rewindow.application.failing import failing_tables
from rewindow.application.overrides import FILE
from rewindow.errors import CodeChangedError, InputError, RewindowError
from rewindow.loading.code_versions import code_version, configuration_digest, own_modules
from rewindow.loading.defined_applications import (
    defined_application,
    derive_columns,
    given_values,
)
from rewindow.loading.operator_versions import operator_codes, operator_versions
from rewindow.loading.stream_applications import stream_application
from rewindow.loading.user_lines import raised_at
from rewindow.names import check_name, did_you_mean, whole_replay
from rewindow.recovery import TUPLE_ORDER, OperatorVersion, Plan
from rewindow.sequences import names_of
from rewindow.settings.config import FILLED, HEARTBEAT, WINDOWS, ApplicationConfig, Config
from rewindow.storage import Table
from rewindow.storage.layout import CODE
from rewindow.version import PACKAGE

_MODULES = "rewindow_applications."
_brought_along: set[str] = set()
"""Names of the modules that applications imported from their folders. They are removed before the
next application is loaded.
"""
_loading = threading.RLock()
"""Loading changes the modules and the search path of the whole process, so threads take turns:
containers that run at the same time each load their application.
"""


@dataclass(frozen=True)
class LoadedApplication:
    """An application with the fingerprints to which a checkpoint is bound.

    Attributes:
        code_version: changes with the source of the application and the modules that it imports
            from its folder, with the classes of its operators and their bases, and with Rewindow's
            release and library of operators.
        files: the application's files, from which the code version is computed.
        operator_codes: operator name to its code, as texts.

    Rules: W65
    """

    app: Application
    code_version: str
    files: frozenset[Path]
    operator_codes: Mapping[str, list[str]]

    @cached_property
    def configuration_digest(self) -> str:
        """A digest that changes with the graph, a property or the grid.

        It requires that all properties are valid.

        Raises:
            InputError: a property cannot be written as JSON.
        """
        return configuration_digest(self.app.whole or self.app)

    def versions(self, checkpoint_windows: int | None) -> dict[str, OperatorVersion]:
        """Returns, for each operator, the version to which its state is bound.

        Args:
            checkpoint_windows: windows between checkpoints; None for those of the application.

        Raises:
            InputError: a property cannot be written as JSON.
        """
        distance = checkpoint_windows or self.app.checkpoint_windows
        return operator_versions(self.app, self.operator_codes, distance)


def application_names(config: Config) -> list[str]:
    """Returns the names of all applications that can be replayed."""
    names = {*config.made_applications, *config.defined_applications}
    for folder in config.applications:
        names.update(path.stem for path in folder.glob("*.py") if path.stem[0] != "_")
    return sorted(names)


def load_planned(config: Config, plan: Plan) -> LoadedApplication:
    """Returns the application of a replay with the values in its plan.

    For a container, returns the part of the application that it computes. A candidate has separate
    code.
    """
    code = config.replay_root(plan.replay_id) / CODE
    folder = code.local() if plan.candidate is not None and code.exists() else None
    loaded = load_application(
        config, plan.application, plan.parameters, given=plan.given, code=folder
    )
    if plan.quarantining:
        recorded = {}
        for entry in plan.recorded:
            recorded[entry.stream] = Table.open(entry.table(config.state), entry.version).schema
        loaded.app.failing = failing_tables(loaded.app, plan.quarantining, recorded)
    if not plan.container or plan.graph is None:
        return loaded
    return replace(loaded, app=loaded.app.part(names_of(plan.graph.operators)))


def load_application(
    config: Config,
    name: str,
    parameters: Mapping[str, str] | None = None,
    given: Iterable[PropertyOverride] | None = None,
    code: Path | None = None,
) -> LoadedApplication:
    """Returns an application with given values of its properties. Building it runs nothing.

    A module in `config.applications` defines either `app`, or `build(**parameters)` that returns an
    application. While it is loaded, it can import from its folder. Modules whose names start with
    an underscore are not applications.

    Args:
        config: current settings.
        name: name of the application.
        parameters: parameters of `build`.
        given: overrides of properties and attributes; by default those in rewindow.toml. Callers
            that continue a plan pass those of the plan.
        code: folder with its module, instead of those in the settings.

    Raises:
        InputError: the application does not exist, or its module cannot be imported or defines no
            application.
    """
    check_name("application", name)
    with _loading:
        return _load(config, name, dict(parameters or {}), given, code)


def _load(
    config: Config,
    name: str,
    parameters: dict[str, str],
    given: Iterable[PropertyOverride] | None,
    code: Path | None,
) -> LoadedApplication:
    folders = config.applications if code is None else [code]
    paths = [folder / f"{name}.py" for folder in folders if name[0] != "_"]
    path = next((path for path in paths if path.is_file()), None)
    definition = definition_of(config, name)
    modules: dict[str, Path] = {}
    if definition is not None:
        _refuse_parameters(name, parameters)
        if path is not None or stream_of(config, name) is not None:
            raise InputError(
                f'application "{name}" is defined twice: by [applications.{name}] with a window, '
                f"and by {path or 'the settings of a stream'}",
                hint="Give one of them another name, or leave window out to configure the other.",
            )
        app = defined_application(name, definition, partial(_columns_of, config))
    elif path is None:
        stream = stream_of(config, name)
        if stream is None:
            raise _unknown(config, name)
        _refuse_parameters(name, parameters)
        app = _made_application(config, name, stream)
    else:
        folder = path.parent.resolve()
        with _importing_from(folder):
            app = _application_of(_import(name, path), name, parameters)
        modules = {f"{_MODULES}{name}": path, **_modules_of(folder)}
    wished = overrides_in_file(config, name) if given is None else list(given)
    if path is None and definition is None:
        wished = _without_settings_of_streams(app, wished)
    apply_overrides(app, wished)
    if definition is not None:
        derive_columns(app)
    own = own_modules(app, modules)
    return LoadedApplication(
        app, code_version(own), frozenset(own.values()), operator_codes(app, own)
    )


def overrides_in_file(config: Config, name: str) -> list[PropertyOverride]:
    """Returns the properties and attributes of an application that rewindow.toml sets.

    Rules: O28
    """
    settings = config.application_settings.get(name)
    if settings is None:
        return []
    is_defined = definition_of(config, name) is not None
    defining = {"window", "origin"} if is_defined else {"origin"}
    own = settings.model_dump(exclude={"operators", "outputs", *defining}, exclude_none=True)
    overrides = _overrides(own)
    for where, values in settings.operators.items():
        given = given_values(values) if is_defined else values
        overrides += _overrides(given, operator=where)
    for output, attributes in settings.outputs.items():
        if is_defined:
            attributes = attributes.model_copy(update={"source": None, "key": None})
        overrides += _overrides(attributes.model_dump(exclude_none=True), output=output)
    return overrides


def definition_of(config: Config, name: str) -> ApplicationConfig | None:
    """Returns the section of the settings that defines an application without code; None for other
    names.
    """
    settings = config.application_settings.get(name)
    return settings if settings is not None and settings.window is not None else None


def _overrides(
    values: Mapping[str, Any],
    operator: str = "",
    output: str = "",
) -> list[PropertyOverride]:
    of_file = partial(PropertyOverride, operator=operator, output=output, source=FILE)
    return [of_file(name=name, value=value) for name, value in values.items()]


def _without_settings_of_streams(
    app: Application,
    given: list[PropertyOverride],
) -> list[PropertyOverride]:
    """Returns the overrides that are allowed for an application that a stream's settings define.

    Properties set by those settings also determine its suite and its outputs. They must be changed
    in those settings, so an override of them is recorded as a violation.
    """
    kept = []
    for one in given:
        node = app.nodes.get(one.operator)
        if node is not None and one.name in node.operator.given_properties():
            message = (
                "this property comes from the settings of the stream: change it in "
                "[streams.NAME] of rewindow.toml"
            )
            app.declared.append(
                Violation(
                    "O28", one.operator, "", value=f"{one.name} = {one.value!r}", message=message
                )
            )
        else:
            kept.append(one)
    return kept


def _unknown(config: Config, name: str) -> InputError:
    known = application_names(config)
    folders = ", ".join(map(str, config.applications))
    hint = f"{did_you_mean(name, known)}Known: {', '.join(known)}."
    if not known:
        hint = (
            f"Write {name}.py there; `rewindow init FILE` in an empty folder writes a first "
            "one to copy."
        )
    if name in config.application_settings:
        hint = f"[applications.{name}] has no window: with one it defines an application. {hint}"
    return InputError(
        f'application "{name}" is unknown',
        detail=f"Looked for {name}.py in {folders}.",
        hint=hint,
    )


def application_modules() -> list[ModuleType]:
    """Returns the modules of the applications loaded so far, and the modules that they imported
    from their folders.
    """
    return [
        module
        for name, module in sys.modules.copy().items()
        if name.startswith(_MODULES) or name in _brought_along
    ]


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Allows an application to import modules from its folder.

    They are imported again each time. Other modules with the same name have precedence.
    """
    for name in {*_brought_along, *_modules_of(folder)}:
        # A folder without __init__.py is a module too, and remembers the modules in it.
        while name:
            sys.modules.pop(name, None)
            name = name.rpartition(".")[0]
    importlib.invalidate_caches()
    added = [str(folder)] if str(folder) not in sys.path else []
    sys.path += added
    # Python treats a cached file as current if time and size are equal, so it could run code that
    # differs from the code version.
    caching = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = caching
        for entry in added:
            sys.path.remove(entry)
        _brought_along.update(_modules_of(folder))


def _modules_of(folder: Path) -> dict[str, Path]:
    """Returns the files of the modules that were imported from a folder, by name."""
    found = {}
    inside = f"{folder}/"
    for name, module in sys.modules.copy().items():  # Other threads import at the same time.
        file = getattr(module, "__file__", None) or ""
        if not file.startswith(inside):
            continue  # This applies to nearly all of thousands of modules.
        top = f"{inside}{name.partition('.')[0]}"
        if file.startswith((f"{top}.py", f"{top}/")) and not Path(file).is_relative_to(PACKAGE):
            found[name] = Path(file)
    return found


def _import(name: str, path: Path) -> ModuleType:
    qualified = f"{_MODULES}{name}"
    spec = importlib.util.spec_from_file_location(qualified, path)
    assert spec is not None and spec.loader is not None, "a Python file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(f'application "{name}" cannot be imported', error, path) from error
    return module


def _application_of(module: ModuleType, name: str, parameters: Mapping[str, str]) -> Application:
    build = getattr(module, "build", None)
    if not build:
        _refuse_parameters(name, parameters)
    try:
        app = build(**parameters) if build else getattr(module, "app", None)
    except RewindowError:
        raise
    except Exception as error:
        given = ", ".join(f"{key}={value}" for key, value in parameters.items()) or "no parameters"
        raise _broken(
            f'application "{name}" cannot be built with {given}',
            error,
            Path(module.__file__ or ""),
        ) from error
    if not isinstance(app, Application):
        raise InputError(
            f'the file of application "{name}" does not define an application',
            hint="Define `app` or `build()` in it.",
        )
    if app.name != name:
        raise InputError(f'application "{app.name}" must have the name of its file, {name}')
    return app


def _broken(what: str, error: Exception, path: Path) -> InputError:
    """Returns the error about an application definition that failed, with the line in the
    application's folder that raised it.
    """
    folder = path.parent
    files = {str(path), *map(str, folder.glob("*.py")), *map(str, folder.glob("*/*.py"))}
    line = raised_at(error, files)
    hint = "Correct it; nothing was created."
    if _asked_for_spark(error):
        hint = "Planning starts no Spark: make columns and functions of Spark inside transform."
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    return InputError(
        f"{what}: {said}",
        detail=f"Raised by {line}." if line else f"Read from {path}.",
        hint=hint,
    )


def _asked_for_spark(error: Exception) -> bool:
    """Returns whether pyspark raised an error because there is no session, either explicitly or by
    a failed assertion.
    """
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    is_pyspark = "/pyspark/" in Path(innermost).as_posix()
    return is_pyspark and (
        isinstance(error, AssertionError) or "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error)
    )


def _refuse_parameters(name: str, parameters: Mapping[str, str]) -> None:
    if parameters:
        raise InputError(f'application "{name}" takes no parameters, got {", ".join(parameters)}')


def stream_of(config: Config, name: str) -> str | None:
    """Returns the stream whose settings define an application with this name, or could define it;
    None for other names.
    """
    for begin in (HEARTBEAT, FILLED, WINDOWS):
        stream = name.removeprefix(begin)
        if stream != name and stream in config.streams:
            return stream
    return None


def _columns_of(config: Config, stream: str) -> pa.Schema:
    """Returns the columns of a recorded or published stream.

    Raises:
        InputError: the stream is neither recorded nor published.
    """
    table = config.stream_table(stream)
    if not Table.exists(table):
        application = stream.rpartition(".")[0]
        known = [*config.streams, *application_names(config)]
        hint = f"{did_you_mean(stream, known)}rewindow.toml has no [streams.{stream}]."
        if stream in config.streams:
            hint = f"Record it first: rewindow record {stream}"
        elif application in known:
            hint = f"Publish it first: rewindow replay {application}"
        raise InputError(f'stream "{stream}" is not recorded', hint=hint)
    return event_columns(Table.open(table))


def _made_application(config: Config, name: str, stream: str) -> Application:
    settings = config.stream(stream)
    if not Table.exists(config.stream_table(stream)):
        raise InputError(
            f'stream "{stream}" is not recorded',
            hint=f"Record it first: rewindow record {stream}",
        )
    return stream_application(
        name,
        stream,
        settings,
        schema=event_columns(Table.open(config.stream_table(stream))),
    )


def check_code(plan: Plan, loaded: LoadedApplication) -> None:
    """Checks that the code, the configuration and the order of tuples are the same as in the plan.

    Raises:
        CodeChangedError: one of the fingerprints or the order differs.

    Rules: O39, W65
    """
    again = f"rewindow abandon {whole_replay(plan.replay_id)} && {plan.command}"
    if plan.tuple_order != TUPLE_ORDER and _depends_on_order(loaded.app):
        raise CodeChangedError(
            f'replay "{plan.replay_id}" was planned with another order of tuples between operators',
            detail="This version of Rewindow calls tuple operators in another order than the "
            "version that computed the windows so far. Nothing was changed.",
            hint=f"Plan the range again: {again}",
        )
    for name, planned, now in (
        ("code version", plan.code_version, loaded.code_version),
        ("configuration", plan.configuration_digest, loaded.configuration_digest),
    ):
        if planned != now:
            raise CodeChangedError(
                f'{name} of application "{plan.application}" has changed since replay '
                f'"{plan.replay_id}" was planned',
                detail=f"Planned with {planned}, now {now}. Its checkpoints belong to the old one.",
                hint=f"Plan the range again: {again}; "
                f"or put the code back, then: rewindow replay --resume {plan.replay_id}",
            )


def _depends_on_order(app: Application) -> bool:
    """Returns whether a tuple operator reads another operator or a published stream."""
    nodes = app.nodes.values()
    return any(node.operator.called_by_tuples and node.unordered for node in nodes)


def event_columns(table: Table) -> pa.Schema:
    """Returns a stream's schema as operators see it.

    It includes bookkeeping columns, which operators can use.
    """
    return table.schema
