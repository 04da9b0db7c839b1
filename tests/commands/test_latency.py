"""`rewindow latency`: tables, JSON and pages of a live run and of a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewindow.settings.config import Config
from tests.commands.conftest import Command
from tests.inspection.test_processing_times import timed_replay
from tests.latency.live_run import START_MS, simulate, write_statistics


@pytest.fixture
def live(tmp_path: Path, command: Command) -> Command:
    """The command in a project with the statistics of a run of 400 windows."""
    write_statistics(tmp_path, simulate(400).rows)
    return command


def shown(command: Command, *words: str) -> Any:
    code, text, errors = command("latency", *words, "--json")
    assert (code, errors) == (0, ""), errors
    return json.loads(text)


def test_latency_json_contains_the_latency_and_both_paths(live: Command) -> None:
    # Rules: L41
    found = shown(live, "live")
    assert found["criticalPath"] == ["clicks", "parse", "join", "count", "totals"]
    assert 200 < found["latency"] <= found["longestLatency"] < 300
    assert found["longestPath"][-1] in ("totals", "alerts")
    averages = {row["operator"]: row["latencyMA"] for row in found["operators"]}
    assert len(averages) == 8 and 100 < averages["count"] < 140
    assert sum(row["windows"] for row in found["paths"]) == found["windows"]
    assert [column["name"] for column in found["further"]] == ["cpu", "queue"]
    assert found["faster"] is None and found["clockFaults"] == []


def test_latency_command_uses_the_given_range_and_settings(live: Command, tmp_path: Path) -> None:
    first = shown(live, "live")["first"] + 10
    found = shown(live, "live", "--first", str(first), "--last", str(first + 9))
    assert (found["first"], found["last"], found["windows"]) == (first, first + 9, 10)
    with (tmp_path / "rewindow.toml").open("a") as file:
        file.write("[latency]\nheartbeat_timeout_ms = 3_000\n")
    faults = shown(live, "live")["clockFaults"]
    assert [fault["container"] for fault in faults] == ["two"] and faults[0]["worst_ms"] < -3_900


def test_latency_with_a_faster_operator_is_compared_with_the_recorded_latency(
    live: Command,
) -> None:
    # Rules: L44
    found = shown(live, "live", "--faster", "count=2x")
    assert found["faster"]["application"]["mean"] < found["application"]["mean"] - 40
    nothing = shown(live, "live", "--faster", "later=9x")
    assert nothing["faster"]["application"] == nothing["application"]
    code, text, _ = live("latency", "live", "--faster", "count=2x")
    assert code == 0 and "with count=2x" in text and "an upper bound" in text


def test_live_view_shows_the_statistics_known_at_a_given_time(live: Command) -> None:
    # Rules: L43
    at = "2023-11-14T22:15:00Z"
    found = shown(live, "live", "--at", at)
    assert found["at"] == at and found["criticalPath"][-1] == "totals"
    windows = [row["window"] for row in found["operators"]]
    newest = START_MS // 500 + 200
    assert newest - 5 < min(windows) and max(windows) <= newest
    code, text, _ = live("latency", "live", "--at", at)
    assert code == 0 and "slowest upstream" in text


def test_latency_table_lists_operators_and_paths(live: Command) -> None:
    code, text, errors = live("latency", "live")
    assert (code, errors) == (0, "")
    assert "windows on critical path" in text and "clicks > parse > join > count > totals" in text
    page = live("latency", "live", "--page")[1].strip()
    assert "<h1>Latency of live</h1>" in Path(page).read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--faster", "count=0x"), 'operator "count" cannot be 0 times as fast'),
        (("--faster", "cuont=2x"), 'operator "cuont" is not in the graph'),
        (("--faster", "count"), '--faster must be OPERATOR=FACTORx, not "count"'),
        (("--at", "noon"), 'time "noon" cannot be read'),
        (("--at", "2023-11-14"), "no statistics were received up to 2023-11-14"),
        (("--at", "2023-11-14", "--page"), "--at cannot be combined"),
        (("--first", "1", "--last", "2"), "Available windows: 3400000001 to"),
        (("--first", "2", "--last", "1"), "window range is empty: first 2 is after last 1"),
    ],
)
def test_invalid_latency_arguments_fail_with_a_reason(
    live: Command, words: tuple[str, ...], message: str
) -> None:
    code, text, errors = live("latency", "live", *words)
    assert (code, text) == (2, "") and message in errors


def test_unknown_name_error_suggests_similar_streams(live: Command) -> None:
    code, _, errors = live("latency", "life")
    assert code == 2 and 'replay "life" is unknown' in errors and 'Did you mean "live"?' in errors


def test_latency_of_a_replay_shows_processing_times_and_throughput(
    command: Command,
    config: Config,
) -> None:
    # Rules: L5, L50, L52
    timed_replay(config)
    found = shown(command, "one")
    assert found["latency"] is None and "no operator latency" in found["note"]
    assert found["totals"][2] == {
        "container": "all operators",
        "direction": "in",
        "port": "all",
        "tuples": 500,
        "seconds": 4.0,
        "tuplesPerSecond": 125.0,
    }
    code, text, _ = command("latency", "one")
    assert code == 0 and "no operator latency" in text and "105" in text
    assert "<h1>Time of one</h1>" in Path(shown(command, "one", "--page")["page"]).read_text()
    code, _, errors = command("latency", "one", "--faster", "ranks=2x")
    assert code == 2 and "--faster" in errors and "no critical path" in errors


@pytest.mark.parametrize(
    "setting",
    ["skew_samples = -1", "heartbeat_timeout_ms = -1", "windows_kept = 0", "average_samples = -3"],
)
def test_negative_latency_setting_is_rejected_immediately(
    command: Command, config: Config, setting: str
) -> None:
    # Rules: L53
    assert config.file is not None
    config.file.write_text(f'state = "state"\n[latency]\n{setting}\n')
    code, _, errors = command("latency", "one")
    assert code == 2 and f'setting "latency.{setting.split()[0]}" is wrong' in errors
