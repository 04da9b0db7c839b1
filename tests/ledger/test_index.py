"""Index of window facts: few rows, and the same sums as a row a window would give."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.ledger import Ledger, PortCount, PortTotal, Replay, segments
from rewindow.ledger.facts_index import segments_of
from rewindow.planning.creation import create_staging
from rewindow.storage.delta import Table
from rewindow.storage.layout import FACTS, FACTS_SCHEMA
from tests.ledger.life import begin, plan

START = 100


def report(
    ledger: Ledger,
    replay_id: str,
    epoch: int,
    first: int,
    mark: int,
    checkpoint: bool,
    tuples: int,
) -> None:
    windows = (START + first - 1, START + mark - 1)
    counts = [PortCount("in", "s", *windows, tuples), PortCount("out", "o", *windows, tuples * 2)]
    ledger.attempts.report_progress(
        replay_id,
        epoch,
        mark,
        mark if checkpoint else None,
        {},
        counts,
    )


def test_totals_exclude_lost_windows_and_tuples(ledger: Ledger, replay: Replay) -> None:
    # Rules: R15
    epoch = begin(ledger, "r")
    report(ledger, "r", epoch, 1, 10, True, 5)
    lost = [
        PortCount("in", "s", 110, 119, 7, lost=True),
        PortCount("out", "o", 110, 119, 0, lost=True),
    ]
    ledger.attempts.report_progress("r", epoch, 20, None, {}, lost)
    report(ledger, "r", epoch, 21, 30, True, 6)
    assert ledger.counts.totals("r") == [
        PortTotal("in", "s", 20, 11, 10, 7),
        PortTotal("out", "o", 20, 22, 10, 0),
    ]
    assert [(p.first, p.last, p.lost) for p in ledger.counts.index("r", "s")] == [
        (100, 109, False),
        (110, 119, True),
        (120, 129, False),
    ]


def test_window_lost_in_two_outputs_is_counted_once(ledger: Ledger, replay: Replay) -> None:
    epoch = begin(ledger, "r")
    lost = [
        PortCount("in", "s", 100, 129, 7, lost=True),
        PortCount("out", "o", 105, 114, 0, lost=True),
        PortCount("out", "p", 100, 109, 0, lost=True),
        PortCount("out", "p", 112, 120, 0, lost=True),
    ]
    ledger.attempts.report_progress("r", epoch, 30, None, {}, lost)
    assert ledger.counts.lost_windows(["r", "other"]) == {"r": 21}


def test_index_has_one_row_per_window_run_and_port(
    ledger: Ledger,
    replay: Replay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_WINDOWS", 25)
    epoch = begin(ledger, "r")
    for mark in range(1, 61):
        report(ledger, "r", epoch, mark, mark, True, 1)
    assert [(p.first, p.last, p.tuples) for p in ledger.counts.index("r", "s")] == [
        (100, 124, 25),
        (125, 149, 25),
        (150, 159, 10),
    ]
    assert all(part.began_at < part.ended_at for part in ledger.counts.index("r"))


_GROUPS = st.lists(
    st.tuples(st.integers(1, 5), st.booleans(), st.booleans()),
    min_size=1,
    max_size=10,
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(groups=_GROUPS)
def test_index_agrees_with_one_row_per_window(
    sqlite_url: str,
    groups: list[tuple[int, bool, bool]],
) -> None:
    ledger = Ledger.open(sqlite_url)
    replay_id = f"r{len(ledger.replays.newest(limit=1000))}"
    plan(ledger, replay_id)
    epoch = begin(ledger, replay_id)
    mark = 0
    checkpoint = 0
    by_window: dict[int, int] = {}
    for width, saved, dies in groups:
        report(ledger, replay_id, epoch, mark + 1, mark + width, saved, width * epoch)
        by_window = {window: tuples for window, tuples in by_window.items() if window <= mark}
        by_window |= dict.fromkeys(range(mark + 1, mark + width + 1), epoch)
        mark += width
        checkpoint = mark if saved else checkpoint
        if dies:
            epoch = begin(ledger, replay_id)
            mark = checkpoint
    total = next(total for total in ledger.counts.totals(replay_id) if total.port == "s")
    assert (total.windows, total.tuples) == (len(by_window), sum(by_window.values()))
    parts = ledger.counts.index(replay_id, "s")
    assert [w for part in parts for w in range(part.first, part.last + 1)] == [
        START + w - 1 for w in sorted(by_window)
    ]
    ledger.close()


def test_rows_missing_in_the_index_after_a_crash_are_restored_from_the_facts(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger.replays.create("r", "app", 100, 129, "at_least_once", {}, "v1")
    create_staging(tmp_path, {}, "{}")
    facts = Table.open(tmp_path / FACTS)
    write_facts(facts, 1, 100, 119, 2)
    write_facts(facts, 2, 110, 129, 2)
    epoch = begin(ledger, "r")
    report(ledger, "r", epoch, 1, 10, True, 20)
    assert ledger.counts.is_whole("r")
    report(ledger, "r", epoch, 21, 30, True, 20)
    assert not ledger.counts.is_whole("r")
    ledger.counts.rebuild("r", segments_of(tmp_path / FACTS))
    assert ledger.counts.is_whole("r")
    assert ledger.counts.totals("r") == [
        PortTotal("in", "s", 30, 60, 0, 0),
        PortTotal("out", "o", 30, 60, 0, 0),
    ]
    assert {part.epoch for part in ledger.counts.index("r")} == {2}


def write_facts(
    facts: Table,
    attempt: int,
    first: int,
    last: int,
    tuples: int,
    replay_id: str = "r",
) -> None:
    now = datetime.now(UTC)
    rows = [
        {
            "window_id": window,
            "direction": direction,
            "port": port,
            "tuples": tuples,
            "attempt": attempt,
            "lost": False,
            "group_first": first,
            "group_last": last,
            "began_at": now,
            "ended_at": now,
        }
        for window in range(first, last + 1)
        for direction, port in (("in", "s"), ("out", "o"))
    ]
    version = (attempt << 40) | (last - START + 1)
    facts.commit_arrow(
        pa.Table.from_pylist(rows, FACTS_SCHEMA),
        app_id=f"{replay_id}/facts",
        version=version,
    )
