"""The measures of an output over its published windows, as readers see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.loading.measures import values_of
from rewindow.pages import trend_page
from rewindow.pages.trend_page import draw_trend_page, read_trend
from rewindow.quality.bounds import Bounds
from rewindow.quality.gate import suite_of
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay, ended, expectation

NAME = "testing.made"


def published(
    folder: Path,
    replay_id: str,
    first: int,
    last: int,
    flown: dict[int, int],
    is_published: bool = True,
) -> StagedReplay:
    """Returns a replay that has stored the measure "flown" in its facts; other windows have 6."""
    staged = StagedReplay(folder, replay_id=replay_id, windows=WindowRange(first, last))
    staged.add_suite(
        "mine",
        expectation(
            "few",
            "expect_column_values_to_be_between",
            column="flown",
            min_value=0,
            max_value={"$PARAMETER": "most"},
        ),
        measures={"flown": "sum(flights)"},
    )
    staged.suite_parameters = {"most": 50}
    plan = staged.plan
    output = plan.outputs[0]
    measure = suite_of(staged.config, output).measures[0].bound(values_of(plan, output))
    for fact in staged.facts:
        if fact["direction"] == "out":
            value = flown.get(fact["window_id"], 6)
            digest = measure.digest(output.columns)
            fact["measures"] = [{"measure": digest, "whole": value, "real": None}]
    if is_published:
        publish(staged)
    else:
        ended(staged).close()
    return staged


def publish(staged: StagedReplay) -> None:
    """Writes a replay and records a publication of it, without its published tables."""
    ledger = ended(staged)
    windows = staged.windows
    ledger.checks.record(staged.replay_id, "passed", staged.config.state / "x", {"outputs": []})
    act = ledger.publications.open(staged.replay_id, {NAME: None}, windows.first, windows.last)
    ledger.publications.mark_done(act.number, NAME, 1)
    ledger.publications.close(act.number)
    ledger.close()


def test_trend_has_the_measures_of_the_newest_publication_of_each_window(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 109, {103: 10, 104: 11}).config
    published(tmp_path, "new", 104, 106, {104: 20, 106: 40})
    published(tmp_path, "staged-only", 100, 109, {100: 99}, is_published=False)
    trend = read_trend(config, NAME)
    first = trend["windows"].first
    flown = {first + point["cell"]: point["mean"] for point in trend["points"]["flown"]}
    assert flown == dict.fromkeys(range(100, 110), 6) | {103: 10, 104: 20, 106: 40}
    assert [point["mean"] for point in trend["points"]["output_rows"]] == [3] * 10
    assert [(act.replay_id, shown) for act, shown in trend["parts"]] == [
        ("new", WindowRange(104, 106)),
        ("old", WindowRange(100, 103)),
        ("old", WindowRange(107, 109)),
    ]


def test_undone_publication_is_not_part_of_the_trend(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 109, {}).config
    published(tmp_path, "new", 104, 106, {104: 20})
    ledger = Ledger.open(config.ledger_url)
    undo = ledger.publications.open_undo(2, {NAME: 2})
    ledger.publications.mark_done(undo.number, NAME, 3)
    ledger.publications.close(undo.number)
    trend = read_trend(config, NAME)
    assert {act.replay_id for act, _ in trend["parts"]} == {"old"}
    assert max(point["high_max"] for point in trend["points"]["flown"]) == 6


def test_trend_of_a_long_range_has_extremes_and_mean_of_each_cell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trend_page, "CELLS_WANTED", 12)
    config = published(tmp_path, "old", 96, 119, {103: 10, 104: 11}).config
    published(tmp_path, "new", 105, 106, {105: 20, 106: 40})
    trend = read_trend(config, NAME)
    assert (trend["windows"], trend["step"]) == (WindowRange(96, 119), 2)
    # Cell 4 has windows 104 and 105, of two replays.
    cells = {point["cell"]: point for point in trend["points"]["flown"]}
    assert [(cells[cell]["low_min"], cells[cell]["high_max"]) for cell in (3, 4, 5, 6)] == [
        (6, 10),
        (11, 20),
        (6, 40),
        (6, 6),
    ]
    assert [cells[cell]["mean"] for cell in (3, 4, 5, 6)] == [8, 15.5, 23, 6]


def test_trend_has_the_bounds_of_the_suite_with_its_parameters(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 109, {}).config
    assert read_trend(config, NAME)["bounds"] == {
        "output_rows": Bounds(),
        "flown": Bounds("at least 0 and at most 50", 0, 50),
    }


def test_trend_counts_the_newest_attempt_of_a_window_only(tmp_path: Path) -> None:
    staged = StagedReplay(tmp_path, replay_id="again", windows=WindowRange(96, 119))
    staged.facts += [StagedReplay.fact(104, "out", "made", 7, attempt=2)]
    publish(staged)
    rows = read_trend(staged.config, NAME)["points"]["output_rows"]
    assert [point["mean"] for point in rows] == [3] * 8 + [7] + [3] * 15


def test_output_without_a_publication_has_no_trend(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 109, {}, is_published=False).config
    with pytest.raises(InputError, match="no published windows"):
        read_trend(config, NAME)


def test_page_of_a_trend_shows_values_outside_of_the_bounds(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 147, {103: 10, 104: 60}).config
    html = draw_trend_page(config, NAME)
    assert "allowed at least 0 and at most 50" in html
    assert "1 outside" in html
    assert "windows 104 to 104 (1970-01-05T08:00:00Z to 1970-01-05T09:00:00Z): 60" in html
    assert "publication 1 of old" in html


def test_page_of_a_trend_is_limited_to_a_range_of_time(tmp_path: Path) -> None:
    config = published(tmp_path, "old", 100, 147, {104: 60}).config
    hour_us = 3_600_000_000
    html = draw_trend_page(config, NAME, (120 * hour_us, 144 * hour_us))
    assert "[120, 143]" in html and "outside" not in html.partition("<main>")[2]
