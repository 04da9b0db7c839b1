"""Launch validation: finds every violation of an application before anything runs
(docs/rules/operators.md section 6).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from rewindow.application.containers import modes_of, wrong_containers
from rewindow.application.cycles import lacks_delay, wrong_members
from rewindow.application.error_tuples import COLUMNS
from rewindow.application.graph import UNREAD, Application
from rewindow.application.modes import Mode
from rewindow.application.node import APART, Node, PortHandle
from rewindow.application.violations import Violation
from rewindow.errors import InputError, ValidationFailed
from rewindow.names import BOOKKEEPING, check_suite
from rewindow.sequences import excluding, matching_names, quantity, repeated_names
from rewindow.windows import WIDTH_MS_MAX, WIDTHS, parse_duration

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = {"windows", "files", "checkpoints", "facts", "scratch"}


def validate(
    app: Application,
    default_mode: Mode = Mode.EXACTLY_ONCE,
    recorded: Mapping[str, pa.Schema] | None = None,
    further: Iterable[Violation] = (),
    *,
    is_test: bool = False,
) -> None:
    """Checks a whole application and reports every violation at once.

    Args:
        app: the application.
        default_mode: recovery mode of operators without a mode.
        recorded: schemas of the recorded streams, as far as they are known.
        further: violations from other checks, reported with the others.
        is_test: whether it runs in a test, where operators may write to external systems.

    Raises:
        ValidationFailed: one line per violation: operator, port, message, and value.

    Rules: O60
    """
    rows = find_violations(
        app,
        default_mode,
        recorded,
        further=further,
        is_test=is_test,
    )
    if rows:
        raise ValidationFailed(
            f'application "{app.name}" cannot be replayed: it has '
            f"{quantity(len(rows), 'violation')}",
            violations=rows,
            detail="\n    " + "\n    ".join(map(str, rows)),
            hint="Correct all of them; nothing was started.",
        )


def find_violations(
    app: Application,
    default_mode: Mode = Mode.EXACTLY_ONCE,
    recorded: Mapping[str, pa.Schema] | None = None,
    further: Iterable[Violation] = (),
    *,
    is_test: bool = False,
) -> tuple[Violation, ...]:
    """Returns every violation of an application, ordered by operator, then rule number; see
    `validate`.

    Rules: O60
    """
    violations = {*app.declared, *_check_graph(app, default_mode, recorded or {}), *further}
    violations |= set() if is_test else {*_check_writing(app)}
    return tuple(sorted(violations, key=Violation.place))


def _check_graph(
    app: Application,
    default_mode: Mode,
    recorded: Mapping[str, pa.Schema],
) -> Iterator[Violation]:
    yield from _check_window(app)
    yield from _check_names(app)
    yield from _check_instances(app)
    for node in app.nodes.values():
        yield from _check_properties(app, node)
        yield from _check_attributes(node)
        yield from _check_state(node)
        yield from _check_feeds(app, node, recorded)
    yield from _check_streams(app, recorded)
    yield from _check_cycles(app)
    yield from _check_outputs(app)
    yield from _check_columns(app)
    yield from _check_modes(app, default_mode)


def _check_window(app: Application) -> Iterator[Violation]:
    try:
        width_us = parse_duration(app.window)
    except InputError as error:
        yield Violation("W3", "", "", value=app.window, message=error.primary)
        return
    if width_us % 1000 or not 1 <= width_us // 1000 <= WIDTH_MS_MAX:
        yield Violation(
            "W3",
            "",
            "",
            value=app.window,
            message=f"window width must be a whole number of ms, {WIDTHS}",
        )
    if app.checkpoint_windows < 1:
        yield Violation(
            "W56",
            "",
            "",
            value=app.checkpoint_windows,
            message="checkpoint distance must be at least 1 window",
        )


def _check_names(app: Application) -> Iterator[Violation]:
    for kind, names in (
        ("operator", app.nodes),
        ("output", app.outputs),
        ("application", [app.name]),
    ):
        for name in names:
            # The name of an operator of a module follows the module's, after a full stop (X50).
            if not all(map(_NAME.fullmatch, name.split(".") if kind == "operator" else [name])):
                yield Violation(
                    "H17",
                    name,
                    "",
                    value=name,
                    message=f"{kind} names are letters, digits and _, not starting with a digit",
                )
    for output in app.outputs.values():
        if output.suite is not None:
            yield from _check_suite_name(output.name, output.suite)
    for node in app.nodes.values():
        inputs = {*node.input_ports()}
        outputs = {*node.output_ports()}
        for port in sorted(
            _TAKEN & {name for name, port in node.output_ports().items() if port.error}
        ):
            yield Violation(
                "O48",
                node.name,
                port,
                value=port,
                message="error port name is taken by a table that every stream has",
            )
        for port in inputs | outputs:
            if not _NAME.fullmatch(port):
                yield Violation(
                    "O12",
                    node.name,
                    port,
                    value=port,
                    message="port names are letters, digits and _",
                )
        for port in inputs & outputs:
            yield Violation(
                "O12",
                node.name,
                port,
                value=port,
                message="an input port and an output port have the same name",
            )


def _check_instances(app: Application) -> Iterator[Violation]:
    """Yields operators that share an instance with an earlier operator.

    A change of one would change both.
    """
    first: dict[int, str] = {}
    for node in app.nodes.values():
        other = first.setdefault(id(node.operator), node.name)
        if other != node.name:
            yield Violation(
                "X12",
                node.name,
                "",
                value=type(node.operator).__name__,
                message=f'operator "{other}" already uses the same instance; '
                "create one for each name",
            )


def _check_suite_name(output: str, suite: str) -> Iterator[Violation]:
    try:
        check_suite(suite)
    except InputError as error:
        yield Violation("H17", output, "", value=suite, message=error.primary)


def _check_properties(app: Application, node: Node) -> Iterator[Violation]:
    sources = {
        override.name: f", from {override.source}"
        for override in app.given
        if override.operator == node.name
    }
    for wrong in node.operator.wrong_properties():
        source = sources.get(wrong.path.partition(".")[0], "")
        yield Violation(
            "O53",
            node.name,
            "",
            value=f"{wrong.path} = {wrong.value!r}{source}",
            message=wrong.message,
        )
    if node.fault is not None:
        yield Violation(
            "O12", node.name, "", value=node.fault, message="its ports or state cannot be listed"
        )


def _check_attributes(node: Node) -> Iterator[Violation]:
    if node.checkpoint_windows < 1:
        yield Violation(
            "W56",
            node.name,
            "",
            value=node.checkpoint_windows,
            message="checkpoint windows must be at least 1",
        )
    whole = node.application_windows
    slide = node.slide_windows
    if whole < 1:
        yield Violation(
            "W18", node.name, "", value=whole, message="application windows must be at least 1"
        )
    if slide is not None and not 1 <= slide <= max(whole, 1):
        message = (
            "a window slides by at least 1 and at most the application windows; otherwise "
            "windows would be skipped"
        )
        yield Violation("W30", node.name, "", value=slide, message=message)
    if not node.operator.may_be_cut and node.is_cut_by_checkpoints:
        message = (
            "no checkpoint may be inside its application window: checkpoint windows must be a "
            f"multiple of its {node.windowing.pane} windows"
        )
        yield Violation("W50", node.name, "", value=node.checkpoint_windows, message=message)
    for name in sorted(node.unordered.intersection(_ordered_ports(node))):
        message = (
            "its results depend on the order of tuples, and tuples that are published or come from "
            "an operator have no recorded order: set order_by"
        )
        yield Violation("X43", node.name, name, value=str(node.feeds[name]), message=message)
    for rule, message in node.operator.wrong_placing():
        yield Violation(rule, node.name, "", value=type(node.operator).__name__, message=message)
    if node.locality not in (None, APART):
        message = f'locality can only be "{APART}"'
        yield Violation("O103", node.name, "", value=node.locality, message=message)
    for name, port in node.output_ports().items():
        if port.errors_max is not None and (port.errors_max < 0 or not port.error):
            message = "errors_max requires an error port and a value of 0 or more"
            yield Violation("O28", node.name, name, value=port.errors_max, message=message)
    # The old name of a method, which is not called any more.
    if callable(getattr(type(node.operator), "skipped", None)):
        yield Violation(
            "R13",
            node.name,
            "",
            value="skipped",
            message="this method was renamed to state_after_skip: rename it",
        )


def _ordered_ports(node: Node) -> Collection[str]:
    return () if node.operator.wrong_properties() else node.operator.ordered_ports()


def _check_state(node: Node) -> Iterator[Violation]:
    """Yields violations of the rules for large states.

    The key must consist of columns of the state. The number of buckets must be a power of two,
    because buckets are ranges of hashes.

    Rules: X47
    """
    operator = node.operator
    columns = None if operator.wrong_properties() or node.fault else operator.state_columns()
    if columns is None:
        return
    key = operator.state_key_columns()
    buckets = operator.state_buckets
    for name in key:
        if name not in columns.names:
            yield Violation(
                "X47", node.name, "", value=name, message="state_key is not a column of the state"
            )
    if buckets < 1 or buckets & (buckets - 1):
        yield Violation(
            "X47", node.name, "", value=buckets, message="state_buckets must be a power of two"
        )
    if operator.state_increments and not key:
        yield Violation(
            "X47",
            node.name,
            "",
            value="state_increments",
            message="a state with increments needs a state_key",
        )


def _check_feeds(
    app: Application,
    node: Node,
    recorded: Mapping[str, pa.Schema],
) -> Iterator[Violation]:
    ports = node.input_ports()
    for name, end in node.feeds.items():
        if name not in ports and node.has_known_ports:
            yield Violation(
                "O12",
                node.name,
                name,
                value=name,
                message=f"unknown input port; existing ports: {', '.join(ports) or 'none'}",
            )
        elif app.port(end) is None:
            yield Violation(
                "O50",
                node.name,
                name,
                value=end,
                message="the stream has no source: the output port does not exist",
            )
        elif name in ports:
            yield from _check_schema(app, node, name, needed=ports[name].schema, recorded=recorded)
    for name, port in ports.items():
        if name not in node.feeds and not port.optional:
            yield Violation("O14", node.name, name, value=name, message="input port needs a stream")
    if not ports and node.has_known_ports:
        yield Violation(
            "O9",
            node.name,
            "",
            value=node.name,
            message="an operator without input ports cannot be a root: use app.input",
        )


def _check_schema(
    app: Application,
    node: Node,
    name: str,
    needed: pa.Schema | None,
    recorded: Mapping[str, pa.Schema],
) -> Iterator[Violation]:
    end = node.feeds[name]
    source = app.port(end)
    have = source.schema if source else None
    if end.operator is None:
        have = recorded.get(end.port, have)
    for column, actual in _differences(needed, have):
        if end.operator is None:
            message = (
                f'stream "{end.port}" has {column.name} {actual}, but the port requires '
                f"{column.type}"
            )
        else:
            message = f'output port "{end}" with column {column.name} {actual} cannot feed it'
        yield Violation(
            "O13", node.name, name, value=f"{column.name} {column.type}", message=message
        )


def _differences(
    needed: pa.Schema | None,
    have: pa.Schema | None,
) -> Iterator[tuple[pa.Field, str]]:
    """Yields the required columns that are missing or have another type, with the actual type.

    Unknown schemas and types are accepted.
    """
    if needed is None or have is None:
        return
    for column in needed:
        index = have.get_field_index(column.name)
        actual = "absent" if index < 0 else str(have.field(index).type)
        if actual not in (str(column.type), "null"):
            yield column, actual


def _check_streams(app: Application, recorded: Mapping[str, pa.Schema]) -> Iterator[Violation]:
    read = app.read()
    for stream, schema in app.streams.items():
        if PortHandle(None, stream) not in read:
            yield Violation("O50", "", stream, value=stream, message="the stream has no reader")
        for column, actual in _differences(schema, recorded.get(stream)):
            message = f"the recorded stream has column {column.name} {actual}"
            yield Violation(
                "O13", "", stream, value=f"{column.name} {column.type}", message=message
            )
    for node in app.nodes.values():
        for name, port in node.output_ports().items():
            if port.optional is False and node[name] not in read:
                yield Violation(
                    "O15", node.name, name, value=name, message="output port must be connected"
                )
    for name in app.unread() if app.strict_outputs else []:
        yield Violation("O15", name, "", value=name, message=UNREAD)


def _check_writing(app: Application) -> Iterator[Violation]:
    """Yields operators that send tuples to external systems.

    No recovery mode can undo that after a crash.

    Rules: X46
    """
    for node in app.nodes.values():
        if node.operator.writes_outside:
            message = (
                "an operator that writes to external systems can only run in tests: a replay "
                "may compute windows again after a crash"
            )
            yield Violation(
                "X46", node.name, "", value=type(node.operator).__name__, message=message
            )


def _check_cycles(app: Application) -> Iterator[Violation]:
    for cycle in app.cycles():
        if lacks_delay(cycle):
            for node in cycle:
                yield Violation(
                    "O51", node.name, "", value=node.name, message="the application must be acyclic"
                )
        else:
            yield from wrong_members(cycle)
    for node in app.nodes.values():
        if node.operator.delays and node.has_longer_windows:
            message = (
                "a delay operator passes on every window: leave application_windows and "
                "slide_windows out"
            )
            yield Violation("O52", node.name, "", value=node.application_windows, message=message)


def _check_outputs(app: Application) -> Iterator[Violation]:
    if not app.outputs:
        yield Violation("O50", "", "", value=app.name, message="the application has no output")
    for name in sorted(_TAKEN & set(app.outputs)):
        yield Violation(
            "O48",
            "",
            name,
            value=name,
            message="output name is taken by a table that every application has",
        )
    first: dict[PortHandle, str] = {}
    for output in app.outputs.values():
        taken_by = first.setdefault(output.source, output.name)
        if taken_by != output.name:
            message = f"the port already feeds output {taken_by}, and a port belongs to one stream"
            yield Violation(
                "O18",
                output.source.operator or "",
                output.source.port,
                value=output.name,
                message=message,
            )
        port = app.port(output.source)
        if port is None or output.source.operator is None:
            yield Violation(
                "O50",
                "",
                output.name,
                value=output.source,
                message="the output has no source: the output port does not exist",
            )
            continue
        if port.schema is None:
            continue
        for column in sorted(set(output.key) - set(port.schema.names)):
            yield Violation(
                "O13",
                output.source.operator,
                output.name,
                value=column,
                message="key column is not in the port's schema",
            )
        for column in sorted(set(output.sorted_by) - {"window_id", *port.schema.names}):
            yield Violation(
                "O13",
                output.source.operator,
                output.name,
                value=column,
                message="sorted_by is not in the port's schema",
            )


def _check_columns(app: Application) -> Iterator[Violation]:
    """Yields column names that a table cannot store, because they are reserved or equal except for
    case.
    """
    for output in app.staged().values():
        port = app.port(output.source)
        if port is None or port.schema is None or output.source.operator is None:
            continue
        operator = output.source.operator
        place = output.source.port
        # Delta treats names that differ only by case as equal. An output may have `arrived_at`,
        # which is the arrival time of every stored tuple, but not the same name in other case.
        taken = set(BOOKKEEPING) | set(COLUMNS.names if output.is_error else ())
        names = port.schema.names
        reserved = matching_names(names, taken)
        reserved += excluding(matching_names(names, {"arrived_at"}), ("arrived_at",))
        for column in sorted(reserved):
            yield Violation(
                "O13",
                operator,
                place,
                value=column,
                message="column name is reserved, in capital letters too",
            )
        for column in sorted(repeated_names(names)):
            yield Violation(
                "O13",
                operator,
                place,
                value=column,
                message="column names differ only by case",
            )


def _check_modes(app: Application, default_mode: Mode) -> Iterator[Violation]:
    """Yields violations of the rules about recovery modes and containers.

    Rules: R20, R39 to R41, X6, X53
    """
    modes = modes_of(app, default_mode)
    for node in app.nodes.values():
        if modes.modes[node.name].may_lose and node.is_cut_by_checkpoints:
            message = (
                f"checkpoint windows must be a multiple of its {node.windowing.pane} "
                "application windows"
            )
            yield Violation("R20", node.name, "", value=node.checkpoint_windows, message=message)
        if node.container is not None and not _NAME.fullmatch(node.container):
            message = "a container's name may only contain letters, digits and _"
            yield Violation("X53", node.name, "", value=node.container, message=message)
    yield from wrong_containers(app, modes)
