"""The state of windows of streams and outputs, from real tables and a real ledger."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.facts.seals import columns_text, seal_rows
from rewindow.inspection.coverage import (
    StreamCoverage,
    WindowState,
    read_coverage,
    visible_parts,
)
from rewindow.ledger import Ledger, PortStretch
from rewindow.ledger.publication_rows import StandingRange
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.streams import LATE, QUARANTINE_SCHEMA, create_quarantine, create_stream
from rewindow.windows import WindowRange
from tests.publication.staging import BEGAN, StagedReplay, simple

TUPLES = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("key", pa.int64()),
    ]
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state=tmp_path)


def seal(config: Config, name: str, counts: dict[int, int], version: int = 1) -> Table:
    """Seals windows with the given numbers of tuples; the stream is created if it is missing."""
    create_stream(config.stream_table(name), TUPLES, {"width_ms": 1000, "origin_ms": 0})
    found = {
        "window_id": list(counts),
        "tuples": list(counts.values()),
        "digest": [""] * len(counts),
    }
    data = Table.open(config.stream_table(name))
    seals = Table.open(config.windows_table(name))
    rows = seal_rows(pa.table(found), data, columns_text(TUPLES))
    seals.commit_arrow(rows, app_id="test", version=version)
    return seals


def windows_of(coverage: StreamCoverage) -> dict[str, list[int]]:
    """Returns the windows in each state, without states that have none."""
    found = {}
    for state, ranges in coverage.windows.items():
        ids: list[int] = []
        for first, last in ranges.tolist():
            ids += range(first, last + 1)
        if ids:
            found[state.value] = ids
    return found


def test_recorded_stream_has_sealed_empty_missing_and_late_windows(config: Config) -> None:
    seal(config, "clicks", {5: 2, 6: 0, 9: 1, 12: 0})
    columns: dict[str, list[object]] = {name: [None] * 5 for name in QUARANTINE_SCHEMA.names}
    columns |= {"window_id": [9, 5, None, 9, 6], "source": [*["clicks"] * 4, "other"]}
    columns["reason"] = [LATE] * 5
    create_quarantine(config.quarantine_table).append(pa.table(columns, schema=QUARANTINE_SCHEMA))
    (coverage,) = read_coverage(config, None)
    assert windows_of(coverage) == {
        "sealed": [5, 6, 9, 12],
        "empty": [6, 12],
        "missing": [7, 8, 10, 11],
        "late": [5, 9],
    }
    assert (coverage.tuples, coverage.end, coverage.is_output) == (3, None, False)
    assert coverage.sealed_to == "1970-01-01T00:00:13Z"


def test_new_and_replaced_seals_are_noticed(config: Config) -> None:
    seals = seal(config, "clicks", {5: 2, 6: 0})
    assert windows_of(read_coverage(config, None)[0])["empty"] == [6]
    seal(config, "clicks", {10: 1, 8: 0, 7: 3, 4: 0}, version=2)
    (coverage,) = read_coverage(config, None)
    assert coverage.tuples == 6
    assert windows_of(coverage) == {
        "sealed": [4, 5, 6, 7, 8, 10],
        "empty": [4, 6, 8],
        "missing": [9],
    }
    assert coverage.windows[WindowState.SEALED].tolist() == [[4, 8], [10, 10]]
    seals.refresh().delta.delete("window_id = 6")
    (coverage,) = read_coverage(config, None)
    assert (windows_of(coverage)["sealed"], coverage.tuples) == ([4, 5, 7, 8, 10], 6)


def test_stream_without_windows_is_listed(config: Config) -> None:
    seal(config, "clicks", {})
    (coverage,) = read_coverage(config, None)
    assert windows_of(coverage) == {} and coverage.sealed_to == ""


def test_damaged_table_does_not_hide_other_streams(config: Config) -> None:
    for name in ("broken", "clicks"):
        seal(config, name, {1: 1})
    create_quarantine(config.quarantine_table)
    for log in (config.windows_table("broken"), config.quarantine_table):
        for commit in (log / "_delta_log").entries("*.json"):
            commit.write("{")
    (config.state / "streams" / "removed.windows").make_folder()
    found = {coverage.name: coverage for coverage in read_coverage(config, None)}
    assert found.keys() == {"broken", "clicks", config.quarantine_table.name}
    assert windows_of(found["clicks"]) == {"sealed": [1]}
    for name in ("broken", config.quarantine_table.name):
        assert found[name].grid is None and found[name].problem is not None


def test_output_has_published_stale_and_lost_windows_and_replays_in_progress(
    config: Config,
) -> None:
    simple(config, "old", 100, 109, publishable=True)
    simple(config, "new", 104, 106, publishable=True)
    publish(config, "old")
    publish(config, "new", accept="it was staged before")
    simple(config, "staged", 108, 111)
    simple(config, "later", 110, 112)
    simple(config, "given-up", 112, 114)
    candidate = StagedReplay(config, "tried", 200, 201)
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.abandon("given-up", "not needed")
    values = {**candidate.plan.model_dump(mode="json"), "candidate": {"of": "old"}}
    ledger.replays.create("tried", "app", 200, 201, "exactly_once", values, "1")
    ledger.stale.add("app", "app.delays", 101, 102, since=1)
    lost = [PortStretch("out", "delays", 103, 105, 9, True, 1, BEGAN, BEGAN)]
    with ledger.database.serialised() as connection:
        ledger.counts.replace(connection, "old", lost)
    found = {coverage.name: coverage for coverage in read_coverage(config, ledger)}
    ledger.close()
    delays = found["app.delays"]
    states = windows_of(delays)
    assert states["published"] == list(range(100, 110))
    assert states["stale"] == [101, 102]
    assert states["lost"] == [103]
    assert states["in progress"] == [108, 109, 110, 111, 112]
    assert [(part.replay_id, str(part.range)) for part in delays.in_progress] == [
        ("staged", "[108, 109]"),
        ("later", "[110, 112]"),
    ]
    assert [(act.replay_id, str(act.range)) for act in delays.published] == [
        ("old", "[100, 103]"),
        ("new", "[104, 106]"),
        ("old", "[107, 109]"),
    ]
    assert {part.replay_id for part in delays.parts} == {"old", "new", "staged", "later"}
    assert "lost" not in windows_of(found["app.ranks"])


ranges = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(
    lambda bounds: WindowRange(bounds[0], sum(bounds))
)


@given(st.lists(ranges, max_size=8))
def test_newest_publication_of_each_window_is_visible(given_ranges: list[WindowRange]) -> None:
    standing = [
        StandingRange(number, f"r-{number}", windows) for number, windows in enumerate(given_ranges)
    ]
    expected = {window: act for act in standing for window in act.range}
    parts = visible_parts(standing)
    found = {window: part.number for part in parts for window in part.range}
    assert found == {window: act.number for window, act in expected.items()}
    assert sum(len(part.range) for part in parts) == len(expected)
    firsts = [part.range.first for part in parts]
    assert firsts == sorted(firsts)
