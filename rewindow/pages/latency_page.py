"""The page of latencies: the graph with its critical path, latency over time, figures of operators
and paths; or the times of a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rewindow.application import GraphDescription, OperatorDescription
from rewindow.inspection.live_statistics import STEPS, LiveStatistics
from rewindow.inspection.processing_times import NO_LATENCY, ReplayTimes
from rewindow.latency import EndedLatency
from rewindow.location import Location
from rewindow.pages.application_graph import draw_graph
from rewindow.pages.drawing import draw
from rewindow.pages.time_page import Curve
from rewindow.settings.config import Config
from rewindow.windows import format_time

_WIDTH = 1000
_HEIGHT = 160
_ROWS_MAX = 500


def write_latency_page(
    config: Config,
    found: LiveStatistics,
    recorded: EndedLatency,
    changed: EndedLatency | None,
    faster: str,
) -> Location:
    """Writes the page of a live run, and returns its path.

    Args:
        config: settings in force.
        found: the statistics.
        recorded: the latencies that follow from them.
        changed: the latencies if operators were faster; None without such a question.
        faster: the question.
    """
    ends = recorded.end_ms[recorded.is_known]
    return _write(
        config,
        found.stream,
        stream=found,
        summary=recorded.summary(),
        changed=changed.summary() if changed else None,
        faster=faster,
        graph=draw_critical(found.stream, recorded),
        curves=_curves(found, recorded),
        begin=_second(ends.min()),
        end=_second(ends.max()),
        replay=None,
    )


def write_replay_times(config: Config, found: ReplayTimes) -> Location:
    """Writes the page of a replay's times, and returns its path."""
    return _write(config, found.replay_id, replay=found, note=NO_LATENCY, rows_max=_ROWS_MAX)


def _write(config: Config, name: str, **values: Any) -> Location:
    path = config.results / "latency" / f"{name}.html"
    path.write(draw("latency.html", name=name, width=_WIDTH, **values))
    return path


def _second(at_ms: int) -> str:
    return format_time(int(at_ms) // 1000 * 1_000_000)


def draw_critical(stream: str, recorded: EndedLatency) -> str:
    """Returns the graph as SVG, with the most frequent critical path in red."""
    layout = recorded.layout
    summary = recorded.summary()
    path = summary["paths"][0]["criticalPath"]
    pairs = list(pairwise(path))
    marked = set(path)
    operators = []
    for n in layout.order:
        row = summary["operators"][n]
        share = row["onCriticalPath"] / summary["windows"]
        mean = "unknown" if row["mean"] is None else f"{row['mean']:,.1f} ms"
        feeds = {}
        for number, source in enumerate(layout.inputs[n]):
            end = f"{layout.names[source]}.out"
            feeds[str(number)] = end
            if (layout.names[source], layout.names[n]) in pairs:
                marked.add(f"{end} to {layout.names[n]}.{number}")
        words = f"{mean}, critical {share:.0%}"
        operators.append(OperatorDescription(name=layout.names[n], kind=words, feeds=feeds))
    graph = GraphDescription(
        application=stream,
        window=f"{layout.width_ms} ms",
        operators=operators,
    )
    return draw_graph(graph, alone=False, marked=marked)


def _curves(found: LiveStatistics, recorded: EndedLatency) -> list[tuple[str, Curve, Any]]:
    """Returns the latency of the application over time, then each further column."""
    parts = np.array_split(np.arange(len(recorded.windows)), min(STEPS, len(recorded.windows)))
    steps = []
    for part in parts:
        values = recorded.paths.latency[part]
        first = int(recorded.windows[part[0]])
        steps.append((first, float(values.min()), float(values.mean()), float(values.max())))
    curves: list[tuple[str, Curve, Any]] = [
        ("latency of the application, ms", draw_steps(steps), [])
    ]
    for column in found.further:
        if column.steps:
            curves.append((column.name, draw_steps(column.steps), column.operators))
    return curves


def draw_steps(steps: Sequence[tuple[int, float, float, float]]) -> Curve:
    """Returns a curve: for each step a bar from the least to the largest value, and the mean.

    Args:
        steps: first window, least, mean and largest value.
    """
    top = max(step[3] for step in steps)
    low = min(0.0, *(step[1] for step in steps))
    wide = _WIDTH / len(steps)

    def height(value: float) -> float:
        return round(_HEIGHT * (top - value) / ((top - low) or 1), 1)

    bars = []
    for n, (first, least, mean, most) in enumerate(steps):
        y = height(most)
        tall = max(round(height(least) - y, 1), 1)
        words = f"from window {first}: least {least:,.6g}, mean {mean:,.6g}, most {most:,.6g}"
        bars.append(
            (round(n * wide, 1), round(wide * 0.85, 1), y, tall, height(mean), words),
        )
    ticks = tuple((height(value), f"{value:,.6g}") for value in sorted({low, top}))
    return Curve(tuple(bars), ticks)
