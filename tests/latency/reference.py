"""Latencies as the rules describe them, value by value, and a simulation of a live run that records
statistics; neither uses the library.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

TIMEOUT_MS = 30_000
SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("partition", pa.int32()),
        ("window_id", pa.int64()),
        ("ended_at_ms", pa.int64()),
        ("container", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("received_at_ms", pa.int64()),
    ]
)
Row = tuple[str, int, int, int | None, str, int, int]
Node = tuple[str, int]


def table(rows: Iterable[Row]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = []
    for values, column in zip(columns, SCHEMA, strict=True):
        arrays.append(pa.array(list(values), column.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def truncated(values: list[int], count: int) -> int:
    """Returns the average of the last values, cut off toward zero."""
    last = values[-count:] if count else []
    return int(sum(last) / len(last)) if last else 0


def corrected(rows: list[Row], samples: int = 100) -> dict[tuple[Node, int], int]:
    """Returns the end time by node and window, on the planner's clock; the row received last
    counts.
    """
    beats: dict[str, set[tuple[int, int]]] = {}
    for *_, container, sent, received in rows:
        beats.setdefault(container, set()).add((received, sent))
    ends: dict[tuple[Node, int], tuple[tuple[int, int, int], int]] = {}
    for operator, partition, window, ended, container, sent, received in rows:
        if ended is None:
            continue
        heard = sorted(beat for beat in beats[container] if beat <= (received, sent))
        skew = truncated([r - s for r, s in heard], samples)
        place = ((operator, partition), window)
        entry = ((received, sent, ended + skew), ended + skew)
        ends[place] = max(ends.get(place, entry), entry)
    return {place: end for place, (_, end) in ends.items()}


@dataclass
class Expected:
    """The values of one window by the rules."""

    latency: dict[Node, int | None] = field(default_factory=dict)
    slowest: dict[Node, Node | None] = field(default_factory=dict)
    origin: dict[Node, str] = field(default_factory=dict)
    application: int = 0
    path: list[Node] = field(default_factory=list)
    cut: bool = False
    incomplete: bool = False
    longest: int = 0
    longest_path: list[Node] = field(default_factory=list)


class Reference:
    """A graph with the rows of a run that has ended."""

    def __init__(self, graph: dict[str, Any], rows: list[Row], samples: int = 100) -> None:
        self.operators = {one["name"]: one for one in graph["operators"]}
        self.width = graph["width_ms"]
        numbers: dict[str, set[int]] = {}
        for operator, partition, *_ in rows:
            numbers.setdefault(operator, set()).add(partition)
        self.nodes = [(name, n) for name in self.operators for n in sorted(numbers.get(name, {0}))]
        self.ends = corrected(rows, samples)
        self.windows = sorted({window for _, window in self.ends})

    def is_delay(self, node: Node) -> bool:
        return bool(self.operators[node[0]].get("delay"))

    def inputs(self, node: Node) -> list[tuple[Any, str]]:
        return [(port, name) for port, name in self.operators[node[0]].get("inputs", [])]

    def upstream(self, node: Node) -> list[Node]:
        """By input port as declared, then by partition, without delay operators (L16, L17)."""
        found: list[Node] = []
        ports: list[Any] = []
        for port, _ in self.inputs(node):
            if port not in ports:
                ports.append(port)
        for port in ports:
            of_port = []
            for own, name in self.inputs(node):
                if own == port:
                    of_port += [other for other in self.nodes if other[0] == name]
            of_port.sort(key=lambda other: other[1])  # Stable: then as listed.
            for other in of_port:
                if other not in found and not self.is_delay(other):
                    found.append(other)
        return found

    def leaves(self) -> list[Node]:
        """Operators that nothing waits for in the same window."""
        read = {name for node in self.nodes for _, name in self.inputs(node)}
        found = []
        for node in self.nodes:
            if self.is_delay(node):
                if node[0] not in read:
                    found.append(node)
                continue
            readers = [other for other in self.nodes if node in self.upstream(other)]
            if all(self.is_delay(other) and other[0] in read for other in readers):
                found.append(node)
        return found

    def window(self, window: int) -> Expected:
        found = Expected()
        for node in self.nodes:
            self._latency(found, node, window)
        return self._paths(found)

    def _latency(self, found: Expected, node: Node, window: int) -> None:
        found.latency[node] = found.slowest[node] = None
        found.origin[node] = "unknown"
        if window <= 0 or not any(own == node and w <= window for own, w in self.ends):
            return
        own = self.ends.get((node, window))
        best: int | None = 0 if not self.inputs(node) else None
        for other in self.upstream(node):
            end = self.ends.get((other, window))
            if end is None:
                continue
            share = 0 if own is None else max(0, own - end)
            if best is None or share < best:
                best = share
                found.slowest[node] = other
        if best is None:
            return
        found.origin[node] = "measured" if own is not None else "own_end_missing"
        found.latency[node] = best if own is not None else None

    def _paths(self, found: Expected) -> Expected:
        best = None
        for leaf in self.leaves():
            path = [leaf]
            while (before := found.slowest[path[0]]) is not None:
                path.insert(0, before)
            value = sum(self._share(found, node) for node in path)
            if best is None or value > best:
                best = found.application = value
                found.path = path
        found.cut = bool(self.inputs(found.path[0]))
        counted = [node for node in found.path if not self.is_delay(node)]
        found.incomplete = any(found.latency[node] is None for node in counted)
        best = None
        for leaf in self.leaves():
            value, path = self._longest(found, leaf)
            if best is None or value > best:
                best = found.longest = value
                found.longest_path = path
        return found

    def _share(self, found: Expected, node: Node) -> int:
        return 0 if self.is_delay(node) else found.latency[node] or 0

    def _longest(self, found: Expected, node: Node) -> tuple[int, list[Node]]:
        best: tuple[int, list[Node]] = (0, [])
        for n, other in enumerate(self.upstream(node)):
            value, path = self._longest(found, other)
            if n == 0 or value > best[0]:
                best = (value, path)
        return best[0] + self._share(found, node), [*best[1], node]


def random_graph(random: Random) -> dict[str, Any]:
    """Returns a graph with several roots and leaves, ports that share an upstream operator, and
    sometimes a loop through a delay operator.
    """
    count = random.randint(1, 7)
    operators: list[dict[str, Any]] = []
    for n in range(count):
        inputs = []
        for port in range(random.randint(0, min(n, 3)) if n else 0):
            inputs.append([random.choice([port, 0]), f"o{random.randrange(n)}"])
        operators.append({"name": f"o{n}", "inputs": inputs})
    if count > 2 and random.random() < 0.3:
        late = operators[random.randrange(1, count)]
        operators.append({"name": "later", "delay": True, "inputs": [["in", late["name"]]]})
        if random.random() < 0.8:
            early = random.choice(operators[:-1])
            early["inputs"].append(["back", "later"])
    random.shuffle(operators)
    return {"width_ms": random.choice([1, 500, 60_000]), "operators": operators}


def random_rows(random: Random, graph: dict[str, Any]) -> list[Row]:
    """Returns rows in no order: some missing, some twice, with clocks that differ and jump."""
    rows: list[Row] = []
    skews = {f"c{n}": random.randint(-9, 9) for n in range(random.randint(1, 3))}
    first = random.choice([-1, 1, 5])
    for window in range(first, first + random.randint(1, 6)):
        for operator in graph["operators"]:
            for partition in range(1 + (operator["name"] in ("o1", "o3"))):
                if random.random() < 0.15:
                    continue
                for _ in range(1 + (random.random() < 0.05)):
                    container = random.choice(sorted(skews))
                    sent = window * 10 + random.randint(0, 12) + skews[container]
                    received = window * 10 + random.randint(0, 12)
                    if random.random() < 0.03:
                        sent -= 40_000
                    ended: int | None = window * 10 + random.randint(0, 12) + skews[container]
                    if random.random() < 0.05:
                        ended = None
                    name = operator["name"]
                    rows.append((name, partition, window, ended, container, sent, received))
    random.shuffle(rows)
    return rows


EXAMPLE = {
    "width_ms": 500,
    "operators": [
        {"name": "A"},
        {"name": "B", "inputs": [["in", "A"]]},
        {"name": "C", "inputs": [["in", "A"]]},
        {"name": "D", "inputs": [["in", "B"]]},
        {"name": "E", "inputs": [["in", "C"]]},
        {"name": "F", "inputs": [["in", "C"]]},
    ],
}
"""The graph of the example in docs/rules/latency.md."""
EXAMPLE_ENDS = {"A": 0, "B": 5, "C": 100, "D": 35, "E": 120, "F": 102}


def example_rows(windows: Iterable[int] = (1,), container: str = "c") -> list[Row]:
    """Returns the rows of the example, for each of some windows."""
    rows: list[Row] = []
    for window in windows:
        at = 500 * window
        for name, end in EXAMPLE_ENDS.items():
            rows.append((name, 0, window, at + end, container, at + 200, at + 200))
    return rows
