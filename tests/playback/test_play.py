"""Playback: what is sent, when, and what is said of it; on a clock that the test moves."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import InputError, Interrupted, RangeError, ResourceError, TableError
from rewindow.playback import PlaybackStopped, on_port, play
from rewindow.playback.lines import json_lines
from rewindow.playback.report import Delays
from rewindow.playback.targets import ReaderGone, _send
from rewindow.progress.listener import Lines
from rewindow.progress.messages import messages_shown
from rewindow.settings.config import Config
from tests.recovery.project import make_stream

TIME = pa.timestamp("us", "UTC")
STREAM = pa.schema(
    [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME), ("key", pa.string())]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """Stands still but while somebody waits, and jumps by `late` behind what was asked for."""

    def __init__(self, late: float = 0.0) -> None:
        self.moment = 100.0
        self.late = late

    def now(self) -> float:
        return self.moment

    def wait_until(self, moment: float) -> None:
        if moment > self.moment:
            self.moment = moment + self.late


class Reader:
    """Notes when each line came; goes away before the line `until`."""

    def __init__(self, clock: Clock, until: int | None = None) -> None:
        self.clock = clock
        self.until = until
        self.got: list[tuple[float, dict[str, Any]]] = []

    def __call__(self, data: bytes) -> None:
        for line in data.splitlines():
            if len(self.got) == self.until:
                raise BrokenPipeError
            self.got.append((round(self.clock.now() - 100.0, 6), json.loads(line)))


def record(root: Path, arrivals: list[float], lacking: int | None = None) -> Config:
    """Records the stream `s`: a tuple for each arrival in seconds, windows of ten seconds, sealed
    but for `lacking`.
    """
    config = Config(state=root)
    rows = []
    counts = dict.fromkeys(range(int(max(arrivals)) // 10 + 1), 0)
    for n, second in enumerate(arrivals):
        window = int(second) // 10
        rows.append((window, counts[window], EPOCH + timedelta(seconds=second), f"k{n}"))
        counts[window] += 1
    if lacking is not None:
        del counts[lacking]
    tuples = pa.Table.from_pylist(
        [dict(zip(STREAM.names, row, strict=True)) for row in rows],
        schema=STREAM,
    )
    make_stream(config, "s", tuples, counts, width_ms=10_000)
    return config


def played(config: Config, clock: Clock, **options: Any) -> list[tuple[float, str]]:
    """Returns when which key was sent."""
    reader = Reader(clock)
    play(config, "s", reader, clock=clock, **options)
    return [(moment, row["key"]) for moment, row in reader.got]


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0, 3600.0])
def test_tuple_is_sent_at_its_arrival_time_scaled_by_the_speed(
    tmp_path: Path,
    speed: float,
) -> None:
    # Rules: H14, H51
    arrivals = [3.0, 3.0, 4.5, 27.0, 27.25, 61.0]
    config = record(tmp_path, arrivals)
    wanted = [(round((arrival - 3.0) / speed, 6), f"k{n}") for n, arrival in enumerate(arrivals)]
    assert played(config, Clock(), speed=speed) == wanted


def test_playback_at_maximum_speed_does_not_wait_and_reports_no_delay(tmp_path: Path) -> None:
    config = record(tmp_path, [1.0, 500.0, 90_000.0])
    clock = Clock()
    reader = Reader(clock)
    report = play(config, "s", reader, speed=None, clock=clock)
    assert [moment for moment, _ in reader.got] == [0.0, 0.0, 0.0]
    assert (report.tuples, report.delay_s, report.recorded_s) == (3, None, 89_999.0)


def test_playback_line_contains_the_whole_tuple_with_its_position(tmp_path: Path) -> None:
    clock = Clock()
    reader = Reader(clock)
    play(record(tmp_path, [12.5]), "s", reader, clock=clock)
    assert reader.got == [
        (
            0.0,
            {"window_id": 1, "offset": 0, "arrived_at": "1970-01-01T00:00:12.500000Z", "key": "k0"},
        )
    ]


def test_playback_delays_do_not_accumulate(tmp_path: Path) -> None:
    config = record(tmp_path, [float(n) for n in range(50)])
    clock = Clock(late=0.02)
    reader = Reader(clock)
    report = play(config, "s", reader, clock=clock)
    assert [moment for moment, _ in reader.got] == [
        0.0,
        *(round(n + 0.02, 6) for n in range(1, 50)),
    ]
    assert report.delay_s is not None
    assert report.delay_s["largest"] == 0.02
    assert report.delay_s["median"] == pytest.approx(0.02, rel=0.03)


def test_tuple_with_a_decreasing_arrival_is_sent_with_the_previous_tuple(tmp_path: Path) -> None:
    tuples = pa.Table.from_pydict(
        {
            "window_id": [0, 1, 1],
            "offset": [0, 0, 1],
            "key": ["k0", "k1", "k2"],
            "arrived_at": [EPOCH + timedelta(seconds=second) for second in (9.0, 8.0, 12.0)],
        },
        schema=pa.schema(
            [STREAM.field(name) for name in ("window_id", "offset", "key", "arrived_at")]
        ),
    )
    config = Config(state=tmp_path)
    make_stream(config, "s", tuples.select(STREAM.names), {0: 1, 1: 2}, width_ms=10_000)
    reader = Reader(clock := Clock())
    report = play(config, "s", reader, clock=clock)
    assert [(moment, row["key"]) for moment, row in reader.got] == [
        (0.0, "k0"),
        (0.0, "k1"),
        (3.0, "k2"),
    ]
    assert report.delay_s == {"median": 0.0, "p99": 0.0, "largest": 0.0}


def test_stream_read_in_parts_is_sent_without_interruption(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = record(tmp_path, [n * 0.7 for n in range(100)] + [200.0])
    whole = played(config, Clock(), speed=7)
    monkeypatch.setattr("rewindow.playback.player.PART_TUPLES", 5)
    monkeypatch.setattr("rewindow.playback.player.SEND_TUPLES", 2)
    assert played(config, Clock(), speed=7) == whole
    assert len(whole) == 101


def test_playback_of_a_window_or_time_range_starts_with_its_first_tuple(tmp_path: Path) -> None:
    config = record(tmp_path, [3.0, 14.0, 29.0, 33.0])
    wanted = [(0.0, "k1"), (15.0, "k2")]
    assert played(config, Clock(), first=1, last=2) == wanted
    assert (
        played(config, Clock(), from_time="1970-01-01T00:00:10Z", to_time="1970-01-01T00:00:30Z")
        == wanted
    )


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ({"from_time": "1970-01-01T00:00:14Z"}, ["k1", "k2", "k3"]),
        ({"from_time": "1970-01-01T00:00:15Z", "to_time": "1970-01-01T00:00:33Z"}, ["k2"]),
        ({"to_time": "1970-01-01T00:00:14Z"}, ["k0"]),
        ({"from_time": "1970-01-01T00:00:15Z", "to_time": "1970-01-01T00:00:29Z"}, []),
    ],
    ids=str,
)
def test_times_inside_a_window_limit_the_tuples_that_are_sent(
    tmp_path: Path,
    times: dict[str, str],
    wanted: list[str],
) -> None:
    config = record(tmp_path, [3.0, 14.0, 29.0, 33.0])
    assert [key for _, key in played(config, Clock(), **times)] == wanted


def test_unsealed_windows_are_reported_and_not_sent(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: W40
    config = record(tmp_path, [3.0, 14.0, 29.0], lacking=1)
    reader = Reader(clock := Clock())
    report = play(config, "s", reader, clock=clock)
    assert [row["key"] for _, row in reader.got] == ["k0", "k2"]
    assert report.missing == 1
    assert caplog.messages[0] == "1 of 3 windows are not sealed and are skipped"


def test_playback_detects_lost_tuples_per_window(tmp_path: Path) -> None:
    config = record(tmp_path, [3.0, 14.0])
    DeltaTable(str(config.stream_table("s"))).delete("window_id = 1")
    with pytest.raises(TableError, match='window 1 of stream "s" has 0 tuples, but 1 were sealed'):
        played(config, Clock())


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"speed": 0.0}, InputError, "speed 0 is out of range: it must be a finite number above 0"),
        ({"speed": -2.0}, InputError, "speed -2 is out of range"),
        ({"speed": float("inf")}, InputError, "speed inf is out of range"),
        ({"speed": float("nan")}, InputError, "speed nan is out of range"),
        ({"first": 2, "last": 1}, RangeError, "window range is empty: first 2 is after last 1"),
        (
            {"first": 7},
            RangeError,
            r"window range from 7 to 2 .* does not overlap the sealed windows \[0, 2\]",
        ),
        (
            {"from_time": "1970-01-01T00:00:20Z", "to_time": "1970-01-01T00:00:10Z"},
            RangeError,
            "is reversed",
        ),
        ({"from_time": "yesterday"}, InputError, 'time "yesterday" cannot be read'),
        ({"first": 1, "last": 1}, RangeError, r"no window of \[1, 1\] .* is sealed"),
    ],
)
def test_stream_that_cannot_be_played_is_rejected_before_anything_is_sent(
    tmp_path: Path,
    options: dict[str, Any],
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        played(record(tmp_path, [3.0, 14.0, 29.0], lacking=1), Clock(), **options)


def test_unknown_streams_are_rejected_with_the_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='stream "nothing" is unknown'):
        play(Config(state=tmp_path), "nothing", lambda data: None)
    config = record(tmp_path, [3.0])
    make_stream(
        config,
        "app.totals",
        pa.Table.from_pylist([], schema=STREAM),
        {0: 0},
        width_ms=10_000,
    )
    with pytest.raises(InputError, match='"app.total" is unknown') as found:
        play(config, "app.total", lambda data: None)
    assert (
        found.value.hint
        == 'Did you mean "app.totals"? Recorded and published streams: app.totals, s.'
    )


def test_playback_ended_by_a_disconnected_reader_reports_the_window_to_resume_from(
    tmp_path: Path,
) -> None:
    config = record(tmp_path, [3.0, 14.0, 29.0])
    clock = Clock()
    with pytest.raises(
        Interrupted,
        match="ended after 2 tuples, in window 2: the reader closed the connection",
    ) as found:
        play(config, "s", Reader(clock, until=2), clock=clock)
    assert found.value.hint.startswith(
        "To continue with that window: rewindow play s --first 2 --last 2 "
    )


def test_report_counts_only_lines_received_completely_by_the_reader(tmp_path: Path) -> None:
    config = record(tmp_path, [3.0, 4.0, 29.0])
    taken: list[bytes] = []

    def head(data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        taken.extend(lines[:2])
        raise ReaderGone(len(b"".join(lines[:2])) + 5)

    with pytest.raises(
        PlaybackStopped,
        match="ended after 2 tuples, in window 0: the reader closed the connection",
    ) as found:
        play(config, "s", head, speed=None, clock=Clock())
    assert len(taken) == 2 and found.value.by_reader
    report = found.value.report.to_dict()
    assert (report["tuples"], report["recorded_s"], report["is_complete"]) == (2, 1.0, False)


def test_interrupt_reports_the_tuples_sent_until_then(tmp_path: Path) -> None:
    class Stopped(Clock):
        def wait_until(self, moment: float) -> None:
            if moment > 120:
                raise KeyboardInterrupt
            super().wait_until(moment)

    clock = Stopped()
    with pytest.raises(
        PlaybackStopped,
        match="ended after 2 tuples, in window 2: the command was interrupted",
    ) as found:
        play(record(tmp_path, [3.0, 14.0, 29.0]), "s", Reader(clock), clock=clock)
    assert (found.value.report.tuples, found.value.report.is_complete, found.value.by_reader) == (
        2,
        False,
        False,
    )


def test_playback_reports_how_much_was_read_before_the_pipe_closed() -> None:
    ours, theirs = socket.socketpair()

    def read() -> None:
        with theirs:
            theirs.recv(10)

    reader = threading.Thread(target=read)
    reader.start()
    with ours, pytest.raises(ReaderGone) as gone:
        _send(ours.send, b"x" * 100_000_000)
    reader.join()
    assert 0 < gone.value.taken < 100_000_000


def test_playback_port_serves_a_single_reader_until_the_end_of_the_stream(tmp_path: Path) -> None:
    config = record(tmp_path, [3.0, 14.0, 29.0])
    said = list[str]()
    got = list[bytes]()
    threads = list[threading.Thread]()

    def read(line: str) -> None:
        host, port = line.removeprefix("waiting for a reader on ").split(":")
        reader = socket.create_connection((host, int(port)))
        said.append(host)
        threads.append(threading.Thread(target=lambda: got.append(reader.makefile("rb").read())))
        threads[0].start()

    with messages_shown(read), on_port(0) as target:
        play(config, "s", target, speed=None)
    threads[0].join(30)
    assert said == ["127.0.0.1"]
    assert [json.loads(line)["key"] for line in got[0].splitlines()] == ["k0", "k1", "k2"]


def test_long_playback_reports_its_position_every_ten_seconds(tmp_path: Path) -> None:
    config = record(tmp_path, [3.0, 14.0, 29.0, 33.0])
    lines = list[str]()
    play(config, "s", Reader(clock := Clock()), clock=clock, listener=Lines(lines.append))
    assert lines == [
        "2 tuples sent, up to 1970-01-01T00:00:14Z, at most 26 s left",
        "3 tuples sent, up to 1970-01-01T00:00:29Z, at most 11 s left",
    ]


def test_invalid_and_occupied_ports_are_rejected() -> None:
    with pytest.raises(InputError, match="port 70000 is out of range"), on_port(70_000):
        pass
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with (
            pytest.raises(ResourceError, match=f"port {taken} of 127.0.0.1:"),
            on_port(taken),
        ):
            pass


def test_values_without_a_json_type_are_sent_as_exact_text() -> None:
    rows = pa.table(
        {
            "sum": pa.array([Decimal("1.10")]), "raw": [b"\x00\xff"], "many": [[1.5, float("inf")]],
            "at": pa.array([EPOCH], TIME), "hour": [EPOCH.time()],
            "inside": [{"x": float("nan"), "y": None}], "day": [datetime(2013, 1, 1).date()],
            "far": pa.array([2**63 - 1], TIME),
        }
    )  # fmt: skip
    assert json.loads(json_lines(rows)[0]) == {
        "sum": "1.10",
        "raw": "AP8=",
        "many": [1.5, "Infinity"],
        "inside": {"x": "NaN", "y": None},
        "day": "2013-01-01",
        "at": "1970-01-01T00:00:00.000000Z",
        "far": "+294247-01-10T04:00:54.775807Z",
        "hour": "00:00:00.000000",
    }


@given(
    st.lists(st.floats(0, 1e4), min_size=1, max_size=200),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_delay_percentiles_are_exact_within_one_bin(
    seconds: list[float],
    share: float,
) -> None:
    delays = Delays()
    delays.add(np.array(seconds[:3]))
    if seconds[3:]:
        delays.add(np.array(seconds[3:]))
    wanted = float(np.quantile(seconds, share, method="inverted_cdf"))
    assert delays.quantile(share) == pytest.approx(wanted, rel=0.025, abs=1e-6)
    assert delays.largest == max(seconds)
