"""The suites of generated applications and of the example, measured by damages that know only the
columns: how many stop the publication. The score is printed at the end of a run of the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.quality.planting import Damage, Specimen, plant
from rewindow.sequences import not_named
from tests.conftest import SCORE
from tests.quality.damage_generator import generated_damages
from tests.quality.generated_specimens import CASES, NAMES, STORED, Rows, specimen_of
from tests.quality.planted_rows import specimen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOOKKEEPING = ("window_id", "attempt")
KEYS = {
    "windows": ["page", "window_begin_us"],
    "sessions": ["page", "window_begin_us"],
    "late_tuples": ["page", "at"],
    "filled": ["key", "at"],
    "heartbeat": ["key", "at"],
    "late_flights": ["carrier", "flight", "scheduled_at"],
    "lateness": ["origin", "outcome"],
    "init": ["station"],
    "hourly_weather": ["origin"],
    "delays": ["origin"],
    "ranks": ["carrier"],
}
SAMPLE = 10
"""Damages of each output that a run of the tests plants; the long tests plant all."""


def made(folder: Path, name: str) -> Specimen:
    return specimen_of(folder, name, None) if name in NAMES else specimen(folder, name)


def damages_of(found: Specimen, name: str) -> list[Damage]:
    columns = pa.schema(not_named(found.rows.schema, BOOKKEEPING))
    return generated_damages(columns, KEYS[name])


def score(found: Specimen, name: str, damages: list[Damage]) -> tuple[float, str]:
    planted = plant(found, damages, seed=1)
    rest = [one for one in planted if one.seen != "stopped"]
    words = [f"{name}: {len(planted) - len(rest)} of {len(planted)} generated damages stopped"]
    words += [f"{one.damage.column} {one.damage.kind} ({one.seen})".strip() for one in rest]
    return 1 - len(rest) / len(planted), "; ".join(words)


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_rows_of_generated_outputs_pass_every_check(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, name)
    failed = [one.check for one in found.judge(found.by_window()) if one.status != "passed"]
    assert set(failed) <= {"no-error-tuples"}


@pytest.mark.parametrize("name", KEYS)
def test_ninety_percent_of_generated_damages_prevent_publication(
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    found = made(tmp_path, name)
    damages = [one for one in damages_of(found, name) if one.reach is not None]
    share, words = score(found, name, damages[:: max(1, len(damages) // SAMPLE)])
    record_property(SCORE, words)
    assert share >= 0.9, words


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KEYS)
def test_ninety_percent_of_all_generated_damages_prevent_publication(
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    found = made(tmp_path, name)
    share, words = score(found, name, damages_of(found, name))
    record_property(SCORE, words)
    assert share >= 0.9, words


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_outputs_for_different_inputs_pass_every_check(
    tmp_path: Path, name: str, spark: SparkSession
) -> None:
    for seed in (2, 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = specimen_of(folder, name, spark, seed)
        failed = [one.check for one in found.judge(found.by_window()) if one.status != "passed"]
        assert set(failed) <= {"no-error-tuples"}, seed


def with_extremes(tuples: Rows) -> None:
    """Puts extreme numbers into all tuples but the first ones, and extreme times into some."""
    rows = list(chain.from_iterable(tuples.values()))[20:]
    numbers = {
        "n": [2**63 - 1, -(2**63), 0],
        "temp": [1.7e308, -1.7e308, math.nan, math.inf, 5e-324],
        "price": [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.01")],
        "wind": [2**31 - 1, -(2**31), 7],
    }
    for place, row in enumerate(rows):
        for name, values in numbers.items():
            if name in row:
                row[name] = values[place % len(values)]
        if place % 17 == 5:
            year = 1 if place % 2 else 9999
            row["at"] = datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.long
@pytest.mark.parametrize("name", ["filled", "heartbeat"])
def test_outputs_with_extreme_values_pass_every_check(
    tmp_path: Path,
    name: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[name]
    if name == "heartbeat":
        monkeypatch.setitem(CASES, name, replace(case, more={**case.more, "max_jump": "1 day"}))
    found = specimen_of(tmp_path, name, spark, change=with_extremes)
    failed = [one.check for one in found.judge(found.by_window()) if one.status != "passed"]
    assert set(failed) <= {"no-error-tuples"}


@pytest.mark.parametrize("name", NAMES)
def test_stored_rows_have_the_columns_of_the_application(tmp_path: Path, name: str) -> None:
    saved = not_named(pq.read_schema(STORED / f"{name}.parquet"), BOOKKEEPING)
    columns = made(tmp_path, name).output.columns
    assert [(field.name, str(field.type)) for field in saved] == list(map(tuple, columns))
