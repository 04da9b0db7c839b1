"""What an application has still to publish, by seals and by the ledger. No Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import RangeError
from rewindow.facts.seals import end_row
from rewindow.ledger import Ledger
from rewindow.planning.unpublished import unpublished
from rewindow.storage import Table
from rewindow.windows import WindowRange, without
from tests.ledger.life import run_to_end
from tests.recovery.project import FIRST, WINDOWS, Project

LAST = FIRST + WINDOWS - 1


def publish(
    project: Project,
    first: int,
    last: int,
    *,
    close: bool = True,
    undo: bool = False,
) -> None:
    """Enters a publication of the totals in the ledger, as if its tables were committed."""
    ledger = Ledger.open(project.config.ledger_url)
    replay_id = f"r-{first}-{last}"
    project.plan(replay_id, "exactly_once", first=first, last=last, initial_state=True)
    run_to_end(ledger, replay_id)
    names = ["totals.sums", "totals.totals", "totals.checkpoints"]
    acts = [ledger.publications.open(replay_id, dict.fromkeys(names), first, last).number]
    while acts and close:
        number = acts.pop()
        for name in names:
            ledger.publications.mark_done(number, name, 1)
        ledger.publications.close(number)
        if undo:
            acts = [ledger.publications.open_undo(number, dict.fromkeys(names, 1)).number]
            undo = False


def test_all_sealed_windows_are_unpublished_before_the_first_publication(project: Project) -> None:
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)


def test_windows_after_the_last_publication_are_unpublished(project: Project) -> None:
    publish(project, FIRST, FIRST + 9)
    assert unpublished(project.config, "totals") == WindowRange(FIRST + 10, LAST)
    publish(project, FIRST + 10, LAST)
    assert unpublished(project.config, "totals") is None


def test_unpublished_range_extends_from_a_gap_between_publications_to_the_end(
    project: Project,
) -> None:
    # State is carried through one range, so windows published after the gap are computed again.
    publish(project, FIRST, FIRST + 3)
    publish(project, FIRST + 8, LAST)
    assert unpublished(project.config, "totals") == WindowRange(FIRST + 4, LAST)


def test_undone_and_open_publications_are_unpublished(project: Project) -> None:
    publish(project, FIRST, LAST, undo=True)
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)
    publish(project, FIRST, FIRST + 3, close=False)
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)


def test_missing_windows_are_not_counted_as_unpublished(project: Project) -> None:
    # Rules: W40
    publish(project, FIRST + 2, LAST)
    seals = project.config.windows_table("events")
    Table.open(seals).delta.delete(f"window_id < {FIRST + 2} and window_id > {FIRST}")
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)
    Table.open(seals).delta.delete(f"window_id = {FIRST}")
    assert unpublished(project.config, "totals") is None


def test_ended_stream_is_unpublished_only_up_to_its_last_window(project: Project) -> None:
    # Rules: X21
    config = project.config
    Table.open(config.windows_table("events")).append(
        end_row(Table.open(config.stream_table("events")), LAST)
    )
    publish(project, FIRST, LAST)
    assert unpublished(config, "totals") is None


def test_range_difference_equals_a_naive_set_difference() -> None:
    @given(st.lists(st.tuples(st.integers(-3, 30), st.integers(0, 8)), max_size=8))
    def check(parts: list[tuple[int, int]]) -> None:
        whole = WindowRange(0, 24)
        taken = [WindowRange(first, first + more) for first, more in parts]
        left = without(whole, taken)
        assert [window for part in left for window in part] == sorted(set(whole).difference(*taken))
        assert left == sorted(left)

    check()


def test_unknown_stream_is_rejected_by_name(project: Project) -> None:
    Table.open(project.config.windows_table("events")).delta.delete("window_id is not null")
    with pytest.raises(RangeError, match='stream "events" has no sealed window'):
        unpublished(project.config, "totals")
