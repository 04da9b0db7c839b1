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

from rewindow.config import Config
from rewindow.errors import InputError, Interrupted, RangeError, ResourceError, TableError
from rewindow.listener import Lines
from rewindow.playback import PlaybackStopped, on_port, play
from rewindow.playback.lines import json_lines
from rewindow.playback.report import Delays
from rewindow.playback.targets import ReaderGone, _send
from tests.recovery.project import make_stream

TIME = pa.timestamp("us", "UTC")
STREAM = pa.schema([("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME), ("key", pa.string())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """Stands still but while somebody waits, and jumps by `late` behind what was asked for."""

    def __init__(self, late: float = 0.0) -> None:
        self.moment, self.late = 100.0, late

    def now(self) -> float:
        """See rewindow.playback.player.Clock."""
        return self.moment

    def wait_until(self, moment: float) -> None:
        """See rewindow.playback.player.Clock."""
        if moment > self.moment:
            self.moment = moment + self.late


class Reader:
    """Notes when each line came; goes away before the line `until`."""

    def __init__(self, clock: Clock, until: int | None = None) -> None:
        self.clock, self.until = clock, until
        self.got: list[tuple[float, dict[str, Any]]] = []

    def __call__(self, data: bytes) -> None:
        """Takes lines."""
        for line in data.splitlines():
            if len(self.got) == self.until:
                raise BrokenPipeError
            self.got.append((round(self.clock.now() - 100.0, 6), json.loads(line)))


def record(root: Path, arrivals: list[float], lacking: int | None = None) -> Config:
    """Records the stream `s`: a tuple for each arrival in seconds, windows of ten seconds, sealed but for `lacking`."""
    config, rows, counts = Config(state=root), [], dict.fromkeys(range(int(max(arrivals)) // 10 + 1), 0)
    for n, second in enumerate(arrivals):
        window = int(second) // 10
        rows.append((window, counts[window], EPOCH + timedelta(seconds=second), f"k{n}"))
        counts[window] += 1
    if lacking is not None:
        del counts[lacking]
    tuples = pa.Table.from_pylist([dict(zip(STREAM.names, row, strict=True)) for row in rows], schema=STREAM)
    make_stream(config, "s", tuples, counts, width_ms=10_000)
    return config


def played(config: Config, clock: Clock, **wishes: Any) -> list[tuple[float, str]]:
    """Returns when which key was sent."""
    reader = Reader(clock)
    play(config, "s", reader, clock=clock, **wishes)
    return [(moment, row["key"]) for moment, row in reader.got]


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0, 3600.0])
def test_a_tuple_is_sent_when_its_arrival_is_due_at_that_speed(tmp_path: Path, speed: float) -> None:
    """H14, H51: every wait takes its part of the speed; what is sent, and in which order, does not depend on it."""
    arrivals = [3.0, 3.0, 4.5, 27.0, 27.25, 61.0]
    config = record(tmp_path, arrivals)
    wanted = [(round((arrival - 3.0) / speed, 6), f"k{n}") for n, arrival in enumerate(arrivals)]
    assert played(config, Clock(), speed=speed) == wanted


def test_the_fastest_playback_waits_for_nothing(tmp_path: Path) -> None:
    """And there is no delay to tell, as nothing is due."""
    config, clock = record(tmp_path, [1.0, 500.0, 90_000.0]), Clock()
    reader = Reader(clock)
    report = play(config, "s", reader, speed=None, clock=clock)
    assert [moment for moment, _ in reader.got] == [0.0, 0.0, 0.0]
    assert (report.tuples, report.delay_s, report.recorded_s) == (3, None, 89_999.0)


def test_a_line_has_the_whole_tuple(tmp_path: Path) -> None:
    """Its place as well as its columns."""
    clock = Clock()
    reader = Reader(clock)
    play(record(tmp_path, [12.5]), "s", reader, clock=clock)
    assert reader.got == [
        (0.0, {"window_id": 1, "offset": 0, "arrived_at": "1970-01-01T00:00:12.500000Z", "key": "k0"})
    ]


def test_delays_do_not_add_up(tmp_path: Path) -> None:
    """A clock that wakes up 20 ms late delays each tuple by 20 ms, not the last one by the sum."""
    config, clock = record(tmp_path, [float(n) for n in range(50)]), Clock(late=0.02)
    reader = Reader(clock)
    report = play(config, "s", reader, clock=clock)
    assert [moment for moment, _ in reader.got] == [0.0, *(round(n + 0.02, 6) for n in range(1, 50))]
    assert report.delay_s is not None
    assert report.delay_s["largest"] == 0.02
    assert report.delay_s["median"] == pytest.approx(0.02, rel=0.03)


def test_time_does_not_go_back(tmp_path: Path) -> None:
    """A tuple whose arrival lies before that of the tuple before it is due with that one."""
    tuples = pa.Table.from_pydict(
        {
            "window_id": [0, 1, 1], "offset": [0, 0, 1], "key": ["k0", "k1", "k2"],
            "arrived_at": [EPOCH + timedelta(seconds=second) for second in (9.0, 8.0, 12.0)],
        },
        schema=pa.schema([STREAM.field(name) for name in ("window_id", "offset", "key", "arrived_at")]),
    )  # fmt: skip
    config = Config(state=tmp_path)
    make_stream(config, "s", tuples.select(STREAM.names), {0: 1, 1: 2}, width_ms=10_000)
    reader = Reader(clock := Clock())
    report = play(config, "s", reader, clock=clock)
    assert [(moment, row["key"]) for moment, row in reader.got] == [(0.0, "k0"), (0.0, "k1"), (3.0, "k2")]
    assert report.delay_s == {"median": 0.0, "p99": 0.0, "largest": 0.0}


def test_a_stream_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And sent as if it were one; also where a part is one window, or empty windows lie between."""
    config = record(tmp_path, [n * 0.7 for n in range(100)] + [200.0])
    whole = played(config, Clock(), speed=7)
    monkeypatch.setattr("rewindow.playback.player.PART_TUPLES", 5)
    monkeypatch.setattr("rewindow.playback.player.SEND_TUPLES", 2)
    assert played(config, Clock(), speed=7) == whole
    assert len(whole) == 101


def test_a_range_is_played(tmp_path: Path) -> None:
    """By window ids, or by times, whose end is not included; its first tuple is due at once."""
    config = record(tmp_path, [3.0, 14.0, 29.0, 33.0])
    wanted = [(0.0, "k1"), (15.0, "k2")]
    assert played(config, Clock(), first=1, last=2) == wanted
    assert played(config, Clock(), from_time="1970-01-01T00:00:10Z", to_time="1970-01-01T00:00:30Z") == wanted


def test_windows_that_are_not_sealed_are_named_and_not_sent(tmp_path: Path) -> None:
    """Tuples may still come into them (W40)."""
    config, lines = record(tmp_path, [3.0, 14.0, 29.0], lacking=1), list[str]()
    reader = Reader(clock := Clock())
    report = play(config, "s", reader, clock=clock, listener=Lines(lines.append))
    assert [row["key"] for _, row in reader.got] == ["k0", "k2"]
    assert report.missing == 1
    assert lines[0] == "1 of 3 windows are not sealed: nothing is sent for them"


def test_tuples_that_were_lost_are_noticed(tmp_path: Path) -> None:
    """Of the windows that hold them; a playback never ends well with fewer tuples than were sealed."""
    config = record(tmp_path, [3.0, 14.0])
    DeltaTable(str(config.stream_table("s"))).delete("window_id = 1")
    with pytest.raises(TableError, match='window 1 of stream "s" holds 0 tuples, sealed were 1'):
        played(config, Clock())


@pytest.mark.parametrize(
    ("wishes", "kind", "words"),
    [
        ({"speed": 0.0}, InputError, "speed 0 is out of range, it must be above 0 and finite"),
        ({"speed": -2.0}, InputError, "speed -2 is out of range"),
        ({"speed": float("inf")}, InputError, "speed inf is out of range"),
        ({"speed": float("nan")}, InputError, "speed nan is out of range"),
        ({"first": 2, "last": 1}, RangeError, "window range is empty: first 2 is after last 1"),
        ({"first": 7}, RangeError, r"window range from 7 to 2 .* is beside what is sealed, \[0, 2\]"),
        ({"from_time": "1970-01-01T00:00:20Z", "to_time": "1970-01-01T00:00:10Z"}, RangeError, "is reversed"),
        ({"from_time": "yesterday"}, InputError, 'time "yesterday" cannot be read'),
        ({"first": 1, "last": 1}, RangeError, r"no window of \[1, 1\] .* is sealed"),
    ],
)
def test_what_cannot_be_played_is_refused(
    tmp_path: Path, wishes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """Before anything is sent."""
    with pytest.raises(kind, match=words):
        played(record(tmp_path, [3.0, 14.0, 29.0], lacking=1), Clock(), **wishes)


def test_unknown_streams_are_refused(tmp_path: Path) -> None:
    """Whether it was never named, or only never recorded; with those that are there, published ones too."""
    with pytest.raises(InputError, match='stream "nothing" is unknown'):
        play(Config(state=tmp_path), "nothing", lambda data: None)
    config = record(tmp_path, [3.0])
    make_stream(config, "app.totals", pa.Table.from_pylist([], schema=STREAM), {0: 0}, width_ms=10_000)
    with pytest.raises(InputError, match='"app.total" is unknown') as found:
        play(config, "app.total", lambda data: None)
    assert found.value.hint == 'Did you mean "app.totals"? Recorded or published are: app.totals, s.'


def test_a_reader_that_goes_ends_it_with_the_place_to_go_on(tmp_path: Path) -> None:
    """The window that was being sent is sent again: nobody knows what the reader had read of it."""
    config, clock = record(tmp_path, [3.0, 14.0, 29.0]), Clock()
    with pytest.raises(Interrupted, match="ended after 2 tuples, in window 2: the reader has gone") as found:
        play(config, "s", Reader(clock, until=2), clock=clock)
    assert found.value.hint.startswith("rewindow play s --first 2 --last 2 ")


def test_what_was_really_taken_is_counted(tmp_path: Path) -> None:
    """Of a block of lines those that the reader took whole; the report of what was sent comes with the error."""
    config = record(tmp_path, [3.0, 4.0, 29.0])
    taken: list[bytes] = []

    def head(data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        taken.extend(lines[:2])
        raise ReaderGone(len(b"".join(lines[:2])) + 5)

    with pytest.raises(PlaybackStopped, match="ended after 2 tuples, in window 0: the reader has gone") as found:
        play(config, "s", head, speed=None, clock=Clock())
    assert len(taken) == 2 and found.value.by_reader
    report = found.value.report.to_dict()
    assert (report["tuples"], report["recorded_s"], report["is_complete"]) == (2, 1.0, False)


def test_ctrl_c_leaves_the_report(tmp_path: Path) -> None:
    """Of what was sent until then."""

    class Stopped(Clock):
        def wait_until(self, moment: float) -> None:
            if moment > 120:
                raise KeyboardInterrupt
            super().wait_until(moment)

    clock = Stopped()
    with pytest.raises(PlaybackStopped, match="ended after 2 tuples, in window 2: it was stopped") as found:
        play(record(tmp_path, [3.0, 14.0, 29.0]), "s", Reader(clock), clock=clock)
    assert (found.value.report.tuples, found.value.report.is_complete, found.value.by_reader) == (2, False, False)


def test_a_pipe_that_closes_says_how_much_it_took() -> None:
    """More than fits into it is sent to a reader that takes one block and goes."""
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


def test_a_port_serves_one_reader(tmp_path: Path) -> None:
    """On a free port of this machine; the reader sees the end of the stream."""
    config, said, got = record(tmp_path, [3.0, 14.0, 29.0]), list[str](), list[bytes]()
    threads = list[threading.Thread]()

    def read(line: str) -> None:
        host, port = line.removeprefix("waiting for a reader on ").split(":")
        reader = socket.create_connection((host, int(port)))
        said.append(host)
        threads.append(threading.Thread(target=lambda: got.append(reader.makefile("rb").read())))
        threads[0].start()

    with on_port(0, read) as target:
        play(config, "s", target, speed=None)
    threads[0].join(30)
    assert said == ["127.0.0.1"]
    assert [json.loads(line)["key"] for line in got[0].splitlines()] == ["k0", "k1", "k2"]


def test_a_long_playback_says_where_it_is(tmp_path: Path) -> None:
    """Every ten seconds of its own time, not of the recorded one."""
    config, lines = record(tmp_path, [3.0, 14.0, 29.0, 33.0]), list[str]()
    play(config, "s", Reader(clock := Clock()), clock=clock, listener=Lines(lines.append))
    assert lines == [
        "2 tuples sent, up to 1970-01-01T00:00:14Z, at most 26 s left",
        "3 tuples sent, up to 1970-01-01T00:00:29Z, at most 11 s left",
    ]


def test_ports_that_cannot_be_are_refused() -> None:
    """One that is no port, and one that somebody has."""
    with pytest.raises(InputError, match="port 70000 is out of range"), on_port(70_000):
        pass
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ResourceError, match=f"port {taken} of 127.0.0.1 cannot be listened on"), on_port(taken):
            pass


def test_values_that_json_lacks_are_text() -> None:
    """Exact, and the same in nested columns."""
    rows = pa.table(
        {
            "sum": pa.array([Decimal("1.10")]), "raw": [b"\x00\xff"], "many": [[1.5, float("inf")]],
            "at": pa.array([EPOCH], TIME), "hour": [EPOCH.time()],
            "inside": [{"x": float("nan"), "y": None}], "day": [datetime(2013, 1, 1).date()],
        }
    )  # fmt: skip
    assert json.loads(json_lines(rows)[0]) == {
        "sum": "1.10", "raw": "AP8=", "many": [1.5, "Infinity"], "inside": {"x": "NaN", "y": None}, "day": "2013-01-01",
        "at": "1970-01-01T00:00:00.000000Z", "hour": "00:00:00.000000",
    }  # fmt: skip


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_delays_are_those_of_all_tuples(seconds: list[float], share: float) -> None:
    """Within the width of a bin."""
    delays = Delays()
    delays.add(np.array(seconds[:3]))
    if seconds[3:]:
        delays.add(np.array(seconds[3:]))
    wanted = float(np.quantile(seconds, share, method="inverted_cdf"))
    assert delays.quantile(share) == pytest.approx(wanted, rel=0.025, abs=1e-6)
    assert delays.largest == max(seconds)
