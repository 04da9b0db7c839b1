"""Latency of operators and of an application, and critical paths, from recorded statistics
(docs/rules/latency.md). Pure functions: they read tables and a graph, and return arrays.

>>> import pyarrow as pa
>>> from rewindow import latency
>>> operators = [{"name": "read"}, {"name": "count", "inputs": [["in", "read"]]}]
>>> graph = latency.parse_graph({"width_ms": 500, "operators": operators})
>>> rows = pa.table({
...     "operator": ["read", "count"],
...     "partition": [0, 0],
...     "window_id": [7, 7],
...     "ended_at_ms": [4000, 4030],
...     "container": ["one", "one"],
...     "sent_at_ms": [4100, 4100],
...     "received_at_ms": [4102, 4102],
... })
>>> found = latency.ended(rows, graph)
>>> found.window(0)["latency"], found.window(0)["criticalPath"]
(30, ['read', 'count'])
>>> latency.what_if(found, {"count": 2}).window(0)["latency"]
15
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
