"""Runs a tuple operator in a test.

It uses the loop of a replay over Arrow batches, and passes the state from group to group.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

from rewindow.application import Application, Mode, OperatorContext
from rewindow.application.graph import CHECKPOINT_WINDOWS
from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.sequences import map_values
from rewindow.testing.attempts import ReplayRun, rows_of
from rewindow.testing.computation import GraphComputation, PassOptions
from rewindow.testing.passes import OperatorRun
from rewindow.windows import WindowRange

Tuples = Mapping[str, Mapping[int, Sequence[Any]]]
"""Tuples by input port and window, each as a mapping or in the order of the port's columns, or
CRASH.
"""


class HasStates(Protocol):
    """The result of a run that has states."""

    states: Any


Run = TypeVar("Run", bound=HasStates)


def run_operator(  # noqa: PLR0913 - each is an option of the verb
    operator: TupleOperator,
    inputs: Tuples,
    *,
    windows: tuple[int, int] | None = None,
    group_windows: int | Sequence[int] = 1,
    key_ranges: int = 1,
    mode: str = "exactly_once",
    width_ms: int = 1000,
    batch: int = 10_000,
    port_order: Sequence[str] = (),
    application_windows: int = 1,
    slide_windows: int | None = None,
    checkpoint_windows: int = CHECKPOINT_WINDOWS,
    ends: int | None = None,
) -> OperatorRun:
    """Runs an operator over windows and returns its tuples.

    Args:
        operator: an operator as an application would add it.
        inputs: see Tuples.
        windows: first and last; by default from the first window with a tuple to the last one.
        group_windows: windows of all commit groups, or of each; the state is stored and restored at
            the end of a group.
        key_ranges: copies of the operator among which keys are divided; an operator without a key
            has one.
        mode: recovery mode, for CRASH.
        width_ms: width of a window.
        batch: largest number of tuples in an Arrow batch.
        port_order: the order in which the ports' tuples are processed in a window; by default as
            they are declared.
        application_windows, slide_windows: as in Application.add.
        checkpoint_windows: number of windows between checkpoints, at which `before_checkpoint` is
            called. At least once and at most once save the state there and at the end, as a replay
            does.
        ends: the last window of the recordings, if they have ended.

    Raises:
        InputError: an unknown port, a tuple that does not match its columns, or a fault of the
            operator, such as a change to a list that it has emitted.
        Exception: an error of the operator's code, with a note of callback, window and tuple.

    Rules: X42, X43
    """
    wrong = operator.wrong_properties()
    if wrong:
        raise InputError("; ".join(f"{one.path}: {one.message}" for one in wrong))
    unknown = sorted(set(inputs) - set(operator.input_ports()))
    if unknown:
        raise InputError(
            f'the operator has no input port "{unknown[0]}"',
            hint=f"Available input ports: {', '.join(operator.input_ports())}.",
        )
    app = Application(
        "test",
        f"{width_ms} ms",
        checkpoint_windows=checkpoint_windows,
    )
    node = app.add(
        "operator",
        operator,
        application_windows=application_windows,
        slide_windows=slide_windows,
        **{port: app.input(port) for port in operator.input_ports()},  # type: ignore[arg-type]
    )
    for port, declared in operator.output_ports().items():
        if not declared.error:
            app.output(
                port,
                node[port],
                key=(),
            )
    streams = {port: map_values(list, inputs.get(port, {})) for port in app.streams}
    how = PassOptions(
        key_ranges,
        batch,
        port_order,
    )
    computation = GraphComputation(
        app,
        streams,
        how,
        lambda node, port, rows: list(rows),
    )
    context = OperatorContext(
        app.grid,
        windows_of(inputs, windows),
        Mode.parse(mode),
        operator=app.name,
        ends={} if ends is None else {node.name: ends},
    )
    attempts = ReplayRun(
        app,
        computation,
        context,
        group_windows,
    )
    outputs = {}
    for port in operator.output_ports():
        outputs[port] = rows_of(attempts.ports.get(str(node[port]), {}))
    return OperatorRun(
        outputs,
        computation.readable(node, attempts.states) if operator.is_stateful else {},
        attempts.lost,
        attempts.state_lost,
        crashes=attempts.crashes,
    )


def check_grouping(
    operator: TupleOperator,
    inputs: Tuples,
    *,
    runs: int = 5,
    seed: int = 0,
    any_port_order: bool = False,
    **how: Any,
) -> OperatorRun:
    """Checks that all results of an operator are equal for random divisions into groups, key ranges
    and batches.

    Returns the run in one group.

    Args:
        operator, inputs: see run_operator.
        runs: number of runs.
        seed: seed of the first run; each further run has the next number.
        any_port_order: also vary the order of the ports in a window.
        how: see run_operator.

    Raises:
        AssertionError: a run emitted other tuples, or has another state; the message names its
            seed.

    Rules: R86
    """
    asked = windows_of(inputs, how.pop("windows", None))
    return check_cuts(
        lambda **cut: run_operator(
            operator,
            inputs,
            **cut,
            **how,
        ),
        lambda run: run.outputs,
        asked,
        list(inputs) if any_port_order else [],
        range(seed, seed + runs),
    )


def check_cuts(
    run: Callable[..., Run],
    ports_of: Callable[[Run], Mapping[str, Sequence[tuple[Any, ...]]]],
    windows: WindowRange,
    ports: Sequence[str],
    seeds: Iterable[int],
) -> Run:
    """Checks that runs with random divisions have the same tuples and states as a run in one group,
    and returns the latter.

    Raises:
        AssertionError: a run differs; the message names its seed.
    """
    ends = (windows.first, windows.last)
    whole = run(windows=ends, group_windows=len(windows))
    for number in seeds:
        cut = random_cut(
            random.Random(number),
            len(windows),
            ports,
        )
        found = run(windows=ends, **cut)
        what = f"seed {number}: {words_of(cut)}"
        for port, rows in ports_of(whole).items():
            other = ports_of(found)[port]
            assert sorted(map(repr, other)) == sorted(map(repr, rows)), (
                f'port "{port}" differs with {what}: {_first_difference(rows, other)}'
            )
        assert found.states == whole.states, f"a state differs with {what}"
    return whole


def _first_difference(whole: Sequence[tuple[Any, ...]], cut: Sequence[tuple[Any, ...]]) -> str:
    """Returns the first window in which two runs differ, with the rows that only one of the runs
    has.
    """
    # Rows are compared as multisets of their texts, because a NaN does not equal itself, but its
    # text does.
    here = Counter(map(repr, whole))
    there = Counter(map(repr, cut))
    rows = [*whole, *cut]
    window = min(row[0] for row in rows if here[repr(row)] != there[repr(row)])
    of_window = dict.fromkeys(repr(row) for row in rows if row[0] == window)
    only_here = ", ".join(row for row in of_window if here[row] > there[row])
    only_there = ", ".join(row for row in of_window if there[row] > here[row])
    return (
        f"window {window}: in one group only {only_here or 'nothing'}; "
        f"cut only {only_there or 'nothing'}"
    )


def random_cut(
    chosen: random.Random,
    windows: int,
    ports: Sequence[str],
) -> dict[str, Any]:
    """Returns random group borders, key ranges, batch size and order of ports, as arguments of
    run_operator.
    """
    groups = []
    left = windows
    while left:
        groups.append(chosen.randint(1, left))
        left -= groups[-1]
    return {
        "group_windows": groups,
        "key_ranges": chosen.randint(1, 8),
        "batch": chosen.choice([1, 3, 10_000]),
        "port_order": chosen.sample(ports, len(ports)),
    }


def words_of(cut: Mapping[str, Any]) -> str:
    """Returns a description of a division for a message."""
    ports = f", ports in the order {', '.join(cut['port_order'])}" if cut["port_order"] else ""
    return (
        f"groups of {cut['group_windows']} windows, {cut['key_ranges']} key ranges, batches of "
        f"{cut['batch']}{ports}"
    )


def windows_of(inputs: Tuples, asked: tuple[int, int] | None) -> WindowRange:
    """Returns the windows to run.

    They are given as an argument, or range from the first window with a tuple to the last one.
    """
    if asked is not None:
        return WindowRange(*asked)
    found = list(chain.from_iterable(inputs.values()))
    for window in found:
        if not isinstance(window, int):
            raise InputError(
                f"window of a test must be an integer, not {window!r}",
                hint="Use window ids as keys, such as {7: [...]}.",
            )
    if not found:
        raise InputError(
            "windows are required, because the inputs have no tuples",
            hint="Pass windows=(FIRST, LAST).",
        )
    return WindowRange(min(found), max(found))
