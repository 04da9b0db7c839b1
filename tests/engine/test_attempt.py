"""Attempts in this process: what they count, what they compare, what a stop or a crash costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake

from rewindow.crash import Step
from rewindow.errors import Interrupted, NotDeterministicError, TableError
from rewindow.facts.losses import losses_of
from rewindow.inspection.counts import count_replay
from rewindow.ledger import Ledger
from rewindow.ledger.facts_index import segments_of
from rewindow.planning.forecast import expect_recovery
from rewindow.recovery import Plan
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import WindowRange, to_ranges
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, record_clicks
from tests.recovery.promises import check_balance, check_promise, last_state, raw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rewindow.engine.attempt import Attempt


WINDOWS = 12
"""Of the 24 that are recorded: four groups, and a checkpoint between the first two and the last
two."""
LAST = FIRST + WINDOWS - 1


@pytest.fixture
def attempt(attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    """Returns what makes attempts of replays of the first windows only: each group takes two
    seconds.
    """

    def make(
        application: str,
        replay_id: str,
        dies_at: tuple[Step, int] | None = None,
        **replay_options: Any,
    ) -> Attempt:
        return attempt(application, replay_id, dies_at, **{"last": LAST, **replay_options})

    make.config = attempt.config  # type: ignore[attr-defined]
    return make


@pytest.mark.long
def test_tuples_of_an_unread_port_are_counted_per_window_and_reported(
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: O16, E36
    config: Config = attempt.config  # type: ignore[attr-defined]
    caplog.clear()
    attempt("rejects", "one", group_windows=10).run()

    facts = Table.open(config.replay_root("one") / FACTS)
    events = Table.open(config.stream_table("events"))
    sql = (
        f"select window_id, count(*) as tuples from e where x < 0 and window_id <= {LAST} group "
        "by window_id"
    )
    negative = query(sql, e=events)
    wanted = dict.fromkeys(range(FIRST, LAST + 1), 0) | dict(
        zip(*negative.to_pydict().values(), strict=True)
    )
    found = query(
        "select window_id, tuples from f where direction = 'dropped' and port = 'split.negative'",
        f=facts,
    )
    assert dict(zip(*found.to_pydict().values(), strict=True)) == wanted
    ledger = Ledger.open(config.ledger_url)
    assert [
        (t.port, t.tuples) for t in ledger.counts.totals("one") if t.direction == "dropped"
    ] == [("split.negative", sum(wanted.values()))]
    assert ledger.counts.is_whole("one")
    assert any("nothing reads port split.negative" in line for line in caplog.messages)


def test_input_with_more_tuples_than_its_seals_ends_the_attempt_before_any_commit(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R58
    config: Config = attempt.config  # type: ignore[attr-defined]
    path = config.stream_table("events")
    window = FIRST + 4
    rows = query(f"select * from e where window_id = {window}", e=Table.open(path))
    schema = Table.open(path).schema
    added = rows.slice(0, 1).select(schema.names).cast(schema)
    write_deltalake(str(path), added, mode="append")
    words = f'window {window} of stream "events" has {rows.num_rows + 1} tuples, but'
    with pytest.raises(TableError, match=f"{words} {rows.num_rows} were sealed"):
        attempt("totals", "one", group_windows=WINDOWS).run()
    assert query("select * from o", o=config.replay_root("one") / "totals").num_rows == 0


def test_attempt_reads_the_table_versions_in_its_plan(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R62
    config: Config = attempt.config  # type: ignore[attr-defined]
    planned = attempt("totals", "one", group_windows=WINDOWS)
    Table.open(config.stream_table("events")).delta.delete("window_id > 0")
    seals = Table.open(config.windows_table("events")).delta
    seals.update(updates={"tuples": "99"}, predicate="window_id > 0")
    planned.run()
    sql = "select sum(tuples) as n from f where direction = 'in'"
    read = query(sql, f=config.replay_root("one") / FACTS)["n"].to_pylist()
    assert read == [sum(entry.tuples for entry in planned.plan.inputs)] and read[0] > 0


def test_tuples_skipped_by_at_most_once_are_counted_as_lost(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R15, R53
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.AFTER_FIRST_OUTPUT, 2), mode="at_most_once").run()
    second = attempt("totals", "one", mode="at_most_once")
    second.run()
    check_balance(config, second.plan)
    facts = Table.open(config.replay_root("one") / FACTS)
    lost = losses_of(second.plan, facts, None, windows=second.plan.range).lost["totals"]
    given_up = [window for part in lost for window in part]
    listed = ", ".join(map(str, given_up))
    events = Table.open(config.stream_table("events"))
    rows = query(f"select * from e where window_id in ({listed})", e=events).num_rows
    (stretch,) = [part for part in segments_of(facts.path) if part.direction == "in" and part.lost]
    assert (stretch.windows, stretch.tuples) == (len(given_up), rows) and rows > 0
    assert count_replay(second.plan, config.replay_root("one")).summary().lost_tuples == rows


def test_every_at_most_once_spark_job_is_in_the_job_group_of_its_commit_group(
    attempt: Callable[..., Attempt],
    spark: SparkSession,
) -> None:
    # Rules: R13
    tracker = spark.sparkContext.statusTracker()
    groups = [f"windows [{FIRST}, {FIRST + 1}]", f"windows [{FIRST + 2}, {FIRST + 4}]"]
    replay = attempt("totals", "grouped", mode="at_most_once", last=FIRST + 4)
    before = {group: len(tracker.getJobIdsForGroup(group)) for group in (*groups, None)}
    replay.run()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    more = [len(tracker.getJobIdsForGroup(group)) - before[group] for group in (*groups, None)]
    # Each group writes two outputs and a state, and takes digests.
    assert more[0] >= 4 and more[1] >= 4 and more[2] == 0


DIFFERS = (
    ("exactly_once", (Step.AFTER_FIRST_OUTPUT, 2), FIRST + 3),
    ("at_least_once", (Step.AFTER_FACTS, 2), FIRST + 2),
)


@pytest.mark.parametrize(
    ("mode", "dies_at", "window", "noise"),
    [
        (*DIFFERS[0], "NOISE_EXACT"),
        (*DIFFERS[1], "NOISE_FLOAT"),
        pytest.param(*DIFFERS[0], "NOISE_FLOAT", marks=pytest.mark.long),
        pytest.param(*DIFFERS[1], "NOISE_EXACT", marks=pytest.mark.long),
    ],
)
def test_window_that_differs_when_recomputed_is_rejected_and_not_committed(
    mode: str,
    dies_at: tuple[Step, int],
    window: int,
    noise: str,
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R70, R87
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("noisy", "one", dies_at, mode=mode).run()
    before = query("select count(*) as n from o", o=config.replay_root("one") / "again").to_pylist()
    monkeypatch.setenv(noise, "1")
    with pytest.raises(
        NotDeterministicError,
        match=f'output "scores" of window {window} differs',
    ) as error:
        attempt("noisy", "one", mode=mode).run()
    assert "Only committed: (key=" in str(error.value) and "Only now: (key=" in str(error.value)
    assert (
        query("select count(*) as n from o", o=config.replay_root("one") / "again").to_pylist()
        == before
    )


@pytest.mark.long
@pytest.mark.parametrize(("tolerance", "noise"), [("1e-9", "1e-12"), ("1e-3", "1e-4")])
def test_floats_that_differ_within_the_declared_tolerance_are_equal(
    tolerance: str,
    noise: str,
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R85
    monkeypatch.setenv("TOLERANCE", tolerance)
    with pytest.raises(Crash):
        attempt("noisy", "one", (Step.AFTER_FIRST_OUTPUT, 2)).run()
    monkeypatch.setenv("NOISE_FLOAT", noise)
    attempt("noisy", "one").run()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_user_stop_creates_a_checkpoint_and_neither_repeats_nor_loses_windows(
    mode: str,
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: W52
    config: Config = attempt.config  # type: ignore[attr-defined]
    whole = attempt("totals", "whole", group_windows=WINDOWS)
    whole.run()
    stops = iter([False, True])
    with pytest.raises(Interrupted):
        attempt("totals", "stopped", mode=mode, stop=lambda: next(stops)).run()
    rest = attempt("totals", "stopped", mode=mode)
    rest.run()
    check_promise(config, rest.plan, whole.plan)
    for output in ("sums", "totals"):
        assert raw(config, rest.plan, output) == raw(config, whole.plan, output)
    for replay in ("whole", "stopped"):
        saved = query(
            "select window_id, operator, attempt from c",
            c=config.replay_root(replay) / CHECKPOINTS,
        )
        assert saved.num_rows == len({tuple(row.values()) for row in saved.to_pylist()}) > 1


@pytest.mark.long
def test_empty_windows_of_an_unsealed_crashed_group_are_missing_in_the_state(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R14
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options = {
        "mode": "at_most_once",
        "group_windows": 1,
        "checkpoint_windows": 5,
        "last": FIRST + 7,
    }
    empty = 6  # window 1005, right after a checkpoint, has no tuples
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.AFTER_OUTPUTS, empty), **replay_options).run()
    second = attempt("totals", "one", **replay_options)
    second.run()
    assert affected(config, second.plan) == {"totals": FIRST + empty}


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "dies_at", "words"),
    [
        (
            "exactly_once",
            Step.AFTER_FIRST_OUTPUT,
            "3 windows up to 1005 are computed again, written only to tables that lack them",
        ),
        (
            "at_least_once",
            Step.AFTER_FACTS,
            "3 windows up to 1004 are computed again, and then stored twice",
        ),
        (
            "at_most_once",
            Step.AFTER_FIRST_OUTPUT,
            "totals loses 3 windows [1002, 1004]; the state lacks windows [1002",
        ),
    ],
)
def test_recovery_matches_its_prediction(
    mode: str,
    dies_at: Step,
    words: str,
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R8
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("totals", "one", (dies_at, 2), mode=mode).run()
    caplog.clear()
    second = attempt("totals", "one", mode=mode)
    expected = expect_recovery(config, second.plan)
    assert words in str(expected)
    second.run()
    at_start = expected.restored < second.plan.first
    describe = second.plan.grid.describe
    checkpoint = f"the checkpoint at window {describe(expected.restored)}"
    restored = "the start state" if at_start else checkpoint
    assert f"resumed from {restored}, next window {describe(expected.first)}" in caplog.messages
    lost = losses_of(
        second.plan,
        Table.open(config.replay_root("one") / FACTS),
        None,
        second.plan.range,
    ).lost
    assert lost == {name: [windows] for name, windows in expected.lost.items()}


@pytest.mark.long
def test_recomputed_windows_are_predicted_even_after_an_attempt_without_progress(
    attempt: Callable[..., Attempt],
) -> None:
    # The fence has reset the marks; the facts still show how far the attempt before it had come.
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.AFTER_FACTS, 4), mode="at_least_once").run()
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.RESUMED, 1), mode="at_least_once").run()
    third = attempt("totals", "one", mode="at_least_once")
    again = expect_recovery(attempt.config, third.plan).again  # type: ignore[attr-defined]
    assert again == WindowRange(FIRST + 8, FIRST + 10)


@pytest.mark.long
def test_killed_warm_up_resumes_and_produces_the_state_of_the_whole_stream(
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: W63
    config: Config = attempt.config  # type: ignore[attr-defined]
    whole = attempt("totals", "whole", group_windows=WINDOWS)
    whole.run()
    late = FIRST + 9
    with pytest.raises(Crash):
        attempt("totals", "late", (Step.WARMED_UP, 2), first=late).run()
    caplog.clear()
    rest = attempt("totals", "late", first=late)
    assert rest.plan.start.source == "warm_up"
    rest.run()
    describe = rest.plan.grid.describe
    assert [line for line in caplog.messages if line.startswith("warm-up")] == [
        f"warm-up continues after window {describe(FIRST + 5)}",
        f"warm-up: windows {describe(WindowRange(FIRST + 6, FIRST + 8))} of {FIRST + 8}",
    ]
    for output in ("sums", "totals"):
        wanted = {
            row: count for row, count in raw(config, whole.plan, output).items() if row[0] >= late
        }
        assert raw(config, rest.plan, output) == wanted


def test_replay_of_a_partial_range_equals_a_recovery_from_its_first_window(
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R9
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("totals", "recovered", (Step.STARTED, 4)).run()
    caplog.clear()
    recovered = attempt("totals", "recovered")
    recovered.run()
    first = FIRST + 9
    describe = recovered.plan.grid.describe
    resumed = f"resumed from the checkpoint at window {describe(first - 1)}"
    assert f"{resumed}, next window {describe(first)}" in caplog.messages
    part = attempt("totals", "part", first=first)
    part.run()
    for output in ("sums", "totals"):
        rows = raw(config, recovered.plan, output).items()
        assert raw(config, part.plan, output) == {
            row: count for row, count in rows if row[0] >= first
        }
    assert last_state(config, part.plan) == last_state(config, recovered.plan)


def test_tuples_not_processed_by_at_most_once_are_counted_by_window_and_port(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R15
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.STARTED, 2), mode="at_most_once").run()
    attempt("totals", "one", mode="at_most_once").run()
    lost = (FIRST + 2, FIRST + 4)
    tuples = query(
        "select window_id, count(*) as tuples from e "
        f"where window_id between {lost[0]} and {lost[1]} group by window_id order by window_id",
        e=Table.open(config.stream_table("events")),
    ).to_pylist()
    found = query(
        "select window_id, direction, port, tuples from f where lost order by window_id, port",
        f=Table.open(config.replay_root("one") / FACTS),
    ).to_pylist()
    assert [row for row in found if row["direction"] == "in"] == [
        {"window_id": row["window_id"], "direction": "in", "port": "events", **row}
        for row in tuples
    ]
    assert [(row["window_id"], row["port"]) for row in found if row["direction"] == "out"] == [
        (window, port) for window in range(lost[0], lost[1] + 1) for port in ("sums", "totals")
    ]
    total = sum(row["tuples"] for row in tuples)
    ledger = Ledger.open(config.ledger_url)
    assert not ledger.counts.is_whole("one"), "the job makes the index again at its end"
    ledger.counts.rebuild("one", segments_of(config.replay_root("one") / FACTS))
    assert total and [
        (t.port, t.lost_tuples) for t in ledger.counts.totals("one") if t.direction == "in"
    ] == [("events", total)]


@pytest.mark.long
def test_heartbeat_does_not_repeat_timers_after_skipped_windows(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: H58
    # The output knows which timers were emitted before the lost windows.
    config: Config = attempt.config  # type: ignore[attr-defined]
    config.streams["clicks"] = StreamConfig(
        source="x",
        arrived_at="arrived_at",
        event_at="at",
        keys=["key"],
        interval="60",
        slack="10",
        width="1 minute",
    )
    record_clicks(config, [(30, 30), (500, 100), (510, 130), (515, 185)])
    replay_options = {"mode": "at_most_once", "group_windows": 2, "last": None}
    with pytest.raises(Crash):
        attempt("heartbeat_clicks", "one", (Step.AFTER_FIRST_OUTPUT, 4), **replay_options).run()
    attempt("heartbeat_clicks", "one", **replay_options).run()
    sql = "select window_id, to_unixtime(at) as at from f where _rw_is_timer order by at, window_id"
    times = [timer["at"] for timer in query(sql, f=config.replay_root("one") / "ticks").to_pylist()]
    assert times[:7] == [60 * n for n in range(1, 8)] and len(times) == len(set(times))


def test_python_functions_of_an_application_run_in_spark_workers(
    attempt: Callable[..., Attempt],
) -> None:
    # Workers cannot import the application's module or what it imports from its folder.
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("scaling", "one", group_windows=WINDOWS).run()
    found = query("select x, six from o", o=config.replay_root("one") / "out").to_pylist()
    assert found and all(row["six"] == 6 * row["x"] for row in found)


def test_operator_can_read_its_mode_and_random_numbers_ignore_grouping(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: R3, R82
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("told", "few", group_windows=WINDOWS, mode="at_most_once").run()
    attempt("told", "many", group_windows=5, mode="at_most_once").run()
    sql = "select window_id, operator, mode, drawn from o order by window_id, drawn"
    few, many, second = (
        query(sql, o=config.replay_root(replay) / output).to_pydict()
        for replay, output in (("few", "first"), ("many", "first"), ("few", "second"))
    )
    assert few == many
    assert (set(few["operator"]), set(few["mode"])) == ({"told.one"}, {"at_most_once"})
    numbers = few["drawn"] + second["drawn"]
    assert len(set(numbers)) == len(numbers) and 0 <= min(numbers) < 0.1 and 0.9 < max(numbers) < 1


def test_windows_present_in_all_outputs_are_not_reported_as_given_up(
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: X2
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.AFTER_OUTPUTS, 2), mode="at_most_once").run()
    caplog.clear()
    last = attempt("totals", "one", mode="at_most_once")
    last.run()
    root = config.replay_root("one")
    losses = losses_of(last.plan, Table.open(root / FACTS), None, last.plan.range)
    assert losses.lost == {} and losses.state_lost == {
        "totals": [WindowRange(FIRST + 2, FIRST + 4)]
    }
    assert not [line for line in caplog.messages if "given up" in line]
    assert [
        line
        for line in caplog.messages
        if "are kept in the outputs, but missing from the state" in line
    ]


def test_operator_receives_the_tuples_that_it_emitted_in_skipped_windows(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: H58
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("skipping", "one", (Step.AFTER_FIRST_OUTPUT, 2), mode="at_most_once").run()
    attempt("skipping", "one", mode="at_most_once").run()
    found = query(
        "select window_id, kept from o order by window_id",
        o=config.replay_root("one") / "out",
    )
    assert found["kept"].to_pylist() == [0] * 5 + [3] * (WINDOWS - 5)


def affected(config: Config, plan: Plan) -> dict[str, int]:
    """Returns the first affected window of each output."""
    root = config.replay_root(plan.replay_id)
    return losses_of(
        plan,
        Table.open(root / FACTS),
        Table.open(root / CHECKPOINTS),
        plan.range,
    ).affected_first


@pytest.mark.long
@pytest.mark.parametrize("dies_at", [Step.MATERIALISED, Step.AFTER_FIRST_OUTPUT])
def test_tuples_dropped_from_a_state_by_a_skip_are_recorded_as_facts(
    dies_at: Step,
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: X2, X3
    # Recorded = emitted + lost + dropped by the skip + pending.
    config: Config = attempt.config  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        attempt("waiting", "one", (dies_at, 2), mode="at_most_once").run()
    caplog.clear()
    second = attempt("waiting", "one", mode="at_most_once")
    second.run()
    root = config.replay_root("one")
    group = set(range(FIRST + 2, FIRST + 5))
    losses = losses_of(second.plan, Table.open(root / FACTS), None, second.plan.range)
    never_seen = {window for part in losses.state_lost.get("both", []) for window in part}
    assert never_seen == (group if dies_at is Step.AFTER_FIRST_OUTPUT else set())
    assert losses.lost == ({} if never_seen else {"both": to_ranges(group)})

    dropped = (
        dict(zip(*losses.skipped["both"].rows.to_pydict().values(), strict=True))
        if losses.skipped
        else {}
    )
    assert (set(dropped) == {FIRST + 1}) is not bool(never_seen), (
        "what waited was passed on in windows that stay"
    )
    emitted = by_arrival(
        query("select arrived_at from o", o=root / "both")["arrived_at"].to_pylist()
    )
    waiting = Counter(
        row["window_id"] for row in last_state(config, second.plan)["both"] if row["window_id"]
    )
    sql = f"select window_id from e where window_id <= {LAST}"
    recorded = query(sql, e=Table.open(config.stream_table("events")))["window_id"].to_pylist()
    wanted = Counter(recorded)
    found = emitted + waiting + Counter(dropped)
    assert {w: wanted[w] for w in wanted if w not in group} == {
        w: found[w] for w in found if w not in group
    }
    assert any(
        f"both dropped {sum(dropped.values())} tuples of windows" in line
        for line in caplog.messages
    ) is bool(dropped)


def by_arrival(times: list[datetime]) -> Counter[int]:
    """Returns tuples per window, an hour, of their arrival."""
    return Counter(int(time.timestamp()) // 3600 for time in times)
