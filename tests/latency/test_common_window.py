"""Latencies of a run that has ended."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewindow import latency
from rewindow.errors import InputError
from rewindow.latency.common_window import EndedLatency
from rewindow.latency.paths import count_paths
from rewindow.latency.report import ORIGINS
from rewindow.settings.config import LatencyConfig
from tests.latency.reference import (
    EXAMPLE,
    EXAMPLE_ENDS,
    Reference,
    Row,
    example_rows,
    random_graph,
    random_rows,
    table,
)


def ended(graph: dict[str, Any], rows: list[Row], **settings: int) -> EndedLatency:
    return latency.ended(
        table(rows),
        latency.parse_graph(graph),
        LatencyConfig(**settings),
    )


def test_documented_example_has_the_expected_latency_and_path() -> None:
    # Rules: L13, L14, L31, L32, L35, L41
    found = ended(EXAMPLE, example_rows()).summary()
    assert (found["latency"], found["criticalPath"]) == (120, ["A", "C", "E"])
    assert (found["longestLatency"], found["longestPath"]) == (120, ["A", "C", "E"])
    averages = {row["operator"]: row["latencyMA"] for row in found["operators"]}
    assert averages == {"A": 0, "B": 5, "C": 100, "D": 30, "E": 20, "F": 2}
    assert not found["cut"] and not found["incomplete"]


def test_latencies_of_a_thousand_random_graphs_equal_a_naive_reference() -> None:
    # Rules: L3, L4, L6 to L9, L13 to L19, L24, L25, L29, L31 to L39, L42, X31
    random = Random(31)
    origins = set()
    for _ in range(1_000):
        graph = random_graph(random)
        rows = random_rows(random, graph)
        samples = random.choice([0, 1, 3, 100])
        reference = Reference(graph, rows, samples)
        if not reference.windows:
            continue
        found = ended(graph, rows, skew_samples=samples)
        nodes = found.ends.layout.keys
        assert found.ends.windows.tolist() == reference.windows and nodes == reference.nodes
        for column, window in enumerate(reference.windows):
            wanted = reference.window(window)
            shown = found.window(column)
            names = dict(zip(nodes, found.ends.layout.names, strict=True))
            assert shown == {
                "window": window,
                "latency": wanted.application,
                "criticalPath": [names[node] for node in wanted.path],
                "cut": wanted.cut,
                "incomplete": wanted.incomplete,
                "longestLatency": wanted.longest,
                "longestPath": [names[node] for node in wanted.longest_path],
            }, (graph, rows, window)
            assert shown["latency"] <= shown["longestLatency"]
            for n, node in enumerate(nodes):
                latest = wanted.latency[node]
                slowest = wanted.slowest[node]
                assert (
                    found.latency[n, column],
                    found.slowest[n, column],
                    ORIGINS[found.origin[n, column]],
                ) == (
                    -1 if latest is None else latest,
                    -1 if slowest is None else nodes.index(slowest),
                    wanted.origin[node],
                ), (graph, rows, window, node)
                origins.add(wanted.origin[node])
    assert origins == {"measured", "own_end_missing", "unknown"}


def test_critical_paths_are_counted_in_graphs_with_many_operators() -> None:
    # Rules: L42
    graph: dict[str, Any] = {"width_ms": 500, "operators": [{"name": "o0"}]}
    for n in range(1, 70):
        graph["operators"].append({"name": f"o{n}", "inputs": [[0, f"o{(n - 1) // 2}"]]})
    random = Random(70)
    rows: list[Row] = []
    for window in range(1, 31):
        late = random.choice([40, 55, 69])
        for n in range(70):
            rows.append((f"o{n}", 0, window, 100 * window + n + 50 * (n == late), "c", 1, 1))
    found = ended(graph, rows)
    reference = Reference(graph, rows)
    wanted: dict[tuple[str, ...], int] = {}
    for window in reference.windows:
        path = tuple(name for name, _ in reference.window(window).path)
        wanted[path] = wanted.get(path, 0) + 1
    counted = {}
    for names, windows in count_paths(found.ends.layout, found.paths.on_path):
        counted[tuple(names)] = windows
    assert counted == wanted and len(wanted) == 3


def test_every_window_of_a_long_run_has_latency_values() -> None:
    windows = 70_000
    window = np.arange(1, windows + 1)
    extra = window % 97
    parts = []
    for name, end in EXAMPLE_ENDS.items():
        ended_at = 500 * window + end + extra * (name in "CEF")
        columns = {
            "operator": [name] * windows,
            "partition": np.zeros(windows, dtype=int),
            "window_id": window,
            "ended_at_ms": ended_at,
            "container": ["c"] * windows,
            "sent_at_ms": 500 * window,
            "received_at_ms": 500 * window,
        }
        parts.append(pa.table(columns))
    found = latency.ended(pa.concat_tables(parts), latency.parse_graph(EXAMPLE))
    assert found.ends.windows.tolist() == window.tolist()
    assert found.paths.latency.tolist() == (120 + extra).tolist()
    assert found.summary()["paths"] == [{"criticalPath": ["A", "C", "E"], "windows": windows}]


def test_latency_of_the_critical_path_equals_the_time_from_root_to_leaf() -> None:
    # Rules: L40
    found = ended(EXAMPLE, example_rows(range(1, 9)))
    leaf, root = found.ends.layout.names.index("E"), found.ends.layout.names.index("A")
    assert (
        found.ends.end_ms[leaf] - found.ends.end_ms[root]
    ).tolist() == found.paths.latency.tolist()


def test_longest_path_differs_from_the_critical_path_if_a_delay_had_no_effect() -> None:
    # Rules: L37, L39
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "slow"},
            {"name": "fast"},
            {"name": "middle", "inputs": [["in", "fast"]]},
            {"name": "last", "inputs": [["a", "slow"], ["b", "middle"]]},
        ],
    }
    ends = {"slow": 100, "fast": 0, "middle": 60, "last": 110}
    rows: list[Row] = [(name, 0, 1, end, "c", 1, 1) for name, end in ends.items()]
    found = ended(graph, rows).summary()
    assert (found["latency"], found["criticalPath"]) == (10, ["slow", "last"])
    assert (found["longestLatency"], found["longestPath"]) == (70, ["fast", "middle", "last"])


def test_clock_correction_aligns_containers_with_different_clocks() -> None:
    # Rules: L6, L7, L9
    rows: list[Row] = []
    for name, _, window, end, _, _, received in example_rows(range(1, 40)):
        off = 7_000 if name in ("C", "E") else -900
        assert end is not None
        rows.append((name, 0, window, end - off, f"c{off}", received - off, received))
    assert ended(EXAMPLE, rows).summary()["application"]["max"] == 120
    # Without samples nothing is corrected.
    wrong = ended(EXAMPLE, rows, skew_samples=0).summary()["application"]
    assert wrong["max"] == 2 + 7_000 + 900


def test_rows_of_one_heartbeat_count_as_a_single_clock_sample() -> None:
    # Rules: L8, L10
    graph = {"width_ms": 500, "operators": [{"name": "a"}, {"name": "b", "inputs": [["i", "a"]]}]}
    rows: list[Row] = [
        ("a", 0, 1, 0, "one", 0, 10),
        ("b", 0, 1, 4, "one", 0, 10),
        ("a", 0, 2, 100, "one", 105, 100),
        ("b", 0, 2, 103, "one", 105, 100),
    ]
    found = ended(graph, rows)
    # The average of 10 and -5 is 2, cut off; three rows of 10 would make it more.
    assert found.ends.end_ms.tolist() == [[10, 102], [14, 105]]
    assert found.latency[1].tolist() == [4, 3]


def test_clock_skew_above_the_timeout_is_reported_and_corrected() -> None:
    # Rules: L12
    def faults(sent: int) -> tuple[list[Any], list[int]]:
        rows: list[Row] = [("A", 0, 1, 0, "one", sent, 0)]
        found = ended({"width_ms": 1, "operators": [{"name": "A"}]}, rows)
        return found.summary()["clockFaults"], found.ends.end_ms[0].tolist()

    assert faults(30_000) == ([], [-30_000])
    fault = {"container": "one", "heartbeats": 1, "worst_ms": -30_001}
    assert faults(30_001) == ([fault], [-30_001])


def test_logical_operator_includes_the_unifiers_of_its_partitions() -> None:
    # Rules: L27, L34
    def operator(name: str, *inputs: str) -> dict[str, Any]:
        return {"name": name, "logical": "count", "inputs": [[0, one] for one in inputs]}

    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "read"},
            operator("count#0", "read"),
            operator("count#1", "read"),
            operator("merge", "count#0", "count#1"),
            {"name": "write", "inputs": [[0, "merge"]]},
        ],
    }
    ends = {"read": 0, "count#0": 10, "count#1": 30, "merge": 35, "write": 36}
    rows: list[Row] = [(name, 0, 1, end, "c", 1, 1) for name, end in ends.items()]
    found = ended(graph, rows)
    assert found.summary()["criticalPath"] == ["read", "count#1", "merge", "write"]
    assert {name: values.tolist() for name, values in found.logical_latency().items()} == {
        "read": [0],
        "count": [35],
        "write": [1],
    }


def test_partitions_are_separate_operators_and_the_lowest_number_wins_a_tie() -> None:
    # Rules: L3, L16
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "read"},
            {"name": "count", "inputs": [[0, "read"]]},
            {"name": "write", "inputs": [[0, "count"]]},
        ],
    }
    rows: list[Row] = [("read", 0, 1, 0, "c", 1, 1), ("write", 0, 1, 50, "c", 1, 1)]
    rows += [("count", n, 1, 40, "c", 1, 1) for n in (3, 1)]
    found = ended(graph, rows)
    assert found.ends.layout.names == ["read", "count#1", "count#3", "write"]
    assert found.summary()["criticalPath"] == ["read", "count#1", "write"]


def test_latency_figures_use_known_values_and_count_their_origins() -> None:
    # Rules: L18, L25, L26, L28
    rows = [row for row in example_rows(range(1, 21)) if row[:3] != ("C", 0, 20)]
    found = ended(EXAMPLE, rows, average_samples=3).summary()
    (row,) = [row for row in found["operators"] if row["operator"] == "C"]
    assert (row["known"], row["mean"], row["p95"], row["latencyMA"]) == (19, 100.0, 100, 100)
    assert row["origins"] == {
        "measured": 19,
        "capped": 0,
        "estimated": 0,
        "own_end_missing": 1,
        "unknown": 0,
    }
    # E has no other upstream operator, so that its paths of that window start at it.
    assert (found["cutWindows"], found["incompleteWindows"]) == (0, 0)
    assert found["window"] == 19 and found["windows"] == 20
    assert found["paths"] == [
        {"criticalPath": ["A", "C", "E"], "windows": 19},
        {"criticalPath": ["A", "B", "D"], "windows": 1},
    ]


def test_latest_received_row_of_a_window_is_used() -> None:
    rows: list[Row] = [("A", 0, 1, 9, "c", 5, 5), ("A", 0, 1, 7, "c", 4, 4)]
    found = ended({"width_ms": 1, "operators": [{"name": "A"}]}, rows)
    assert found.ends.end_ms.tolist() == [[9]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "statistics have no row with an end time in these windows"),
        (
            [("A", 0, 1, None, "c", 1, 1)],
            "statistics have no row with an end time in these windows",
        ),
        ([("AA", 0, 1, 0, "c", 1, 1)], 'operator "AA" of the statistics is not in the graph'),
        ([("A", -1, 1, 0, "c", 1, 1)], "partition -1 of the statistics is below 0"),
        ([("A", 0, None, 0, "c", 1, 1)], 'statistics have 1 rows without "window_id"'),
        ([("A", 0, 1, 0, None, 1, 1)], 'statistics have 1 rows without "container"'),
        ([("A", 0, 1, 0, "c", None, 1)], 'statistics have 1 rows without "sent_at_ms"'),
    ],
)
def test_invalid_statistics_rows_are_rejected_by_name(rows: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ended(EXAMPLE, rows)


def test_invalid_statistics_columns_are_rejected_by_name() -> None:
    rows = table(example_rows())
    graph = latency.parse_graph(EXAMPLE)
    with pytest.raises(InputError, match='statistics have no column "sent_at_ms"'):
        latency.ended(rows.drop_columns("sent_at_ms"), graph)
    for values in (["noon"] * 6, [1.5] * 6, [float("nan")] * 6):
        times = rows.set_column(3, "ended_at_ms", [values])
        with pytest.raises(
            InputError, match='column "ended_at_ms" of the statistics must be a whole'
        ):
            latency.ended(times, graph)
    with pytest.raises(
        InputError, match='column "operator" of the statistics must be text, not int64'
    ):
        latency.ended(rows.set_column(0, "operator", [[1] * 6]), graph)


def test_negative_latencies_are_set_to_zero_and_counted() -> None:
    # Rules: L15
    graph = {"width_ms": 500, "operators": [{"name": "a"}, {"name": "b", "inputs": [["i", "a"]]}]}
    rows: list[Row] = [("a", 0, 1, 50, "c", 1, 1), ("b", 0, 1, 20, "c", 1, 1)]
    found = ended(graph, rows).summary()
    assert (found["latency"], found["negativeDifferences"]) == (0, 1)
