"""Control tuples in the framework that users test them with (O132, O133, O135, X44)."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort, PortHandle, find_violations
from rewindow.operators import DelayOperator, StateField, TupleOperator
from rewindow.testing import check_application, run_application, run_operator

EVENTS = pa.schema([("key", pa.string()), ("n", pa.int64())])
CLOSE = pa.schema([("day", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


class Closes(TupleOperator):
    """Says in the last window of every three that the day is over: every key range does."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"close": OutputPort(CLOSE, control=True)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        """Keeps the key, and so the range."""
        self.seen += 1

    def end_window(self) -> None:
        if self.window_id % 3 == 2:
            self.emit("close", self.window_id // 3, 5)


class Days(TupleOperator):
    inputs: ClassVar = {
        "close": InputPort(CLOSE, control=True),
        "events": InputPort(EVENTS, key=("key",)),
    }
    outputs: ClassVar = {"out": OutputPort(pa.schema([("day", pa.int64()), *EVENTS]))}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_events(self, row: Any) -> None:
        self.total += row.n

    def process_close(self, close: Any) -> None:
        """Emits what the day had, with the tuples of its last window, and begins the next one."""
        assert close.at == 5
        for key in self.keys():
            self.emit("out", close.day, key, self.total)
            self.forget()


def days() -> Application:
    app = Application("days", window="1 second")
    events = app.input("events")
    closes = app.add("closes", Closes(), events=events)
    app.output("days", app.add("days", Days(), events=events, close=closes), key=["day", "key"])
    app.output("closes", closes["close"], key=["day"])
    return app


def test_control_tuple_reaches_every_partition_once_before_its_window_ends() -> None:
    given = {
        "events": {
            0: [(key, 1) for key in "abcdefgh"],
            2: [("a", 2)],
            3: [("b", 5)],
            5: [("b", 1), ("c", 1)],
            7: [("a", 9)],
        }
    }
    found = check_application(days(), given, windows=(0, 8), runs=8)
    assert [row[:2] for row in found["closes"]] == [(2, 0), (5, 1), (8, 2)]
    first = [(2, 0, "a", 3), *((2, 0, key, 1) for key in "bcdefgh")]
    assert sorted(found["days"]) == [*first, (5, 1, "b", 6), (5, 1, "c", 1), (8, 2, "a", 9)]
    cut = run_application(days(), given, windows=(0, 8), group_windows=2, key_ranges=5)
    assert sorted(cut["days"]) == sorted(found["days"])
    assert len(cut["closes"]) == 3


def test_equal_control_tuples_are_merged_and_others_keep_their_order() -> None:
    # Rules: X44
    class Notes(TupleOperator):
        inputs: ClassVar = {
            "say": InputPort(EVENTS, control=True),
            "rows": InputPort(EVENTS, key=("key",)),
        }
        outputs: ClassVar = {"out": OutputPort(EVENTS)}

        def process_rows(self, row: Any) -> None:
            self.emit("out", *row)

        process_say = process_rows  # type: ignore[pydantic-field]

        def end_window(self) -> None:
            # Rules: O132
            self.emit("out", "end", self.window_id)

    given = {
        "say": {1: [("z", 2), ("z", 1), ("z", 2)], 2: [("z", 2)]},
        "rows": {1: [("a", 0)], 2: [("a", 0)]},
    }
    assert run_operator(Notes(), given, group_windows=2)["out"] == [
        (1, "a", 0),
        (1, "z", 1),
        (1, "z", 2),
        (1, "end", 1),
        (2, "a", 0),
        (2, "z", 2),
        (2, "end", 2),
    ]


def test_invalid_use_of_a_control_port_is_reported_at_launch() -> None:
    class Keyed(Days):
        inputs: ClassVar = {**Days.inputs, "close": InputPort(CLOSE, control=True, key=("day",))}

    app = days()
    app.add(
        "keyed",
        Keyed(),
        events=PortHandle(None, "events"),
        close=PortHandle("closes", "close"),
    )
    assert [str(one) for one in find_violations(app)] == [
        "keyed: a control port cannot have a key: its tuples go to all keys (close = ('day',))"
    ]

    class Around(DelayOperator):
        columns: ClassVar = CLOSE

    class Stops(Days):
        outputs: ClassVar = {"out": OutputPort(CLOSE)}

    app = days()
    app.add("stops", Stops(), events=PortHandle(None, "events"), close=PortHandle("around", "out"))
    app.add("around", Around(), tuples=PortHandle("stops", "out"))
    assert [(one.rule, one.operator, one.port) for one in find_violations(app)] == [
        ("X44", "stops", "close")
    ]
