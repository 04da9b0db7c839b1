"""The picture of what filling has made: every row of the stream around a gap is in it, and its
numbers below.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from rewindow.demo.event_time import WEATHER, made_values
from rewindow.inspection.filled import GAPS_MAX, filled_stream
from rewindow.inspection.gaps import gaps
from rewindow.pages.filled_plot import HEIGHT, WIDTH, draw_plots
from rewindow.pages.time_page import draw_time_page
from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.windows import WindowRange
from tests.inspection.test_event_gaps import SECOND, TIME, recorded
from tests.pages.test_page import read

WINDOWS = WindowRange(0, 9)
BOOKKEEPING = [("window_id", pa.int64()), ("at", TIME), ("v", pa.float64()), ("word", pa.string())]
TEXT = [("k", pa.string()), ("_rw_gap_id", pa.string()), ("_rw_methods", pa.string())]
NUMBERS = [
    ("_rw_made_rows", pa.int64()),
    ("_rw_before_us", pa.int64()),
    ("_rw_after_us", pa.int64()),
]
SCHEMA = pa.schema([*BOOKKEEPING, ("_rw_is_made", pa.bool_()), *TEXT, *NUMBERS])
METHODS = {"v": "linear", "word": "forward"}
Recorded = list[tuple[str | None, float, float | None, float | None]]


def filled(root: Path, rows: list[dict[str, Any]]) -> Config:
    """Returns settings with a stream "s" and what filling has made of it, a row every ten
    seconds.
    """
    tuples: Recorded = [
        (row["k"], row["at"], row["at"], row["v"]) for row in rows if "_rw_gap_id" not in row
    ]
    config = recorded(root, tuples, cadence="10 s", fill={"columns": METHODS})
    table = create_table(config.stream_table("filled_s.filled"), SCHEMA)
    full = [
        {"_rw_is_made": "_rw_gap_id" in row, **row, "at": int(row["at"] * SECOND)} for row in rows
    ]
    columns = [pa.array([row.get(field.name) for row in full]).cast(field.type) for field in SCHEMA]
    write_deltalake(table.delta, pa.table(columns, schema=SCHEMA), mode="append")
    return config


def row(at: int, v: float | None, **more: Any) -> dict[str, Any]:
    return {"window_id": at // 10, "at": float(at), "k": "<a>", "v": v, "word": "x", **more}


def made(at: int, v: float | None, method: str, gap: str = "g1", count: int = 1) -> dict[str, Any]:
    methods = json.dumps({"v": method, "word": "forward"})
    before = 10 * SECOND
    after = 40 * SECOND
    return row(
        at,
        v,
        _rw_gap_id=gap,
        _rw_methods=methods,
        _rw_made_rows=count,
        _rw_before_us=before,
        _rw_after_us=after,
    )


ROWS = [
    row(0, 1.0), row(10, 2.0), made(20, 3.0, "linear"), made(30, 4.0, "linear"), row(40, 5.0),
    row(50, None),
    made(60, None, "none", "g2", 3), row(90, 3.0),
]  # fmt: skip


def test_recorded_filled_and_missing_values_are_drawn_differently(tmp_path: Path) -> None:
    found = filled_stream(filled(tmp_path, ROWS), "s", WINDOWS)
    assert found is not None and found.columns == ["v"] and found.gap_count == 2
    assert [(gap.from_us, gap.last_us, gap.missing) for gap in found.gaps] == [
        (20 * SECOND, 30 * SECOND, 2),
        (60 * SECOND, 60 * SECOND, 3),
    ]
    assert found.counts == {
        ("v", "linear"): 2,
        ("v", "none"): 3,
        ("v", "recorded"): 4,
        ("v", "recorded null"): 1,
        ("word", "forward"): 5,
        ("word", "recorded"): 5,
    }
    [(_, [first]), (_, [second])] = draw_plots(found)
    step = WIDTH / 10
    dots = [(x, y, is_made) for x, y, is_made, _ in first.dots]
    assert dots == [
        (0, HEIGHT, False),
        (step, HEIGHT * 0.75, False),
        (2 * step, HEIGHT / 2, True),
        (3 * step, HEIGHT / 4, True),
        (4 * step, 0, False),
        (9 * step, HEIGHT / 2, False),
    ]
    assert [(x, wide) for x, wide, _ in first.missing] == [(5 * step, step), (6 * step, 3 * step)]
    assert (first.gap, second.gap) == ((2 * step, 2 * step), (6 * step, 3 * step))
    assert first.line.count("M") == 2 and first.line.count("L") == 4, (
        "broken where there is no value"
    )
    assert [words for _, words in first.ticks] == ["1", "5"]


def test_filled_null_is_counted_for_its_fill_method(tmp_path: Path) -> None:
    # Rules: G27
    nulls = [row(50, None), row(60, None, _rw_methods=json.dumps({"v": "forward"}))]
    found = filled_stream(filled(tmp_path, [row(0, 1.0), *nulls]), "s", WINDOWS)
    assert found is not None and found.counts == {
        ("v", "forward"): 1,
        ("v", "recorded"): 1,
        ("v", "recorded null"): 1,
        ("word", "recorded"): 3,
    }


def test_filled_row_without_a_value_is_not_counted_for_its_fill_method(tmp_path: Path) -> None:
    rows = [
        row(0, None), made(10, None, "forward"), made(20, 1.0, "forward", count=3),
        made(30, None, "forward", count=4),
        made(40, None, "none", count=5), made(50, None, "expired", count=6), made(60, None, "null"),
    ]  # fmt: skip
    rows[2]["word"] = None
    config = filled(tmp_path, rows)
    found = filled_stream(config, "s", WINDOWS)
    assert found is not None and found.counts == {
        ("v", "expired"): 6,
        ("v", "forward"): 3,
        ("v", "forward without a value"): 5,
        ("v", "none"): 5,
        ("v", "null"): 1,
        ("v", "recorded null"): 1,
        ("word", "forward"): 17,
        ("word", "forward without a value"): 3,
        ("word", "recorded"): 1,
    }
    assert "<td>forward without a value</td>" in draw_time_page(config, "s")
    config = config.model_copy(
        update={"streams": {WEATHER: config.stream("s")}, "state": config.state}
    )
    renamed = config.stream_table(f"filled_{WEATHER}.filled")
    shutil.copytree(str(config.stream_table("filled_s.filled")), str(renamed))
    assert made_values(config, WINDOWS)[0] == (
        "filled with values, v: 0 recorded, 6 without a value, because they are too far from a "
        "report, 3 forward, 5 forward without a value, 5 without a value, because their gap is "
        "too long, 1 null, 1 recorded null"
    )


def test_stream_page_shows_the_filled_plot_and_its_table(tmp_path: Path) -> None:
    config = filled(tmp_path, ROWS)
    html = draw_time_page(config, "s", found=gaps(config, "s"))
    found = read(html)
    assert not found.wrong and not found.open and not found.addresses
    assert "Recorded, made and missing values" in html and "<a>" not in html.replace("<a ", "")
    assert html.count('class="v-made"') == 2 * 2 and html.count("made for 3") == 2
    plain = config.model_copy(
        update={"streams": {"s": config.stream("s").model_copy(update={"fill": None})}}
    )
    assert "Recorded, made" not in draw_time_page(plain, "s")


def test_gaps_with_most_filled_values_are_shown_first(tmp_path: Path) -> None:
    rows = [made(10 * n, None if n < 5 else 1.0, "linear", f"g{n}", 20 - n) for n in range(10)]
    found = filled_stream(filled(tmp_path, [row(0, 1.0), *rows]), "s", WINDOWS)
    assert found is not None and (found.gap_count, len(found.gaps)) == (10, GAPS_MAX)
    assert [gap.missing for gap in found.gaps] == [15, 14, 13, 20, 19, 18]


def test_gaps_without_surrounding_values_are_shown_last(tmp_path: Path) -> None:
    lone = [
        {**made(2000 + 10 * n, None, "none", f"x{n}", 99), "window_id": 9} for n in range(GAPS_MAX)
    ]
    rows = [
        row(0, 1.0),
        *(made(10 * n, None, "none", f"g{n}", 2) for n in range(1, GAPS_MAX + 2)),
        *lone,
    ]
    config = filled(tmp_path, rows)
    found = filled_stream(config, "s", WINDOWS)
    assert found is not None and found.gap_count == 2 * GAPS_MAX + 1
    assert [gap.missing for gap in found.gaps] == [2] * GAPS_MAX and all(
        gap.has_values for gap in found.gaps
    )
    [(_, [plot]), *_] = draw_plots(found)
    assert (plot.begin_us, plot.end_us) == (10 * SECOND, 30 * SECOND)
    html = draw_time_page(config, "s")
    for words, anchor in (("00:00:10Z", ' text-anchor="end"'), ("00:00:30Z", "")):
        assert f'y="{HEIGHT + 24}"{anchor}>1970-01-01 {words}</text>' in html
