"""The live view of a moment, from the rows received until then."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rewindow import latency
from rewindow.errors import InputError
from rewindow.settings.config import LatencyConfig
from tests.latency.reference import (
    EXAMPLE,
    Node,
    Reference,
    Row,
    example_rows,
    random_graph,
    table,
    truncated,
)

CHAIN: dict[str, Any] = {
    "width_ms": 500,
    "operators": [{"name": "a"}, {"name": "b", "inputs": [["i", "a"]]}],
}
GRAPH = latency.parse_graph(CHAIN)


def live(graph: dict[str, Any], rows: list[Row], at_ms: int, **settings: int) -> dict[str, Any]:
    return latency.live(
        table(rows),
        latency.parse_graph(graph),
        at_ms,
        LatencyConfig(**settings),
    )


def row(name: str, window: int, end: int, received: int) -> Row:
    return (name, 0, window, end, name, received, received)


def of(found: dict[str, Any], name: str) -> tuple[int | None, int | None, str]:
    (one,) = [one for one in found["operators"] if one["operator"] == name]
    return one["latency"], one["latencyMA"], one["origin"]


def test_documented_example_has_the_expected_live_path() -> None:
    # Rules: L33, L41, L43
    found = live(EXAMPLE, example_rows(range(1, 30)), 100_000)
    assert (found["latency"], found["criticalPath"]) == (120, ["A", "C", "E"])
    assert found["at"] == "1970-01-01T00:01:40Z"


def test_newest_values_of_random_graphs_equal_a_naive_reference() -> None:
    # Rules: L15 to L19, L26, L33, L43
    random = Random(43)
    for _ in range(200):
        graph = random_graph(random)
        rows: list[Row] = []
        at = 1_000
        for window in range(1, 5):
            names = [one["name"] for one in graph["operators"]]
            random.shuffle(names)
            for name in names:
                at += random.randint(1, 9)
                end = 100 * window + random.randint(0, 30)
                rows.append((name, 0, window, end, random.choice("xy"), at - 5, at))
        received = rows[: random.randint(1, len(rows))]
        found = live(graph, rows, received[-1][6], heartbeat_timeout_ms=10**9)
        reference = Reference(graph, received)
        averages: dict[Node, int | None] = {}
        for node, one in zip(reference.nodes, found["operators"], strict=True):
            windows = [row[2] for row in received if row[0] == node[0]]
            values = [reference.window(window).latency[node] for window in sorted(windows)]
            known = [value for value in values if value is not None]
            averages[node] = truncated(known, 10) if known else None
            assert one["window"] == max(windows, default=None), (graph, received)
            assert one["latency"] == (values[-1] if values else None), (graph, received, node)
            if values:
                slowest = reference.window(windows[-1]).slowest[node]
                assert one["slowestUpstream"] == (slowest and slowest[0]), (graph, received, node)
            assert one["latencyMA"] == averages[node], (graph, received, node)
        path = [(name, 0) for name in found["criticalPath"]]
        counted = [node for node in path if not reference.is_delay(node)]
        assert found["latency"] == sum(averages[node] or 0 for node in counted)


def test_live_view_ignores_rows_received_later() -> None:
    # Rules: L4, L19, L43, X31
    rows = [row("a", 1, 500, 510), row("b", 1, 540, 600)]
    before = live(CHAIN, rows, 599)
    assert [one["window"] for one in before["operators"]] == [1, None]
    assert of(before, "b") == (None, None, "unknown")
    assert before["criticalPath"] == ["b"] and before["cut"]
    assert of(live(CHAIN, rows, 600), "b") == (40, 40, "measured")
    with pytest.raises(InputError, match="no statistics were received up to 1970-01-01T00:00:00.5"):
        live(CHAIN, rows, 509)


def test_average_includes_only_the_latest_known_values() -> None:
    # Rules: L8, L26, L33
    rows = []
    for window, share in enumerate([1000, 7, 8, 8], start=1):
        rows += [row("a", window, 500 * window, 500 * window + 90)]
        rows += [row("b", window, 500 * window + share, 500 * window + 1_100)]
    found = live(CHAIN, rows, 10_000, average_samples=3)
    assert of(found, "b") == (8, 7, "measured")
    assert found["latency"] == 7


def test_value_is_recomputed_when_an_upstream_row_arrives_later() -> None:
    # Rules: L15, L17
    rows = [row("b", 1, 540, 550), row("a", 1, 500, 600)]
    assert of(live(CHAIN, rows, 550), "b") == (None, None, "unknown")
    assert of(live(CHAIN, rows, 600), "b") == (40, 40, "measured")


def test_latency_of_a_stalled_operator_is_capped_after_the_timeout() -> None:
    # Rules: L21
    rows = [row("a", window, 500 * window, 500 * window) for window in range(1, 63)]
    rows += [row("b", 1, 540, 540)]
    graph = {
        "width_ms": 500,
        "operators": [*CHAIN["operators"], {"name": "c", "inputs": [["i", "b"]]}],
    }
    # c has never reported, so the end times of window 1 are kept. 60 windows are 30,000 ms.
    assert of(live(graph, rows, 30_500), "b")[::2] == (40, "measured")
    assert of(live(graph, rows, 31_000), "b")[::2] == (30_500, "capped")


def test_operator_older_than_the_retained_windows_has_an_estimate() -> None:
    # Rules: L20, L22
    rows = [row("a", window, 500 * window, 500 * window) for window in range(1, 7)]
    rows += [row("b", 1, 540, 10_000)]
    assert of(live(CHAIN, rows, 10_000, windows_kept=6), "b")[::2] == (40, "measured")
    assert of(live(CHAIN, rows, 10_000, windows_kept=5), "b")[::2] == (2_500, "estimated")


def test_complete_window_keeps_its_value_until_the_timeout_of_other_operators() -> None:
    # Rules: L20, L23
    rows = [row("a", 1, 500, 500), row("b", 1, 540, 540)]
    rows += [row("a", window, 500 * window, 500 * window) for window in range(2, 63)]
    assert of(live(CHAIN, rows, 30_500), "b")[::2] == (40, "measured")
    assert of(live(CHAIN, rows, 31_000), "b")[::2] == (30_500, "estimated")


def test_latency_of_a_window_before_a_complete_window_is_estimated() -> None:
    # Rules: L23
    rows = [row("a", window, 500 * window, 500 * window) for window in (1, 2, 3)]
    rows += [row("b", 2, 1_040, 1_600), row("b", 1, 540, 1_700)]
    found = live(CHAIN, rows, 1_700)
    # Window 2 is complete, so that the end times of window 1 are gone; b stays at window 2.
    assert of(found, "b") == (40, (40 + 1_000) // 2, "measured")


def test_latency_estimate_excludes_operators_that_lag() -> None:
    # Rules: L20
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "a"},
            {"name": "z"},
            {"name": "b", "inputs": [["i", "z"], ["j", "a"]]},
        ],
    }
    rows = [row("z", 1, 500, 500)]
    rows += [row("a", window, 500 * window, 500 * window) for window in range(4, 9)]
    rows += [row("b", 3, 1_540, 10_000)]
    found = live(graph, rows, 10_000, windows_kept=2)
    assert of(found, "b")[::2] == (2_500, "estimated")
    assert found["operators"][2]["slowestUpstream"] == "a"


def test_latency_of_window_id_zero_is_not_computed() -> None:
    # Rules: L19
    rows = [row("a", 0, 0, 10), row("b", 0, 40, 50)]
    assert of(live(CHAIN, rows, 50), "b") == (None, None, "unknown")


def test_live_view_of_a_long_run_depends_only_on_recent_windows() -> None:
    rows = example_rows(range(1, 400))
    recent = example_rows(range(300, 400))
    wanted = live(EXAMPLE, recent, 10**9, windows_kept=50)
    assert live(EXAMPLE, rows, 10**9, windows_kept=50) == wanted


def test_live_view_reports_only_clock_faults_known_at_the_given_time() -> None:
    rows = [row("a", 1, 500, 500), row("b", 1, 540, 550)]
    rows.append(("a", 0, 2, 1_000, "a", 1_000, 90_000_000))
    assert live(CHAIN, rows, 600)["clockFaults"] == []
    [fault] = live(CHAIN, rows, 90_000_000)["clockFaults"]
    assert (fault["container"], fault["heartbeats"]) == ("a", 1)


@pytest.mark.parametrize("rows", [[], [("a", 0, 1, None, "a", 500, 500)]])
def test_statistics_without_an_end_time_have_no_live_view(rows: list[Row]) -> None:
    with pytest.raises(InputError, match="no row with an end time") as error:
        latency.live(latency.SCHEMA.empty_table() if not rows else table(rows), GRAPH, 600)
    assert not error.value.hint
