"""Repairs that are proposed: from seals, publications and the quarantine as they are; no JVM."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import Mode
from rewindow.facts.seals import columns_text, seal_rows
from rewindow.launcher.verbs import publish, undo
from rewindow.ledger import Ledger
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.ledger.staleness import REOPENED
from rewindow.lineage.dependents import mark_stale
from rewindow.recovery import StartState
from rewindow.repairs.find import Repairs, find_repairs
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.streams import QUARANTINE_SCHEMA, create_quarantine
from rewindow.windows import WindowRange
from tests.publication.staging import StagedReplay, rows_of, simple, state_of
from tests.recovery.project import make_stream

if TYPE_CHECKING:
    pass

TIME = pa.timestamp("us", "UTC")
EVENTS = pa.schema(
    [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME), ("key", pa.string())]
)
FIRST = 100
LAST = 119
STATELESS = ("delays",)
STATEFUL = ("ranks",)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings, and the recorded stream `flights`, sealed in all windows, with no tuple."""
    found = Config(state=tmp_path)
    make_stream(
        found,
        "flights",
        EVENTS.empty_table(),
        dict.fromkeys(range(FIRST, LAST + 1), 0),
        width_ms=3_600_000,
    )
    return found


def seals_version(config: Config, stream: str = "flights") -> int:
    return Table.open(config.windows_table(stream)).version


def published(
    config: Config,
    replay: str,
    first: int = FIRST,
    last: int = LAST,
    **fields: Any,
) -> None:
    """Publishes windows of a replay that has read `flights`, or other streams, as they are."""
    streams = fields.pop("streams", ("flights",))
    pinned = tuple((stream, seals_version(config, stream)) for stream in streams)
    simple(config, replay, first, last, publishable=True, inputs=pinned, **fields)
    publish(config, replay)


def seal_again(config: Config, *windows: int) -> None:
    """Gives windows of `flights` other seals, as after late tuples."""
    table = Table.open(config.windows_table("flights"))
    data = Table.open(config.stream_table("flights"))
    found = pa.table(
        {
            "window_id": pa.array(windows, pa.int64()),
            "tuples": pa.array([1] * len(windows), pa.int64()),
            "digest": [f"{seals_version(config)}"] * len(windows),
            "float_digest": pa.nulls(len(windows), pa.string()),
        }
    )
    rows = seal_rows(found, data, columns_text(data.schema))
    inside = f"window_id in ({', '.join(map(str, windows))})"
    table.replace(rows.to_reader(), inside, app_id="record", version=table.version + 10)


def put_aside(config: Config, windows: list[int]) -> None:
    """Puts a late tuple of `flights` into quarantine for each window."""
    now = datetime.now(UTC)
    values = {
        "source": "flights",
        "reason": "late",
        "payload": "{}",
        "position": "0",
        "recorded_at": now,
    }
    rows = [
        {name: values.get(name) for name in QUARANTINE_SCHEMA.names} | {"window_id": one}
        for one in windows
    ]
    table = create_quarantine(config.quarantine_table)
    table.commit_arrow(
        pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA),
        app_id="late",
        version=1,
    )


def proposed(found: Repairs) -> list[tuple[str, int, int]]:
    return [(step.application, step.windows.first, step.windows.last) for step in found.steps]


def test_replay_with_unchanged_inputs_needs_no_repair(config: Config) -> None:
    assert find_repairs(config) == Repairs([], [], ())
    published(config, "one")
    assert find_repairs(config) == Repairs([], [], ())


def test_only_changed_windows_are_replayed(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rewindow.repairs.ranges.JOIN_WINDOWS", 0)
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105, 106, 112)
    found = find_repairs(config)
    assert proposed(found) == [("app", 105, 106), ("app", 112, 112)]
    assert found.steps[0].reasons == (
        "windows of flights that have changed since replay one read it: 3",
    )
    assert found.steps[0].command == "rewindow replay app --first 105 --last 106"


