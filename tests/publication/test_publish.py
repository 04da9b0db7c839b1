"""Publish and undo: what readers, planners and later publications find afterwards."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.application import Mode
from rewindow.certificate import certify
from rewindow.certificate.snapshots import staged_plan
from rewindow.errors import GateError, InputError, OverlapError, TableError
from rewindow.facts.readers import staged_seals
from rewindow.ledger import Ledger, ReplayState
from rewindow.publication import finish, read_published, staged_output
from rewindow.publication.publish import check_publishable, expected_publication, publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.undo import undo
from rewindow.recovery import StartState
from rewindow.retention import undo_horizon
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, in_windows, query
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.streams import WINDOWS_SCHEMA, stored_grid
from rewindow.windows import Grid, WindowRange
from tests.publication.staging import (
    HOUR_MS,
    StagedReplay,
    lose_last_commit,
    prepared,
    rows_of,
    simple,
    state_of,
)


def book(config: Config) -> Ledger:
    return Ledger.open(config.ledger_url)


def table_rows(path: Path, columns: str = "*") -> list[dict[str, Any]]:
    return query(f"select {columns} from t order by window_id", t=Table.open(path)).to_pylist()


def minutes(config: Config) -> dict[int, int]:
    """Returns window to minutes of carrier AA, as published now."""
    rows = query(
        "select window_id, minutes from t where carrier = 'AA'",
        t=Table.open(config.stream_table("app.ranks")),
    )
    return dict(
        sorted(zip(rows["window_id"].to_pylist(), rows["minutes"].to_pylist(), strict=True))
    )


def after(config: Config, window: int) -> StartState:
    """Returns the start state of a range that begins after a published window, as the planner would
    pin it.
    """
    path = config.checkpoints_table("app")
    digest = stored.state_digest(stored.rows_at(Table.open(path), window))
    return StartState(
        source="published",
        window=window,
        taken_from=str(path),
        version=Table.open(path).version,
        digest=digest,
    )


def published_state(config: Config, window: int) -> pa.Table:
    """Returns the stored rows of the published state after a window."""
    return stored.rows_at(Table.open(config.checkpoints_table("app")), window)


def following(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> None:
    """Stages a replay that begins with the state published before it."""
    rows = published_state(config, first - 1).to_pylist()
    start = after(config, first - 1)
    ranks_only(
        config,
        replay_id,
        first,
        last,
        plus,
        publishable=True,
        start=start,
        start_state=stored.decode(rows[0], Path()),
    )


def published_rows(
    config: Config,
    windows: WindowRange,
    publication: int | None = None,
) -> pa.Table:
    """Returns the tuples of the output `ranks` in a window range as of a publication, by window and
    offset.
    """
    path, version = read_published(config, "app", publication)["ranks"]
    table = Table.open(path, version)
    rows = query(
        f'select * from t where {in_windows(windows)} order by window_id, "offset"',
        t=table,
    )
    return rows.select(table.schema.names)


@pytest.mark.parametrize("linkable", [True, False], ids=["linked", "written"])
def test_published_output_can_be_read_as_a_recorded_stream(
    linkable: bool,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rows staged by older versions have no offset and are numbered by key.
    monkeypatch.setattr(staged_output, "TUPLES_PER_FILE", 5)
    simple(config, "r1", 100, 107, publishable=True, linkable=linkable)
    result = publish(config, "r1")
    files = sorted(
        (file.first or 0, file.last or 0)
        for file in Table.open(config.stream_table("app.ranks")).files()
    )
    assert len(files) == (1 if linkable else 4) and all(
        one[1] < other[0] for one, other in pairwise(files)
    )
    rows = published_rows(config, WindowRange(100, 107))
    assert rows.column_names == ["window_id", "offset", "arrived_at", "carrier", "minutes", "share"]
    assert rows["window_id"].to_pylist() == [w for w in range(100, 108) for _ in range(2)]
    first = [w << 33 if linkable else 0 for w in range(100, 108)]
    assert rows["offset"].to_pylist() == [offset + place for offset in first for place in (0, 1)]
    assert rows["carrier"].to_pylist() == ["AA", "UA"] * 8
    starts = [moment.timestamp() for moment in rows["arrived_at"].to_pylist()]
    assert starts == [w * HOUR_MS / 1000 for w in range(100, 108) for _ in range(2)]
    seals = Table.open(config.windows_table("app.delays"))
    assert seals.schema == WINDOWS_SCHEMA and stored_grid(seals) == Grid(HOUR_MS)
    by_window = {row["window_id"]: row for row in table_rows(seals.path)}
    assert [by_window[w]["tuples"] for w in range(100, 108)] == [0, 2, 2, 2, 0, 2, 2, 2]
    assert {row["data_version"] for row in by_window.values()} == {result.versions["app.delays"]}
    assert (
        book(config).replays.get("r1").state is ReplayState.PUBLISHED
        and book(config).leases.held() == []
    )
    assert certify(config, "r1", "published").verdict == "equal"
    again = publish(config, "r1")
    assert (again.already, again.number, again.versions) == (True, result.number, result.versions)
    assert Table.open(config.stream_table("app.ranks")).version == result.versions["app.ranks"]
    undo(config, "r1")
    assert all(table_rows(config.stream_table(name)) == [] for name in result.versions), (
        "missing again, nothing is left"
    )


def test_published_range_is_replaced_and_undone_as_a_whole(config: Config) -> None:
    ranks_only(config, "r1", 100, 119, publishable=True)
    names = list(publish(config, "r1").versions)
    before = {name: sortable(table_rows(config.stream_table(name))) for name in names}
    ranks_only(config, "fix", 105, 109, plus=1000, publishable=True)
    publish(config, "fix")
    assert minutes(config) == {
        w: w * 10 + (1000 if 105 <= w <= 109 else 0) for w in range(100, 120)
    }
    assert (
        stored.decode(published_state(config, 109).to_pylist()[0], Path())["minutes"].to_pylist()[0]
        == 1109
    )
    assert certify(config, "fix", "published").verdict == "equal"
    with pytest.raises(InputError, match="later publications overlap it") as refused:
        undo(config, "r1")
    assert 'replay "fix"' in str(refused.value)
    undone = undo(config, "fix")
    assert {name: sortable(table_rows(config.stream_table(name))) for name in names} == before
    assert published_state(config, 109).num_rows == 0
    assert certify(config, "r1", "published").verdict == "equal"
    assert book(config).replays.get("fix").state is ReplayState.UNDONE
    again = undo(config, "fix")
    assert (again.already, again.number) == (True, undone.number)
    republished = publish(config, "fix")
    assert republished.number > undone.number and minutes(config)[105] == 2050


def ranks_only(
    config: Config,
    replay_id: str,
    first: int,
    last: int,
    plus: int = 0,
    **fields: Any,
) -> None:
    """Stages a replay of an application with one output, where a second one would only cost
    time.
    """
    simple(config, replay_id, first, last, plus, outputs=("ranks",), **fields)


def sortable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def test_changed_state_makes_later_windows_stale_until_the_cause_is_undone(config: Config) -> None:
    ranks_only(config, "r1", 100, 109, publishable=True)
    assert publish(config, "r1").stale == []
    following(config, "r2", 110, 119)
    assert publish(config, "r2").stale == []
    ranks_only(config, "fix", 100, 109, plus=5, publishable=True)
    fixed = publish(config, "fix")
    assert fixed.stale == [("app.ranks", 110, 119)] and fixed.replay_next == (110, 119)
    assert undo(config, "fix").stale == []


def test_replay_without_a_passed_gate_is_rejected_unless_accepted(config: Config) -> None:
    ranks_only(config, "r1", 100, 103, checked=False)
    with pytest.raises(GateError, match="its gate was not run"):
        publish(config, "r1")
    ledger = book(config)
    ledger.checks.record("r1", "failed", "results/r1")
    with pytest.raises(GateError, match="its gate failed"):
        publish(config, "r1")
    assert not Table.exists(config.stream_table("app.ranks"))
    plan = staged_plan(config, "r1")
    check_publishable(
        config,
        ledger,
        ledger.replays.get("r1"),
        plan,
        "known outage of a station",
        "somebody",
    )
    assert ledger.checks.acceptances("r1")[0].reason == "known outage of a station"
    check_publishable(config, ledger, ledger.replays.get("r1"), plan)
    ledger.checks.record("r1", "failed", "results/r1")
    with pytest.raises(GateError):
        check_publishable(config, ledger, ledger.replays.get("r1"), plan)


def test_replay_that_has_not_ended_is_rejected(config: Config) -> None:
    replay = StagedReplay(config, "half", 100, 119, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), state=state_of(1)).end(ledger=False)
    plan = replay.plan
    ledger = book(config)
    ledger.replays.create(
        "half",
        plan.application,
        100,
        119,
        plan.mode.name,
        plan.model_dump(mode="json"),
        "code-1",
    )
    with pytest.raises(InputError, match="has not ended: 10 of 20"):
        check_publishable(
            config,
            ledger,
            ledger.replays.get("half"),
            plan,
            accept="whatever",
            who="me",
        )


def test_replay_that_lost_commits_after_its_end_is_rejected_by_name(config: Config) -> None:
    replay = StagedReplay(config, "half", 100, 119, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), state=state_of(1)).end()
    ledger = book(config)
    words = (
        'lost commits since: table "ranks" has 10 of 20 windows, table "checkpoints" has 10 of 20'
    )
    with pytest.raises(TableError, match=words) as error:
        check_publishable(
            config,
            ledger,
            ledger.replays.get("half"),
            replay.plan,
            accept="whatever",
            who="me",
        )
    assert "rewindow replay --resume half" in error.value.hint


def test_repeated_rows_stay_staged_and_lost_windows_are_published_as_missing(
    config: Config,
) -> None:
    replay = StagedReplay(config, "twice", 100, 109, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    replay.group(105, 107, rows_of(range(105, 108)), 1)
    replay.write("ranks", 108, 108, rows_of([108])["ranks"], 1)
    replay.group(105, 109, rows_of(range(105, 110)), 2, state=state_of(2))
    replay.digest().end(epoch=2)
    publish(config, "twice")
    assert published_rows(config, WindowRange(100, 109)).num_rows == 20
    assert certify(config, "twice", "published").verdict == "equal"
    replay = StagedReplay(config, "once", 100, 109, mode=Mode.AT_MOST_ONCE, outputs=("ranks",))
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    replay.lose(105, 106, ["ranks"], 2)
    replay.group(107, 109, rows_of(range(107, 110)), 2, state=state_of(2))
    replay.digest().end(epoch=2, checked=False)
    result = publish(config, "once", accept="known outage of a station", who="somebody")
    assert (result.lost, result.state_lacks) == ({"ranks": 2}, [[105, 106]])
    assert (
        book(config).publications.get(result.number).details.accepted == "known outage of a station"
    )
    assert sorted(minutes(config)) == [100, 101, 102, 103, 104, 107, 108, 109]
    sealed = [row["window_id"] for row in table_rows(config.windows_table("app.ranks"))]
    assert sealed == [100, 101, 102, 103, 104, 107, 108, 109]


def test_altered_staged_files_are_not_published(config: Config) -> None:
    replay = StagedReplay(config, "r1", 100, 103, outputs=("ranks",)).group(
        100,
        103,
        rows_of(range(100, 104)),
        state=state_of(1),
    )
    replay.digest()
    replay.write("ranks", 103, 103, rows_of([103], plus=9)["ranks"], 1)
    replay.end()
    with pytest.raises(
        TableError,
        match='window 103 of staged output "ranks" differs from its seal',
    ):
        publish(config, "r1")
    assert not Table.exists(config.stream_table("app.ranks"))
    assert book(config).publications.newest() == [] and book(config).leases.held() == []


def test_pinned_table_version_is_readable_until_its_files_are_vacuumed(config: Config) -> None:
    ranks_only(config, "r1", 100, 103, publishable=True)
    one = publish(config, "r1")
    ranks_only(config, "fix", 102, 103, plus=50, publishable=True)
    two = publish(config, "fix")
    first = read_published(config, "app", one.number)
    newest = read_published(config, "app")
    assert {name: version for name, (_, version) in first.items()} == {
        "ranks": one.versions["app.ranks"]
    }
    assert newest == read_published(config, "app", two.number) and newest != first
    windows = WindowRange(102, 102)
    assert published_rows(config, windows, one.number)["minutes"].to_pylist() == [1020, 1021]
    assert published_rows(config, windows)["minutes"].to_pylist() == [1070, 1071]
    with pytest.raises(InputError, match="does not exist or is not closed"):
        read_published(config, "app", 99)
    with pytest.raises(InputError, match='application "app.ranks" is not published') as error:
        read_published(config, "app.ranks")
    assert 'pass its application, "app", and use the output "ranks"' in error.value.hint
    with pytest.raises(InputError, match="application must be a name"):
        read_published(config, ["app.ranks"])  # type: ignore[arg-type]
    table = Table.open(config.stream_table("app.ranks"))
    table.delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TableError, match='of table "app.ranks" no longer exists'):
        undo(config, "fix")
    assert (
        minutes(config)[102] == 1070
        and book(config).replays.get("fix").state is ReplayState.PUBLISHED
    )


@pytest.mark.parametrize("name", ["app.ranks", "app.ranks.windows", "app.checkpoints"])
def test_publication_missing_from_a_table_is_published_again(
    config: Config, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    ranks_only(config, "r1", 100, 103, publishable=True)
    first = publish(config, "r1")
    assert publish(config, "r1").already
    shutil.rmtree(config.stream_table(name))
    assert not isinstance(expected_publication(config, "r1"), PublicationResult)
    caplog.clear()
    again = publish(config, "r1")
    assert (again.already, again.number) == (False, first.number + 1)
    assert f"publication 1 is no longer in table {name}" in caplog.messages
    assert sorted(minutes(config)) == [100, 101, 102, 103]
    assert certify(config, "r1", "published").verdict == "equal"
    lose_last_commit(config.stream_table(name))
    assert not publish(config, "r1").already
    assert certify(config, "r1", "published").verdict == "equal"


def test_publishing_a_purged_replay_suggests_the_command_that_recomputes_it(
    config: Config,
) -> None:
    ranks_only(config, "r1", 100, 103, publishable=True)
    publish(config, "r1")
    shutil.rmtree(config.stream_table("app.ranks"))
    shutil.rmtree(config.replay_root("r1"))
    with pytest.raises(InputError, match="no longer has staged tables") as error:
        publish(config, "r1")
    assert "rewindow replay app --first 100 --last 103" in error.value.hint


def test_tables_retain_files_for_an_undo_and_a_shorter_retention_is_reported(
    config: Config,
) -> None:
    assert undo_horizon(config, "app").days == 30
    ranks_only(config, "r1", 100, 103)
    prepared(config, staged_plan(config, "r1"))
    assert str(undo_horizon(config, "app")) == "a publication can be undone for 30 days"
    delta = Table.open(config.stream_table("app.ranks")).delta
    delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 2 days"})
    horizon = undo_horizon(config, "app")
    assert (horizon.days, horizon.short) == (2.0, {"app.ranks": 2.0})


def test_incompatible_table_is_rejected_and_new_columns_are_added(config: Config) -> None:
    foreign = pa.schema([("something", pa.int64())])
    path = config.stream_table("app.ranks")
    from rewindow.storage import create_table

    create_table(path, foreign)
    ranks_only(config, "r1", 100, 103, publishable=True)
    with pytest.raises(TableError, match="exists but was not published by Rewindow"):
        publish(config, "r1")
    assert Table.open(path).schema == foreign and book(config).leases.held() == []
    shutil.rmtree(path)
    older = pa.schema([("window_id", pa.int64()), ("offset", pa.int64()), ("carrier", pa.string())])
    create_table(path, older, format_property(TableKind.STREAM))
    publish(config, "r1")
    assert minutes(config)[100] == 1000


def test_seals_are_read_once_per_output(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_only(config, "r1", 100, 103, publishable=True)
    read: list[str] = []

    def reading(facts: Table, port: str, windows: WindowRange) -> pa.Table:
        read.append(port)
        return staged_seals(facts, port, windows)

    monkeypatch.setattr(finish, "staged_seals", reading)
    publish(config, "r1")
    assert read == ["ranks"]


def test_range_leased_by_another_replay_is_not_published(config: Config) -> None:
    ranks_only(config, "r1", 100, 103, publishable=True)
    ranks_only(config, "other", 102, 110, checked=False)
    ledger = book(config)
    ledger.leases.acquire("other", ["app.ranks"], 102, 110)
    with pytest.raises(OverlapError, match='replay "other" has locked'):
        publish(config, "r1")
    assert ledger.publications.newest() == []


def test_publication_without_a_source_or_commit_is_withdrawn_with_its_reason(
    config: Config,
) -> None:
    class Died(Exception):
        pass

    def die(step: str, number: int) -> None:
        if step == "opened":
            raise Died

    ranks_only(config, "r1", 100, 103, publishable=True)
    with pytest.raises(Died):
        publish(config, "r1", crash=die)
    shutil.rmtree(config.replay_root("r1") / "ranks")
    with pytest.raises(TableError, match="does not exist"):
        publish(config, "r1")
    given_up = book(config).publications.newest("r1")[0]
    assert given_up.withdrawn is not None and "does not exist" in given_up.withdrawn
    assert book(config).publications.unfinished() == [] and book(config).leases.held() == []


def test_application_without_publications_has_no_published_rows(config: Config) -> None:
    with pytest.raises(InputError, match="is not published"):
        read_published(config, "app")
