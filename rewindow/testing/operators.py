"""A tuple operator in a test: the loop of a replay over Arrow batches, its state stored and
restored at every group.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rewindow.application import Mode, OperatorContext
from rewindow.application.graph import CHECKPOINT_WINDOWS
from rewindow.application.windowing import Windowing
from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.recovery import CheckpointSchedule, StartState
from rewindow.testing.passes import OperatorRun, PassRun
from rewindow.tuple_engine.passes import ALONE, Member, Pass, alone_ports
from rewindow.windows import Grid, WindowRange

Tuples = Mapping[str, Mapping[int, Sequence[Any]]]
"""By input port and window: tuples, each as a mapping or in the order of the port's columns, or
CRASH."""


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
) -> OperatorRun:
    """Runs an operator over windows and returns what it emitted.

    Args:
        operator: an operator as an application would add it.
        inputs: see Tuples.
        windows: first and last; by default those from the first window with a tuple to the last
            one.
        group_windows: windows of a commit group, or of each; the state is stored and restored at
            its end.
        key_ranges: copies of the operator among which keys are divided; an operator without a key
            has one.
        mode: recovery mode, for CRASH.
        width_ms: width of a window.
        batch: tuples in an Arrow batch at most.
        port_order: the order in which the ports' tuples come in a window; by default as they are
            declared (X43).

        checkpoint_windows: D, the distance of marks, at which `before_checkpoint` is called (X42).
        application_windows, slide_windows: as in Application.add.

    Raises:
        InputError: an unknown port, a tuple that does not fit it, or what the operator did wrong,
            such as changing a list that it has emitted.
        Exception: what the operator's code has raised, with a note of callback, window and tuple.
    """
    wrong = operator.wrong_properties()
    if wrong:
        raise InputError("; ".join(f"{one.path}: {one.message}" for one in wrong))
    unknown = sorted(set(inputs) - set(operator.input_ports()))
    if unknown:
        raise InputError(
            f'there is no input port "{unknown[0]}"',
            hint=f"There are: {', '.join(operator.input_ports())}.",
        )
    asked = windows_of(inputs, windows)
    windowing = Windowing(application_windows, slide_windows)
    run = PassRun(
        Pass({ALONE: Member(operator, windowing)}),
        alone_ports(inputs),
        run_context(asked, Mode.parse(mode), width_ms, checkpoint_windows=checkpoint_windows),
        key_ranges=key_ranges,
        batch=batch,
        port_order=port_order,
    )
    for group in groups_of(asked, group_windows):
        run.group(group)
    return run.run_of(ALONE)


def run_context(
    windows: WindowRange,
    mode: Mode,
    width_ms: int,
    checkpoint_windows: int,
) -> OperatorContext:
    """Returns what all groups of a run have in common."""
    next_mark = CheckpointSchedule(checkpoint_windows).next_due
    return OperatorContext(
        Grid(width_ms, 0),
        windows,
        mode,
        operator="test",
        unseen=unseen_before(windows),
        next_mark=next_mark,
    )


def unseen_before(windows: WindowRange) -> tuple[tuple[int, int], ...]:
    """Returns the windows that a run has not seen, which begins without a state."""
    return StartState(source="initial").unseen(windows.first)


def check_grouping(
    operator: TupleOperator,
    inputs: Tuples,
    *,
    runs: int = 5,
    seed: int = 0,
    any_port_order: bool = False,
    **how: Any,
) -> OperatorRun:
    """Runs an operator with random cuts into groups, key ranges and batches; every run must come to
    the same (R86).

    Returns the run in one group. The seed of a run that differs is named.

    Args:
        operator, inputs: see run_operator.
        runs: how many.
        seed: of the first one; each next run has the next one.
        any_port_order: also have the tuples of a window come in another order of the ports.
        how: see run_operator.

    Raises:
        AssertionError: a run emitted something else, or left another state.
    """
    asked = windows_of(inputs, how.pop("windows", None))
    ends = (asked.first, asked.last)
    whole = run_operator(
        operator,
        inputs,
        windows=ends,
        group_windows=len(asked),
        **how,
    )
    for number in range(seed, seed + runs):
        cut = random_cut(
            random.Random(number),
            len(asked),
            list(inputs) if any_port_order else [],
        )
        found = run_operator(operator, inputs, windows=ends, **cut, **how)
        what = f"seed {number}: {words_of(cut)}"
        for port, rows in whole.outputs.items():
            assert sorted(map(repr, found[port])) == sorted(map(repr, rows)), (
                f'port "{port}" differs with {what}: {_first_difference(rows, found[port])}'
            )
        assert found.states == whole.states, f"the state differs with {what}"
    return whole


def _first_difference(whole: Sequence[tuple[Any, ...]], cut: Sequence[tuple[Any, ...]]) -> str:
    """Returns the first window that two runs differ in, with the rows that only one of them has."""
    # Rows are compared as multisets of their texts: a NaN differs from itself, but its text does
    # not.
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
    """Returns group borders, key ranges, size of batches and order of ports, as run_operator takes
    them.
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
    """Returns a cut as a person reads it."""
    ports = f", ports in the order {', '.join(cut['port_order'])}" if cut["port_order"] else ""
    return (
        f"groups of {cut['group_windows']} windows, {cut['key_ranges']} key ranges, batches of "
        f"{cut['batch']}{ports}"
    )


def windows_of(inputs: Tuples, asked: tuple[int, int] | None) -> WindowRange:
    """Returns the windows to run: those asked for, or from the first with a tuple to the last."""
    if asked is not None:
        return WindowRange(*asked)
    found = list(chain.from_iterable(inputs.values()))
    for window in found:
        if not isinstance(window, int):
            raise InputError(
                f"window {window!r} of a test is not a whole number",
                hint="Write {7: [...]}, by window id.",
            )
    if not found:
        raise InputError(
            "there is no tuple, so the windows cannot be told from them",
            hint="Give windows=(FIRST, LAST).",
        )
    return WindowRange(min(found), max(found))


def groups_of(windows: WindowRange, sizes: int | Sequence[int]) -> Iterator[WindowRange]:
    """Gives the groups of a range."""
    first = windows.first
    number = 0
    while first <= windows.last:
        size = sizes if isinstance(sizes, int) else sizes[number]
        yield WindowRange(first, min(first + size - 1, windows.last))
        first = first + size
        number = number + 1