def test_nearby_ranges_are_joined_and_the_reason_is_given_once(
    config: Config,
) -> None:
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105, 108, 112)
    found = find_repairs(config)
    assert proposed(found) == [("app", 105, 112)]
    assert found.steps[0].reasons == (
        "windows of flights that have changed since replay one read it: 3",
        "includes the windows between these ranges: one replay is faster than several",
    )


def test_unpublished_windows_between_ranges_are_not_repaired(config: Config) -> None:
    published(config, "one", 100, 106, outputs=STATELESS)
    published(config, "two", 110, 119, outputs=STATELESS)
    seal_again(config, 105, 112)
    assert proposed(find_repairs(config)) == [("app", 105, 105), ("app", 112, 112)]


def test_changed_state_extends_a_repair_to_the_last_published_window(config: Config) -> None:
    published(config, "one", outputs=STATEFUL)
    seal_again(config, 105, 112)
    found = find_repairs(config)
    assert proposed(found) == [("app", 105, 119)]
    assert found.steps[0].reasons == (
        "windows of flights that have changed since replay one read it: 2",
        "its state is passed on, so all windows up to 119 depend on these",
    )


def test_repair_stops_before_a_publication_from_the_initial_state(config: Config) -> None:
    published(config, "one", 100, 109, outputs=STATEFUL)
    published(config, "two", 110, 119, outputs=STATEFUL)
    seal_again(config, 105)
    assert proposed(find_repairs(config)) == [("app", 105, 109)]


def test_repair_does_not_join_a_publication_from_the_initial_state(config: Config) -> None:
    # A joined replay would carry the state of the first publication into the second.
    published(config, "one", 100, 109, outputs=STATEFUL)
    published(config, "two", 110, 119, outputs=STATEFUL)
    seal_again(config, 109, 110)
    assert proposed(find_repairs(config)) == [("app", 109, 109), ("app", 110, 119)]


@pytest.mark.parametrize(("base", "follows"), [(109, (WindowRange(112, 119),)), (104, ())])
def test_warm_up_computes_the_state_across_unpublished_windows(
    config: Config,
    base: int,
    follows: tuple[WindowRange, ...],
) -> None:
    published(config, "one", 100, 109, outputs=STATEFUL)
    start = StartState(source="warm_up", window=base, warm_up_first=110)
    published(config, "two", 112, 119, outputs=STATEFUL, start=start)
    seal_again(config, 105)
    found = find_repairs(config)
    assert proposed(found) == [("app", 105, 109)]
    assert found.steps[0].may_follow == follows


def publish_in_groups(config: Config, replay: str, first: int, last: int, plus: int = 0) -> None:
    """Publishes windows of `ranks` with a known state after every fifth; `plus` makes rows and
    states other ones.
    """
    staged = StagedReplay(
        config,
        replay,
        first,
        last,
        outputs=STATEFUL,
        inputs=(("flights", seals_version(config)),),
    )
    for begin in range(first, last + 1, 5):
        end = min(begin + 4, last)
        staged.group(begin, end, rows_of(range(begin, end + 1), plus), state=state_of(end + plus))
    staged.digest().end()
    publish(config, replay)


def test_repair_ends_at_a_known_published_state_and_explains_why(config: Config) -> None:
    publish_in_groups(config, "one", 100, 119)
    seal_again(config, 106)
    found = find_repairs(config)
    assert proposed(found) == [("app", 106, 109)]
    assert found.steps[0].reasons == (
        "windows of flights that have changed since replay one read it: 1",
        "its state is passed on: 109 is the next window with a published state to compare with",
        "if the state after window 109 differs from the published one, at most [110, 119] follow",
    )
    assert found.to_dict()["replays"][0]["may_follow"] == [{"first": 110, "last": 119}]


