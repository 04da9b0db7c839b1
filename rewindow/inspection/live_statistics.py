"""Reads the statistics of a live run from a recorded stream, and the graph of that run. Starts no
JVM.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Application
from rewindow.errors import InputError
from rewindow.latency import SCHEMA, LatencyGraph, parse_graph
from rewindow.loading.catalog import application_names, load_application
from rewindow.names import did_you_mean
from rewindow.settings.config import Config
from rewindow.storage import Table, query, quoted
from rewindow.windows import parse_duration

WINDOW = "window"
"""The column with the window of the live run; `window_id` is the window in which a row was
recorded."""
STEPS = 200
"""Largest number of steps of a curve over time."""


@dataclass(frozen=True)
class LiveStatistics:
    """The recorded statistics of a live run.

    Attributes:
        rows: with the columns of `latency.SCHEMA`.
        further: further numeric columns, such as CPU and memory, see `_further`.
    """

    stream: str
    rows: pa.Table
    graph: LatencyGraph
    further: list[dict[str, Any]]


def read_live_statistics(
    config: Config,
    stream: str,
    first: int | None = None,
    last: int | None = None,
) -> LiveStatistics:
    """Returns the statistics in the sealed windows of a recorded stream.

    Args:
        config: current settings.
        stream: a stream with the setting `statistics_of`.
        first, last: closed range of windows of the live run, for the further columns only. `rows`
            has all windows, because every heartbeat counts for the correction of clocks.

    Raises:
        InputError: the stream has no such setting or is not recorded; a column is missing or has
            the wrong type; the graph is wrong.
    """
    settings = config.streams.get(stream)
    if settings is None or settings.statistics_of is None:
        raise InputError(
            f'stream "{stream}" does not have the statistics of a live run',
            hint='Write statistics_of = "APPLICATION", or the path of a JSON file with the graph, '
            f"into [streams.{stream}] of rewindow.toml.",
        )
    if not Table.exists(config.windows_table(stream)):
        raise InputError(
            f'stream "{stream}" is not recorded yet',
            hint=f"Run: rewindow record {stream}",
        )
    tables = {
        "t": Table.open(config.stream_table(stream)),
        "w": Table.open(config.windows_table(stream)),
    }
    columns = tables["t"].schema.names
    if WINDOW not in columns:
        raise InputError(
            f'stream "{stream}" has no column "{WINDOW}", the window of the live run',
            detail="The column window_id of a recorded stream is the window in which a row was "
            "recorded.",
            hint=f'Write select = {{ {WINDOW} = "window_id" }}, and a keep without window_id, into '
            f"[streams.{stream}].",
        )
    selected = [f'"{WINDOW}" as window_id']
    for name in SCHEMA.names:
        if name in columns and name != "window_id":
            selected.append(name)
    sealed = "window_id in (select window_id from w where window_id is not null)"
    rows = query(f"select {', '.join(selected)} from t where {sealed}", **tables)
    if first is not None:
        sealed += f' and "{WINDOW}" >= {first}'
    if last is not None:
        sealed += f' and "{WINDOW}" <= {last}'
    further = []
    for field in tables["t"].schema if "operator" in columns else ():
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        if is_number and field.name not in (*SCHEMA.names, WINDOW, "offset"):
            further.append(
                _further(
                    field.name,
                    sealed,
                    tables,
                )
            )
    reported = pc.unique(rows["operator"]).to_pylist() if "operator" in columns else []
    graph = read_graph(
        config,
        settings.statistics_of,
        reported,
    )
    return LiveStatistics(stream, rows, graph, further)


def _further(name: str, sealed: str, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Returns the name of an additional column and figures of its finite values.

    `steps` divides the windows into at most STEPS ranges, with the first window and the smallest,
    mean and largest value of each. `operators` has the mean and largest value of each operator.
    """
    figures = f"avg({quoted(name)}) as mean, max({quoted(name)}) as most"
    # NaN is greater than infinity, and both would hide all other values of a curve.
    known = f"{sealed} and abs(cast({quoted(name)} as double)) < cast('Infinity' as double)"
    steps = query(
        f"""select min("{WINDOW}") as first, min({quoted(name)}) as least, {figures}
        from t cross join (select min("{WINDOW}") as a, max("{WINDOW}") as b from t where {sealed})
        where {known} group by ("{WINDOW}" - a) * {STEPS} / (b - a + 1) order by 1""",
        **tables,
    )
    operators = query(
        f"select operator, {figures} from t where {known} group by operator order by 1",
        **tables,
    )
    return {
        "name": name,
        "steps": list(zip(*steps.to_pydict().values(), strict=True)),
        "operators": list(zip(*operators.to_pydict().values(), strict=True)),
    }


def read_graph(config: Config, source: str, reported: Collection[str]) -> LatencyGraph:
    """Returns the graph of a live run.

    Args:
        config: current settings; the path of a file is relative to their folder.
        source: a JSON file, or the name of an application.
        reported: operators that the statistics name; a stream of the application is an input
            operator if it is among them.

    Raises:
        InputError: the file or application does not exist, or the graph is wrong.
    """
    if source.endswith(".json"):
        path = config.root / source
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f'graph file "{path}" cannot be read: {error}',
                hint="Set statistics_of in rewindow.toml to a JSON file, or to an application.",
            ) from error
        return parse_graph(text)
    names = application_names(config)
    if source not in names:
        raise InputError(
            f'statistics_of is "{source}", which is not an application',
            hint=f"{did_you_mean(source, names)}A file with a graph ends in .json.",
        )
    return graph_of(load_application(config, source).app, reported)


def graph_of(app: Application, reported: Collection[str]) -> LatencyGraph:
    """Returns the graph of an application as it ran live, without partitions."""
    operators: list[dict[str, object]] = []
    for stream in app.streams:
        if stream in reported and stream not in app.nodes:
            operators.append({"name": stream})
    names = {*app.nodes, *(str(one["name"]) for one in operators)}
    for node in app.nodes.values():
        inputs = []
        for port, end in node.feeds.items():
            source = end.operator or end.port
            if source in names:
                inputs.append([port, source])
        container = node.container or ""
        delay = node.operator.delays
        operators.append(
            {"name": node.name, "container": container, "inputs": inputs, "delay": delay}
        )
    return parse_graph({"width_ms": parse_duration(app.window) // 1000, "operators": operators})
