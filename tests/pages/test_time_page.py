"""The page of a stream's time: every picture says what the report says, and stands there as a table
too.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from rewindow.inspection.event_gaps import StreamRows
from rewindow.inspection.gap_rows import Gap
from rewindow.inspection.gaps import gaps
from rewindow.inspection.lags import LATER_THAN_US, KeyLateness, lag_over_time, lateness_by_key
from rewindow.pages.missing_rows import calendar_layers, missing_by_day, missing_by_window
from rewindow.pages.time_page import (
    WIDTH,
    draw_curve,
    draw_hours,
    draw_time_page,
    gap_lanes,
    write_time_page,
)
from rewindow.windows import Grid, WindowRange
from tests.inspection.test_event_gaps import STEADY, recorded
from tests.inspection.test_unusable import BAD, GOOD, bad_ones
from tests.pages.test_page import read

SECOND = 1_000_000
MINUTE = 60 * SECOND


def event_gap(begin: int, end: int) -> Gap:
    return Gap("missing_rows", None, begin, end, 1)


def test_missing_time_per_window_equals_a_naive_count_of_seconds() -> None:
    # Rules: G8
    random = Random(5)
    for _ in range(200):
        width = random.randint(1, 7)
        windows = WindowRange(random.randint(0, 5), random.randint(5, 9))
        begin = windows.first * width
        end = (windows.last + 1) * width
        found = [
            (at, at + random.randint(0, 30)) for at in (random.randint(-5, end) for _ in range(5))
        ]
        values = missing_by_window(
            [event_gap(b * SECOND, e * SECOND) for b, e in found],
            SECOND,
            windows,
            Grid(width * 1000),
        )
        expected = np.zeros(len(windows))
        for b, e in found:
            for second in range(max(b, begin), min(e, end)):
                expected[second // width - windows.first] += 1
        assert values.tolist() == expected.tolist(), (width, windows, found)


def test_page_is_self_contained_and_shows_the_report(tmp_path: Path) -> None:
    config = recorded(tmp_path, [*STEADY, ("<b>x</b>", 5.0, 4.0, 1.0)], cadence="10 s")
    page, table = write_time_page(config, "s", gaps(config, "s"))
    html = page.read_text()
    found = read(html)
    assert not found.wrong and not found.open and not found.addresses
    assert "<b>x" not in html and "k=&lt;b&gt;x" in html
    assert "Silent at the end of what is sealed: k=&lt;b&gt;x" in html
    assert "80.00 %" in html and "10.00 %" in html and html.count("<title>missing rows") == 1
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["kind"], row["key"], row["count"]) for row in rows if row["id"]] == [
        ("ended", "k=<b>x</b>", "9"),
        ("missing_rows", "k=a", "2"),
    ]


def test_calendar_counts_missing_time_only_in_opening_hours(tmp_path: Path) -> None:
    # Rules: G3
    fill = {"step": "1 min", "zone": "Asia/Kolkata", "hours": "05:30-05:31"}  # 00:00 to 00:01 UTC.
    config = recorded(tmp_path, STEADY, fill=fill)
    event = gaps(config, "s").event
    assert event is not None and event.hours is not None and event.cadence_us == MINUTE
    assert [(row.expected, row.present) for row in event.completeness] == [
        (1, 1)
    ] and not event.gaps
    gap = Gap("missing_rows", None, 0, 86_400 * SECOND + MINUTE, 2, {"k": "a"})
    day = WindowRange(0, 8_639)
    missing, share = calendar_layers(replace(event, gaps=[gap]), day, Grid(10_000))[:2]
    assert missing.values.tolist() == [1 / 6] * 6 + [0] * 8_634
    assert share.values.tolist() == [0] * 6 + [100] * 8_634


def test_calendar_has_a_table_of_missing_rows_by_day_and_key(tmp_path: Path) -> None:
    event = gaps(recorded(tmp_path, STEADY, cadence="10 s"), "s").event
    assert event is not None
    day = 86_400 * SECOND
    hours = [
        ("a", 2 * day - 3600 * SECOND, 2 * day + 1800 * SECOND),
        ("b", 2 * day, 2 * day + 60 * SECOND),
    ]
    found = [Gap("missing_rows", None, begin, end, 1, {"k": key}) for key, begin, end in hours]
    found += [
        Gap("recorded_nulls", None, 0, day, 1, {"k": "c"}),
        Gap("late_repaired", None, 0, day, 1, {"k": "c"}),
    ]
    days = missing_by_day(replace(event, gaps=found, to_us=5 * day), 10)
    assert (days.keys, days.day_count, days.key_count) == (("k=a", "k=b"), 2, 2)
    assert days.rows == (("1970-01-02", "360", ("360", "0")), ("1970-01-03", "186", ("180", "6")))
    fewer = missing_by_day(replace(event, gaps=found, to_us=5 * day), 1)
    assert (len(fewer.rows), fewer.rows[0][0], fewer.day_count) == (1, "1970-01-02", 2)
    none = missing_by_day(replace(event, gaps=[]), 10)
    assert (none.keys, none.rows, none.day_count) == ((), (), 0)
    many = [
        (f"k{n}", float(at), float(at), 1.0) for n in range(10) for at in (0, 30 + 10 * (n % 2))
    ]
    html = draw_time_page(recorded(tmp_path / "many", many, cadence="10 s"), "s")  # type: ignore[arg-type]
    assert not read(html).wrong and not read(html).open
    assert "of 10 keys those 8 that miss most" in html
    assert re.search(
        r'<td class="line">1970-01-01</td><td class="num">80</td><td class="num">8</td>',
        html,
    )


def test_gaps_are_drawn_to_scale(tmp_path: Path) -> None:
    event = gaps(recorded(tmp_path, STEADY, cadence="10 s"), "s").event
    assert event is not None
    [lane] = gap_lanes(event)
    assert lane.label == "k=a"
    [(x, width, kind, words)] = lane.gaps
    assert (x, width, kind) == (WIDTH * 0.5, WIDTH * 0.2, "missing_rows") and "2 rows" in words


def test_lag_and_lateness_equal_a_naive_scan(tmp_path: Path) -> None:
    random = Random(3)
    tuples: list[tuple[str | None, float, float | None, float | None]] = []
    for _ in range(300):
        at = random.randint(0, 99)
        tuples.append(
            (
                random.choice("ab"),
                at,
                None if random.random() < 0.1 else at - random.randint(-2, 90),
                1.0,
            )
        )
    config = recorded(tmp_path, tuples, cadence="10 s")
    rows = StreamRows.open(config, "s", {})
    windows = WindowRange(2, 9)
    grid = Grid(10_000)
    steps = lag_over_time(rows, windows, grid)
    timed = [
        (int(at // 10), n, at, t, key) for n, (key, at, t, _) in enumerate(tuples) if t is not None
    ]
    for step in steps:
        lags = [at - t for window, _, at, t, _ in timed if window == step.windows.first]
        assert (step.tuples, step.least_us, step.most_us) == (
            len(lags),
            min(lags) * SECOND,
            max(lags) * SECOND,
        )
        assert round(step.mean_us) == round(sum(lags) * SECOND / len(lags))
    newest: float | None = None
    behind: dict[Any, list[float]] = {}
    for window, _, _, t, key in sorted(timed, key=lambda one: (one[2], one[0], one[1])):
        if window >= windows.first:
            behind.setdefault(key, []).append(0 if newest is None else max(newest - t, 0))
        newest = t if newest is None else max(newest, t)
    listed = lateness_by_key(rows, windows)
    assert {row.hour for row in listed} == {None, 0}, (
        "all arrivals are in the first hour of the day"
    )
    for is_whole in (True, False):
        check_behind([row for row in listed if (row.hour is None) == is_whole], behind)


def check_behind(rows: list[KeyLateness], behind: dict[Any, list[float]]) -> None:
    """Compares what is said of each key with how far each of its tuples was behind, in seconds."""
    found = {row.key["k"]: row for row in rows}
    assert set(found) == set(behind)
    for key, values in behind.items():
        assert found[key].tuples == len(values) and found[key].most_us == max(values) * SECOND
        assert list(found[key].behind) == [
            sum(v * SECOND > us for v in values) for us in LATER_THAN_US
        ]


def test_common_end_of_all_keys_is_stated_once_instead_of_per_key(tmp_path: Path) -> None:
    config = recorded(tmp_path, [*STEADY[:5], ("b", 95.0, 20.0, 1.0)], cadence="10 s")
    html = draw_time_page(config, "s")
    assert (
        "All keys end by 1970-01-01T00:00:50Z, before the end of what is sealed. Silent before "
        "that: k=b." in html
    )


def test_tuples_with_impossible_timestamps_are_listed_and_omitted_from_charts(
    tmp_path: Path,
) -> None:
    html = draw_time_page(bad_ones(tmp_path / "a", [*GOOD, *BAD]), "s")
    found = read(html)
    assert not found.wrong and not found.open
    assert (
        "4 tuples have timestamps that cannot be" in html
        and "k=b all 2 a thousand times too small" in html
    )
    assert html.count("4 tuples whose timestamps cannot be are left out here") == 4
    assert "1970-" not in html and " days</text>" not in html
    assert "cannot be" not in draw_time_page(bad_ones(tmp_path / "b", GOOD), "s")


def test_lateness_is_drawn_by_key_and_hour_of_the_day(tmp_path: Path) -> None:
    hour = 3600 * SECOND
    late = [3, 2, 2, 0, 0]
    by_key = [KeyLateness({"k": "a"}, 10, late, hour), KeyLateness({"k": "b"}, 10, [0] * 5, 0)]
    by_hour = [
        KeyLateness({"k": "a"}, 4, [2, 1, 1, 0, 0], hour, 5),
        KeyLateness({"k": "a"}, 6, [1, 1, 1, 0, 0], 1, 23),
        KeyLateness({"k": "b"}, 10, [0] * 5, 0, 5),
    ]  # fmt: skip
    grid = draw_hours(by_key, by_hour)
    assert grid is not None and grid.lag == "0; the darkest cell has 50.0%"
    assert [(label, [cell[:2] for cell in cells]) for _, label, cells in grid.rows] == [
        ("k=a", [(round(5 * WIDTH / 24, 1), 1.0), (round(23 * WIDTH / 24, 1), 0.333)]),
        ("k=b", [(round(5 * WIDTH / 24, 1), 0.0)]),
    ]
    assert draw_hours(by_key[1:], by_hour[2:]) is None
    squares = [("a", n, n * n / 100 - 5 * (n % 3), 1.0) for n in range(90)]
    config = recorded(tmp_path, squares)
    assert gaps(config, "s").event is None
    wrong = recorded(tmp_path / "wrong", squares, event_at="k")
    assert "is string, not a timestamp" in draw_time_page(wrong, "s")
    html = draw_time_page(config, "s")
    assert (
        html.count("<title>k=a, 00:00: ") == 1
        and "By hour of the day" in html
        and "Lag over time" in html
    )


def test_lag_chart_covers_all_lags_and_has_a_table(tmp_path: Path) -> None:
    config = recorded(
        tmp_path / "a",
        [("a", 10.0, 4.0, 1.0), ("a", 50.0, 52.0, 1.0)],
        cadence="10 s",
    )
    rows = StreamRows.open(config, "s", {})
    curve = draw_curve(lag_over_time(rows, WindowRange(0, 9), Grid(10_000)))
    assert curve is not None and [words for _, words in curve.ticks] == ["-2 s", "0 s", "6 s"]
    assert [bar[2] for bar in curve.bars] == [0.0, 160.0]
    html = draw_time_page(config, "s")
    assert (
        len(re.findall(r'class="lag"', html)) == 2 and html.count('<td class="num">-2 s</td>') == 3
    )
    assert draw_curve([]) is None


def test_page_of_a_stream_without_event_time_uses_arrival_times(tmp_path: Path) -> None:
    html = draw_time_page(recorded(tmp_path, STEADY, event_at=None, interval="5 s"), "s")
    assert "The stream has no event time" in html and "silent" in html and "None<" not in html
