"""Measures the strength of a gate: plants damages in a copy of an output and finds out which checks
detect them.

A specimen is some windows of a replay's output. A damage changes rows of one window of the copy,
and the seals accordingly, like a faulty operator would. Several damages are planted at once, each
with unchanged windows around it, and the gate's own report, suite and assessment are run. If a
check fails far away from all damages, the failure cannot be attributed to one of them. Then the
damages are split into halves and checked again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from rewindow.errors import GateError
from rewindow.loading.measures import values_of
from rewindow.loading.suites import Suite
from rewindow.location import location
from rewindow.quality.assessment import assess
from rewindow.quality.evaluation import evaluate
from rewindow.quality.outcome import CheckOutcome
from rewindow.quality.window_table import Sources, build_report
from rewindow.recovery import OutputPlan, Plan
from rewindow.storage import Table
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

Row = dict[str, Any]
Rows = dict[int, list[Row]]
Seen = Literal["stopped", "warning", "info", "unseen"]
LEVELS: tuple[Seen, ...] = ("stopped", "warning", "info", "unseen")
"""Outcomes of a damage, the best first: it prevents the publication, is only reported, or is not
detected."""
NEAR = 1
"""A check has detected a damage if it fails at most this number of windows away from it."""


@dataclass(frozen=True)
class Damage:
    """A way to damage a window.

    Attributes:
        kind: description of the change.
        plant: changes the rows of a window, and perhaps of later ones, in place; returns whether
            anything has changed.
        column: the column that it changes, empty for whole rows.
        reach: number of later windows that it changes, too; None for all windows, so that it is
            checked alone.
    """

    kind: str
    plant: Callable[[Rows, int, Random], bool]
    column: str = ""
    reach: int | None = 0


@dataclass(frozen=True)
class Planted:
    """A damage in one window, and the checks that detected it."""

    damage: Damage
    window: int
    seen: Seen = "unseen"
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Specimen:
    """Consecutive windows of an output, with the rows that readers see.

    Attributes:
        plan: the replay's plan, reduced to these windows.
        sources: tables of the replay, for inputs and quarantine.
        rows: window, attempt and event columns.
        facts: facts of the windows.
    """

    plan: Plan
    output: OutputPlan
    suite: Suite
    project: Path
    sources: Sources
    rows: pa.Table
    facts: pa.Table

    def by_window(self) -> Rows:
        """Returns a copy of the rows by window. The caller can damage the copy."""
        rows: Rows = {window: [] for window in self.plan.range}
        for row in self.rows.to_pylist():
            rows[row["window_id"]].append(row)
        return rows

    def judge(self, rows: Rows) -> tuple[CheckOutcome, ...]:
        """Returns the outcomes of the output's suite for changed rows, with matching seals.

        Raises:
            GateError: the rows cannot be checked.
        """
        table = self.table_of(rows)
        with tempfile.TemporaryDirectory(prefix="rewindow-strength-") as folder:
            staged = location(folder) / "output"
            facts = location(folder) / "facts"
            write_deltalake(str(staged), table)
            write_deltalake(str(facts), self._sealed_as(rows))
            sources = replace(
                self.sources,
                staged=Table.open(staged),
                facts=Table.open(facts),
                checkpoints=None,
            )
            report = build_report(self.plan, self.output, sources, measures=self.suite.measures)
            known = values_of(self.plan, self.output)
            evaluation = evaluate(self.project, self.suite, report, parameters=known, pages=False)
        return assess(evaluation, self.suite, report, windows=self.plan.range)

    def table_of(self, rows: Rows) -> pa.Table:
        """Converts rows to a table with the columns of the output."""
        return pa.Table.from_pylist(list(chain.from_iterable(rows.values())), self.rows.schema)

    def _sealed_as(self, rows: Rows) -> pa.Table:
        """Returns the facts with the counts of changed rows.

        Stored measures are left out, because they belong to the original rows.
        """
        facts = self.facts.to_pylist()
        for fact in facts:
            fact["measures"] = None
            if (
                fact["direction"] in ("out", "error")
                and fact["port"] == self.output.name
                and not fact["lost"]
            ):
                fact["tuples"] = len(rows[fact["window_id"]])
        return pa.Table.from_pylist(facts, schema=FACTS_SCHEMA)


def plant(specimen: Specimen, damages: Sequence[Damage], seed: int) -> list[Planted]:
    """Plants each damage in a window where it changes something.

    Returns the planted damages with the checks that detected them.

    Raises:
        GateError: the undamaged windows cannot be checked.
    """
    clean = specimen.by_window()
    known = _failing(specimen.judge(clean))
    placed = []
    for damage in damages:
        window = _place(specimen, damage, clean, seed)
        if window is not None:
            placed.append(Planted(damage, window))
    judged: dict[int, Planted] = {}
    for together in _rounds(placed):
        judged |= _judge(specimen, {number: placed[number] for number in together}, known, seed)
    return [judged[number] for number in range(len(placed))]


def copy_of(rows: Rows) -> Rows:
    """Returns a copy of rows that can be changed without an effect on the original."""
    return {window: list(map(dict, part)) for window, part in rows.items()}


def _place(specimen: Specimen, damage: Damage, clean: Rows, seed: int) -> int | None:
    """Returns a window in which the damage changes something; None if there is none.

    The seed selects the window, which is not at the edge.
    """
    windows = list(specimen.plan.range)[NEAR + 1 : -NEAR - 1]
    Random(f"{seed}/{damage.kind}/{damage.column}").shuffle(windows)
    for window in windows:
        if _changed(specimen, damage, clean, window, seed) is not None:
            return window
    return None


def _changed(specimen: Specimen, damage: Damage, rows: Rows, window: int, seed: int) -> Rows | None:
    """Returns the rows with a damage; None if it changes nothing or its values do not fit their
    columns.
    """
    # Only the windows that a damage can reach are copied, because many windows may be tried.
    near = rows
    if damage.reach is not None:
        reached = range(window, window + damage.reach + 1)
        near = {window: rows[window] for window in reached if window in rows}
    damaged = copy_of(near)
    if not damage.plant(damaged, window, Random(f"{seed}/{window}")) or damaged == near:
        return None
    try:
        specimen.table_of(damaged)
    except (pa.ArrowException, OverflowError):
        return None
    return {**rows, **damaged}


def _rounds(placed: Sequence[Planted]) -> list[list[int]]:
    """Groups the damages that are checked together.

    Their neighbourhoods are separated by at least one unchanged window.
    """
    rounds: list[tuple[set[int], list[int]]] = []
    for number, placement in enumerate(placed):
        if placement.damage.reach is None:
            rounds.append((set(), [number]))
            continue
        around = set(
            range(placement.window - NEAR - 1, placement.window + placement.damage.reach + NEAR + 2)
        )
        for taken, members in rounds:
            if taken and not taken & around:
                taken |= around
                members.append(number)
                break
        else:
            rounds.append((around, [number]))
    return [members for _, members in rounds]


def _judge(
    specimen: Specimen,
    placed: dict[int, Planted],
    known: set[tuple[str, int]],
    seed: int,
) -> dict[int, Planted]:
    """Returns damages with the checks that detected them.

    If a failure cannot be attributed to one damage, the damages are split into halves.
    """
    rows = specimen.by_window()
    for placement in placed.values():
        changed = _changed(specimen, placement.damage, rows, placement.window, seed)
        rows = rows if changed is None else changed
    try:
        checks = specimen.judge(rows)
    except GateError as error:
        if len(placed) > 1:
            return _judge_halves(specimen, placed, known, seed=seed)
        ((number, planted),) = placed.items()
        return {number: replace(planted, seen="stopped", checks=(error.primary,))}
    level = {check.check: _level(check) for check in checks}
    # A failure belongs to the damages near to it. One that is near to none cannot be attributed
    # while several are planted; a single damage has caused all of them.
    noticed_by: dict[int, list[str]] = {number: [] for number in placed}
    for slug, window in _failing(checks) - known:
        is_near = False
        for number, planted in placed.items():
            if len(placed) == 1 or _is_near(planted, window):
                noticed_by[number].append(slug)
                is_near = True
        if not is_near:
            return _judge_halves(specimen, placed, known, seed=seed)
    return {number: _noticed(placed[number], level, slugs) for number, slugs in noticed_by.items()}


def _judge_halves(
    specimen: Specimen,
    placed: dict[int, Planted],
    known: set[tuple[str, int]],
    seed: int,
) -> dict[int, Planted]:
    numbers = sorted(placed)
    middle = len(numbers) // 2
    judged: dict[int, Planted] = {}
    for half in (numbers[:middle], numbers[middle:]):
        judged |= _judge(specimen, {number: placed[number] for number in half}, known, seed)
    return judged


def _is_near(one: Planted, window: int) -> bool:
    return one.window - NEAR <= window <= one.window + (one.damage.reach or 0) + NEAR


def _noticed(one: Planted, level: dict[str, Seen], slugs: Iterable[str]) -> Planted:
    checks = sorted(set(slugs), key=lambda slug: (LEVELS.index(level[slug]), slug))
    return replace(one, seen=level[checks[0]] if checks else "unseen", checks=tuple(checks))


def _level(check: CheckOutcome) -> Seen:
    if check.blocks:
        return "stopped"
    return "warning" if check.severity == "warning" else "info"


def _failing(checks: Iterable[CheckOutcome]) -> set[tuple[str, int]]:
    """Returns pairs of a check and a failing window.

    A check of the whole range has the window -1, which is not near any damage.
    """
    failing: set[tuple[str, int]] = set()
    for check in checks:
        if check.status in ("failed", "not_run"):
            windows = list(chain.from_iterable(check.failing)) or [-1]
            failing |= {(check.check, window) for window in windows}
    return failing


def cut(
    plan: Plan,
    windows: WindowRange,
    rows: pa.Table,
    facts: pa.Table,
) -> tuple[Plan, pa.Table, pa.Table]:
    """Returns plan, rows and facts for the given windows of a replay.

    Unless they include the first window of the replay, their start state is unknown.
    """
    start = plan.start
    if windows.first != plan.first:
        start = start.model_copy(update={"source": "none"})
    part = plan.model_copy(update={"first": windows.first, "last": windows.last, "start": start})
    return part, _inside(rows, windows), _inside(facts, windows)


def _inside(table: pa.Table, windows: WindowRange) -> pa.Table:
    window = table["window_id"]
    return table.filter(
        pc.and_(pc.greater_equal(window, windows.first), pc.less_equal(window, windows.last))
    )
