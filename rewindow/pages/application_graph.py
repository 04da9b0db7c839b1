"""Draws the graph of an application as text for a terminal, and as SVG for a page.

No other program is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from rewindow.application import GraphDescription
from rewindow.application.overrides import DEFAULT
from rewindow.pages.drawing import draw
from rewindow.sequences import present

_WIDTH = 190
_HEIGHT = 46
_ACROSS = 80
_DOWN = 18
_EDGE = 12
"""Size of a box, space between boxes horizontally and vertically, and margin."""
_LETTERS = 25
"""Number of characters that fit into a box."""


class Box(NamedTuple):
    """A box in the drawing of a graph: a stream, an operator or an output, in its column."""

    kind: str
    title: str
    words: str
    column: int
    row: int

    @property
    def x(self) -> int:
        """The left edge of the box."""
        return _EDGE + self.column * (_WIDTH + _ACROSS)

    @property
    def y(self) -> int:
        """The upper edge of the box."""
        return _EDGE + self.row * (_HEIGHT + _DOWN)

    @property
    def shown(self) -> str:
        """The title, shortened to fit."""
        return _cut(self.title)

    @property
    def shown_words(self) -> str:
        """The words, shortened to fit."""
        return _cut(self.words)


class Line(NamedTuple):
    """A stream from one box to the next, with the coordinates of its ends."""

    words: str
    x1: int
    y1: int
    x2: int
    y2: int

    @property
    def is_back(self) -> bool:
        """Whether the line ends to the left of its start.

        An example is the input of a delay operator, which passes its tuples to a later window.
        """
        return self.x2 < self.x1

    @property
    def path(self) -> str:
        """The curve of the line. The return path of a cycle is below the boxes."""
        if self.is_back:
            below = max(self.y1, self.y2) + _HEIGHT
            return (
                f"M{self.x1} {self.y1}C{self.x1 + _ACROSS} {below} {self.x2 - _ACROSS} {below} "
                f"{self.x2} {self.y2}"
            )
        middle = (self.x1 + self.x2) // 2
        return f"M{self.x1} {self.y1}C{middle} {self.y1} {middle} {self.y2} {self.x2} {self.y2}"


def draw_graph(graph: GraphDescription, *, alone: bool, marked: Collection[str] = ()) -> str:
    """Returns the graph as SVG.

    Streams are at the left, outputs at the right, and a stateful operator has a thicker edge.

    Args:
        graph: the graph to draw.
        alone: whether the SVG is a separate file, not part of a page.
        marked: names of operators, and streams as in "read.out to count.in", to draw in red.
    """
    boxes = _boxes(graph)
    columns = max((box.column for box in boxes.values()), default=0) + 1
    rows = max((box.row for box in boxes.values()), default=0) + 1
    return draw(
        "graph.svg",
        alone=alone,
        graph=graph,
        marked=marked,
        boxes=list(boxes.values()),
        lines=_lines(graph, boxes),
        box=(_WIDTH, _HEIGHT),
        width=2 * _EDGE + columns * (_WIDTH + _ACROSS) - _ACROSS,
        height=2 * _EDGE + rows * (_HEIGHT + _DOWN) - _DOWN,
    )


def graph_text(graph: GraphDescription) -> str:
    """Returns the graph as lines of text: the operators in order, each with its inputs and its
    readers.
    """
    readers = _readers(graph)
    lines = [f"{graph.application}, windows of {graph.window}"]
    for stream in graph.streams:
        lines.append(
            f"  stream {stream} -> {', '.join(readers.get(stream, [])) or 'nothing reads it'}"
        )
    for cycle in graph.cycles:
        lines.append(f"  cycle of {', '.join(cycle)}, window by window in one pass")
    for operator in graph.operators:
        lines.append(
            f"  operator {operator.name}: "
            f"{operator.kind}{', with state' if operator.stateful else ''}"
        )
        lines += [
            f"    {item.name} = {_cut(' '.join(str(item.value).split()), 60)} ({item.source})"
            for item in operator.properties
            if item.source != DEFAULT
        ]
        lines += [f"    {port} <- {end}" for port, end in operator.feeds.items()]
        for port in operator.ports:
            read = readers.get(f"{operator.name}.{port.name}", [])
            words = ", ".join([*read, *(["stored as error tuples"] if port.error else [])])
            lines.append(f"    {port.name} -> {words or 'nothing reads it'}")
    return "\n".join(lines)


def _readers(graph: GraphDescription) -> dict[str, list[str]]:
    """Returns the readers of each stream, by the port at which the stream starts."""
    found: dict[str, list[str]] = {}
    for operator in graph.operators:
        for port, end in operator.feeds.items():
            found.setdefault(end, []).append(f"{operator.name}.{port}")
    for name, end in graph.outputs.items():
        found.setdefault(end, []).append(f"output {name}")
    return found


def _boxes(graph: GraphDescription) -> dict[str, Box]:
    """Returns the boxes by key.

    Keys start with `s:` for a stream, `p:` for an operator, and `o:` for an output.
    """
    columns = _columns(graph)
    last = max(columns.values(), default=0) + 1
    listed = [(f"s:{name}", "stream", name, "recorded stream", 0) for name in graph.streams]
    listed += [
        (
            f"p:{operator.name}",
            "stateful" if operator.stateful else "operator",
            operator.name,
            operator.kind,
            columns[operator.name],
        )
        for operator in graph.operators
    ]
    listed += [(f"o:{name}", "output", name, "output", last) for name in graph.outputs]
    rows: dict[int, int] = {}
    boxes = {}
    # Without streams the first column is empty and omitted.
    left = 0 if graph.streams else 1
    for key, kind, title, words, column in listed:
        row = rows.setdefault(column, 0)
        boxes[key] = Box(kind, title, words, column=column - left, row=row)
        rows[column] += 1
    return boxes


def _columns(graph: GraphDescription) -> dict[str, int]:
    """Returns the column of each operator. It is the column after the last operator that feeds it.

    In a cycle, the last operator that already has a column counts.
    """
    columns: dict[str, int] = {}
    for operator in graph.operators:
        ends = [_owner(graph, end) for end in operator.feeds.values()]
        columns[operator.name] = 1 + max((columns.get(end, 0) for end in ends), default=0)
    return columns


def _owner(graph: GraphDescription, end: str) -> str:
    """Returns the operator that emits a stream; empty for a recorded stream, whose name can also
    contain a full stop.
    """
    return "" if end in graph.streams else end.rpartition(".")[0]


def _lines(graph: GraphDescription, boxes: Mapping[str, Box]) -> list[Line]:
    lines = []
    for operator in graph.operators:
        for port, end in operator.feeds.items():
            words = f"{end} to {operator.name}.{port}"
            lines.append(_line(graph, boxes, end, f"p:{operator.name}", words))
    for name, end in graph.outputs.items():
        lines.append(_line(graph, boxes, end, f"o:{name}", f"{end} to output {name}"))
    return present(lines)


def _line(
    graph: GraphDescription,
    boxes: Mapping[str, Box],
    end: str,
    to: str,
    words: str,
) -> Line | None:
    """Returns the line of a stream; None if its source has no box."""
    owner = _owner(graph, end)
    left = boxes.get(f"p:{owner}" if owner else f"s:{end}")
    right = boxes[to]
    if left is None:
        return None
    middle = _HEIGHT // 2
    return Line(words, left.x + _WIDTH, left.y + middle, x2=right.x, y2=right.y + middle)


def _cut(text: str, letters: int = _LETTERS) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
