"""Applications by name: in the folders of the settings, then those that come with Rewindow."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from rewindow.application import Application
from rewindow.config import Config
from rewindow.errors import InputError, RewindowError
from rewindow.operators.applications import HEARTBEAT, heartbeat_application
from rewindow.tables import Table
from rewindow.version import VERSION


@dataclass(frozen=True)
class LoadedApplication:
    """An application with the fingerprints that a checkpoint is bound to (W65).

    Attributes:
        code_version: changes with the source of the application, of its operators, or of Rewindow's release.
        configuration_digest: changes with the graph, a property or an attribute.
    """

    app: Application
    code_version: str
    configuration_digest: str


def application_names(config: Config) -> list[str]:
    """Returns the names of all applications that can be replayed."""
    found = {path.stem for folder in config.applications for path in folder.glob("*.py") if path.stem[0] != "_"}
    return sorted(found | {f"{HEARTBEAT}{stream}" for stream, settings in config.streams.items() if settings.interval})


def load_application(config: Config, name: str, parameters: Mapping[str, str] | None = None) -> LoadedApplication:
    """Returns an application; building it runs nothing.

    A module in `config.applications` holds either `app`, or `build(**parameters)` that returns one.

    Raises:
        InputError: there is no such application, or its module cannot be imported or holds none.
    """
    parameters = dict(parameters or {})
    path = next((folder / f"{name}.py" for folder in config.applications if (folder / f"{name}.py").is_file()), None)
    if path is None:
        if not name.startswith(HEARTBEAT) or name.removeprefix(HEARTBEAT) not in config.streams:
            known = ", ".join(application_names(config)) or "none"
            raise InputError(f'application "{name}" is unknown', hint=f"Known: {known}.")
        _refuse_parameters(name, parameters)
        app, sources = _fill(config, name.removeprefix(HEARTBEAT)), []
    else:
        module = _import(name, path)
        app, sources = _application_of(module, name, parameters), [path]
    return LoadedApplication(app, _code_version(app, sources), _configuration_digest(app))


def _import(name: str, path: Path) -> ModuleType:
    qualified = f"rewindow_applications.{name}"
    spec = importlib.util.spec_from_file_location(qualified, path)
    assert spec is not None and spec.loader is not None, "a Python file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f'application "{name}" cannot be imported: {error}', detail=f"Read from {path}.") from error
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
        raise InputError(f'application "{name}" cannot be built with {given}: {error}') from error
    if not isinstance(app, Application):
        raise InputError(f'application "{name}" is not there', hint="Its module must hold `app` or `build()`.")
    if app.name != name:
        raise InputError(f'application "{app.name}" must have the name of its file, {name}')
    return app


def _refuse_parameters(name: str, parameters: Mapping[str, str]) -> None:
    if parameters:
        raise InputError(f'application "{name}" takes no parameters, got {", ".join(parameters)}')


def _fill(config: Config, stream: str) -> Application:
    settings = config.stream(stream)
    return heartbeat_application(stream, settings, event_columns(Table.open(config.stream_table(stream))))


def event_columns(table: Table) -> pa.Schema:
    """Returns a stream's schema as operators see it: bookkeeping included, since they may use it."""
    return table.schema


def _code_version(app: Application, sources: list[Path]) -> str:
    files = {Path(found) for node in app.nodes.values() if (found := inspect.getsourcefile(type(node.operator)))}
    digest = hashlib.sha256(VERSION.encode())
    library = Path(__file__).parent.glob("*.py")
    for path in sorted({*files, *sources, *library}, key=lambda path: path.name):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _configuration_digest(app: Application) -> str:
    graph = {
        "window": app.window,
        "origin_ms": app.origin_ms,
        "nodes": {
            node.name: {
                "kind": type(node.operator).__qualname__,
                "properties": json.loads(node.operator.model_dump_json(warnings=False)),
                "feeds": {port: str(end) for port, end in node.feeds.items()},
            }
            for node in app.nodes.values()
        },
    }
    return hashlib.sha256(json.dumps(graph, sort_keys=True, default=str).encode()).hexdigest()[:16]
