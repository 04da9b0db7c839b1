"""The suites of the example application: faultless outputs pass, and every check finds the fault that it is for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.quality import GateResult, judge
from rewindow.quality.suites import read_suite
from rewindow.windows import WindowRange
from tests.quality.staging import PROJECT, STATIONS, StagedReplay

Rows = list[dict[str, Any]]
Fault = Callable[[StagedReplay, int], None]

SCHEMAS = {
    "hourly_weather": pa.schema(
        [
            ("window_id", pa.int64()), ("attempt", pa.int64()), ("origin", pa.string()),
            ("hour", pa.timestamp("us", tz="UTC")), ("_rw_is_timer", pa.bool_()), ("age_hours", pa.int64()),
            ("temp", pa.decimal128(5, 2)), ("wind_speed", pa.decimal128(9, 5)),
        ]
    ),
    "delays": pa.schema(
        [
            ("window_id", pa.int64()), ("attempt", pa.int64()), ("origin", pa.string()), ("flights", pa.int64()),
            ("cancelled", pa.int64()), ("departed", pa.int64()), ("delay_minutes", pa.int64()),
            ("delay_p90_minutes", pa.int32()), ("late", pa.int64()), ("late_share", pa.decimal128(5, 4)),
            ("weather_is_real", pa.bool_()),
        ]
    ),
    "ranks": pa.schema(
        [
            ("window_id", pa.int64()), ("attempt", pa.int64()), ("carrier", pa.string()), ("flights", pa.int64()),
            ("departed", pa.int64()), ("mean_delay", pa.decimal128(9, 4)), ("rank", pa.int32()),
        ]
    ),
    "heartbeat": pa.schema(
        [
            ("window_id", pa.int64()), ("attempt", pa.int64()), ("origin", pa.string()), ("_rw_is_timer", pa.bool_()),
            ("_rw_cause", pa.string()),
        ]
    ),
}  # fmt: skip


def weather_row(window: int, place: int) -> dict[str, Any]:
    """A report of a station, in its hour."""
    hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=window)
    return {
        "origin": STATIONS[place], "hour": hour, "_rw_is_timer": False, "age_hours": 0,
        "temp": Decimal("41.02"), "wind_speed": Decimal("9.20624"),
    }  # fmt: skip


def delays_row(window: int, place: int) -> dict[str, Any]:
    """Two flights of an airport: one cancelled, one late."""
    return {
        "origin": STATIONS[place], "flights": 2, "cancelled": 1, "departed": 1, "delay_minutes": 20,
        "delay_p90_minutes": 20, "late": 1, "late_share": Decimal("1.0000"), "weather_is_real": True,
    }  # fmt: skip


def ranks_row(window: int, place: int) -> dict[str, Any]:
    """A carrier's season: each of three gains two flights a window."""
    flights = 2 * (window - 99)
    mean = Decimal(place)
    return {
        "carrier": ("AA", "B6", "UA")[place],
        "flights": flights,
        "departed": flights,
        "mean_delay": mean,
        "rank": place + 1,
    }


def heartbeat_row(window: int, place: int) -> dict[str, Any]:
    """A tuple of the stream."""
    return {"origin": STATIONS[place], "_rw_is_timer": False, "_rw_cause": None}


MAKERS = {"hourly_weather": weather_row, "delays": delays_row, "ranks": ranks_row, "heartbeat": heartbeat_row}


def faultless(folder: Path, suite: str) -> StagedReplay:
    """Returns a replay of one output of the example, with inputs that fit."""
    staged = StagedReplay(
        folder, suite=suite, output=suite, schema=SCHEMAS[suite], stateful=True, windows=WindowRange(100, 139)
    )
    staged.key = ["carrier"] if suite == "ranks" else ["origin"]
    staged.inputs = ["weather"] if suite in ("hourly_weather", "heartbeat") else ["flights"]
    tuples = 3 if staged.inputs == ["weather"] else 6
    staged.rows = [
        {"window_id": w, "attempt": 1, **MAKERS[suite](w, place)} for w in staged.windows for place in range(3)
    ]
    staged.seals = [{"window_id": w, "tuples": tuples, "stream": staged.inputs[0]} for w in staged.windows]
    staged.facts = [staged.fact(w, "out", suite, 3) for w in staged.windows]
    staged.facts += [staged.fact(w, "in", staged.inputs[0], tuples) for w in staged.windows]
    return staged


def rows_of(staged: StagedReplay, window: int) -> Rows:
    """Returns a window's rows, to be changed."""
    return [row for row in staged.rows if row["window_id"] == window]


def change(place: int = 1, **values: Any) -> Fault:
    """Returns a fault: other values in one row."""
    return lambda staged, window: rows_of(staged, window)[place].update(values)


def remove(staged: StagedReplay, window: int) -> None:
    """Takes a row away that its seal counts."""
    staged.rows.remove(rows_of(staged, window)[1])


def shift_from(**deltas: int) -> Fault:
    """Returns a fault: a carrier's totals that fall from a window on, as after a wrong recovery."""

    def fault(staged: StagedReplay, window: int) -> None:
        for row in staged.rows:
            if row["window_id"] >= window and row["carrier"] == "B6":
                row.update({name: row[name] + delta for name, delta in deltas.items()})

    return fault


def swap_ranks(staged: StagedReplay, window: int) -> None:
    """A worse carrier before a better one."""
    first, second = rows_of(staged, window)[:2]
    first["rank"], second["rank"] = 2, 1


