"""Runs a whole application in a test. Runs one operator after the other over all windows, and
collects the tuples of each port.

Tuple operators run as in `run_operator`, frame operators on a local session of Spark, in the same
groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rewindow.application import Application, Mode, OperatorContext, PortHandle, validate
from rewindow.application.containers import containers_of
from rewindow.errors import InputError
from rewindow.sequences import map_values
from rewindow.testing.attempts import Repartition, ReplayRun, rows_of, set_partitions
from rewindow.testing.computation import GraphComputation, PassOptions, Recorded, projected
from rewindow.testing.operators import Tuples, check_cuts, windows_of
from rewindow.testing.passes import CRASH
from rewindow.windows import to_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class ApplicationRun:
    """The result of running an application.

    Attributes:
        outputs: by output, and by `operator.port` of each error port, the tuples as (window, value
            ...), in the order of windows.
        ports: the same for every port, by `operator.port`.
        states: by operator with a state, the state after the last window: see OperatorRun; for a
            frame operator its rows.
        lost: windows that at most once has given up after a crash: all operators lose the group in
            which one dies.
        state_lost: windows that are in the outputs but missing from the states, because at most
            once has restored an older checkpoint.
        crashes: number of crashes.
    """

    outputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    ports: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    state_lost: list[int] = field(default_factory=list)
    crashes: int = field(default=0, compare=False)

    def __getitem__(self, output: str) -> list[tuple[Any, ...]]:
        return self.outputs[output]


def run_application(  # noqa: PLR0913 - each is an option of the verb
    app: Application,
    inputs: Tuples,
    *,
    windows: tuple[int, int] | None = None,
    group_windows: int | Sequence[int] = 1,
    key_ranges: int = 1,
    mode: str = "exactly_once",
    batch: int = 10_000,
    port_order: Sequence[str] = (),
    ends: Mapping[str, int] | None = None,
    dies_at: Sequence[tuple[str, int]] = (),
    partitions: Mapping[str, int] = MappingProxyType({}),
    repartition: Repartition = MappingProxyType({}),
    spark: SparkSession | None = None,
) -> ApplicationRun:
    """Runs an application over windows and returns the tuples of each port.

    Args:
        app: an application, as defined in its file.
        inputs: tuples by stream and window: each a mapping, or values in the order of the columns
            that the first port which reads the stream declares, or CRASH.
        windows, group_windows, key_ranges, mode, batch: see run_operator.
        port_order: names of input ports, in the order in which a tuple operator processes them.
        ends: last window of each stream that has ended.
        dies_at: for each attempt, the step of a replay's protocol and the number of the commit
            group at which it dies, such as ("after_outputs", 2); see `rewindow.crash.Step`.
        partitions: number of partitions of each operator; with `spread`, number of instances.
        repartition: by window, numbers of partitions that apply from that window on, such as {20:
            {"totals": 4}}.
        spark: session for frame operators; by default a local one is started.

    Raises:
        ValidationFailed: the application violates rules.
        InputError: an unknown stream, a tuple that does not match its columns, an error of an
            operator, or a crash in an application of several containers.
    """
    set_partitions(app, partitions)
    validate(app, Mode.parse(mode), is_test=True)
    unknown = sorted({*inputs, *(ends or {})} - set(app.streams))
    if unknown:
        raise InputError(
            f'application "{app.name}" reads no stream "{unknown[0]}"',
            hint=f"Available streams: {', '.join(app.streams)}.",
        )
    streams = {name: _recorded(app, name, inputs.get(name, {})) for name in app.streams}
    containers = containers_of(app, Mode.parse(mode))
    own_mode = containers[0].mode if len(containers) == 1 else Mode.parse(mode)
    how = PassOptions(key_ranges, batch, port_order, spark)
    computation = GraphComputation(app, streams, how, projected)
    context = OperatorContext(
        app.grid,
        windows_of(inputs, windows),
        own_mode,
        operator=app.name,
        ends=app.ends(ends or {}),
    )
    attempts = ReplayRun(app, computation, context, group_windows, dies_at, repartition)
    if attempts.crashes and len(containers) > 1:
        raise InputError(
            f'application "{app.name}" has {len(containers)} containers, but simulated crashes '
            "need a single one",
            hint="Remove the crashes, or test them with a replay: rewindow replay --crash",
        )
    ports = {}
    states = {}
    for node in app.order():
        for port in node.output_ports():
            ports[str(node[port])] = rows_of(attempts.ports.get(str(node[port]), {}))
        if node.operator.is_stateful:
            states[node.name] = computation.readable(node, attempts.states)
    return ApplicationRun(
        map_values(rows_of, attempts.tables),
        ports,
        states,
        attempts.lost,
        attempts.state_lost,
        crashes=attempts.crashes,
    )


def check_application(
    app: Application,
    inputs: Tuples,
    *,
    runs: int = 5,
    seed: int = 0,
    any_port_order: bool = False,
    **how: Any,
) -> ApplicationRun:
    """Checks that all results of an application are equal for random divisions into groups, key
    ranges and batches.

    Returns the run in one group.

    Args:
        app, inputs: see run_application.
        runs: number of runs.
        seed: seed of the first run; each further run has the next number.
        any_port_order: also vary the order of the ports in a window.
        how: further arguments of run_application.

    Raises:
        AssertionError: the tuples of a port differ; the message names the first such port, and the
            run's seed.

    Rules: R86
    """
    asked = windows_of(inputs, how.pop("windows", None))
    ports = []
    if any_port_order:
        ports = sorted(set().union(*(node.feeds for node in app.nodes.values())))
    return check_cuts(
        lambda **cut: run_application(app, inputs, **cut, **how),
        lambda run: run.ports,
        asked,
        ports,
        range(seed, seed + runs),
    )


def _recorded(
    app: Application,
    stream: str,
    by_window: Mapping[int, Sequence[Any]],
) -> Recorded:
    """Returns the tuples of a stream as mappings, with the columns that every recorded stream
    has.
    """
    names = _declared_names(app, PortHandle(None, stream))
    found: Recorded = {}
    for window, rows in by_window.items():
        begin = to_datetime(app.grid.start_us(window))
        found[window] = []
        for offset, row in enumerate(rows):
            if row is CRASH:
                found[window].append(CRASH)
                continue
            values = (
                row
                if isinstance(row, Mapping)
                else dict(zip(names, _as_tuple(row, stream, names), strict=True))
            )
            found[window].append({"offset": offset, "arrived_at": begin, **values})
    return found


def _declared_names(app: Application, stream: PortHandle) -> list[str]:
    """Returns the columns that the first port that reads a stream declares; None if there are
    none.
    """
    for node in app.order():
        for name, port in node.input_ports().items():
            if node.feeds.get(name) == stream and port.schema is not None:
                return list(port.schema.names)
    return []


def _as_tuple(row: Any, stream: str, names: Sequence[str]) -> tuple[Any, ...]:
    values = tuple(row) if isinstance(row, list | tuple) else (row,)
    if len(values) != len(names):
        raise InputError(
            f'a tuple of stream "{stream}" has {len(values)} values, but its columns are '
            f"{', '.join(names) or 'not known'}",
            hint="Pass mappings from column to value.",
        )
    return values
