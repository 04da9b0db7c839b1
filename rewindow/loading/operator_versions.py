"""The code version and the configuration digest of each operator. Its state, and everything
computed from it, is bound to both.

The code is that of its class and base classes, of the code in the application's files that they
reach by name, and of functions and objects among its properties. The configuration is that of the
operator and of everything upstream, as far as it decides rows. So it includes neither the recovery
mode nor the container.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator, Mapping
from inspect import getclosurevars
from pathlib import Path
from types import FunctionType
from typing import Any

from rewindow.application import Application, FrameOperator
from rewindow.loading.code_versions import described, digest_of, library_code, version_of
from rewindow.loading.reached_code import WHOLE, CutFiles, Step, sources_of
from rewindow.recovery import OperatorVersion
from rewindow.sequences import excluding

_SCHEDULE = re.compile("before_checkpoint|windows_to_checkpoint|next_mark")
"""Names in the code of an operator whose rows may depend on when a checkpoint is due."""


def operator_codes(
    app: Application,
    modules: Mapping[str, Path],
) -> dict[str, list[str]]:
    """Returns the code of each operator as texts, by operator name.

    Statements of a file that do more than define or assign a name, such as calls, can change any
    operator. So they count for all operators, unless they build the graph.

    Args:
        app: the application, after loading.
        modules: module name to file, of the application's modules.
    """
    sources = sources_of(modules)
    of_all = []
    for step in sources.acting():
        texts = sources.reached(step)
        if not any(
            text.startswith("rewindow.") and text.endswith(".Application") for text in texts
        ):
            of_all.append("\n".join(texts))
    codes = {}
    for node in app.nodes.values():
        codes[node.name] = [*of_all]
        for step in _steps(sources, node.operator):
            codes[node.name].append("\n".join(sources.reached(step)))
    return codes


def operator_versions(
    app: Application,
    codes: Mapping[str, list[str]],
    checkpoint_windows: int,
) -> dict[str, OperatorVersion]:
    """Returns the version of each operator by operator name.

    Args:
        app: the application.
        codes: the code of its operators.
        checkpoint_windows: number of windows from one checkpoint to the next.

    Raises:
        InputError: a property cannot be written as JSON.
    """
    library = library_code()
    nodes = {}
    for name, node in app.nodes.items():
        streams = [end.port for end in node.feeds.values() if end.operator is None]
        nodes[name] = {**described(node), "schemas": [str(app.streams.get(one)) for one in streams]}
        if any(map(_SCHEDULE.search, codes[name])):
            nodes[name]["checkpoints"] = [checkpoint_windows, app.checkpoint_multiple]
    versions = {}
    for name in nodes:
        upstream = sorted(app.upstream(name))
        configuration = {
            "window": app.window,
            "origin_ms": app.origin_ms,
            "nodes": list(map(nodes.get, upstream)),
            "names": upstream,
        }
        versions[name] = OperatorVersion(
            code_version=version_of([library, *codes[name]]),
            configuration_digest=digest_of(configuration),
            upstream=excluding(upstream, [name]),
        )
    return versions


class _Finder(pickle.Pickler):
    """Collects the classes and functions that occur in given values."""

    found: list[Any]

    def persistent_id(self, value: Any) -> object:
        """Collects a class or a function instead of pickling it."""
        if not isinstance(value, type | FunctionType):
            return None
        if value not in self.found:
            self.found.append(value)
        return True


def _steps(sources: CutFiles, operator: FrameOperator) -> Iterator[Step]:
    """Yields the code of an operator: its class, and the classes and functions in its
    properties.
    """
    finder = _Finder(io.BytesIO())
    finder.found = [type(operator)]
    try:
        finder.dump(vars(operator))
        for value in finder.found:
            if isinstance(value, FunctionType):
                finder.dump([vars(value), getclosurevars(value).nonlocals])
            for one in getattr(value, "__mro__", [value]):
                if one.__module__ in sources:
                    yield one.__module__, (one.__qualname__.partition(".")[0],)
    except Exception:  # noqa: BLE001  (any object of a user may raise an error when it is inspected)
        for module in sources:
            yield module, WHOLE
