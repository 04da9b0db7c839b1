"""The page of latencies.

It shows the graph with its critical path, latency over time, and figures of operators and paths; or
the times of a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rewindow.application import GraphDescription, OperatorDescription
from rewindow.inspection.live_statistics import STEPS
from rewindow.latency import EndedLatency
from rewindow.latency.graph import Layout
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
    report: Mapping[str, Any],
    recorded: EndedLatency,
) -> Location:
    """Writes the page of a live run, and returns its path.

    Args:
        config: current settings.
        report: summary, further columns, and the summary with faster operators.
        recorded: the latencies.
    """
    ends = recorded.ends.end_ms[recorded.ends.is_known]
    return _write(
        config,
        report["stream"],
        replay=None,
        summary=report,
        graph=draw_critical(report, recorded.ends.layout),
        curves=_curves(report, recorded),
        begin=_second(ends.min()),
        end=_second(ends.max()),
    )


def write_replay_times(config: Config, found: Mapping[str, Any]) -> Location:
    """Writes the page of a replay's times, and returns its path."""
    return _write(
        config,
        found["replay"],
        replay=found,
        rows_max=_ROWS_MAX,
    )


def _write(config: Config, name: str, **values: Any) -> Location:
    path = config.results / "latency" / f"{name}.html"
    path.write(
        draw(
            "latency.html",
            name=name,
            width=_WIDTH,
            **values,
        )
    )
    return path


def _second(at_ms: int) -> str:
    return format_time(int(at_ms) // 1000 * 1_000_000)


def draw_critical(report: Mapping[str, Any], layout: Layout) -> str:
    """Returns the graph as SVG, with the most frequent critical path in red."""
    path = report["paths"][0]["criticalPath"]
    pairs = list(pairwise(path))
    marked = set(path)
    operators = []
    for n in layout.order:
        name = layout.names[n]
        row = report["operators"][n]
        feeds = {}
        for number, source in enumerate(layout.inputs[n]):
            end = f"{layout.names[source]}.out"
            feeds[str(number)] = end
            if (layout.names[source], name) in pairs:
                marked.add(f"{end} to {name}.{number}")
        mean = "unknown" if row["mean"] is None else f"{row['mean']:,.1f} ms"
        words = f"{mean}, critical {row['onCriticalPath'] / report['windows']:.0%}"
        operators.append(
            OperatorDescription(
                name=name,
                kind=words,
                feeds=feeds,
            )
        )
    graph = GraphDescription(
        application=report["stream"],
        window=f"{layout.width_ms} ms",
        operators=operators,
    )
    return draw_graph(graph, alone=False, marked=marked)


def _curves(report: Mapping[str, Any], recorded: EndedLatency) -> list[tuple[str, Curve, Any]]:
    """Returns curves for the latency of the application over time, and for each additional
    column.
    """
    windows = recorded.ends.windows
    steps = []
    for part in np.array_split(np.arange(len(windows)), min(STEPS, len(windows))):
        values = recorded.paths.latency[part]
        figures = (float(values.min()), float(values.mean()), float(values.max()))
        steps.append((int(windows[part[0]]), *figures))
    curves: list[tuple[str, Curve, Any]] = [
        ("latency of the application, ms", draw_steps(steps), [])
    ]
    for column in report["further"]:
        if column["steps"]:
            curves.append((column["name"], draw_steps(column["steps"]), column["operators"]))
    return curves


def draw_steps(steps: Sequence[tuple[int, float, float, float]]) -> Curve:
    """Returns a curve.

    For each step, it has a bar from the smallest to the largest value, and the mean.

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
