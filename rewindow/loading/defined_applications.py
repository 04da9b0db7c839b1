"""Applications without code: sections `[applications.NAME]` of rewindow.toml with a `window`, whose
operators each name an operator of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from rewindow.application import Application, FrameOperator, Node, PortHandle
from rewindow.application.configuring import apply_to
from rewindow.errors import InputError
from rewindow.loading.library import column_properties, library_operator
from rewindow.settings.config import ApplicationConfig
from rewindow.windows import parse_time

_OPERATOR = "operator"
_INPUTS = "inputs"


def defined_application(
    name: str,
    settings: ApplicationConfig,
    columns_of: Callable[[str], pa.Schema],
) -> Application:
    """Returns the application that a section defines. `apply_overrides` sets attributes and error
    ports later.

    Args:
        name: name of the application.
        settings: its section, with a window.
        columns_of: returns the columns of a recorded or published stream.

    Raises:
        InputError: a section or key is wrong; the message lists all errors.
    """
    app = Application(
        name,
        window=str(settings.window),
        origin_ms=parse_time(settings.origin) // 1000,
    )
    draft = _Draft(app, settings, columns_of)
    for operator in settings.operators:
        draft.place(operator, ())
    for output, attributes in settings.outputs.items():
        where = f"outputs.{output}"
        if attributes.source is None:
            draft.refuse(where, "source: an output needs the operator whose tuples it has")
            continue
        handle = draft.end_of(
            where,
            "source",
            attributes.source,
            (),
        )
        if handle is not None and handle.operator is None:
            draft.refuse(where, f'source: no operator has the name "{attributes.source}"')
        elif handle is not None:
            app.output(output, handle, key=attributes.key or ())
    if draft.wrong:
        raise InputError(
            f'application "{name}" cannot be made: {draft.wrong[0]}',
            detail=f"Wrong too: {'; '.join(draft.wrong[1:])}." if draft.wrong[1:] else "",
            hint="Change rewindow.toml; `rewindow operators` lists operators and properties.",
        )
    return app


def derive_columns(app: Application) -> None:
    """Updates the columns of operators after properties have changed.

    It also applies the overrides of these operators again, because the new columns may allow them.
    """
    for node in app.order():
        columns = _fed_columns(app, type(node.operator), node.feeds)
        given = node.operator.given_properties()
        if all(columns[name] in (None, given[name]) for name in columns):
            continue
        node.operator.set_properties(**columns)
        # An override may name a column that the operator did not have before.
        for one in app.given:
            if one.operator == node.name:
                apply_to(app, node, one)


def given_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values from an operator's section that a plan stores: properties, attributes and
    sections of error ports.
    """
    return {key: value for key, value in values.items() if key not in (_OPERATOR, _INPUTS)}


def input_streams(settings: ApplicationConfig) -> list[str]:
    """Returns the streams that a section names as inputs. Malformed inputs are skipped."""
    streams = []
    for values in settings.operators.values():
        inputs = values.get(_INPUTS)
        for source in inputs.values() if isinstance(inputs, Mapping) else ():
            if str(source).partition(".")[0] not in settings.operators:
                streams.append(str(source))
    return list(dict.fromkeys(streams))


