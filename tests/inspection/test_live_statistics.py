"""Recorded statistics of a live run, read from a stream."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow import latency
from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from rewindow.errors import InputError
from rewindow.inspection.live_statistics import graph_of, read_live_statistics
from rewindow.latency import EndedLatency
from rewindow.latency.report import ORIGINS
from rewindow.settings.config import Config, LatencyConfig, StreamConfig
from rewindow.storage import Table, query
from tests.latency.live_run import FIRST, GRAPH, OFFSETS_MS, simulate, write_statistics
from tests.latency.reference import Reference

NUMBERS = pa.schema([("n", pa.int64())])


class Copied(FrameOperator):
    """An operator that does nothing."""

    inputs: ClassVar = {"numbers": InputPort(NUMBERS)}
    outputs: ClassVar = {"out": OutputPort(NUMBERS)}


def test_latencies_from_live_statistics_equal_the_simulated_times(tmp_path: Path) -> None:
    # Rules: L5, L6, L7, L9, L13, L31
    run = simulate(400)
    assert run.lost > 5
    config = write_statistics(tmp_path, run.rows)
    read = read_live_statistics(config, "live")
    found = latency.ended(read.rows, read.graph, config.latency)
    # Each correction takes the container's clock back, and adds the time of sending.
    assert max(OFFSETS_MS.values()) > 1_000
    names = found.ends.layout.names
    place = {name: n for n, name in enumerate(names)}
    checked = 0
    for column, window in enumerate(found.ends.windows.tolist()):
        if not found.ends.is_known[:, column].all():
            continue
        checked += 1
        for name, source in [("parse", "clicks"), ("count", "join"), ("alerts", "join")]:
            passed = run.truth[name, window] - run.truth[source, window]
            assert found.latency[place[name], column] == passed
        ended = {name: run.truth[name, window] for name in names}
        path = found.window(column)
        latest = max(ended["totals"], ended["alerts"])
        assert path["latency"] == latest - ended[path["criticalPath"][0]]
    assert 250 < checked < len(found.ends.windows)


def test_live_statistics_equal_a_naive_reference(tmp_path: Path) -> None:
    run = simulate(200, loss=0.1)
    config = write_statistics(tmp_path, run.rows)
    read = read_live_statistics(config, "live")
    found = latency.ended(
        read.rows,
        read.graph,
        LatencyConfig(skew_samples=9),
        FIRST + 5,
        FIRST + 40,
    )
    reference = Reference(GRAPH, run.rows, 9)
    assert found.ends.windows.tolist() == list(range(FIRST + 5, FIRST + 41))
    for column, window in enumerate(found.ends.windows.tolist()):
        wanted = reference.window(window)
        shown = found.window(column)
        assert shown["latency"] == wanted.application
        assert shown["criticalPath"] == [name for name, _ in wanted.path]
        origins = [ORIGINS[number] for number in found.origin[:, column]]
        assert origins == list(wanted.origin.values())


def test_unsealed_windows_are_excluded_from_live_statistics(tmp_path: Path) -> None:
    run = simulate(400)
    config = write_statistics(tmp_path, run.rows)
    sealed_to_ms = max(row[6] for row in run.rows) // 60_000 * 60_000
    rows = read_live_statistics(config, "live").rows
    assert 0 < rows.num_rows == sum(row[6] < sealed_to_ms for row in run.rows)


def test_additional_columns_are_reported_over_time_and_by_operator(tmp_path: Path) -> None:
    config = write_statistics(tmp_path, simulate(400).rows)
    cpu, queue = read_live_statistics(config, "live").further
    assert (cpu["name"], queue["name"]) == ("cpu", "queue")
    assert 100 < len(cpu["steps"]) <= 200 and cpu["steps"][0][0] == FIRST
    for _, least, mean, most in cpu["steps"]:
        assert 0.2 <= least <= mean <= most < 0.6
    names = [name for name, *_ in queue["operators"]]
    assert names == sorted(one["name"] for one in GRAPH["operators"])
    assert max(most for *_, most in queue["operators"]) == 89
    (cpu, _) = read_live_statistics(config, "live", FIRST + 7, FIRST + 8).further
    assert [step[0] for step in cpu["steps"]] == [FIRST + 7, FIRST + 8]


def test_nonfinite_values_are_excluded_from_additional_columns(tmp_path: Path) -> None:
    config = write_statistics(tmp_path, simulate(400).rows)
    wanted = read_live_statistics(config, "live").further
    stream = Table.open(config.stream_table("live"))
    rows = query('select * from t order by "offset" limit 3', t=stream)
    place = rows.schema.get_field_index("cpu")
    values = pa.array([math.nan, math.inf, -math.inf])
    write_deltalake(stream.delta, rows.set_column(place, "cpu", values), mode="append")
    assert read_live_statistics(config, "live").further[0] == wanted[0]


def test_stream_without_statistics_is_rejected_with_the_required_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not have the statistics") as error:
        read_live_statistics(Config(state=tmp_path), "flights")
    assert "[streams.flights]" in error.value.hint
    stats: Any = {"source": "s", "arrived_at": "at", "statistics_of": "g.json"}
    config = Config(state=tmp_path, streams={"flights": StreamConfig(**stats)})
    with pytest.raises(InputError, match='stream "flights" is not recorded yet'):
        read_live_statistics(config, "flights")


def analysed(config: Config) -> EndedLatency:
    read = read_live_statistics(config, "live")
    return latency.ended(read.rows, read.graph)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("window", 'stream "live" has no column "window", the window of the live run'),
        ("operator", 'statistics have no column "operator"'),
        ("container", 'statistics have no column "container"'),
        ("received_at_ms", 'statistics have no column "received_at_ms"'),
    ],
)
def test_missing_statistics_column_is_reported_by_name(
    tmp_path: Path, column: str, words: str
) -> None:
    config = write_statistics(tmp_path, simulate(200).rows, leave_out=column)
    with pytest.raises(InputError, match=words):
        analysed(config)


def test_missing_graph_is_rejected_by_name(tmp_path: Path) -> None:
    rows = simulate(200).rows
    config = write_statistics(tmp_path, rows, statistics_of="nowhere.json")
    with pytest.raises(InputError, match='nowhere.json" cannot be read'):
        read_live_statistics(config, "live")
    (tmp_path / "two").mkdir()
    config = write_statistics(tmp_path / "two", rows, statistics_of="totalz")
    with pytest.raises(InputError, match='statistics_of is "totalz", which is not an application'):
        read_live_statistics(config, "live")


def test_application_is_read_as_a_graph_with_its_reported_streams() -> None:
    app = Application("app", window="2 s")
    doubled = app.add("doubled", Copied(), numbers=app.input("numbers"))
    app.add("summed", Copied(), numbers=doubled["out"])
    graph = graph_of(app, {"numbers", "doubled", "summed"})
    assert graph.width_ms == 2_000
    assert [(one.name, one.inputs) for one in graph.operators] == [
        ("numbers", []),
        ("doubled", [("numbers", "numbers")]),
        ("summed", [("numbers", "doubled")]),
    ]
    # A stream that reports nothing would make every path unknown.
    assert [one.name for one in graph_of(app, set()).operators] == ["doubled", "summed"]
