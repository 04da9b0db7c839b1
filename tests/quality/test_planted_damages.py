"""The shipped suites, measured: of 96 kinds of damage in real rows, how many stop the publication.

The score is printed at the end of a run of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from rewindow.loading.suites import read_suite
from rewindow.quality.planting import Damage, Planted, plant
from rewindow.quality.window_table import build_report
from rewindow.storage import Table
from tests.conftest import SCORE
from tests.quality.planted_damages import (
    DAMAGES,
    is_timer,
    put,
    reversed_ranks,
    value,
    values,
    when,
)
from tests.quality.planted_rows import DATA, columns_of, specimen

STOPPED = {"hourly_weather": 24, "delays": 27, "ranks": 21, "ticks": 24}
"""What each suite stops: all of its damages."""
FURTHER: dict[str, tuple[Damage, ...]] = {
    "hourly_weather": (
        value("precipitation 11", put(precip=Decimal(11))),
        value("visibility -1", put(visib=Decimal(-1))),
        value("a report older than a day", when(is_timer, age_hours=25)),
    ),
    "ranks": (reversed_ranks("ranks of equal means exchanged"),),
}
"""Damages beside the score, for bounds that only warn and for checks that see none of its
damages."""


@pytest.mark.parametrize("name", DAMAGES)
def test_injected_damages_are_detected_and_most_fail_a_critical_check(
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    made = specimen(tmp_path, name)
    damages = DAMAGES[name]
    found = plant(made, (*damages, *FURTHER.get(name, ())), seed=1)
    score = found[: len(damages)]
    record_property(SCORE, told(name, score))
    assert [one.damage.kind for one in score] == [damage.kind for damage in damages], (
        "one found no place"
    )
    assert not [one.damage.kind for one in score if one.seen == "unseen"]
    assert sum(one.seen == "stopped" for one in score) >= STOPPED[name]
    own = read_suite(made.project, made.suite.name)
    assert {entry["meta"]["check"] for entry in own.expectations} <= {
        check for one in found for check in one.checks
    }


@pytest.mark.parametrize("name", DAMAGES)
def test_undamaged_rows_pass_every_check(tmp_path: Path, name: str) -> None:
    made = specimen(tmp_path, name)
    status = {check.check: check.status for check in made.judge(made.by_window())}
    silent = {"no-station-silent"} if name == "hourly_weather" else set()
    assert {slug for slug, found in status.items() if found != "passed"} == silent


def test_airport_renamed_in_every_window_fails(tmp_path: Path) -> None:
    renamed = values(
        "EWR renamed XXX",
        lambda row: {"origin": "XXX"} if row["origin"] == "EWR" else None,
        reach=None,
    )
    (found,) = plant(specimen(tmp_path, "delays"), [renamed], seed=1)
    assert (found.seen, "airports-known" in found.checks) == ("stopped", True)


def test_measures_of_a_window_do_not_depend_on_other_windows(tmp_path: Path) -> None:
    for name in DAMAGES:
        made = specimen(tmp_path / name, name)
        whole = build_report(made.plan, made.output, made.sources, made.suite.measures)
        window = made.plan.first + 27
        alone = made.plan.model_copy(update={"first": window, "last": window})
        rows = made.rows.filter(pc.equal(made.rows["window_id"], window))
        facts = made.facts.filter(pc.equal(made.facts["window_id"], window))
        write_deltalake(str(tmp_path / name / "rows"), rows)
        write_deltalake(str(tmp_path / name / "facts"), facts)
        tables = {
            "staged": Table.open(tmp_path / name / "rows"),
            "facts": Table.open(tmp_path / name / "facts"),
        }
        one = build_report(alone, made.output, replace(made.sources, **tables), made.suite.measures)
        for measure in made.suite.measures:
            if not measure.across:
                assert one[measure.name][0] == whole[measure.name][27], measure.name


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_rows_have_the_columns_of_the_application(name: str) -> None:
    schema = pq.read_schema(DATA / f"{name}.parquet")
    saved = {
        field.name: str(field.type)
        for field in schema
        if field.name not in ("window_id", "attempt")
    }
    assert saved == columns_of(name)


def test_number_of_damage_kinds_equals_the_documented_score() -> None:
    assert {
        name: len({damage.kind for damage in damages}) for name, damages in DAMAGES.items()
    } == {
        "hourly_weather": 24,
        "delays": 27,
        "ranks": 21,
        "ticks": 24,
    }


def told(name: str, score: list[Planted]) -> str:
    stopped = sum(one.seen == "stopped" for one in score)
    rest = ", ".join(f"{one.damage.kind} ({one.seen})" for one in score if one.seen != "stopped")
    return f"{name}: {stopped} of {len(score)} planted damages stopped" + (
        f"; {rest}" if rest else ""
    )