class _Draft:
    """An application under construction. Each operator is added after its upstream operators."""

    def __init__(
        self,
        app: Application,
        settings: ApplicationConfig,
        columns_of: Callable[[str], pa.Schema],
    ) -> None:
        self.app = app
        self.settings = settings
        self.columns_of = columns_of
        self.wrong: list[str] = []
        self._tried: set[str] = set()

    def refuse(self, where: str, words: str) -> None:
        """Records an error about a key of a section."""
        self.wrong.append(f"[applications.{self.app.name}.{where}] {words}")

    def place(self, name: str, path: tuple[str, ...]) -> Node | None:
        """Adds an operator after its upstream operators and returns its node; None if one of them
        has an error.
        """
        where = f"operators.{name}"
        if name in path:
            loop = [*path[path.index(name) :], name]
            self.refuse(where, f"inputs: operators read each other in a loop: {' <- '.join(loop)}")
            return None
        if name in self._tried:
            return self.app.nodes.get(name)
        values = self.settings.operators[name]
        # Operators upstream come first: their columns are needed to build this one.
        feeds = self._feeds(name, values.get(_INPUTS), path)
        if name in self._tried:
            return None
        self._tried.add(name)
        if _OPERATOR not in values:
            self.refuse(where, 'operator: it needs an operator of the library, such as "TopN"')
            return None
        try:
            kind = library_operator(values[_OPERATOR])
        except InputError as error:
            self.refuse(where, f"operator: {error.primary}. {error.hint}".rstrip("."))
            return None
        if feeds is None:
            return None
        open_ports = [
            port for port in column_properties(kind).values() if port and port not in feeds
        ]
        if open_ports:
            self.refuse(where, f"inputs.{open_ports[0]}: the port needs a stream")
            return None
        operator = self._operator(where, kind, values, feeds)
        if operator.wrong_properties():
            # Its ports are not known, so its readers cannot be checked.
            return None
        unknown = [port for port in feeds if port not in operator.input_ports()]
        if unknown:
            known = ", ".join(operator.input_ports())
            self.refuse(where, f"inputs.{unknown[0]}: there is no such port. It has: {known}")
            return None
        return self.app.add(name, operator, **feeds)

    def end_of(
        self,
        where: str,
        key: str,
        source: object,
        path: tuple[str, ...],
    ) -> PortHandle | None:
        """Returns the source with a given name: a port of an operator, or a recorded stream; None
        if there is an error.
        """
        if not isinstance(source, str):
            self.refuse(
                where,
                f"{key}: a port reads one stream, given by its name; a Union puts several together",
            )
            return None
        first, _, port = source.partition(".")
        if first not in self.settings.operators:
            return PortHandle(None, source)
        node = self.place(first, path)
        if node is None:
            return None
        ports = node.output_ports()
        chosen = node[port] if port else node.default_port()
        if chosen.port not in ports:
            said = f'operator "{first}" has no port "{port}"' if port else f'"{first}" has several'
            self.refuse(where, f"{key}: {said}. Write one of: {first}.{f', {first}.'.join(ports)}")
            return None
        return chosen

    def _feeds(
        self,
        name: str,
        inputs: object,
        path: tuple[str, ...],
    ) -> dict[str, Any] | None:
        where = f"operators.{name}"
        if not isinstance(inputs, Mapping) or not inputs:
            self.refuse(where, 'inputs: each port needs a stream, as in { rows = "clicks" }')
            return None
        feeds: dict[str, Any] = {}
        for port, source in inputs.items():
            handle = self.end_of(
                where,
                f"inputs.{port}",
                source,
                (*path, name),
            )
            if handle is None:
                continue
            if handle.operator is None:
                try:
                    self.app.input(handle.port, self.columns_of(handle.port))
                except InputError as error:
                    hint = error.hint.rstrip(".")
                    self.refuse(where, f"inputs.{port}: {error.primary}. {hint}".rstrip())
                    continue
            feeds[port] = handle
        return feeds if len(feeds) == len(inputs) else None

    def _operator(
        self,
        where: str,
        kind: type[FrameOperator],
        values: Mapping[str, Any],
        feeds: Mapping[str, PortHandle],
    ) -> FrameOperator:
        properties = {key: value for key, value in values.items() if _is_property(kind, key)}
        columns = _fed_columns(self.app, kind, feeds)
        for name in columns:
            if name in properties:
                self.refuse(where, f"{name}: they follow from the inputs: leave it out")
        properties |= columns
        operator = kind(**properties)
        for wrong in operator.wrong_properties():
            path = "" if wrong.path == "properties" else f"{wrong.path}: "
            given = properties.get(wrong.path)
            shown = f" ({wrong.path} = {given!r})" if given is not None else ""
            self.refuse(where, f"{path}{wrong.message}{shown}")
        return operator


def _fed_columns(
    app: Application,
    kind: type[FrameOperator],
    feeds: Mapping[str, PortHandle],
) -> dict[str, pa.Schema | None]:
    """Returns the properties of an operator, including the columns of its inputs; None if the
    columns are not known.
    """
    properties = column_properties(kind)
    first = next((port for port in feeds if port not in properties.values()), None)
    found = {}
    for name, port in properties.items():
        handle = feeds.get(port or first or "")
        source = None if handle is None else app.port(handle)
        found[name] = None if source is None else source.schema
    return found


def _is_property(kind: type[FrameOperator], key: str) -> bool:
    aliases = {field.alias for field in kind.model_fields.values()}
    return key in kind.model_fields or key in aliases