@pytest.mark.parametrize(("plus", "wanted"), [(0, []), (1, [("app", 110, 119)])])
def test_later_windows_need_repair_only_if_the_state_differs(
    config: Config,
    plus: int,
    wanted: list[tuple[str, int, int]],
) -> None:
    publish_in_groups(config, "one", 100, 119)
    seal_again(config, 106)
    publish_in_groups(config, "two", 106, 109, plus)
    found = find_repairs(config)
    assert proposed(found) == wanted
    assert [row.first for row in Ledger.open(config.ledger_url).stale.ranges()] == [
        first for _, first, _ in wanted
    ]
    if wanted:
        assert found.steps[0].reasons == (
            "app.ranks was computed from a state that publication 2 has changed",
            "at least 1,000 windows, if they exist: one long replay is faster than many short",
        )


def test_reopened_windows_stay_stale_until_they_are_published_again(config: Config) -> None:
    publish_in_groups(config, "one", 100, 119)
    seal_again(config, 101, 116)
    book = Ledger.open(config.ledger_url)
    mark_stale(book, "flights", [WindowRange(101, 101), WindowRange(116, 116)])
    assert [(row.first, row.last) for row in book.stale.ranges()] == [(101, 115), (116, 119)]
    publish_in_groups(config, "two", 101, 104, plus=1)
    assert [(row.first, row.last, row.since) for row in book.stale.ranges()] == [
        (105, 115, 2),
        (116, 119, REOPENED),
    ]
    publish_in_groups(config, "three", 105, 109)
    assert [(row.first, row.last, row.since) for row in book.stale.ranges()] == [
        (116, 119, REOPENED)
    ]
    publish_in_groups(config, "four", 116, 119)
    assert book.stale.ranges() == []


def test_changed_state_affects_windows_after_a_newer_publication(config: Config) -> None:
    published(config, "one", outputs=STATEFUL)
    published(config, "two", 104, 106, outputs=STATEFUL)
    seal_again(config, 105)
    assert proposed(find_repairs(config)) == [("app", 105, 119)]


def test_publication_after_a_warm_up_over_changed_windows_needs_repair(config: Config) -> None:
    start = StartState(source="warm_up", window=105, warm_up_first=106)
    published(config, "two", 110, 119, outputs=STATEFUL, start=start)
    seal_again(config, 107)
    assert proposed(find_repairs(config)) == [("app", 110, 119)]


def test_windows_replayed_since_the_change_need_no_repair(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105, 112)
    published(config, "two", 104, 106, outputs=STATELESS)
    assert proposed(find_repairs(config)) == [("app", 112, 112)]
    undo(config, "two")
    assert proposed(find_repairs(config)) == [("app", 105, 112)]


