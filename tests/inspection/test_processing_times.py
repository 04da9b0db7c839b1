"""Times and throughput of replays, from tables made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rewindow.errors import InputError
from rewindow.inspection.processing_times import NO_LATENCY, processing_times
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.settings.config import Config
from tests.publication.staging import StagedReplay, rows_of


def timed_replay(
    config: Config,
    seconds: float = 2.0,
    replay_id: str = "one",
    partitions: Mapping[str, object] | None = None,
) -> None:
    """Returns an ended replay of the windows 100 to 109 by two attempts, in groups of five."""
    replay = StagedReplay(config, replay_id, 100, 109)
    replay.group(100, 104, rows_of(range(100, 105)), epoch=1)
    replay.group(105, 109, rows_of(range(105, 110)), epoch=2)
    for window in range(100, 110):
        epoch = 1 if window < 105 else 2
        replay._fact(window, "in", "flights", 50, "d", None, epoch, lost=False)
        replay._fact(window, "error", "ranks.wrong", 1, "d", None, epoch, lost=False)
        replay._fact(window, "dropped", "ranks.unread", 3, None, None, epoch, lost=False)
    replay._fact(109, "in", "flights", 1_000, "d", None, 2, lost=True)
    for fact in replay.facts:
        fact["group_first"] = 100 if fact["window_id"] < 105 else 105
        fact["group_last"] = fact["group_first"] + 4
    replay.end(ledger=False)
    book = Ledger.open(config.ledger_url)
    plan = replay.plan
    book.replays.create(
        replay_id, "app", 100, 109, plan.mode.name, plan.model_dump(mode="json"), plan.code_version
    )
    for mark, end in [(5, AttemptEnd.FAILED), (10, AttemptEnd.DONE)]:
        epoch = book.attempts.next_epoch(replay_id)
        book.attempts.begin(replay_id, epoch, "test", 0, 0, "boot/0")
        timings = {"compute": seconds, "commit": 0.5}
        book.attempts.report_progress(replay_id, epoch, mark, mark, timings, (), partitions)
        book.attempts.end(replay_id, epoch, end, "")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state=tmp_path / "state")


def test_processing_times_list_windows_and_seconds_per_group(config: Config) -> None:
    timed_replay(config)
    found = processing_times(config, "one")
    assert found["groups"] == [
        {
            "container": "all operators",
            "attempt": attempt,
            "first": first,
            "last": first + 4,
            "compute_seconds": 2.0,
            "commit_seconds": 0.5,
        }
        for attempt, first in [(1, 100), (2, 105)]
    ]
    assert found["latency"] is None and found["note"] == NO_LATENCY


def test_every_port_has_a_throughput_based_on_processing_time(config: Config) -> None:
    # Rules: L50, L51, L52
    timed_replay(config)
    found = processing_times(config, "one")
    rates = {(one["direction"], one["port"]): one["tuplesPerSecond"] for one in found["ports"]}
    assert rates["in", "flights"] == 10 * 50 / 4.0
    assert rates["out", "ranks"] == 10 * 2 / 4.0
    assert rates["error", "ranks.wrong"] == 10 / 4.0
    assert rates["dropped", "ranks.unread"] == 10 * 3 / 4.0
    totals = {total["direction"]: total["tuples"] for total in found["totals"]}
    outputs = sum(port["tuples"] for port in found["ports"] if port["direction"] == "out")
    assert totals == {"in": 500, "out": outputs, "error": 10, "dropped": 30}


def test_throughput_is_unknown_if_no_time_was_measured(config: Config) -> None:
    # Rules: L52
    timed_replay(config, seconds=0.0)
    found = processing_times(config, "one")
    assert {port["tuplesPerSecond"] for port in found["ports"]} == {None}


def test_processing_times_list_groups_and_ports_per_container(config: Config) -> None:
    plan = StagedReplay(config, "one", 100, 109).plan.model_dump(mode="json")
    book = Ledger.open(config.ledger_url)
    book.replays.create("one", "app", 100, 109, "exactly_once", plan, "code")
    for container in ("one@a", "one@b"):
        timed_replay(config, replay_id=container)
    found = processing_times(config, "one")
    assert [row["container"] for row in found["groups"]] == ["a", "a", "b", "b"]
    rates = [row["tuplesPerSecond"] for row in found["ports"] if row["port"] == "flights"]
    assert rates == [125.0, 125.0]


def test_unknown_replay_has_no_processing_times(config: Config) -> None:
    with pytest.raises(InputError, match='replay "two" is unknown'):
        processing_times(config, "two")
