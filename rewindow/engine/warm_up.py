"""Warm-up: the state before a range, computed from an earlier one when no checkpoint is there (W63)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from rewindow.application import Application, GroupWindows
from rewindow.engine.computation import Engine
from rewindow.recovery import GroupSizer, Plan
from rewindow.tables import Table
from rewindow.tables import checkpoints as stored
from rewindow.windows import WindowRange


def warm_up(
    plan: Plan, app: Application, engine: Engine, sizer: GroupSizer, say: Callable[[str], None]
) -> dict[str, pa.Table]:
    """Computes the windows before a range, writes nothing, and returns the state after them."""
    start = plan.start
    assert start.warm_up_first is not None, "a warm-up has a first window"
    states = _base(plan, app)
    window, last = start.warm_up_first, plan.first - 1
    while window <= last:
        began = time.monotonic()
        end = min(last, window + sizer.size - 1)
        group = GroupWindows(plan.grid, WindowRange(window, end), plan.mode)
        tuples = sum(sum(counts.values()) for counts in engine.count_inputs(group.range).values())
        states = engine.compute(group, 0, states, (), tuples).states
        sizer.took(end - window + 1, time.monotonic() - began)
        say(f"warm-up: windows {window} to {end} of {last}")
        window = end + 1
    return states


def _base(plan: Plan, app: Application) -> dict[str, pa.Table]:
    stateful = {node.name: node.operator for node in app.nodes.values() if node.operator.is_stateful}
    if not plan.start.taken_from:
        return {name: operator.initial_state() for name, operator in stateful.items()}
    table = Table.open(plan.start.taken_from, plan.start.version)
    rows = stored.rows_at(table, plan.start.warm_up_first - 1)  # type: ignore[operator]
    return {row["operator"]: stored.decode(row) for row in rows.to_pylist() if row["operator"]}
