"""The effect of faster operators."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from rewindow import latency
from rewindow.errors import InputError
from rewindow.latency.common_window import EndedLatency
from tests.latency.reference import (
    EXAMPLE,
    Reference,
    Row,
    example_rows,
    random_graph,
    random_rows,
    table,
)


def ended(graph: dict[str, Any], rows: list[Row]) -> EndedLatency:
    return latency.ended(table(rows), latency.parse_graph(graph))


@pytest.mark.parametrize(
    ("faster", "application", "path"),
    [
        ("B=2x", 120, ["A", "C", "E"]),  # Not on the critical path.
        ("C=2x", 70, ["A", "C", "E"]),
        ("E=3x", 106, ["A", "C", "E"]),  # A third of 20, rounded down.
        ("E=1000", 102, ["A", "C", "F"]),
        ("C=100x", 35, ["A", "B", "D"]),
        ("A=5x", 120, ["A", "C", "E"]),  # An input operator has no own time.
        ("C=1.5x", 86, ["A", "C", "E"]),
    ],
)
def test_faster_operator_reduces_the_end_times_of_downstream_operators(
    faster: str, application: int, path: list[str]
) -> None:
    # Rules: L44
    found = ended(EXAMPLE, example_rows(range(1, 4)))
    changed = latency.what_if(found, latency.parse_faster([faster])).summary()
    assert (changed["latency"], changed["criticalPath"]) == (application, path)
    assert changed["longestLatency"] >= application
    assert found.summary()["latency"] == 120


def test_faster_noncritical_operator_changes_nothing_in_random_graphs() -> None:
    # Rules: L44
    random = Random(44)
    checked = 0
    for _ in range(300):
        graph = random_graph(random)
        rows = random_rows(random, graph)
        if not Reference(graph, rows).windows:
            continue
        found = ended(graph, rows)
        for n, name in enumerate(found.ends.layout.names):
            if found.paths.on_path[n].any():
                continue
            changed = latency.what_if(found, {name: 3})
            partitions = [one.startswith(f"{name}#") for one in found.ends.layout.names]
            assert not any(partitions)
            checked += 1
            assert changed.paths.latency.tolist() == found.paths.latency.tolist()
            assert changed.paths.on_path.tolist() == found.paths.on_path.tolist()
    assert checked > 100


def test_faster_noncritical_operator_changes_nothing_with_two_roots() -> None:
    # Rules: L44
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "late"},
            {"name": "early"},
            {"name": "fast", "inputs": [[0, "late"]]},
            {"name": "long", "inputs": [[0, "early"]]},
            {"name": "join", "inputs": [[0, "fast"], [1, "long"]]},
            {"name": "main", "inputs": [[0, "late"]]},
        ],
    }
    ends = {"late": 100, "early": 60, "fast": 118, "long": 105, "join": 120, "main": 140}
    rows: list[Row] = [(name, 0, 1, end, "c", 1, 1) for name, end in ends.items()]
    found = ended(graph, rows)
    assert found.summary()["criticalPath"] == ["late", "main"]
    # Else the path to join would start at the other root, and be longer than the critical one.
    changed = latency.what_if(found, {"fast": 18}).summary()
    assert (changed["latency"], changed["criticalPath"]) == (40, ["late", "main"])


def test_faster_operator_result_equals_end_times_adjusted_by_hand() -> None:
    random = Random(2)
    for _ in range(200):
        graph = random_graph(random)
        rows = random_rows(random, graph)
        reference = Reference(graph, rows)
        if not reference.windows:
            continue
        found = ended(graph, rows)
        name = random.choice(graph["operators"])["name"]
        changed = latency.what_if(found, {name: Fraction(3, 2)})
        nodes = found.ends.layout.keys
        for column, window in enumerate(reference.windows):
            wanted = moved(reference, window, name)
            for n, node in enumerate(nodes):
                if node in wanted:
                    end_ms = changed.ends.end_ms[n, column]
                    assert end_ms == wanted[node], (graph, rows, window, node)


def moved(reference: Reference, window: int, name: str) -> dict[Any, int]:
    """Returns the end times of a window if an operator were faster by a half."""
    own = {node: end for (node, w), end in reference.ends.items() if w == window}
    if not any(node[0] == name for node in reference.window(window).path):
        return own
    found: dict[Any, int] = {}

    def end_of(node: Any) -> int:
        if node not in found:
            before = [other for other in reference.upstream(node) if other in own]
            if not before:
                found[node] = own[node]
            else:
                share = own[node] - max(own[other] for other in before)
                if node[0] == name and share > 0:
                    share = share * 2 // 3
                found[node] = max(end_of(other) for other in before) + share
        return found[node]

    return {node: end_of(node) for node in own}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C=0x", 'operator "C" cannot be 0 times as fast'),
        ("C=0.5x", 'operator "C" cannot be 1/2 times as fast'),
        ("X=2x", 'operator "X" is not in the graph'),
        ("C", 'must be OPERATOR=FACTORx, not "C"'),
        ("C=-2x", 'must be OPERATOR=FACTORx, not "C=-2x"'),
        ("C=nan", 'must be OPERATOR=FACTORx, not "C=nan"'),
        ("C=1e9x", 'must be OPERATOR=FACTORx, not "C=1e9x"'),
        ("=2x", 'must be OPERATOR=FACTORx, not "=2x"'),
    ],
)
def test_invalid_speedup_factor_is_rejected_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        latency.what_if(ended(EXAMPLE, example_rows()), latency.parse_faster([text]))


def test_speedup_applies_to_all_partitions_of_a_logical_operator() -> None:
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "read"},
            {"name": "c1", "logical": "count", "inputs": [[0, "read"]]},
            {"name": "c2", "logical": "count", "inputs": [[0, "read"]]},
        ],
    }
    rows: list[Row] = [("read", 0, 1, 0, "c", 1, 1)]
    rows += [("c1", 0, 1, 40, "c", 1, 1), ("c2", 0, 1, 60, "c", 1, 1)]
    changed = latency.what_if(ended(graph, rows), {"count": 2})
    assert changed.latency.tolist() == [[0], [20], [30]]


def test_operator_given_two_speedups_is_rejected() -> None:
    with pytest.raises(InputError, match='--faster names operator "C" twice'):
        latency.parse_faster(["C=2x", "D=2x", "C=3x"])
