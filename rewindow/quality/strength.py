"""Measures the strength of an output's gate: which damages its suite detects, column by column.

Damages are planted in a copy of some windows of a replay (see `planting`). They depend on the
columns: changed names; values that are exchanged, missing, of another sign or unit, or off by one;
rows that are dropped, doubled, or moved to another window.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from rewindow.errors import GateError, InputError
from rewindow.facts.readers import read_output, staged_seals
from rewindow.ledger import Ledger
from rewindow.quality.gate import checkable, suite_of
from rewindow.quality.planting import LEVELS, Damage, Planted, Row, Rows, Specimen, cut, plant
from rewindow.quality.window_table import Sources
from rewindow.recovery import OutputPlan, Plan
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import Config
from rewindow.storage import query
from rewindow.storage.layout import event_columns
from rewindow.storage.results import strength_file
from rewindow.windows import WindowRange

logger = logging.getLogger(__name__)

WINDOWS = 120
WINDOWS_MIN = 8
ROWS_MAX = 50_000
"""A specimen has WINDOWS windows, or fewer if they contain more than ROWS_MAX rows. With fewer than
WINDOWS_MIN windows no damage can be planted."""
FACTORS = (1000, 60, 10)
"""Factors for a wrong unit. The first one with which the value still fits its column is used."""


@dataclass(frozen=True)
class Strength:
    """The damages that were planted in an output, and whether its suite detects them.

    Attributes:
        windows: the windows of the specimen.
        planted: each planted damage, with the checks that detected it.
        without_place: damages that would not have changed anything in these windows, by column and
            kind.
    """

    replay_id: str
    output: str
    suite: str
    seed: int
    windows: WindowRange
    planted: tuple[Planted, ...]
    without_place: tuple[tuple[str, str], ...]

    @property
    def noticed(self) -> int:
        """The number of damages that are reported at all."""
        return sum(planted.seen != "unseen" for planted in self.planted)

    @property
    def stopped(self) -> int:
        """The number of damages that prevent the publication."""
        return sum(planted.seen == "stopped" for planted in self.planted)

    @property
    def holes(self) -> tuple[Planted, ...]:
        """Damages that are not detected."""
        return tuple(planted for planted in self.planted if planted.seen == "unseen")

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as values for JSON."""
        rows = [
            {
                "column": planted.damage.column,
                "kind": planted.damage.kind,
                "window": planted.window,
                "seen": planted.seen,
                "checks": list(planted.checks),
            }
            for planted in self.planted
        ]
        counts = Counter(planted.seen for planted in self.planted)
        return {
            "replay_id": self.replay_id,
            "output": self.output,
            "suite": self.suite,
            "seed": self.seed,
            "first": self.windows.first,
            "last": self.windows.last,
            "planted": len(rows),
            **{level: counts[level] for level in LEVELS},
            "damages": rows,
            "without_place": list(map(list, self.without_place)),
        }


def strength(
    config: Config,
    replay_id: str,
    output: str | None = None,
    *,
    seed: int = 1,
) -> list[Strength]:
    """Plants damages in copies of a replay's outputs. Returns which of them their suites detect.

    Starts no JVM. The replay, its verdict and the findings do not change. The result is written to
    a file next to the output's page.

    Args:
        config: current settings.
        replay_id: a replay that has ended.
        output: name of the only output to examine; all outputs by default.
        seed: selects the windows and the places of damages; the same seed gives the same result.

    Raises:
        InputError: the id is unknown, or the replay has not ended or has no such output.
        GateError: the undamaged rows cannot be checked, or a window has too many rows.
    """
    plan = checkable(config, Ledger.open(config.ledger_url), replay_id)
    outputs = [staged for staged in plan.outputs if output in (None, staged.name)]
    if not outputs:
        known = ", ".join(names_of(plan.outputs))
        raise InputError(
            f'replay "{replay_id}" has no output "{output}"',
            hint=f"Its outputs: {known}.",
        )
    return [_measure(config, plan, staged, seed) for staged in outputs]


def damages_of(columns: pa.Schema, width_us: int) -> Iterator[Damage]:
    """Yields the damages that are possible in an output: first damages of whole rows, then damages
    of each column.
    """
    yield Damage("row dropped", _drop)
    yield Damage("row doubled", _double)
    yield Damage("rows exchanged with the next window's", _move, reach=1)
    for field in columns:
        for kind, change in _changes(field, width_us).items():
            yield Damage(kind, _in_one_row(field.name, change), field.name)
        yield Damage("exchanged between two rows", _exchange(field.name), field.name)


def _measure(
    config: Config,
    plan: Plan,
    output: OutputPlan,
    seed: int,
) -> Strength:
    specimen = _specimen(config, plan, output, seed=seed)
    schema = event_columns(specimen.sources.staged)
    damages = list(damages_of(schema, plan.grid.width_us))
    logger.info(
        f"{output.name}: {len(damages)} damages in windows {specimen.plan.range}, seed {seed}"
    )
    planted = tuple(plant(specimen, damages, seed))
    placed = {(entry.damage.column, entry.damage.kind) for entry in planted}
    every = [(damage.column, damage.kind) for damage in damages]
    rest = tuple(excluding(every, placed))
    result = Strength(
        plan.replay_id,
        output.name,
        specimen.suite.name,
        seed=seed,
        windows=specimen.plan.range,
        planted=planted,
        without_place=rest,
    )
    file = strength_file(config, plan.replay_id, output.name)
    file.write(json.dumps(result.to_dict(), indent=2) + "\n")
    return result


