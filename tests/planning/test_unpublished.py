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


def publish(project: Project, first: int, last: int, *, close: bool = True, undo: bool = False) -> None:
    """Enters a publication of the totals in the ledger, as if its tables were committed."""
    ledger, replay_id = Ledger.open(project.config.ledger_url), f"r-{first}-{last}"
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
            acts, undo = [ledger.publications.open_undo(number, dict.fromkeys(names, 1)).number], False


def test_everything_sealed_is_unpublished_before_the_first_publication(project: Project) -> None:
    """The first run takes all that there is."""
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)


def test_what_follows_the_last_publication_is_unpublished(project: Project) -> None:
    """The next run goes on where the last one ended; when all is published there is nothing."""
    publish(project, FIRST, FIRST + 9)
    assert unpublished(project.config, "totals") == WindowRange(FIRST + 10, LAST)
    publish(project, FIRST + 10, LAST)
    assert unpublished(project.config, "totals") is None


def test_a_gap_between_publications_is_unpublished_to_the_end(project: Project) -> None:
    """States are carried through one range, so what is published behind the gap comes again."""
    publish(project, FIRST, FIRST + 3)
    publish(project, FIRST + 8, LAST)
    assert unpublished(project.config, "totals") == WindowRange(FIRST + 4, LAST)


def test_what_was_undone_or_is_not_closed_is_unpublished(project: Project) -> None:
    """Readers do not see it, or not yet."""
    publish(project, FIRST, LAST, undo=True)
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)
    publish(project, FIRST, FIRST + 3, close=False)
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)


def test_missing_windows_are_not_waited_for(project: Project) -> None:
    """A window that no seal covers cannot be replayed, so a hole before what is published asks for nothing (W40)."""
    publish(project, FIRST + 2, LAST)
    seals = project.config.windows_table("events")
    Table.open(seals).delta.delete(f"window_id < {FIRST + 2} and window_id > {FIRST}")
    assert unpublished(project.config, "totals") == WindowRange(FIRST, LAST)
    Table.open(seals).delta.delete(f"window_id = {FIRST}")
    assert unpublished(project.config, "totals") is None


def test_a_stream_that_has_ended_asks_for_no_more_than_its_last_window(project: Project) -> None:
    """Behind the end every window is sealed and empty, and none of them is asked for (X21)."""
    config = project.config
    Table.open(config.windows_table("events")).append(end_row(Table.open(config.stream_table("events")), LAST))
    publish(project, FIRST, LAST)
    assert unpublished(config, "totals") is None


def test_range_without_others_is_what_is_in_none_of_them() -> None:
    """Against sets of windows."""

    @given(st.lists(st.tuples(st.integers(-3, 30), st.integers(0, 8)), max_size=8))
    def check(parts: list[tuple[int, int]]) -> None:
        whole, taken = WindowRange(0, 24), [WindowRange(first, first + more) for first, more in parts]
        left = without(whole, taken)
        assert [window for part in left for window in part] == sorted(set(whole).difference(*taken))
        assert left == sorted(left)

    check()


def test_unknown_stream_is_refused_by_name(project: Project) -> None:
    """A range that nobody can compute is an error, not nothing."""
    Table.open(project.config.windows_table("events")).delta.delete("window_id is not null")
    with pytest.raises(RangeError, match='stream "events" has no sealed window'):
        unpublished(project.config, "totals")
