"""The report of gaps inside of opening hours, of frames and of recorded streams, against a look at
every point (G3).
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError
from rewindow.inspection.event_gaps import EventGaps, StreamRows, event_gaps
from rewindow.location import location
from rewindow.operators import GapSettings, gap_report
from rewindow.operators.schedule.hours_grid import hours_grid
from rewindow.storage import Table
from rewindow.windows import Grid, WindowRange
from tests.operators.hours_reference import Clock, Found, Hours, Row, gaps, walk
from tests.operators.test_hours import CASES, DAY, GIVEN, S, make_rows, second, settings_of, united

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Case = tuple[Hours, float, Clock, int, list[list[Row]], int, int]


def case_of(number: int) -> Case:
    """Returns hours, factor, their clock with points before the range, its first point, keys' rows,
    begin and end.
    """
    hours = GIVEN[number][0]
    change = second(date.fromisoformat(GIVEN[number][1]))
    begin = change - 3 * DAY - 1234
    end = change + 5 * DAY + 4321
    clock = walk(hours, begin - 9 * DAY, end)
    first = next(place for place, start in enumerate(clock.starts) if start >= begin)
    random = Random(number)
    cases = [make_rows(random, clock, begin - 5 * DAY, end + DAY) for _ in range(CASES)]
    return hours, 1 + 1.5 * (number % 2), clock, first, cases, begin, end


def plain(hours: Hours) -> dict[str, Any]:
    given = settings_of(hours)
    return {
        **{name: given[name] for name in ("zone", "hours", "weekdays", "closed")},
        "cadence": hours.step,
    }


def wanted(one: Case) -> tuple[dict[int, list[Found]], dict[int, list[int]]]:
    """Returns gaps and counts by case; a key without a row inside of the hours is not known."""
    hours, factor, clock, first, cases, _, _ = one
    found = {}
    counts = {}
    for case, rows in enumerate(cases):
        if any(clock.point(row.ts) is not None for row in rows):
            found[case], counts[case] = gaps(rows, clock, first, hours.step, factor)
    return found, counts


def ordered(found: list[Found]) -> list[Found]:
    return sorted(found, key=repr)


def of_stream(root: Path, one: Case) -> EventGaps:
    """Returns the report of a recorded stream, windows of a second; the factor is 1."""
    hours, _, _, _, cases, begin, end = one
    rows = [
        (begin, row.ts, row.ts * S, case, row.a if row.a >= 10 else None)
        for case, listed in enumerate(cases)
        for row in listed
    ]
    kinds = [pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.float64()]
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    write_deltalake(str(root), pa.table(columns, names=["window_id", "offset", "at", "case", "a"]))
    given = plain(hours)
    stream = StreamRows(
        "s",
        Table.open(location(root)),
        ["case"],
        {},
        "at",
        given.pop("cadence") * S,
        (),
        given,
    )
    report = event_gaps(stream, WindowRange(begin, end - 1), Grid(1000), None, ["a"])
    assert report is not None
    return report


def test_gaps_of_a_recorded_stream_with_opening_hours_equal_the_reference(tmp_path: Path) -> None:
    # Rules: G3, G8, G9, G16
    total = 0
    for number in range(len(GIVEN)):
        hours, _, *rest = case_of(number)
        one: Case = (hours, 1.0, *rest)  # type: ignore[assignment]
        report = of_stream(tmp_path / str(number), one)
        found, counts = wanted(one)
        mine: dict[int, list[Found]] = {case: [] for case in found}
        for gap in report.gaps:
            closed = None if gap.closed_by == "open" else int(gap.closed_by.split(":")[1])
            mine[int(gap.key["case"])].append(
                Found(
                    gap.column or None,
                    gap.kind,
                    gap.from_us // S,
                    gap.to_us // S,
                    gap.count,
                    gap.length_us // S,
                    gap.open_left,
                    gap.open_right,
                    closed,
                )
            )
        for case, listed in found.items():
            assert ordered(mine[case]) == ordered(listed), (hours, one[4][case])
            total += len(listed)
        totals = {
            int(row.key["case"]): [row.present, row.nulls, row.missing, row.tolerated]
            for row in report.completeness
            if row.column
        }
        assert totals == counts
    assert total > 500


@pytest.mark.exhaustive
def test_gaps_of_a_frame_with_opening_hours_equal_the_reference(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Rules: G3, G8, G9, G16 to G18, G38
    given = [case_of(number) for number in range(len(GIVEN))]
    reports = []
    for number, (hours, factor, _, _, cases, begin, end) in enumerate(given):
        rows = [
            (case, row.ts, row.ts, row.at, row.a if row.a >= 10 else None)
            for case, listed in enumerate(cases)
            for row in listed
        ]
        frame = spark.createDataFrame(
            rows,
            "case int, at bigint, offset bigint, window_id bigint, a double",
        )
        settings = GapSettings(
            event_at="at",
            unit="s",
            from_time=begin * S,
            to_time=end * S,
            keys=["case"],
            columns=["a"],
            factor=factor,
            **plain(hours),
        )
        state = None
        if number % 2:
            state = gap_report(frame.where("offset % 3 = 0"), settings).state
            frame = frame.where("offset % 3 != 0")
        reports.append(gap_report(frame, settings, state=state))
    mine: dict[tuple[int, int], list[Found]] = {}
    ids: dict[tuple[Any, ...], str] = {}
    for row in (
        united([one.gaps for one in reports])
        .selectExpr("*", "unix_micros(`from`) as f", "unix_micros(`to`) as u")
        .collect()
    ):
        closed = None if row["closed_by"] is None else int(row["closed_by"].split(":")[1])
        gap = Found(
            row["column"],
            row["kind"],
            row["f"] // S,
            row["u"] // S,
            row["missing"],
            row["length_us"] // S,
            row["open_left"],
            row["open_right"],
            closed,
        )
        mine.setdefault((row["grid"], row["case"]), []).append(gap)
        ids[row["grid"], row["case"], gap.column or "", gap.begin] = row["gap_id"]
    counted = {}
    for row in united([one.completeness for one in reports]).where("column is not null").collect():
        counts = [row[name] for name in ("present", "nulls", "missing", "tolerated")]
        counted[row["grid"], row["case"]] = counts
    total = 0
    for number, one in enumerate(given):
        found, totals = wanted(one)
        for case, listed in found.items():
            assert ordered(mine.get((number, case), [])) == ordered(listed), (one[0], one[4][case])
            assert counted[number, case] == totals[case]
            total += len(listed)
    assert total > 400
    for same in of_stream(tmp_path / "s", given[0]).gaps:
        assert ids[0, int(same.key["case"]), same.column, same.from_us // S] == same.gap_id


def test_opening_intervals_are_clipped_to_the_bounds_of_the_range() -> None:
    for number in range(len(GIVEN)):
        hours, _, clock, first, _, begin, end = case_of(number)
        grid = hours_grid(
            hours.step * S,
            hours.zone,
            hours.opens * 60 * S,
            hours.closes * 60 * S,
            hours.weekdays,
            hours.closed,
        )
        found = [*grid.openings(begin * S, end * S)]
        steps = [*zip(clock.starts, clock.ends, strict=True)][first:]
        assert (
            sum(until - since for since, until in found)
            == sum(min(until, end) - since for since, until in steps) * S
        )
        assert all(one[1] <= other[0] for one, other in pairwise(found))
        assert {since // S for since, _ in found} <= {since for since, _ in steps}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hours": None, "weekdays": (), "closed": ()}, "zone can only be used with hours"),
        ({"zone": None}, 'hours "09:30-16:00" need a time zone'),
        (
            {"cadence": "1 hour"},
            'cadence "1 h" does not divide hours "09:30-16:00" (390 min) evenly',
        ),
        ({"origin": 7}, "origin cannot be used with hours"),
        ({"weekdays": "monday"}, 'weekday "monday" is unknown. Did you mean "mon"'),
    ],
)
def test_invalid_opening_hours_of_a_report_are_rejected_immediately(
    change: dict[str, Any], words: str
) -> None:
    # Rules: G3
    given = {
        "event_at": "at",
        "cadence": "15 min",
        "zone": "America/New_York",
        "hours": "09:30-16:00",
        "weekdays": "mon-fri",
        "closed": ["2024-12-25"],
        "from_time": 0,
        "to_time": 10,
    }
    with pytest.raises(InputError) as error:
        GapSettings(**{**given, **change})
    assert words in str(error.value)
