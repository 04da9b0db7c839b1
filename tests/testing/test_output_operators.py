"""Operators at which tuples leave an application, and those that collect them (O3, X46); no JVM."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, InputPort, Mode, OutputPort, find_violations
from rewindow.errors import InputError
from rewindow.operators import CollectOperator, OutputOperator, TupleOperator
from rewindow.testing import CRASH, check_grouping, run_application, run_operator

CLICKS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
REJECTED = OutputPort(pa.schema([("user", pa.string())]), error=True)


class Ledger(OutputOperator):
    """Sends a window at once, at its end, and none twice: what it has sent is outside, in a list of
    the test.
    """

    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"rejected": REJECTED}
    transient: ClassVar = ("waiting",)
    sent: ClassVar[list[tuple[int, str]]] = []
    waiting: ClassVar[list[str]]

    def begin_window(self, window_id: int) -> None:
        self.waiting = []  # type: ignore[misc]

    def process(self, row: Any) -> None:
        if row.user == "":
            self.emit_error("rejected", (row.user,), "target_rejected", "a user has a name")
        else:
            self.waiting.append(row.user)

    def end_window(self) -> None:
        last = max((window for window, _ in self.sent), default=-1)
        if self.window_id > last:
            self.sent.extend((self.window_id, user) for user in self.waiting)


class Seen(CollectOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS)}


class SeenByUser(CollectOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}


class Through(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"out": OutputPort(CLICKS)}

    def process(self, row: Any) -> None:
        self.emit("out", *row)


def test_tuples_rejected_by_a_target_are_sent_to_the_error_port() -> None:
    # Rules: O62, R67, R63
    Ledger.sent.clear()
    clicks: dict[int, list[Any]] = {3: [("ann", 1), ("", 2), ("bob", 3)], 4: [("eve", 4), CRASH]}
    found = run_operator(Ledger(), {"clicks": clicks})
    assert Ledger.sent == [(3, "ann"), (3, "bob"), (4, "eve")]
    assert [row[:2] for row in found["rejected"]] == [(3, "")]
    assert found.crashes == 1


def test_replay_rejects_operators_with_external_writes_in_every_mode() -> None:
    # Rules: X46
    # A replay cannot undo external writes; a collecting operator writes nothing outside.
    app = Application("sinks", window="5 seconds")
    clicks = app.input("clicks")
    app.output("through", app.add("through", Through(), clicks=clicks), key=["user"])
    app.add("seen", Seen(), clicks=clicks)
    assert not find_violations(app)
    app.add("ledger", Ledger(), clicks=clicks)
    for mode in (Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE, Mode.EXACTLY_ONCE):
        assert [(one.rule, one.operator) for one in find_violations(app, mode)] == [
            ("X46", "ledger")
        ]


def test_test_run_includes_all_output_operators() -> None:
    # Rules: O3, O15
    Ledger.sent.clear()
    app = Application("sinks", window="5 seconds", strict_outputs=True)
    through = app.add("through", Through(), clicks=app.input("clicks"))
    app.output("through", through, key=["user"])
    app.add("ledger", Ledger(), clicks=through)
    app.add("seen", Seen(), clicks=through)
    found = run_application(app, {"clicks": {0: [("ann", 1)], 1: [("", 2)]}})
    assert Ledger.sent == [(0, "ann")]
    assert [row[:2] for row in found["ledger.rejected"]] == [(1, "")]
    assert [one["user"] for one in found.states["seen"][()]["collected"]] == ["ann", ""]


def test_last_tuples_are_collected_once_with_their_windows_in_any_grouping() -> None:
    clicks: dict[int, list[Any]] = {
        2: [("ann", 10), ("bob", 20)],
        5: [("ann", 30), CRASH],
        6: [("ann", 40)],
    }
    found = run_operator(Seen(limit=2), {"clicks": clicks}, group_windows=2)
    assert found.states[()] == {
        "collected": [
            {"window_id": 5, "user": "ann", "at": 30},
            {"window_id": 6, "user": "ann", "at": 40},
        ]
    }
    whole = {window: [row for row in rows if row is not CRASH] for window, rows in clicks.items()}
    by_user = check_grouping(SeenByUser(limit=2), {"clicks": whole})
    assert [one["window_id"] for one in by_user.states["ann"]["collected"]] == [5, 6]
    assert [one["at"] for one in by_user.states["bob"]["collected"]] == [20]


def test_mismatched_ports_of_output_operators_are_reported() -> None:
    # Rules: O3
    class Emits(OutputOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS)}
        outputs: ClassVar = {"out": OutputPort(CLICKS)}

        def process(self, row: Any) -> None: ...

    class Two(CollectOperator):
        inputs: ClassVar = {"a": InputPort(CLICKS), "b": InputPort(CLICKS)}
        process_a = process_b = CollectOperator.process  # type: ignore[pydantic-field]

    class Odd(CollectOperator):
        inputs: ClassVar = {
            "a": InputPort(
                pa.schema([("window_id", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
            )
        }

    assert [one.path for one in Emits().wrong_properties()] == ["out"]
    with pytest.raises(InputError, match="can only emit error tuples"):
        run_operator(Emits(), {"clicks": {0: []}})
    assert [one.message for one in Two().wrong_properties()] == [
        "a collecting operator must have one input port"
    ]
    assert [one.message.split(" is ")[0] for one in Odd().wrong_properties()] == [
        "column window_id has a name that",
        "column m",
    ]
    assert [one.path for one in Seen(limit=0).wrong_properties()] == ["limit"]
