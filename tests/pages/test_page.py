"""Pages: self-contained, whole, and honest about what is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rewindow.application import GraphDescription, OperatorDescription
from rewindow.pages.page import render_page
from rewindow.pages.replay_report import KillEvent
from rewindow.pages.timeline import WIDTH, clock_seconds, draw_strips, draw_timeline, phases
from tests.pages.replay_reports import SIZE, at, killed, page

VOID = {"meta", "input", "br", "link", "img", "path", "rect"}
PAGE_BYTES_MAX = 2_000_000


class Balance(HTMLParser):
    """Notes which elements are closed in another order than they were opened in, and every
    address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "data", "action", "srcset")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def read(html: str) -> Balance:
    found = Balance()
    found.feed(html)
    return found


@pytest.fixture(scope="module")
def html() -> str:
    told = page(killed("exactly_once"), killed("at_least_once"), killed("at_most_once"))
    count = OperatorDescription(
        name="count",
        kind="<Count>",
        feeds={"clicks": "web.clicks"},
        stateful=True,
    )
    graph = GraphDescription(
        application="app",
        window="1 hour",
        streams=["web.clicks"],
        operators=[count],
        outputs={"counts": "count.out"},
    )
    return render_page(replace(told, graph=graph))


def test_page_shows_the_graph_of_the_application(html: str) -> None:
    # Rules: O1
    for title in (
        "count: &lt;Count&gt;, with state",
        "web.clicks to count.clicks",
        "count.out to output counts",
    ):
        assert f"<title>{title}</title>" in html


def test_page_works_without_other_files(html: str) -> None:
    assert not read(html).addresses
    assert not re.search(r"@import|url\(|<link|<img|<iframe|https?://", html)


def test_page_is_well_formed(html: str) -> None:
    found = read(html)
    assert not found.wrong and not found.open
    assert html.rstrip().endswith("</html>")


def test_page_of_a_year_is_smaller_than_two_megabytes(html: str) -> None:
    assert len(html.encode()) < PAGE_BYTES_MAX


def test_page_shows_kill_recovery_check_results_and_publications(html: str) -> None:
    for words in (
        "SIGKILL at after_outputs, group 3",
        "14.0 s from the kill to the next commit",
        "191,855",
        "Heartbeats",
    ):
        assert words in html
    assert html.count(">undone<") == 1 and html.count(">stands<") == 1
    assert f"{SIZE:,} <small>windows</small>" in html


def test_page_escapes_user_text() -> None:
    report = killed(replay_id="<script>alert(1)</script>", title="<b>bold</b>")
    html = render_page(page(report, lead="<i>lead</i>"))
    assert "<script>alert" not in html and "<b>bold" not in html and "<i>lead" not in html


def test_page_of_a_replay_without_results_is_complete() -> None:
    bare = killed(
        attempts=(),
        kills=(),
        gate=None,
        comparison=None,
        outputs={"delays": ()},
        checkpoints=(),
    )
    html = render_page(page(bare, layers=(), acts=(), chapters=(), facts=()))
    assert not read(html).wrong
    assert "None" not in html and "not judged" in html


def test_timeline_bars_are_within_the_duration_of_the_replay() -> None:
    report = killed()
    drawn = draw_timeline(report, clock_seconds([report]))
    for lane in drawn.lanes:
        for shape in lane.shapes:
            assert shape.x >= 0 and shape.x + shape.width <= WIDTH + 0.2
    assert drawn.lanes[0].kill is not None and drawn.lanes[1].kill is None
    assert drawn.recovery is not None and drawn.recovery[0] == drawn.lanes[0].kill[0]


def test_timeline_strips_fill_their_width() -> None:
    for _, _, shapes in draw_strips(killed("at_most_once")).rows:
        assert shapes[0].x == 0
        assert sum(shape.width for shape in shapes) == pytest.approx(WIDTH, abs=0.1)


def test_phases_add_up_to_the_duration_of_the_replay() -> None:
    report = killed()
    parts = phases(report)
    assert sum(seconds for _, _, seconds in parts) == pytest.approx(75, abs=0.5)
    assert {kind: seconds for kind, _, seconds in parts}["wait"] == 2.0


def test_kill_at_an_unknown_step_is_shown_without_a_step() -> None:
    report = killed(kills=(KillEvent(1, at(36), "", 0),))
    lane = draw_timeline(report, clock_seconds([report])).lanes[0]
    assert lane.kill is not None and lane.kill[1] == "killed"


def test_recovery_time_ends_at_the_first_group_of_the_next_attempt() -> None:
    assert killed().recovery_seconds == 14.0
    assert killed(kills=()).recovery_seconds is None
