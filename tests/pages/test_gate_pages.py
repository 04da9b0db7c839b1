"""What people read: pages without a network, an index over time, results outside the repository,
old ones deleted.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rewindow.ledger import Ledger
from rewindow.pages.drawing import script, with_live_links
from rewindow.pages.expectation_index import index_html, run_lines, state_of, write_index
from rewindow.pages.gate_pages import write_gate_pages
from rewindow.pages.output_page import output_page
from rewindow.quality import judge, runs
from rewindow.quality.findings import GateRun
from rewindow.quality.window_table import Sources, build_report
from rewindow.recovery import Plan
from rewindow.retention import prune_results
from rewindow.settings.config import Config
from rewindow.storage import query
from rewindow.storage.results import findings_table, index_page, replay_folder
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay, expectation, ledger_row


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "src" or (tag == "link" and name == "href"):
                self.sources.append(value or "")
            elif name == "href":
                self.links.append(value or "")


def faulty(folder: Path, replay_id: str = "faulty") -> StagedReplay:
    """Returns a replay in which two checks fail and one warns."""
    staged = StagedReplay(folder, replay_id=replay_id, mode="at_least_once")
    staged.rows[7]["origin"] = None
    staged.rows += [{**row, "attempt": 0} for row in staged.rows if row["window_id"] in (110, 111)]
    return staged.write()


def drawn(config: Config, plan: Plan) -> Path:
    result = judge(config, plan)
    write_gate_pages(config, result)
    return result.outputs[0].docs


def test_page_works_without_a_network(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    html = drawn(staged.config, staged.plan).read_text()
    found = Links()
    found.feed(without_own_script(html))
    assert found.sources == []
    assert not found.tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"@import|url\(", html)
    assert "https://" not in html


def test_page_lists_failed_checks_with_windows_and_severity(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    html = drawn(staged.config, staged.plan).read_text()
    assert "No row lacks a part of its key." in html
    assert "1 window (102)" in html
    assert "2 windows (110–111)" in html
    assert "Data Docs" in html
    assert 'class="ge-section' in html


def test_windows_that_need_a_look_show_the_failing_measure_and_its_bound(tmp_path: Path) -> None:
    staged = StagedReplay(tmp_path)
    staged.add_suite(
        "mine",
        expectation("few", "expect_column_values_to_be_between", column="flown", max_value=10),
        measures={"flown": "sum(flights)"},
    )
    for row in staged.rows:
        # Windows 104 and 105 share a row, window 107 has a separate one.
        row["flights"] = {104: 50, 105: 90, 107: 40}.get(row["window_id"], 2)
    stretches = looked_at(drawn(staged.config, staged.write().plan).read_text())
    assert len(stretches) == 2
    assert "104 to 105" in stretches[0] and "107" in stretches[1]
    assert "flown = 150 to 270, allowed at most 10" in stretches[0]
    assert "flown = 120, allowed at most 10" in stretches[1]
    assert "1970-01-05T08:00:00Z\nto 1970-01-05T10:00:00Z" in stretches[0]


def test_windows_that_need_a_look_have_no_column_of_zeros(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    html = drawn(staged.config, staged.plan).read_text()
    table = html.partition('<table class="stretches rows">')[2].partition("</table>")[0]
    assert ">repeated</th>" in table and ">null keys</th>" in table
    assert ">lost</th>" not in table and ">gaps</th>" not in table


def test_history_of_a_window_is_a_link_only_where_airflow_serves_the_page(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    html = drawn(staged.config, staged.plan).read_text()
    address = "../../../../replays/faulty/windows/102"
    for text, expected in ((html, False), (with_live_links(html), True)):
        found = Links()
        found.feed(text)
        assert (address in found.links) is expected
    assert "rewindow why faulty 102" in html


def looked_at(html: str) -> list[str]:
    """Returns the rows of the table "Windows that need a look" as text without elements."""
    table = html.partition('<table class="stretches rows">')[2].partition("</table>")[0]
    return [re.sub("<[^>]*>", "", row) for row in table.split("<tr>")[2:]]


def test_page_links_only_to_existing_files(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    page = drawn(staged.config, staged.plan)
    write_index(staged.config)
    found = Links()
    found.feed(page.read_text())
    local = [link for link in found.links if not link.startswith("#")]
    assert len(local) == 2
    assert all((page.parent / link).resolve().is_file() for link in local)


def test_page_escapes_user_text(staged: StagedReplay) -> None:
    plan = staged.write().plan
    verdict = judge(staged.config, plan).outputs[0]
    named = plan.model_copy(update={"application": "<b>bold</b>"})
    page = output_page(named, verdict, datetime.now(UTC))
    assert "<b>bold</b>" not in page and "&lt;b&gt;bold&lt;/b&gt;" in page


def test_page_of_a_million_windows_stays_small(staged: StagedReplay) -> None:
    plan = staged.write().plan
    result = judge(staged.config, plan)
    wide = plan.model_copy(update={"last": plan.first + 999_999})
    sources = Sources.open(
        staged.config.replay_root(plan.replay_id),
        "made",
        staged.config.quarantine_table,
    )
    report = build_report(wide, plan.outputs[0], sources, ())
    assert report.num_rows == 1_000_000
    verdict = dataclasses.replace(result.outputs[0], windows=1_000_000, table=report, sections=())
    assert len(output_page(wide, verdict, datetime.now(UTC))) < 200_000


def test_index_lists_each_run_and_links_only_to_existing_pages(tmp_path: Path) -> None:
    bad = faulty(tmp_path)
    good = StagedReplay(tmp_path, replay_id="good").write()
    drawn(bad.config, bad.plan)
    drawn(good.config, good.plan)
    html = write_index(good.config).read_text()
    assert html.index("<code>good</code>") < html.index("<code>faulty</code>")
    assert "no-null-keys" in html
    found = Links()
    found.feed(html)
    assert set(found.links) == {"replays/faulty/made.html", "replays/good/made.html"}

    old = (datetime.now(UTC) - timedelta(days=91)).timestamp()
    folder = replay_folder(bad.config, "faulty")
    for path in (*folder.iterdir(), folder):
        os.utime(path, (old, old))
    assert prune_results(bad.config) == ["faulty"]
    html = write_index(good.config).read_text()
    assert "faulty" in html
    assert "replays/faulty" not in html


def checked(replay_id: str, first: int, last: int, day: int, *failed: str) -> GateRun:
    """Returns a run of a gate on a day of January, newest first in lists of runs."""
    return GateRun(
        run_id=f"{replay_id}-{day}",
        checked_at=datetime(2026, 1, day, tzinfo=UTC),
        replay_id=replay_id,
        application="testing",
        mode="exactly_once",
        first=first,
        last=last,
        output="made",
        suite="every_output",
        checks=15,
        failed=failed,
        warned=(),
        noted=(),
        failing=(),
        docs=f"/nowhere/{replay_id}/made.html",
    )


@pytest.mark.parametrize(
    ("runs", "abandoned", "state"),
    [
        ([checked("today", 200, 209, 2, "x")], (), "failed"),
        ([checked("old-day", 100, 109, 3, "x"), checked("today", 200, 209, 2)], (), "passed"),
        ([checked("again", 200, 209, 3), checked("today", 200, 209, 2, "x")], (), "passed"),
        ([checked("part", 200, 204, 3), checked("today", 200, 209, 2, "x")], (), "failed"),
        ([checked("today", 200, 209, 3, "x"), checked("before", 190, 199, 2)], "today", "passed"),
        ([checked("today", 200, 209, 3, "x")], "today", ""),
    ],
    ids=["newest", "replay of an old day", "replayed", "partly replayed", "abandoned", "none left"],
)
def test_state_of_an_output_is_the_newest_verdict_on_its_newest_data(
    staged: StagedReplay,
    runs: list[GateRun],
    abandoned: str,
    state: str,
) -> None:
    ledger = Ledger.open(staged.config.ledger_url)
    for run in runs:
        row = {**ledger_row(staged), "replay_id": run.replay_id}
        ledger.replays.create(**row)
        if run.replay_id == abandoned:
            ledger.replays.abandon(run.replay_id)
    replays = ledger.replays.named([run.replay_id for run in runs])
    assert state_of(run_lines(runs, replays)) == state


def test_failure_of_a_replayed_old_day_is_listed_as_one_of_older_data(
    staged: StagedReplay,
) -> None:
    runs = [checked("old-day", 100, 109, 3, "x"), checked("today", 200, 209, 2)]
    ledger = Ledger.open(staged.config.ledger_url)
    for run in runs:
        ledger.replays.create(**{**ledger_row(staged), "replay_id": run.replay_id})
    folder = index_page(staged.config).parent
    replays = ledger.replays.named([run.replay_id for run in runs])
    html = index_html(runs, replays, folder, datetime(2026, 1, 4, tzinfo=UTC))
    assert "the newest data of each passed" in html
    assert "older data failed" in html and "after newer data" in html
    assert html.index("<code>today</code>", html.index("<table")) < html.rindex(
        "<code>old-day</code>"
    )
    assert "1970-01-05T04:00:00Z to 1970-01-05T14:00:00Z" in html


def test_results_of_a_recently_checked_replay_are_not_pruned(tmp_path: Path) -> None:
    # Rewriting files does not change the modification time of their folder.
    staged = faulty(tmp_path)
    judge(staged.config, staged.plan)
    old = (datetime.now(UTC) - timedelta(days=91)).timestamp()
    os.utime(replay_folder(staged.config, "faulty"), (old, old))
    assert prune_results(staged.config) == []


def test_text_from_a_stream_cannot_be_executed_in_a_page(tmp_path: Path) -> None:
    # Data Docs alone would not escape it.
    evil = (
        "<img src=x onerror=alert(1)><script>alert(2)</script><a href='javascript:alert(3)' "
        "onclick=alert(4)>x</a>"
    )
    staged = StagedReplay(tmp_path)
    staged.add_suite(
        "mine",
        {
            **expectation(
                "text",
                "expect_column_values_to_be_in_set",
                column="o",
                value_set=[evil],
            ),
            "description": evil,
        },
        measures={"o": "min(origin)"},
    )
    for row in staged.rows:
        row["origin"] = evil + row["origin"]
    html = drawn(staged.config, staged.write().plan).read_text()
    found = Tags()
    found.feed(without_own_script(html))
    assert not found.names & {"script", "img"}
    assert not [
        pair
        for pair in found.attributes
        if pair[0].startswith("on") or "javascript:" in (pair[1] or "")
    ]
    assert "alert(1)" in html, "the text itself is shown"


def without_own_script(html: str) -> str:
    """Returns a page without the script that follows Airflow's switch between light and dark."""
    own = f"<script>{script('theme.js')}</script>"
    assert html.count(own) == 1
    return html.replace(own, "")


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