def test_downstream_application_is_repaired_after_its_upstream(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    published(config, "below", outputs=STATEFUL, application="a_reader", streams=("app.delays",))
    seal_again(config, 105)
    found = find_repairs(config)
    assert proposed(found) == [("app", 105, 105), ("a_reader", 105, 119)]
    assert found.steps[1].reasons[0] == (
        "app.delays is published again in windows [105, 105] "
        "(1970-01-05T09:00:00Z to 1970-01-05T10:00:00Z)"
    )
    assert (
        proposed(found.of("app")),
        proposed(found.of("a_reader")),
        proposed(found.of("other")),
    ) == (
        proposed(found),
        proposed(found),
        [],
    )
    simple(
        config,
        "two",
        105,
        105,
        plus=7,
        publishable=True,
        outputs=STATELESS,
        inputs=(("flights", seals_version(config)),),
    )
    publish(config, "two")
    found = find_repairs(config)
    assert proposed(found) == [("a_reader", 105, 119)]
    assert (
        found.steps[0].reasons[0]
        == "windows of app.delays that have changed since replay below read it: 1"
    )


def test_repairs_of_an_application_omit_unrelated_applications_and_streams(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    published(config, "apart", outputs=STATELESS, application="apart")
    published(config, "below", outputs=STATELESS, application="z_reader", streams=("app.delays",))
    seal_again(config, 105)
    put_aside(config, [106])
    found = find_repairs(config)
    assert [name for name, _, _ in proposed(found)] == ["apart", "app", "z_reader"]
    assert [name for name, _, _ in proposed(found.of("app"))] == ["app", "z_reader"]
    assert [name for name, _, _ in proposed(found.of("z_reader"))] == ["app", "z_reader"]
    assert [one.stream for one in found.of("apart").late] == ["flights"] and not found.of(
        "other"
    ).late


def test_republished_output_with_equal_digests_needs_no_downstream_repair(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    published(config, "below", outputs=STATELESS, application="a_reader", streams=("app.delays",))
    published(config, "two", outputs=STATELESS)
    assert proposed(find_repairs(config)) == []


def test_late_tuples_in_quarantine_are_counted_per_published_window(config: Config) -> None:
    published(config, "one", 100, 110, outputs=STATELESS)
    put_aside(config, [105, 105, 115])
    found = find_repairs(config)
    assert [(one.windows, one.tuples) for one in found.late] == [
        (WindowRange(105, 105), 2),
        (WindowRange(115, 115), 1),
    ]
    assert proposed(found) == [("app", 105, 105)]
    assert found.steps[0].reasons == (
        "late tuples of flights wait to be added to windows [105, 105] "
        "(1970-01-05T09:00:00Z to 1970-01-05T10:00:00Z): 2",
    )


def test_changes_that_cannot_be_determined_after_a_vacuum_are_reported(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105)
    Table.open(config.windows_table("flights")).delta.vacuum(
        0,
        dry_run=False,
        enforce_retention_duration=False,
    )
    found = find_repairs(config)
    assert proposed(found) == []
    assert found.unknown[0].startswith("the contents of flights when replay one read it")


def test_each_repaired_range_keeps_its_mode_and_parameters(config: Config) -> None:
    published(config, "one", 100, 109, outputs=STATELESS, parameters={"limit": "5 h"})
    published(config, "two", 110, 119, outputs=STATELESS, mode=Mode.AT_LEAST_ONCE)
    seal_again(config, 109, 110)
    found = find_repairs(config)
    assert [step.command for step in found.steps] == [
        "rewindow replay app --first 109 --last 109 --parameter 'limit=5 h'",
        "rewindow replay app --first 110 --last 110 --mode at_least_once",
    ]


def test_change_read_by_one_publication_does_not_affect_a_later_warm_up(config: Config) -> None:
    published(config, "one", 100, 109, outputs=STATELESS)
    seal_again(config, 107)
    start = StartState(source="warm_up", window=104, warm_up_first=105)
    published(config, "two", 110, 119, outputs=STATELESS, start=start)
    assert proposed(find_repairs(config)) == [("app", 107, 107)]


def test_start_state_no_longer_visible_to_readers_is_reported(config: Config) -> None:
    start = StartState(source="published", window=104, taken_from="streams/app.checkpoints")
    published(config, "two", 105, 119, outputs=STATEFUL, start=start)
    at = "104 (1970-01-05T08:00:00Z)"
    words = f"whether the state of window {at}, the start state of replay two, has changed"
    assert find_repairs(config).unknown == (words,)


def test_start_state_of_the_first_publication_is_not_reported_as_unknown(config: Config) -> None:
    published(config, "one", outputs=STATEFUL)
    start = StartState(
        source="warm_up",
        window=99,
        taken_from="streams/app.checkpoints",
        warm_up_first=100,
    )
    published(config, "two", 110, 119, outputs=STATEFUL, start=start)
    assert find_repairs(config).unknown == ()


def test_publication_with_a_purged_replay_is_reported(config: Config) -> None:
    published(config, "one", outputs=STATELESS)
    shutil.rmtree(config.replay_root("one"))
    config.state.joinpath("ledger.sqlite").unlink()
    rebuild_ledger(config)
    assert find_repairs(config).unknown == (
        "which inputs replay one read for windows [100, 119]: it was purged",
    )


def test_window_ids_are_numbers_in_json(config: Config) -> None:
    # Rules: W14
    published(config, "one", outputs=STATELESS)
    put_aside(config, [105])
    found = find_repairs(config).to_dict()
    assert found["late"] == [{"stream": "flights", "first": 105, "last": 105, "tuples": 1}]
    assert (found["replays"][0]["first"], found["replays"][0]["last"]) == (105, 105)