def _specimen(config: Config, plan: Plan, output: OutputPlan, seed: int) -> Specimen:
    root = config.replay_root(plan.replay_id)
    sources = Sources.open(root, output.name, config.quarantine_table)
    windows = _choose(plan, output, sources, seed=seed)
    inside = f"window_id between {windows.first} and {windows.last}"
    facts = query(f"select * from f where {inside}", f=sources.facts)
    part, rows, facts = cut(plan, windows, read_output(root, output.name, windows), facts)
    return Specimen(
        part,
        output,
        suite_of(config, output),
        project=config.expectations,
        sources=sources,
        rows=rows,
        facts=facts,
    )


def _choose(plan: Plan, output: OutputPlan, sources: Sources, seed: int) -> WindowRange:
    """Returns consecutive windows that contain rows, with a limited number of rows.

    They start at a window that the seed selects.
    """
    seals = staged_seals(sources.facts, output.name, plan.range)
    tuples = dict(zip(seals["window_id"].to_pylist(), seals["tuples"].to_pylist(), strict=True))
    first = Random(seed).randint(plan.first, max(plan.first, plan.last - WINDOWS + 1))
    last = first - 1
    rows = 0
    # Windows are added one by one as long as their rows fit into memory together.
    while last < min(plan.last, first + WINDOWS - 1) and rows + tuples.get(last + 1, 0) <= ROWS_MAX:
        last += 1
        rows += tuples.get(last, 0)
    if last - first + 1 < WINDOWS_MIN or not rows:
        raise GateError(
            f'output "{output.name}" of replay "{plan.replay_id}" has fewer than {WINDOWS_MIN} '
            "windows for planting damages",
            detail=f"From window {first} on there are {max(0, last - first + 1)} windows with "
            f"{rows:,} rows; at most {ROWS_MAX:,} rows are copied.",
            hint="Use a replay with a longer range or shorter windows, or another --seed.",
        )
    return WindowRange(first, last)


# --- damages

Change = Callable[[Any], Any]


def _changes(field: pa.Field, width_us: int) -> dict[str, Change]:
    """Returns the possible changes of a single value of a column, by kind."""
    kind = field.type
    changes: dict[str, Change] = {"null": lambda value: None}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        changes["renamed"] = lambda value: value + "?"
    elif pa.types.is_boolean(kind):
        changes["the opposite"] = lambda value: not value
    elif pa.types.is_timestamp(kind):
        changes["off by one window"] = lambda value: value + timedelta(microseconds=width_us)
    elif pa.types.is_date(kind):
        changes["off by one day"] = lambda value: value + timedelta(days=1)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        changes["of the other sign"] = lambda value: -value
        changes["of another unit"] = lambda value: _in_another_unit(value, kind)
        changes["off by one"] = lambda value: value + 1
    return changes


def _in_another_unit(value: Any, kind: pa.DataType) -> Any:
    for factor in FACTORS:
        try:
            pa.scalar(value * (Decimal(factor) if isinstance(value, Decimal) else factor), kind)
        except (pa.ArrowException, OverflowError):
            continue
        return value * factor
    return value


def _in_one_row(column: str, change: Change) -> Callable[[Rows, int, Random], bool]:
    def planted(rows: Rows, window: int, random: Random) -> bool:
        able = [
            row for row in rows[window] if row[column] is not None and row[column] == row[column]
        ]
        if not able:
            return False
        row = random.choice(able)
        before, row[column] = row[column], change(row[column])
        return bool(row[column] != before)

    return planted


def _exchange(column: str) -> Callable[[Rows, int, Random], bool]:
    def planted(rows: Rows, window: int, random: Random) -> bool:
        if len(rows[window]) < 2:
            return False
        first, second = random.sample(rows[window], 2)
        differ = [name for name in first if first[name] != second[name]]
        first[column], second[column] = second[column], first[column]
        return column in differ and len(differ) > 1

    return planted


def _drop(rows: Rows, window: int, random: Random) -> bool:
    if rows[window]:
        rows[window].remove(random.choice(rows[window]))
    return True


def _double(rows: Rows, window: int, random: Random) -> bool:
    if rows[window]:
        rows[window].append(dict(random.choice(rows[window])))
    return True


def _move(rows: Rows, window: int, random: Random) -> bool:
    def bare(row: Row) -> Row:
        return {**row, "window_id": None}

    differ = [*map(bare, rows[window])] != [*map(bare, rows[window + 1])]
    rows[window], rows[window + 1] = rows[window + 1], rows[window]
    for place in (window, window + 1):
        for row in rows[place]:
            row["window_id"] = place
    return differ