def test_index_before_the_first_check_is_empty(staged: StagedReplay) -> None:
    assert "Nothing has been checked yet." in write_index(staged.config).read_text()


def test_runs_are_newest_first_with_their_failing_windows(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    judge(staged.config, staged.plan)
    judge(staged.config, staged.plan)
    found = runs(staged.config)
    assert len(found) == 2
    assert found[0].checked_at > found[1].checked_at
    assert (found[0].verdict, found[0].failed, found[0].warned) == (
        "failed",
        ("no-null-keys",),
        ("no-repeats",),
    )
    assert found[0].failing == (WindowRange(102, 102),)


def test_findings_contain_every_check_of_every_run(tmp_path: Path) -> None:
    staged = faulty(tmp_path)
    checks = len(judge(staged.config, staged.plan).outputs[0].checks)
    judge(staged.config, staged.plan)
    rows = query(
        "select count(*) as n, count(distinct run_id) as runs from f",
        f=findings_table(staged.config),
    ).to_pylist()
    assert rows == [{"n": 2 * checks, "runs": 2}]


@pytest.mark.timeout(120)
def test_check_does_not_change_the_expectations_folder(staged: StagedReplay) -> None:
    git = ["git", "-C", str(staged.expectations)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    judge(staged.config, staged.write().plan)
    changed = subprocess.run(
        [*git, "status", "--porcelain"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert [line for line in changed.splitlines() if not line.startswith("A ")] == []


def test_dark_and_light_mode_follow_the_system(staged: StagedReplay) -> None:
    html = drawn(staged.config, staged.write().plan).read_text()
    assert "color-scheme:light dark" in html
    assert "--paper:light-dark(" in html
