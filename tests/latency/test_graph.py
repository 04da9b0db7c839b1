"""Graphs of live runs: what they may be, and which operators a path can end at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rewindow.errors import InputError
from rewindow.latency import parse_graph
from rewindow.latency.graph import lay_out
from tests.latency.reference import EXAMPLE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "graph of latencies is wrong at the content: invalid json"),
        ("[]", "graph of latencies is wrong at the content"),
        ({"operators": [{"name": "A"}]}, "wrong at width_ms: field required"),
        ({"width_ms": 0, "operators": [{"name": "A"}]}, "wrong at width_ms"),
        ({"width_ms": 500, "operators": []}, "wrong at operators"),
        ({"width_ms": 500, "operators": [{"nme": "A"}]}, "wrong at operators.0"),
        (
            {"width_ms": 500, "operators": [{"name": "A"}, {"name": "A"}]},
            'has operator "A" twice',
        ),
        (
            {"width_ms": 500, "operators": [{"name": "A", "inputs": [["in", "B"]]}]},
            'input port "in" of operator "A" is connected to "B", which is not in the graph',
        ),
        (
            {
                "width_ms": 500,
                "operators": [
                    {"name": "A", "inputs": [["in", "B"]]},
                    {"name": "B", "inputs": [["in", "A"]]},
                ],
            },
            "has a loop without a delay operator: [AB] to [AB] to [AB]",
        ),
    ],
)
def test_invalid_graph_is_rejected_with_the_location_of_the_error(content: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_graph(content)


def test_graph_is_read_from_json_text_and_from_python_values() -> None:
    assert parse_graph(json.dumps(EXAMPLE)) == parse_graph(EXAMPLE)


def test_cycle_with_a_delay_operator_ends_at_its_upstream_operator() -> None:
    # Rules: L17, L29, L38
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "add", "inputs": [["in", "read"], ["back", "later"]]},
            {"name": "later", "delay": True, "inputs": [["in", "add"]]},
            {"name": "read"},
        ],
    }
    layout = lay_out(parse_graph(graph), {})
    assert [layout.names[n] for n in layout.leaves] == ["add"]
    assert layout.upstream == [[2], [0], []]
    assert layout.order == [2, 0, 1]


def test_delay_operator_without_a_reader_is_a_leaf() -> None:
    graph = {
        "width_ms": 500,
        "operators": [{"name": "read"}, {"name": "later", "delay": True, "inputs": [[0, "read"]]}],
    }
    layout = lay_out(parse_graph(graph), {})
    assert [layout.names[n] for n in layout.leaves] == ["later"]


def test_paths_end_at_delay_operators_if_they_are_the_only_operators() -> None:
    own = {"name": "later", "delay": True, "inputs": [[0, "later"]]}
    layout = lay_out(parse_graph({"width_ms": 500, "operators": [own]}), {})
    assert layout.leaves == [0]


def test_upstream_operators_are_ordered_by_port_and_partition() -> None:
    # Rules: L16
    graph = {
        "width_ms": 500,
        "operators": [
            {"name": "b"},
            {"name": "a"},
            {"name": "last", "inputs": [["x", "a"], ["y", "a"], ["x", "b"]]},
        ],
    }
    layout = lay_out(parse_graph(graph), {"a": [2, 0], "b": [1]})
    assert layout.names == ["b", "a#0", "a#2", "last"]
    assert [layout.names[n] for n in layout.upstream[3]] == ["a#0", "b", "a#2"]
