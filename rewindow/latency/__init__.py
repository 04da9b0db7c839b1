"""Latency of operators and of an application, and its critical path, from recorded statistics
(docs/rules/latency.md). Pure: tables and a graph in, arrays out.

    import pyarrow as pa
    from rewindow import latency

    graph = latency.parse_graph({
        "width_ms": 500,
        "operators": [
            {"name": "read"},
            {"name": "count", "inputs": [["in", "read"]]},
        ],
    })
    found = latency.ended(rows, graph)    # a pyarrow.Table, see `ended` for its columns
    print(found.summary()["criticalPath"])
    print(latency.what_if(found, {"count": 2}).summary()["latency"])
"""

from __future__ import annotations

from rewindow.latency.common_window import EndedLatency, ended
from rewindow.latency.faster import parse_faster, what_if
from rewindow.latency.graph import LatencyGraph, parse_graph
from rewindow.latency.live_view import live
from rewindow.latency.rows import SCHEMA

__all__ = [
    "SCHEMA",
    "EndedLatency",
    "LatencyGraph",
    "ended",
    "live",
    "parse_faster",
    "parse_graph",
    "what_if",
]
