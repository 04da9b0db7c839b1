"""Tuples whose event time cannot be: the verdicts of `lateness`, counted, and without effect on
anything else.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from rewindow.inspection.event_gaps import StreamRows
from rewindow.inspection.gaps import gaps
from rewindow.inspection.lags import lag_over_time, lateness_by_key
from rewindow.inspection.unusable import describe_unusable, unusable_tuples
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange
from tests.inspection.test_event_gaps import STEADY, recorded

DAY = 86_400
FIRST = 177_000_000
BEGIN = 10 * FIRST
WINDOWS = WindowRange(FIRST, FIRST + 9)
GRID = Grid(10_000)
Rows = list[tuple[str | None, float, float | None, float | None]]
GOOD: Rows = [(key, BEGIN + at, BEGIN + t, value) for key, at, t, value in STEADY if t is not None]
BAD: Rows = [
    ("a", BEGIN + 45, BEGIN + 45 + 2 * DAY, 1.0), ("b", BEGIN + 1, (BEGIN + 1) / 1000, 1.0),
    ("b", BEGIN + 2, (BEGIN + 2) / 1000, 1.0), ("c", BEGIN + 3, (BEGIN + 3) / 1_000_000, 1.0),
    ("c", BEGIN + 4, BEGIN + 4.0, 1.0),
]  # fmt: skip


def bad_ones(root: Path, rows: Rows, **more: str) -> Config:
    return recorded(root, rows, FIRST, cadence="10 s", expected_keys=["a", "b"], **more)


def test_unusable_tuples_are_counted_by_key_and_reason(tmp_path: Path) -> None:
    report = gaps(bad_ones(tmp_path, [*GOOD, *BAD]), "s")
    assert [
        (one.keys, one.reason, one.times_too_small, one.tuples, one.of) for one in report.unusable
    ] == [
        ("k=b", "bad_type", 1000, 2, 2),
        ("k=a", "far_future", None, 1, 9),
        ("k=c", "bad_type", 1_000_000, 1, 2),
    ]
    assert describe_unusable(report.unusable, 2) == (
        "4 tuples have timestamps that cannot be correct and are left out of gaps, lag and "
        "lateness in event time: "
        "k=b all 2 a thousand times too small; k=a 1 of 9 more than a day ahead of their arrival; "
        "1 keys and reasons more"
    )
    assert json.loads(report.to_json())["unusable"][0] == {
        "key": "k=b",
        "reason": "bad_type",
        "times_too_small": 1000,
        "tuples": 2,
        "of": 2,
    }
    assert describe_unusable([], 5) == ""


def test_gaps_and_lags_ignore_unusable_tuples(tmp_path: Path) -> None:
    usable: Rows = [*GOOD, BAD[-1]]
    with_bad: Rows = [("a", BEGIN, BEGIN + 9 * DAY, 1.0), *usable, *BAD[:-1]]
    one = bad_ones(tmp_path / "a", with_bad)
    other = bad_ones(tmp_path / "b", usable)
    found = gaps(one, "s").event
    wanted = gaps(other, "s").event
    assert found is not None and wanted is not None and found.completeness == wanted.completeness

    def places(event: object) -> list[tuple[str, str, int, int]]:
        return [(gap.keys, gap.kind, gap.from_us, gap.to_us) for gap in event.gaps]  # type: ignore[attr-defined]

    assert places(found) == places(wanted) and ("k=b", "never_started") in [
        gap[:2] for gap in places(found)
    ]
    rows = StreamRows.open(one, "s", {})
    clean = StreamRows.open(other, "s", {})
    assert lag_over_time(rows, WINDOWS, GRID) == lag_over_time(clean, WINDOWS, GRID)
    assert lateness_by_key(rows, WINDOWS) == lateness_by_key(clean, WINDOWS)


def test_learned_cadence_ignores_unusable_tuples(tmp_path: Path) -> None:
    # A key in a wrong unit has rows a thousand times closer and would outvote the others.
    shrunk: Rows = [("b", BEGIN + n, (BEGIN + n) / 1000, 1.0) for n in range(90)]
    event = gaps(recorded(tmp_path, [*GOOD, *shrunk], FIRST), "s").event
    assert event is not None and event.cadence_us == 10_000_000


def test_timestamp_checks_in_reports_and_lateness_agree_for_any_timestamp(tmp_path: Path) -> None:
    random = Random(4)
    rows = []
    wanted = 0
    for _ in range(500):
        at = BEGIN + random.randrange(100)
        factor = random.choice((1, 1000, 1_000_000))
        place = at * 1_000_000 // factor + random.choice((-1, 1)) * (
            DAY * 1_000_000 // factor + random.randint(-1, 1)
        )
        rows.append(("a", float(at), place / 1_000_000, 1.0))
        place = int(place / 1_000_000 * 1_000_000)
        near = [
            abs(place - at * 1_000_000 // by) <= DAY * 1_000_000 // by for by in (1000, 1_000_000)
        ]
        long_ago = place < (at - 366 * DAY) * 1_000_000
        wanted += place > (at + DAY) * 1_000_000 or (long_ago and any(near))
    found = unusable_tuples(StreamRows.open(recorded(tmp_path, rows, FIRST), "s", {}), WINDOWS)  # type: ignore[arg-type]
    assert sum(one.tuples for one in found) == wanted and 100 < wanted < 400


@pytest.mark.parametrize("keys", [["k"], []])
def test_tuples_of_the_requested_range_and_keys_are_checked_with_and_without_keys(
    tmp_path: Path,
    keys: list[str],
) -> None:
    config = recorded(tmp_path, [*GOOD, *BAD], FIRST, cadence="10 s", keys=keys)
    assert sum(one.tuples for one in gaps(config, "s").unusable) == 4
    assert [one.tuples for one in gaps(config, "s", first=FIRST + 4, last=FIRST + 9).unusable] == [
        1
    ]
    if keys:
        assert [one.keys for one in gaps(config, "s", keys={"k": "c"}).unusable] == ["k=c"]
