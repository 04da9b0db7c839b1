"""Cycles in the framework that users test them with: they come to what a plain loop does (O51, O52,
X9, X40).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewindow.application import Application, InputPort, OutputPort, PortHandle, describe_graph
from rewindow.errors import InputError
from rewindow.loading.catalog import load_application
from rewindow.operators import DelayOperator, StateField, TupleOperator
from rewindow.pages.application_graph import draw_graph, graph_text
from rewindow.settings.config import Config
from rewindow.testing import CRASH, check_application, run_application, run_operator
from tests.testing import cycles

WINDOWS = range(10, 61)
ROWS = pa.schema([("key", pa.string()), ("n", pa.int64())])


def application() -> Application:
    folder = Path(__file__).parents[1] / "recovery" / "applications"
    return load_application(Config(applications=[folder]), "tuple_cycle").app


def events() -> dict[int, list[Any]]:
    """Returns random events up to ten windows before the end."""
    chosen = random.Random(3)
    return {
        window: [(chosen.choice("abc"), chosen.randint(-5, 9)) for _ in range(chosen.randint(0, 4))]
        for window in WINDOWS[:-10]
    }


def test_cycle_results_equal_plain_python_loops_in_any_grouping() -> None:
    given = events()
    found = check_application(
        application(),
        {"events": given},
        windows=(WINDOWS[0], WINDOWS[-1]),
        runs=8,
    )
    assert sorted(found["ranks"]) == cycles.ranks(given, WINDOWS)
    assert sorted(found["sums"]) == cycles.sums(given, WINDOWS)
    assert max(window for window, *_ in found["sums"]) > max(given) + 2, (
        "nothing goes around by itself"
    )


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_state_of_a_delay_operator_survives_a_crash(mode: str) -> None:
    # Rules: X9, R26
    given = events()
    how: dict[str, Any] = {"windows": (WINDOWS[0], WINDOWS[-1]), "mode": mode}
    whole = run_application(application(), {"events": given}, **how)
    given[23].append(CRASH)
    given[40].insert(0, CRASH)
    found = run_application(application(), {"events": given}, group_windows=4, key_ranges=2, **how)
    assert found.states == whole.states
    assert sorted(found["ranks"]) == cycles.ranks(events(), WINDOWS)
    assert found.lost == []


def test_at_most_once_loses_only_the_group_and_keeps_earlier_delayed_tuples() -> None:
    app = Application("one", window="1 second", checkpoint_windows=2)
    app.output("out", app.add("later", Later(), tuples=app.input("rows")), key=["key"])
    rows = {"rows": {1: [("a", 1)], 2: [CRASH], 3: [("b", 2)]}}
    found = run_application(app, rows, windows=(1, 6), group_windows=(1, 2, 3), mode="at_most_once")
    assert (found["out"], found.lost) == ([(4, "a", 1)], [2, 3])


class Later(DelayOperator):
    columns: ClassVar = ROWS


class LaterByKey(DelayOperator):
    columns: ClassVar = ROWS
    key: ClassVar = ("key",)


def test_delay_operator_works_without_a_cycle() -> None:
    # Rules: O52
    rows = {"tuples": {3: [("b", 1), ("a", 2)], 4: [("a", 3)]}}
    for delay in (Later(), LaterByKey()):
        found = run_operator(delay, rows, windows=(3, 6))["out"]
        assert sorted(found) == [(4, "a", 2), (4, "b", 1), (5, "a", 3)]
    slow = run_operator(Later(windows=3), rows, windows=(3, 8), group_windows=2)
    assert slow["out"] == [(6, "b", 1), (6, "a", 2), (7, "a", 3)]
    assert slow.states == {}, "nothing waits any more"


def test_times_and_nested_values_are_unchanged_by_a_cycle() -> None:
    class Nested(DelayOperator):
        columns: ClassVar = pa.schema(
            [("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string()))]
        )

    rows = {"tuples": {1: [(1_500_000, ["x", None]), (None, None)]}}
    assert run_operator(Nested(), rows, windows=(1, 2))["out"] == [
        (2, 1_500_000, ["x", None]),
        (2, None, None),
    ]


class Move(TupleOperator):
    """Sends each row on, under another key where it is asked to."""

    inputs: ClassVar = {
        "rows": InputPort(ROWS, key=("key",)),
        "back": InputPort(ROWS, key=("key",)),
    }
    outputs: ClassVar = {"out": OutputPort(ROWS), "on": OutputPort(ROWS)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    to: str = ""

    def process_rows(self, row: Any) -> None:
        self.emit("on", self.to or row.key, row.n)

    def process_back(self, row: Any) -> None:
        self.seen += row.n
        self.emit("out", row.key, self.seen)


def moving(delay: DelayOperator, to: str = "") -> Application:
    app = Application("moving", window="1 second")
    move = app.add("move", Move(to=to), rows=app.input("rows"), back=PortHandle("delay", "out"))
    app.add("delay", delay, tuples=move["on"])
    app.output("out", move["out"], key=["key"])
    return app


def test_tuple_that_changes_its_key_is_rejected_in_a_keyed_cycle() -> None:
    # Rules: X40
    # Its state may be in another key range.
    rows = {"rows": {1: [("a", 1), ("b", 2)]}}
    divided = run_application(moving(LaterByKey()), rows, windows=(1, 2), key_ranges=8)
    assert sorted(divided["out"]) == [(2, "a", 1), (2, "b", 2)]
    with pytest.raises(
        InputError,
        match=r'"move.on" sends a tuple of the key \'z\' around the cycle',
    ) as error:
        run_application(moving(LaterByKey(), to="z"), rows, windows=(1, 2))
    assert "Leave the key of the delay operator out" in str(error.value)
    assert run_application(moving(Later(), to="z"), rows, windows=(1, 2))["out"] == [
        (2, "z", 1),
        (2, "z", 3),
    ]


def test_error_in_a_cycle_shows_operator_window_and_tuple() -> None:
    torn: list[str] = []

    class Fails(Move):
        def process_back(self, row: Any) -> None:
            raise ValueError("broken")

        def teardown(self) -> None:
            torn.append("torn")

    app = moving(Later())
    app.nodes["move"] = app.nodes.pop("move").__class__(
        "move",
        Fails(),
        None,
        1,
        {"rows": PortHandle(None, "rows"), "back": PortHandle("delay", "out")},
    )
    with pytest.raises(ValueError, match="broken") as error:
        run_application(app, {"rows": {1: [("a", 1)]}}, windows=(1, 2), group_windows=2)
    assert (
        "in process of port back of Fails, window 2, at the tuple back(key='a', n=1)"
        in error.value.__notes__
    )
    assert torn == ["torn"]


def test_graph_shows_the_back_edge_of_a_cycle() -> None:
    graph = describe_graph(application())
    assert graph.cycles == [["around", "ranks"], ["later", "sums", "half"]]
    assert "  cycle of around, ranks, window by window in one pass\n" in graph_text(graph)
    drawn = draw_graph(graph, alone=True)
    assert drawn.count("stroke-dasharray") == 2
    assert "ranks.given to around.tuples, for a later window" in drawn


def test_cycles_support_batches_longer_windows_and_ports_without_columns() -> None:
    class Batches(TupleOperator):
        inputs: ClassVar = {"rows": InputPort(ROWS), "back": InputPort(ROWS)}
        outputs: ClassVar = {"out": OutputPort(ROWS)}

        def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
            """Sends on what comes from outside, and half of what comes back."""
            found = rows if port == "rows" else rows.set_column(1, "n", pc.divide(rows["n"], 2))
            self.emit_batch("out", found.filter(pc.greater(found["n"], 0)))

    class Periods(TupleOperator):
        inputs: ClassVar = {"rows": InputPort(ROWS)}
        outputs: ClassVar = {"out": OutputPort(ROWS), "beat": OutputPort(pa.schema([]))}
        total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
        beats = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

        def process(self, row: Any) -> None:
            self.total += row.n

        def end_window(self) -> None:
            self.emit("out", "sum", self.total)
            self.emit("beat")
            self.total = 0

    class Beats(TupleOperator):
        inputs: ClassVar = {
            "beat": InputPort(pa.schema([])),
            "told": InputPort(pa.schema([]), control=True),
        }
        outputs: ClassVar = {"out": OutputPort(pa.schema([("beats", pa.int64())]))}
        beats = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

        def process_beat(self, row: Any) -> None:
            self.beats += 1
            self.emit("out", self.beats)

        def process_told(self, row: Any) -> None:
            self.emit("out", -self.beats)

    app = Application("periods", window="1 second")
    batches = app.add("batches", Batches(), rows=app.input("rows"), back=PortHandle("later", "out"))
    periods = app.add("periods", Periods(), application_windows=4, rows=batches)
    app.add("later", Later(), tuples=periods["out"])
    app.output("out", periods["out"], key=["key"])
    app.output(
        "beats",
        app.add("beats", Beats(), beat=periods["beat"], told=periods["beat"]),
        key=["beats"],
    )
    found = check_application(
        app,
        {"rows": {0: [("a", 5)], 3: [("b", 3)], 5: [("a", 2)]}},
        windows=(0, 15),
    )
    assert found["out"] == [(3, "sum", 8), (7, "sum", 6), (11, "sum", 3), (15, "sum", 1)]
    assert found["beats"] == [
        (3, 1),
        (3, -1),
        (7, 2),
        (7, -2),
        (11, 3),
        (11, -3),
        (15, 4),
        (15, -4),
    ]