def every_rank_one_later(staged: StagedReplay, window: int) -> None:
    """Ranks 2, 3, 4."""
    for row in rows_of(staged, window):
        row["rank"] += 1


def fewer_in(staged: StagedReplay, window: int) -> None:
    """Fewer reports came in than rows carry one."""
    for entry in (*staged.facts, *staged.seals):
        if entry["window_id"] == window and entry.get("direction", "in") == "in":
            entry["tuples"] = 2


TIMER = {"_rw_is_timer": True, "age_hours": 1}
FAULTS: dict[tuple[str, str], Fault] = {
    ("hourly_weather", "three-stations"): remove,
    ("hourly_weather", "stations-known"): change(origin="BOS"),
    ("hourly_weather", "hour-is-the-windows"): change(hour=datetime(1970, 1, 1, tzinfo=UTC)),
    ("hourly_weather", "timers-carry-an-age"): change(_rw_is_timer=True, age_hours=None),
    ("hourly_weather", "reports-have-no-age"): change(age_hours=2),
    ("hourly_weather", "no-report-made-up"): fewer_in,
    ("hourly_weather", "no-station-silent"): change(**TIMER),
    ("hourly_weather", "report-not-older-than-a-day"): change(_rw_is_timer=True, age_hours=25),
    ("hourly_weather", "wind-plausible"): change(wind_speed=Decimal("1048.36")),
    ("hourly_weather", "cold-plausible"): change(temp=Decimal("-41")),
    ("hourly_weather", "heat-plausible"): change(temp=Decimal("121")),
    ("delays", "every-flight-counted"): change(flights=3, departed=2),
    ("delays", "flights-add-up"): change(cancelled=0),
    ("delays", "late-among-departed"): change(late=2),
    ("delays", "late-share-is-a-quotient"): change(late_share=Decimal("0.5")),
    ("delays", "no-delay-without-departure"): change(departed=0, cancelled=2, late=0, late_share=None),
    ("delays", "three-airports"): remove,
    ("delays", "weather-known"): change(weather_is_real=None),
    ("delays", "delay-plausible"): change(delay_p90_minutes=721),
    ("ranks", "season-adds-up"): shift_from(flights=-1, departed=-1),
    ("ranks", "flights-never-fewer"): shift_from(flights=-3, departed=-3),
    ("ranks", "carriers-stay"): lambda staged, window: remove(staged, window + 1),
    ("ranks", "ranks-differ"): change(rank=1),
    ("ranks", "ranks-begin-at-one"): every_rank_one_later,
    ("ranks", "ranks-without-gap"): change(place=2, rank=4),
    ("ranks", "ranks-by-mean-delay"): swap_ranks,
    ("ranks", "departed-among-flights"): change(departed=99),
    ("ranks", "mean-where-departed"): change(mean_delay=None),
    ("heartbeat", "data-kept"): change(_rw_is_timer=True, _rw_cause="timeout"),
    ("heartbeat", "timers-say-why"): change(_rw_is_timer=True),
    ("heartbeat", "data-have-no-cause"): change(_rw_cause="crossing"),
}


SEEN_TOO: dict[str, list[tuple[str, int]]] = {
    "no-station-silent": [("timers-carry-an-age", 0), ("report-not-older-than-a-day", 0)],
    "every-flight-counted": [("three-airports", 0)],
    "late-share-is-a-quotient": [("every-flight-counted", 0), ("late-among-departed", 0)],
    "season-adds-up": [("flights-never-fewer", 0), ("carriers-stay", 1), ("carriers-stay", 2)],
    "ranks-without-gap": [("carriers-stay", 1), ("ranks-begin-at-one", 0)],
    "ranks-by-mean-delay": [("ranks-begin-at-one", 0), ("mean-where-departed", 0)],
    "data-kept": [("timers-say-why", 0)],
}
"""Faults that a check sees beside its own, and how many windows after their place."""


def failing(result: GateResult, slug: str) -> list[int]:
    """Returns the windows in which a check fails."""
    found = next(check for check in result.outputs[0].checks if check.check == slug)
    assert found.status == "failed", f"{slug} is {found.status}"
    return [window for part in found.failing for window in part]


@pytest.mark.parametrize("suite", SCHEMAS)
def test_faultless_output_passes_every_check(tmp_path: Path, suite: str) -> None:
    """Nothing fails, and nothing passes for want of values."""
    staged = faultless(tmp_path, suite).write()
    checks = judge(staged.config, staged.plan).outputs[0].checks
    assert {check.status for check in checks} == {"passed"}


@pytest.mark.parametrize("suite", SCHEMAS)
def test_checks_find_their_faults(tmp_path: Path, suite: str) -> None:
    """Each check fails in the window of its fault, and in no other but those of faults that it is known to see."""
    staged = faultless(tmp_path, suite)
    places = {slug: 101 + 3 * number for number, slug in enumerate(slug for name, slug in FAULTS if name == suite)}
    for slug, window in places.items():
        FAULTS[suite, slug](staged, window)
    result = judge(staged.config, staged.write().plan)
    for slug, window in places.items():
        others = {places[other] + later for other, later in SEEN_TOO.get(slug, [])}
        assert failing(result, slug) == sorted({window, *others}), slug


@pytest.mark.parametrize("suite", SCHEMAS)
def test_every_check_has_a_fault(suite: str) -> None:
    """A check without a fault that it is seen to find is not worth having."""
    slugs = {entry["meta"]["check"] for entry in read_suite(PROJECT, suite).expectations}
    assert slugs == {slug for name, slug in FAULTS if name == suite}
