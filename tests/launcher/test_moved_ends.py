"""What was published with another end of a stream than it has now: marked, proposed, put right; no
JVM (X21, X34).
"""

from __future__ import annotations

from rewindow.facts.seals import end_row
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import mark_end
from rewindow.recovery import StartState
from rewindow.repairs.find import find_repairs
from rewindow.settings.config import Config
from rewindow.storage import Table
from tests.publication.staging import state_of
from tests.repairs import test_find
from tests.repairs.test_find import STATELESS, proposed, publish_in_groups, published

config = test_find.config


def move_end(config: Config, last: int | None) -> None:
    """Ends `flights` with a window, or takes its end back, as a recording does: what is stale is
    entered first.
    """
    mark_end(Ledger.open(config.ledger_url), "flights", last)
    table = Table.open(config.windows_table("flights"))
    data = Table.open(config.stream_table("flights"))
    if last is None:
        table.delta.delete("end_window is not null")
    else:
        table.commit_arrow(end_row(data, last), app_id="record", version=table.version + 10)


def stale(config: Config) -> list[tuple[str, int, int]]:
    return [
        (row.table_name, row.first, row.last)
        for row in Ledger.open(config.ledger_url).stale.ranges()
    ]


def test_stream_end_declared_later_makes_its_window_stale_until_repaired(config: Config) -> None:
    # Rules: X34
    published(config, "one", 100, 115)
    published(config, "above", 100, 115, outputs=STATELESS, application="stateless")
    move_end(config, 119)
    assert (stale(config), proposed(find_repairs(config))) == ([], [])
    move_end(config, None)
    start = StartState(source="published", window=115)
    published(config, "two", 116, 119, start=start, start_state=state_of(115))
    move_end(config, 119)
    assert stale(config) == [("app.ranks", 119, 119)]
    found = find_repairs(config)
    assert proposed(found) == [("app", 119, 119)]
    words = "the end of flights is window 119; it was none when replay two read it"
    assert found.steps[0].reasons == (words,)
    published(
        config,
        "three",
        119,
        119,
        ended=119,
        start=StartState(source="published", window=118),
    )
    assert proposed(find_repairs(config)) == []


def test_revoked_stream_end_makes_all_windows_from_the_end_stale(config: Config) -> None:
    # Rules: X21, X34
    published(config, "one", 100, 119, ended=112)
    move_end(config, 112)
    assert (stale(config), proposed(find_repairs(config))) == ([], [])
    move_end(config, None)
    assert stale(config) == [("app.delays", 113, 119), ("app.ranks", 112, 119)]
    found = find_repairs(config)
    assert proposed(found) == [("app", 112, 119)]
    assert found.steps[0].reasons == (
        "the end of flights is none; it was window 112 when replay one read it",
    )
    published(config, "two", 112, 119, start=StartState(source="published", window=111))
    assert (stale(config), proposed(find_repairs(config))) == ([], [])


def test_moved_stream_end_makes_all_windows_from_the_earlier_end_stale(config: Config) -> None:
    published(config, "one", 100, 112, ended=112)
    start = StartState(source="published", window=112)
    published(config, "two", 113, 119, ended=112, start=start, start_state=state_of(112))
    move_end(config, 112)
    move_end(config, None)
    move_end(config, 115)
    delays = [("app.delays", 113, 115), ("app.delays", 116, 119)]
    ranks = [("app.ranks", 112, 112), ("app.ranks", 113, 119)]
    assert stale(config) == delays + ranks
    assert proposed(find_repairs(config)) == [("app", 112, 119)]


def test_stale_mark_without_a_cause_is_removed_by_a_single_replay(config: Config) -> None:
    publish_in_groups(config, "one", 100, 119)
    move_end(config, 119)
    move_end(config, None)
    assert stale(config) == [("app.ranks", 119, 119)]
    found = find_repairs(config)
    assert proposed(found) == [("app", 119, 119)]
    words = "app.ranks was marked as stale when an input was opened again or its end was moved"
    assert found.steps[0].reasons == (words,)
    publish_in_groups(config, "two", 119, 119)
    assert (stale(config), proposed(find_repairs(config))) == ([], [])


def test_moved_stream_end_does_not_make_windows_of_a_newer_publication_stale(
    config: Config,
) -> None:
    # Rules: X34
    published(config, "one", 100, 112, ended=112)
    published(config, "two", 100, 118)
    move_end(config, 119)
    assert (stale(config), proposed(find_repairs(config))) == ([], [])
