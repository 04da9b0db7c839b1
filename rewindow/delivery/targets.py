"""Creates targets from the sections `[targets.NAME]` of the settings."""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Callable
from pathlib import Path

from rewindow.delivery.deliver import DeliveryResult, deliver
from rewindow.delivery.files import FileTarget
from rewindow.delivery.target import AT_LEAST_ONCE, EXACTLY_ONCE, Target
from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.settings.config import Config, TargetConfig


def deliver_to(
    config: Config,
    output: str,
    target: str,
    *,
    create: bool = False,
    dry_run: bool = False,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> DeliveryResult:
    """Writes the published windows of an output to a target, if their rows differ there.

    If nothing has changed since the last run, it writes nothing. After a crash, call it again: it
    writes the windows that the target does not store yet.

    Args:
        output: a published output, as `application.output`.
        target: section [targets.NAME] of the settings.
        create: whether to create a table that does not exist, in PostgreSQL only.
        dry_run: whether to count the windows without writing them.
        report: called with the number of windows that are done, and the number of all windows.

    Raises:
        InputError: no output or target has this name, or its settings or its table are wrong.
        OverlapError: another process delivers to the target.
        DeliveryError: a publication is not finished, or the target has failed.
        TableError: a window of the published table has more or fewer rows than its seal counts.
    """
    return deliver(
        config,
        output,
        target,
        target_of(config, target, create=create and not dry_run),
        at_least_once=config.targets[target].at_least_once,
        dry_run=dry_run,
        report=report,
    )


def target_of(config: Config, name: str, *, create: bool = False) -> Target:
    """Returns the target that the section `[targets.NAME]` describes.

    Args:
        create: whether to create a table that does not exist, in PostgreSQL only.

    Raises:
        InputError: the section does not exist, one of its keys is missing or wrong, or the
            environment variable with the URL is not set.
    """
    if name not in config.targets:
        known = ", ".join(config.targets) or "none"
        raise InputError(
            f'target "{name}" is unknown',
            hint=f"{did_you_mean(name, config.targets)}Sections [targets.NAME]: {known}.",
        )
    settings = config.targets[name]
    if settings.format == "postgresql":
        from rewindow.delivery.postgresql import PostgresTarget

        variable = _needed(
            name,
            "url_env",
            settings.url_env,
        )
        url = os.environ.get(variable)
        if not url:
            raise InputError(
                f"the environment variable {variable} is not set",
                detail=f"[targets.{name}] reads the URL of the database from it.",
            )
        table = _needed(
            name,
            "table",
            settings.table,
        )
        return PostgresTarget(
            url,
            table,
            create=create,
        )
    if settings.format == "python":
        return _own_target(
            config,
            name,
            settings,
        )
    folder = config.root / _needed(
        name,
        "folder",
        settings.folder,
    )
    return FileTarget(folder, settings.format)


def promise_of(config: Config, name: str) -> str:
    """Returns the guarantee of a target: "exactly once" or "at least once".

    Raises:
        InputError: its class cannot be found.
    """
    settings = config.targets[name]
    if settings.format != "python":
        return EXACTLY_ONCE
    target = _own_target(config, name, settings)
    return target.promise if target.knows_its_windows else AT_LEAST_ONCE


def _needed(name: str, key: str, value: str | None) -> str:
    if value is None:
        raise InputError(f"[targets.{name}] needs the key {key}")
    return value


def _own_target(config: Config, name: str, settings: TargetConfig) -> Target:
    """Returns an instance of a class in the project, which is named as FILE:CLASS."""
    source = _needed(
        name,
        "source",
        settings.source,
    )
    file, _, kind = source.partition(":")
    path = config.root / file
    if not kind or not path.is_file():
        raise InputError(
            f'[targets.{name}] source = "{source}" must be FILE:CLASS, and the file must exist',
            detail=f"The path is {path}.",
        )
    found = getattr(
        _module(path),
        kind,
        None,
    )
    if not (isinstance(found, type) and issubclass(found, Target)):
        raise InputError(f"{path} has no class {kind} that derives from rewindow.delivery.Target")
    unknown = sorted(set(settings.settings) - set(_attributes(found)))
    if unknown:
        known = ", ".join(_attributes(found)) or "none"
        raise InputError(
            f'[targets.{name}] settings has the unknown key "{unknown[0]}"',
            hint=f"Attributes of {kind}: {known}.",
        )
    return found(**settings.settings)


def _attributes(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        if base is not Target:
            names += inspect.get_annotations(base)
    return names


def _module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a file of Python"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
