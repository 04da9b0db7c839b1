"""Damages planted in a copy of an output, and what its suite makes of them: how strong a gate is.

A specimen is some windows of a replay's output. A damage changes rows of one window of the copy,
and the seals with them, as an operator that computes something wrong would. Several damages are
judged at once, each with untouched windows around it, through the gate's own report, suite and
assessment. One that shows farther away is judged again.
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
"""What becomes of a damage, the best first: it stops the publication, is only shown, or nobody is
told."""
NEAR = 1
"""A damage is noticed by a check that fails at most so many windows from it."""


@dataclass(frozen=True)
class Damage:
    """A way to damage a window.

    Attributes:
        kind: what is done, in words.
        plant: changes the rows of a window, and perhaps of later ones, in place; says whether
            anything differs then.
        column: the column that it is about, empty for whole rows.
        reach: windows after its own that it changes; None for all windows, so that it is judged by
            itself.
    """

    kind: str
    plant: Callable[[Rows, int, Random], bool]
    column: str = ""
    reach: int | None = 0


@dataclass(frozen=True)
class Planted:
    """A damage in one window, and by which checks it was noticed."""

    damage: Damage
    window: int
    seen: Seen = "unseen"
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Specimen:
    """Windows of an output as readers see it.

    Attributes:
        plan: the replay's plan, cut to these windows.
        sources: of the replay; inputs and quarantine are looked up there.
        rows: window, attempt and event columns.
        facts: those of the windows.
    """

    plan: Plan
    output: OutputPlan
    suite: Suite
    project: Path
    sources: Sources
    rows: pa.Table
    facts: pa.Table

    def by_window(self) -> Rows:
        """Returns the rows by window, to be damaged."""
        found: Rows = {window: [] for window in self.plan.range}
        for row in self.rows.to_pylist():
            found[row["window_id"]].append(row)
        return found

    def judge(self, rows: Rows) -> tuple[CheckOutcome, ...]:
        """Returns what the output's suite says of other rows, sealed as they are.

        Raises:
            GateError: they cannot be judged at all.
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
            found = evaluate(self.project, self.suite, report, parameters=known, pages=False)
        return assess(found, self.suite, report, windows=self.plan.range)

    def table_of(self, rows: Rows) -> pa.Table:
        """Returns rows as a table with the columns of the output."""
        return pa.Table.from_pylist(list(chain.from_iterable(rows.values())), self.rows.schema)

    def _sealed_as(self, rows: Rows) -> pa.Table:
        """Returns the facts as they would be of other rows; measures of the rows before are none of
        these.
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
    """Plants each damage in a window where it makes a difference, and returns those that found one,
    with what was seen.

    Raises:
        GateError: the undamaged windows cannot be judged.
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
    """Returns rows that may be changed."""
    return {window: list(map(dict, part)) for window, part in rows.items()}


def _place(specimen: Specimen, damage: Damage, clean: Rows, seed: int) -> int | None:
    """Returns a window in which the damage makes a difference, if there is one: chosen by the seed,
    not at the edge.
    """
    windows = list(specimen.plan.range)[NEAR + 1 : -NEAR - 1]
    Random(f"{seed}/{damage.kind}/{damage.column}").shuffle(windows)
    for window in windows:
        if _changed(specimen, damage, clean, window, seed) is not None:
            return window
    return None


def _changed(specimen: Specimen, damage: Damage, rows: Rows, window: int, seed: int) -> Rows | None:
    """Returns the rows with a damage, None where it makes no difference or its values do not fit
    their columns.
    """
    # Only the windows that a damage can reach are copied, since every window is tried for a place.
    near = rows
    if damage.reach is not None:
        reached = range(window, window + damage.reach + 1)
        near = {window: rows[window] for window in reached if window in rows}
    made = copy_of(near)
    if not damage.plant(made, window, Random(f"{seed}/{window}")) or made == near:
        return None
    try:
        specimen.table_of(made)
    except (pa.ArrowException, OverflowError):
        return None
    return {**rows, **made}


def _rounds(placed: Sequence[Planted]) -> list[list[int]]:
    """Returns which damages are judged together: those with an untouched window between their
    neighbourhoods.
    """
    rounds: list[tuple[set[int], list[int]]] = []
    for number, one in enumerate(placed):
        if one.damage.reach is None:
            rounds.append((set(), [number]))
            continue
        around = set(range(one.window - NEAR - 1, one.window + one.damage.reach + NEAR + 2))
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
    """Returns damages with what was seen of each; halves them where one shows beyond its
    neighbourhood.
    """
    rows = specimen.by_window()
    for one in placed.values():
        changed = _changed(specimen, one.damage, rows, one.window, seed)
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
    """Returns which checks fail in which windows; those of the whole range in none, which is near
    to no damage.
    """
    found: set[tuple[str, int]] = set()
    for check in checks:
        if check.status in ("failed", "not_run"):
            windows = list(chain.from_iterable(check.failing)) or [-1]
            found |= {(check.check, window) for window in windows}
    return found


def cut(
    plan: Plan,
    windows: WindowRange,
    rows: pa.Table,
    facts: pa.Table,
) -> tuple[Plan, pa.Table, pa.Table]:
    """Returns plan, rows and facts of some windows of a replay; behind its first one, the start
    state is not known.
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
