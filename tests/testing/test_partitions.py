"""Partitions, round robin, unifiers and broadcast ports in the test framework for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, InputPort, OutputPort, PortHandle
from rewindow.application.description import describe_graph
from rewindow.errors import InputError, ValidationFailed
from rewindow.operators import DelayOperator, SlidingField, StateField, TupleOperator
from rewindow.testing import ApplicationRun, run_application
from tests.recovery.applications.tuple_partitions import (
    RULES,
    WORDS,
    JavaTotals,
    Limits,
    SumAndCount,
    Top,
    Totals,
    largest,
)


def words(windows: int, seed: int = 3) -> dict[int, list[tuple[str, int]]]:
    found = {}
    for window in range(windows):
        rows = []
        for place in range((window * seed) % 7 + 2):
            rows.append((f"w{(place * seed + window) % 5}", (place * 31 + window * 17) % 23))
        found[window] = rows
    return found


def application(operator: TupleOperator, **how: Any) -> Application:
    app = Application("counts", "1 second")
    ports = [name for name in operator.input_ports() if name != "rules"]
    feeds = {port: app.input("words", WORDS) for port in ports}
    if "rules" in operator.input_ports():
        feeds["rules"] = app.input("rules", RULES)
    node = app.add("op", operator, **feeds, **how)
    app.output("out", node, key=[])
    return app


def run(
    operator: TupleOperator,
    inputs: Mapping[str, Any],
    placing: Mapping[str, Any] | None = None,
    **how: Any,
) -> ApplicationRun:
    return run_application(application(operator, **(placing or {})), inputs, **how)


def rows(of: ApplicationRun) -> Counter[Any]:
    return Counter(of["out"])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", [Totals, JavaTotals])
def test_result_does_not_depend_on_the_number_of_partitions(kind: type, count: int) -> None:
    # Rules: O20, O101, O102, R98
    given = {"words": words(12)}
    expected = run(Totals(), given, group_windows=12)
    for how in ({}, {"repartition": {5: {"op": count + 1}, 9: {"op": 1}}}):
        found = run(kind(), given, {"partitions": count}, group_windows=4, **how)
        assert rows(found) == rows(expected)
        assert found.states == expected.states


@pytest.mark.parametrize("count", [1, 3])
def test_apex_partitioner_and_broadcast_ports_do_not_change_results(count: int) -> None:
    # Rules: O86, O87, O88, O91
    given = {"words": words(9), "rules": {2: [(10,)], 5: [(0,), (20,)]}}
    expected = run(Limits(), given)
    assert sum(rows(expected).values()) > 5
    found = run(Limits(), given, {"partitions": count, "partitioner": "apex"}, group_windows=2)
    assert rows(found) == rows(expected)
    assert found.states == expected.states


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_spread_aggregate_with_a_unifier_equals_an_independent_computation(count: int) -> None:
    # Rules: O73, O74, O78, O95, R100
    given = words(10)
    found = run(
        SumAndCount(),
        {"words": given},
        {"spread": count},
        group_windows=[3, 1, 6],
        repartition={5: {"op": 4}},
    )
    expected = {}
    for window, tuples in given.items():
        expected[window, sum(n for _, n in tuples) / len(tuples)] = 1
    assert rows(found) == expected
    assert found.states["op"] == {
        (): {"total": 0, "count": 0, "ever": sum(map(len, given.values()))}
    }
    assert len(found.ports["op.out"]) <= (max(count, 4)) * 10


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("application_windows", [1, 3])
def test_operator_can_be_used_as_its_own_unifier(count: int, application_windows: int) -> None:
    # Rules: O76
    given = words(9)
    app = Application("top", "1 second")
    node = app.add(
        "op",
        Top(size=3),
        words=app.input("words", WORDS),
        spread=count,
        application_windows=application_windows,
    )
    app.output("out", node, key=[])
    assert app.nodes["op.top.unifier"].operator.size == 3  # type: ignore[attr-defined]
    found = run_application(app, {"words": given}, group_windows=2)
    expected = Counter[Any]()
    for begin in range(0, 9, application_windows):
        of_window = []
        for window in range(begin, begin + application_windows):
            of_window += [{"n": n, "word": word} for word, n in given[window]]
        for row in largest(of_window, 3):
            expected[begin + application_windows - 1, row["word"], row["n"]] += 1
    assert rows(found) == expected


class Unkeyed(Limits):
    def process_rules(self, row: Any) -> None:
        self.emit("above", "x", row.limit)


class Elsewhere(Limits):
    def process_rules(self, row: Any) -> None:
        self.at("w99")


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Unkeyed(), "emits for a broadcast tuple without selecting"),
        (Elsewhere(), "no state in this"),
    ],
)
def test_processing_a_broadcast_tuple_for_all_partitions_raises_an_error(
    operator: TupleOperator, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(operator, {"words": words(3), "rules": {1: [(1,)]}})


class Sliding(Top):
    kept = SlidingField(pa.list_(pa.struct([("n", pa.int64()), ("word", pa.string())])), [])  # type: ignore[assignment,pydantic-field]


class Unmerged(Totals):
    inputs: ClassVar = {"words": InputPort(WORDS)}


class PerWindow(TupleOperator):
    inputs: ClassVar = {"words": InputPort(WORDS)}
    outputs: ClassVar = {"out": OutputPort(WORDS)}

    def process(self, row: Any) -> None:
        self.emit("out", *row)

    def end_window(self) -> None:
        self.emit("out", "end", 0)


class TwoResults(Totals):
    outputs: ClassVar = {"out": OutputPort(WORDS), "more": OutputPort(WORDS, optional=True)}


class WrongUnifier(PerWindow):
    outputs: ClassVar = {"out": OutputPort(WORDS, unifier=TwoResults())}


class Codecs(TupleOperator):
    inputs: ClassVar = {
        "left": InputPort(WORDS, key=("word",), codec="java"),
        "right": InputPort(WORDS, key=("word",)),
    }
    outputs: ClassVar = {"out": OutputPort(WORDS)}

    def process_left(self, row: Any) -> None:
        pass

    def process_right(self, row: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("operator", "how", "message"),
    [
        (Totals(), {"partitions": 0}, "partitions must be at least 1, not 0"),
        (Top(), {"partitions": 2}, "partitions need an input port with a key"),
        (Totals(), {"partitioner": "n"}, "a partitioner needs the number of partitions"),
        (Totals(), {"spread": 2}, "spread cannot be used with a key"),
        (Top(), {"spread": 0}, "spread must be at least 1"),
        (Sliding(), {"spread": 2}, "a SlidingField cannot be merged"),
        (Unmerged(), {"spread": 2}, r"needs merge\(one, other\)"),
        (PerWindow(), {"spread": 2}, "such as medians, divide the operator by keys"),
        (WrongUnifier(), {}, "must have one input port and one output port"),
        (Codecs(), {}, "must have the same codec"),
    ],
)
def test_wrong_partitions_raise_an_error_at_launch(
    operator: TupleOperator, how: dict[str, Any], message: str
) -> None:
    # Rules: O59, O77, O90, X55
    with pytest.raises(ValidationFailed, match=message):
        run_application(application(operator, **how), {"words": words(2)})


class Large(TupleOperator):
    inputs: ClassVar = {"words": InputPort(WORDS)}
    outputs: ClassVar = {"out": OutputPort(WORDS)}

    def process(self, row: Any) -> None:
        if row.n > 5:
            self.emit("out", *row)


def test_stateless_operator_is_partitioned_without_a_unifier() -> None:
    # Rules: O75
    given = {"words": words(8)}
    found = run(Large(), given, {"spread": 3})
    assert rows(found) == rows(run(Large(), given))
    assert "op.out.unifier" not in found.states


def test_description_shows_the_data_exchange_of_each_operator() -> None:
    found = {}
    for name, operator, how in (
        ("spread", SumAndCount(), {"spread": 2}),
        ("alone", Large(), {}),
        ("keyed", Totals(), {}),
        ("numbered", Totals(), {"partitions": 3}),
        ("queried", Limits(), {}),
    ):
        graph = describe_graph(application(operator, **how))
        found[name] = [(one.name, one.exchange) for one in graph.operators]
    assert found == {
        "spread": [("op", "round robin"), ("op.out.unifier", "one task")],
        "alone": [("op", "one task")],
        "keyed": [("op", "key")],
        "numbered": [("op", "partition id")],
        "queried": [("op", "partition id")],
    }


class Later(DelayOperator):
    columns: ClassVar = WORDS
    key: ClassVar = ("word",)


class Growing(TupleOperator):
    """Counts the words of a window, and the totals that come back from the window before."""

    inputs: ClassVar = {
        "words": InputPort(WORDS, key=("word",)),
        "back": InputPort(WORDS, key=("word",)),
    }
    outputs: ClassVar = {"out": OutputPort(WORDS)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_words(self, row: Any) -> None:
        self.total += row.n
        self.emit("out", row.word, self.total)

    def process_back(self, row: Any) -> None:
        self.total += 1


class GrowingEverywhere(Growing):
    inputs: ClassVar = {
        "words": InputPort(WORDS, key=("word",)),
        "back": InputPort(WORDS, broadcast=True),
    }


class GrowingAlone(Growing):
    inputs: ClassVar = {"words": InputPort(WORDS), "back": InputPort(WORDS)}

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"total": one["total"] + other["total"]}


def cycle(operator: Growing, **how: Any) -> Application:
    app = Application("cycle", "1 second")
    back = PortHandle("later", "out")
    node = app.add("op", operator, words=app.input("words", WORDS), back=back, **how)
    app.add("later", Later(), tuples=node)
    app.output("out", node, key=[])
    return app


@pytest.mark.parametrize("count", [2, 3, 5])
def test_cycle_has_the_same_results_for_any_number_of_partitions(count: int) -> None:
    # Rules: O101, X40
    given = {"words": words(10)}
    expected = run_application(cycle(Growing()), given)
    found = run_application(
        cycle(Growing(), partitions=count), given, group_windows=3, repartition={6: {"op": 4}}
    )
    assert rows(found) == rows(expected)
    assert found.states == expected.states


@pytest.mark.parametrize(
    ("operator", "how", "message"),
    [
        (GrowingEverywhere(), {}, "a broadcast port cannot be fed from its own cycle"),
        (GrowingAlone(), {"spread": 2}, "an operator in a cycle cannot be spread"),
    ],
)
def test_partitions_of_a_cycle_that_depend_on_each_other_are_rejected_at_launch(
    operator: Growing, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationFailed, match=message):
        run_application(cycle(operator, **how), {"words": words(2)})
