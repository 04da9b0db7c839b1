"""The page of latencies: needs no network, and shows the critical path of a live run."""

from __future__ import annotations

import re
from pathlib import Path

from rewindow import latency
from rewindow.inspection.live_statistics import read_live_statistics
from rewindow.inspection.processing_times import NO_LATENCY, processing_times
from rewindow.pages.latency_page import draw_steps, write_latency_page, write_replay_times
from rewindow.settings.config import Config
from tests.inspection.test_processing_times import timed_replay
from tests.latency.live_run import simulate, write_statistics
from tests.pages.test_page import read

MARKED = 'stroke="#b8322a"'


def drawn(tmp_path: Path, *, faster: str = "") -> str:
    config = write_statistics(tmp_path, simulate(400, slow=range(50, 80)).rows)
    found = read_live_statistics(config, "live")
    recorded = latency.ended(found.rows, found.graph, config.latency)
    changed = latency.what_if(recorded, latency.parse_faster([faster])) if faster else None
    report = {
        "stream": "live",
        **recorded.summary(),
        "further": found.further,
        "question": faster,
        "faster": changed and changed.summary(),
    }
    return write_latency_page(config, report, recorded).read_text()


def test_page_is_self_contained_and_draws_the_critical_path(tmp_path: Path) -> None:
    # Rules: L28, L42, L45
    html = drawn(tmp_path)
    page = read(html)
    assert not page.wrong and not page.open and not page.addresses
    graph = html.partition('class="graph"')[2].partition("</svg>")[0]
    red = re.findall(rf"<rect[^>]*{MARKED}[^>]*/>\s*<text[^>]*>(\w+)</text>", graph)
    assert red == ["clicks", "parse", "join", "count", "totals"]
    lines = re.findall(rf"<path[^>]*{MARKED}[^>]*><title>(\S+) to (\S+?)\.\d", graph)
    assert lines == [
        ("clicks.out", "parse"),
        ("parse.out", "join"),
        ("join.out", "count"),
        ("count.out", "totals"),
    ]
    for title in ("latency of the application, ms", "cpu", "queue"):
        assert f"<h3>{title}</h3>" in html
    assert "clicks &gt; parse &gt; join &gt; alerts" in html
    assert "With alerts" not in html


def test_page_shows_the_effect_of_a_faster_operator(tmp_path: Path) -> None:
    html = drawn(tmp_path, faster="alerts=10x")
    assert "<h2>With alerts=10x</h2>" in html and html.count("in 95 % of windows") == 2


def test_page_of_a_replay_explains_that_it_has_no_latency(tmp_path: Path) -> None:
    config = Config(state=tmp_path / "state")
    timed_replay(config)
    html = write_replay_times(config, processing_times(config, "one")).read_text()
    page = read(html)
    assert not page.wrong and not page.open and not page.addresses
    assert NO_LATENCY in html and "[105, 109]" in html
    assert 'class="graph"' not in html


def test_latency_chart_has_a_bar_from_the_lowest_to_the_highest_value() -> None:
    curve = draw_steps([(1, 0.0, 5.0, 10.0), (3, 5.0, 5.0, 5.0)])
    assert [bar[:5] for bar in curve.bars] == [
        (0.0, 425.0, 0.0, 160.0, 80.0),
        (500.0, 425.0, 80.0, 1, 80.0),
    ]
    assert curve.ticks == ((160.0, "0"), (0.0, "10"))
    assert draw_steps([(1, 0.0, 0.0, 0.0)]).ticks == ((0.0, "0"),)
