"""Who needs a stream, by the ledger: open replays, what is published from it; what becomes stale.
No Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.ledger import Ledger
from rewindow.lineage.dependents import dependents, mark_stale, readers
from rewindow.windows import WindowRange
from tests.ledger.life import run_to_end


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a published replay of windows 100 to 199, an undone one, and an open one; all
    read clicks.
    """
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    outputs = [{"name": "totals", "stateful": True}, {"name": "rows", "stateful": False}]
    plan = {"inputs": [{"stream": "clicks"}], "outputs": outputs}
    for name, first, last in (("done", 100, 199), ("undone", 300, 399), ("open", 150, 250)):
        ledger.replays.create(name, "app", first, last, "exactly_once", plan, "v1")
    for name, first, last in (("done", 100, 199), ("undone", 300, 399)):
        run_to_end(ledger, name)
        publication = ledger.publications.open(
            name,
            {"app.totals": None, "app.rows": None},
            first,
            last,
        )
        close(ledger, publication.number)
    undo = ledger.publications.open_undo(2, {"app.totals": 1, "app.rows": 1})
    close(ledger, undo.number)
    return ledger


def close(ledger: Ledger, number: int) -> None:
    """Ends a publication as if its tables were committed."""
    for table in ledger.publications.get(number).tables:
        ledger.publications.mark_done(number, table.name, 1)
    ledger.publications.close(number)


def test_dependents_are_open_or_published_replays_that_read_the_windows(ledger: Ledger) -> None:
    assert {(entry.replay_id, entry.is_open) for entry in readers(ledger, "clicks")} == {
        ("open", True),
        ("done", False),
    }
    assert [entry.replay_id for entry in readers(ledger, "clicks", [WindowRange(100, 120)])] == [
        "done"
    ]
    assert readers(ledger, "clicks", [WindowRange(300, 310)]) == []
    assert readers(ledger, "other") == []


def test_published_stream_is_needed_by_the_publications_that_wrote_it(ledger: Ledger) -> None:
    assert [entry.why for entry in dependents(ledger, "app.rows")] == [
        "publication 1 published its windows [100, 199], which readers see; to undo: rewindow "
        "undo done"
    ]


def test_reopened_windows_make_publications_computed_from_them_stale(ledger: Ledger) -> None:
    # Rules: X52
    said = mark_stale(
        ledger,
        "clicks",
        [WindowRange(110, 111), WindowRange(160, 160), WindowRange(500, 501)],
    )
    assert len(said) == 2
    for _ in range(2):
        assert [(row.table_name, row.first, row.last) for row in ledger.stale.ranges("app")] == [
            ("app.rows", 110, 111),
            ("app.rows", 160, 160),
            ("app.totals", 110, 159),
            ("app.totals", 160, 199),
        ]
        mark_stale(ledger, "clicks", [WindowRange(110, 111), WindowRange(160, 160)])
