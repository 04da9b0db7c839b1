"""Tuple operators in the framework that users test them with: life cycle, keys, state, errors,
crashes; no JVM.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import InputPort, OutputPort
from rewindow.errors import InputError, RewindowError
from rewindow.operators import StateField, TupleOperator
from rewindow.testing import CRASH, check_grouping, run_operator

CLICKS = pa.schema([("user", pa.string()), ("count", pa.int64())])
TOTALS = pa.schema([("user", pa.string()), ("total", pa.int64())])


class Totals(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}
    limit: int = 1
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, click: Any) -> None:
        self.total += click.count
        if self.total >= self.limit:
            self.emit("out", click.user, self.total)


def random_clicks(seed: int, windows: int = 12) -> dict[str, dict[int, list[tuple[str, int]]]]:
    import random

    chosen = random.Random(seed)
    return {
        "clicks": {
            window: [
                (chosen.choice("abcd"), chosen.randint(1, 5)) for _ in range(chosen.randint(0, 6))
            ]
            for window in range(windows)
        }
    }


def test_state_is_carried_across_windows_and_properties_are_applied() -> None:
    # Rules: W57, W59
    given = {"clicks": {7: [("ann", 1), {"user": "ann", "count": 1}], 9: [("ann", 1), ("bob", 5)]}}
    found = run_operator(Totals(limit=2), given)
    assert found["out"] == [(7, "ann", 2), (9, "ann", 3), (9, "bob", 5)]
    assert found.states == {"ann": {"total": 3}, "bob": {"total": 5}}


@pytest.mark.parametrize("seed", range(5))
def test_operator_result_is_independent_of_groups_and_key_ranges(seed: int) -> None:
    # Rules: R86, X41
    clicks = random_clicks(seed)
    totals: dict[str, int] = {}
    expected = []
    for window, rows in clicks["clicks"].items():
        for user, count in rows:
            totals[user] = totals.get(user, 0) + count
            expected.append((window, user, totals[user]))
    found = check_grouping(Totals(), clicks, seed=seed)
    assert sorted(found["out"]) == sorted(expected)
    assert found.states == {user: {"total": total} for user, total in totals.items()}


def test_operator_that_depends_on_grouping_is_detected() -> None:
    class Forgetful(Totals):
        transient: ClassVar = ("seen",)

        def setup(self) -> None:
            self.seen = 0

        def process(self, click: Any) -> None:
            self.seen += 1
            self.emit("out", click.user, self.seen)

    with pytest.raises(
        AssertionError,
        match='port "out" differs with seed [0-9]: groups of .*: window ',
    ) as error:
        check_grouping(Forgetful(), {"clicks": {4: [("a", 1)], 5: [("a", 1)]}})
    assert "window 5: in one group only (5, 'a', 2); cut only (5, 'a', 1)" in str(error.value)


def test_setup_can_check_properties_but_not_change_them() -> None:
    # Rules: O25
    class Checked(Totals):
        highest: int = 5
        changes: bool = False

        def setup(self) -> None:
            if self.limit > self.highest:
                raise InputError(f"limit {self.limit} is above {self.highest}")
            if self.changes:
                self.limit = self.highest  # type: ignore[misc]

    given = {"clicks": {7: [("ann", 4), ("ann", 1)]}}
    assert run_operator(Checked(limit=5), given)["out"] == [(7, "ann", 5)]
    with pytest.raises(InputError, match="limit 6 is above 5") as error:
        run_operator(Checked(limit=6), given)
    assert error.value.__notes__ == ["in setup of Checked"]
    with pytest.raises(InputError, match='Checked assigns "limit"'):
        run_operator(Checked(limit=4, changes=True), given)


def test_every_window_is_opened_and_closed_even_when_empty() -> None:
    # Rules: O31, O33, O35
    called: list[str] = []

    class Called(TupleOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS)}
        outputs: ClassVar = {"out": OutputPort(TOTALS)}

        def setup(self) -> None:
            called.append("setup")

        def begin_window(self, window_id: int) -> None:
            called.append(f"begin {window_id}")

        def process(self, click: Any) -> None:
            called.append(click.user)

        def end_window(self) -> None:
            called.append(f"end {self.window_id}")

        def teardown(self) -> None:
            called.append("teardown")

    run_operator(Called(), {"clicks": {5: [("a", 1)], 7: [("b", 1), ("c", 1)]}}, group_windows=3)
    assert called == [
        "setup",
        "begin 5",
        "a",
        "end 5",
        "begin 6",
        "end 6",
        "begin 7",
        "b",
        "c",
        "end 7",
        "teardown",
    ]


class Joined(TupleOperator):
    """Two ports of one key: what the left one has seen, for each tuple of the right one."""

    inputs: ClassVar = {
        "left": InputPort(CLICKS, key=("user",)),
        "right": InputPort(pa.schema([("name", pa.string())]), key=("name",)),
    }
    outputs: ClassVar = {
        "out": OutputPort(TOTALS),
        "unknown": OutputPort(pa.schema([("name", pa.string())]), error=True),
    }
    seen = StateField(pa.list_(pa.int64()), [])  # type: ignore[pydantic-field]

    def process_left(self, row: Any) -> None:
        self.seen.append(row.count)

    def process_right(self, row: Any) -> None:
        if self.seen:
            self.emit("out", user=row.name, total=sum(self.seen))
        else:
            self.forget()
            self.emit_error("unknown", row, "emitted", "never seen")


def test_input_ports_are_aligned_by_window_and_share_a_key() -> None:
    # Rules: W35, W41, O39, X43
    given = {
        "right": {1: [("ann",)], 2: [("bob",), ("ann",)]},
        "left": {1: [("ann", 4)], 2: [("ann", 5)]},
    }
    found = check_grouping(Joined(), given, runs=8)
    assert found["out"] == [(1, "ann", 4), (2, "ann", 9)]
    assert found["unknown"] == [(2, "bob", None, "emitted", "never seen")]
    assert found.states == {"ann": {"seen": [4, 5]}}


class Rejecting(TupleOperator):
    """Rejects every tuple for a custom reason."""

    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"rejected": OutputPort(CLICKS, error=True)}
    reason: str = "unknown_country"

    def process(self, click: Any) -> None:
        self.emit_error("rejected", click, self.reason, "XX")


def test_error_tuple_has_the_reason_given_by_the_operator() -> None:
    # Rules: O68, X14
    found = run_operator(Rejecting(), {"clicks": {1: [("ann", 4)]}})
    assert found["rejected"] == [(1, "ann", 4, None, "unknown_country", "XX")]


def test_emit_error_rejects_an_invalid_reason_name() -> None:
    # Rules: O68, X14
    with pytest.raises(InputError, match="reason 'Unknown country' of an error tuple on port"):
        run_operator(Rejecting(reason="Unknown country"), {"clicks": {1: [("ann", 4)]}})


def test_operator_that_depends_on_port_order_is_detected_on_request() -> None:
    # Rules: X43
    # In a replay ports follow their declaration; a live system has no such order.
    given = {"right": {1: [("ann",)]}, "left": {1: [("ann", 4)]}}
    with pytest.raises(
        AssertionError,
        match=r'port "out" differs with seed \d+: .*, ports in the order right, left',
    ):
        check_grouping(Joined(), given, runs=8, any_port_order=True)


def test_keys_are_visited_in_order_and_can_be_deleted() -> None:
    class Expiring(Totals):
        def process(self, click: Any) -> None:
            self.total += click.count

        def end_window(self) -> None:
            for user in self.keys():
                self.total -= 1
                self.emit("out", user, self.total)
                if not self.total:
                    self.forget()

    found = check_grouping(Expiring(), {"clicks": {1: [("b", 2), ("a", 1)], 4: []}})
    assert found["out"] == [(1, "a", 0), (1, "b", 1), (2, "b", 0)] and found.states == {}


def test_stateless_operator_with_a_key_is_also_partitioned() -> None:
    # Rules: X41, X49
    class Passed(TupleOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
        outputs: ClassVar = {"out": OutputPort(CLICKS)}

        def process(self, click: Any) -> None:
            self.emit("out", click.user, click.count)

    clicks = random_clicks(2)
    wanted = sorted((window, *row) for window, rows in clicks["clicks"].items() for row in rows)
    assert sorted(check_grouping(Passed(), clicks)["out"]) == wanted


def test_operator_preserves_values_of_every_type() -> None:
    kinds = pa.schema([
        ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("on", pa.bool_()), ("day", pa.date32()),
    ])  # fmt: skip

    class Kept(TupleOperator):
        inputs: ClassVar = {"rows": InputPort(kinds)}
        outputs: ClassVar = {"out": OutputPort(kinds)}
        last = StateField(pa.timestamp("us", "UTC"))  # type: ignore[pydantic-field]
        many = StateField(pa.map_(pa.string(), pa.int64()), {})  # type: ignore[pydantic-field]

        def process(self, row: Any) -> None:
            assert isinstance(row.at, int)
            self.last = row.at
            self.many[str(row.price)] = self.many.get(str(row.price), 0) + 1
            self.emit("out", *row)

    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = (at, Decimal("1.25"), ["x", None], None, at.date())
    found = run_operator(Kept(), {"rows": {1: [row], 2: [row]}})
    us = int(at.timestamp()) * 1_000_000 + 678901
    assert found["out"] == [(1, us, *row[1:]), (2, us, *row[1:])]
    assert found.states[()]["many"] == {"1.25": 2}


@pytest.mark.parametrize(
    ("mode", "out", "lost"),
    [
        ("exactly_once", [(1, "a", 1), (2, "a", 3), (3, "a", 6)], []),
        ("at_least_once", [(1, "a", 1), (2, "a", 3), (3, "a", 6)], []),
        ("at_most_once", [(1, "a", 1), (3, "a", 4)], [2]),
    ],
)
def test_crash_during_a_window_discards_the_window_under_at_most_once(
    mode: str,
    out: list[Any],
    lost: list[int],
) -> None:
    given = {"clicks": {1: [("a", 1)], 2: [("a", 2), CRASH], 3: [("a", 3)]}}
    found = run_operator(Totals(), given, mode=mode, checkpoint_windows=1)
    assert (found["out"], found.lost, found.crashes) == (out, lost, 1)
    assert found.state_lost == []


def test_crash_under_at_most_once_restores_the_newest_checkpoint() -> None:
    # Rules: R12, R14, X2
    given = {"clicks": {1: [("a", 1)], 2: [("a", 2)], 3: [("a", 4), CRASH], 4: [("a", 8)]}}
    found = run_operator(Totals(), given, mode="at_most_once", checkpoint_windows=6)
    assert found["out"] == [(1, "a", 1), (2, "a", 3), (4, "a", 8)]
    assert (found.lost, found.state_lost) == ([3], [1, 2])
    twice = {"clicks": {**given["clicks"], 3: [CRASH, ("a", 4), CRASH]}}
    found = run_operator(Totals(), twice, mode="at_most_once", checkpoint_windows=2)
    assert found["out"] == [(1, "a", 1), (2, "a", 3), (4, "a", 9)]
    assert (found.lost, found.state_lost, found.crashes) == ([3], [2], 1)


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("before", [[], [("d", 1)]])
def test_crash_is_also_triggered_before_the_first_key(mode: str, before: list[Any]) -> None:
    # Rules: R50
    given = {"clicks": {1: [*before, CRASH], 2: [("e", 3)]}}
    found = run_operator(Totals(), given, windows=(0, 3), group_windows=4, mode=mode)
    assert found["out"] == [*((1, *row) for row in before), (2, "e", 3)]
    assert found.crashes == 1 and found.states["e"] == {"total": 3}


class Batched(Totals):
    """The same, called with Arrow batches."""

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        sums = (
            pa.Table.from_batches([rows])
            .group_by("user", use_threads=False)
            .aggregate([("count", "sum")])
        )
        totals = []
        for user, count in zip(
            sums["user"].to_pylist(),
            sums["count_sum"].to_pylist(),
            strict=True,
        ):
            self.at(user)
            self.total += count
            totals.append(self.total)
        self.emit_batch(
            "out",
            pa.table({"user": sums["user"], "total": pa.array(totals, pa.int64())}),
        )


def test_batches_and_single_tuples_produce_the_same_state() -> None:
    clicks = random_clicks(3)
    found = run_operator(Batched(), clicks)
    by_tuple = run_operator(Totals(), clicks)
    assert found.states == by_tuple.states
    assert {row[:2] for row in found["out"]} == {row[:2] for row in by_tuple["out"]}


class _Wrong(Totals):
    what: str = ""

    def setup(self) -> None:
        if self.what == "emit in setup":
            self.emit("out", "a", 1)

    def process(self, click: Any) -> None:
        match self.what:
            case "undeclared":
                self.count = 1
            case "no port":
                self.emit("nowhere", 1)
            case "too few":
                self.emit("out", "a")
            case "unknown column":
                self.emit("out", "a", sum=1)
            case "wrong type":
                self.emit("out", "a", "many")
            case "wrong state":
                self.total = "many"
            case "raises":
                raise ValueError("no such user")

    def end_window(self) -> None:
        if self.what == "state of no key":
            self.total += 1
        if self.what == "assigned to no key":
            self.total = 1
        if self.what == "property":
            self.what = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("emit in setup", "_Wrong emits outside of a window"),
        ("undeclared", '_Wrong assigns "count", which is neither state nor transient'),
        ("no port", 'unknown output port "nowhere"'),
        ("too few", r'port "out" has 2 columns \(user, total\), but 1 values were passed'),
        ("unknown column", 'column "sum" of port "out" is passed twice or does not exist'),
        ("wrong type", 'column "total" of port "out" of _Wrong must be int64, not str \'many\''),
        ("wrong state", "column \"total\" of state of _Wrong must be int64, not str 'many'"),
        ("state of no key", "state of _Wrong is used while no key is selected"),
        ("assigned to no key", "state of _Wrong is used while no key is selected"),
        ("property", '_Wrong assigns "what", which is neither state nor transient'),
        ("raises", "no such user"),
    ],
)
def test_rule_violation_is_reported_at_the_call_that_causes_it(what: str, words: str) -> None:
    # Rules: O33, X49
    with pytest.raises((RewindowError, ValueError), match=words) as error:
        run_operator(_Wrong(what=what), {"clicks": {3: [("a", 1)]}})
    if what == "raises":
        (note,) = error.value.__notes__
        assert (
            note == "in process of port clicks of _Wrong, window 3, at the tuple clicks(user='a', "
            "count=1)"
        )


def test_invalid_operator_is_reported_before_anything_is_called() -> None:
    # Rules: O22, O53, X41
    class Nothing(TupleOperator):
        inputs: ClassVar = {"a": InputPort(CLICKS, key=("name",)), "b": InputPort()}
        limit: int = 0

    class Floating(TupleOperator):
        inputs: ClassVar = {"a": InputPort(pa.schema([("x", pa.float64())]), key=("x",))}

        def process(self, row: Any) -> None:
            raise AssertionError(row)

    (wrong,) = Floating().wrong_properties()
    assert wrong.message == "key x cannot be a float or nested: equal keys could not be recognized"
    found = [(one.path, one.message) for one in Nothing(limit="many").wrong_properties()]
    assert ("a", "the port has no column name for its key") in found
    assert ("b", "an input port of a tuple operator needs a schema") in found
    assert any(path == "limit" for path, _ in found)
    with pytest.raises(InputError, match='the operator has no input port "visits"'):
        run_operator(Totals(), {"visits": {}})
    with pytest.raises(InputError, match='port "clicks" has no column "name"'):
        run_operator(Totals(), {"clicks": {1: [{"name": "a"}]}})
    with pytest.raises(
        InputError,
        match='column "count" of input port "clicks", window 3, must be int64, not str',
    ):
        run_operator(Totals(), {"clicks": {3: [("a", "many")]}})
    with pytest.raises(InputError, match="window of a test must be an integer, not '1'"):
        run_operator(Totals(), {"clicks": {"1": [("a", 1)]}})  # type: ignore[dict-item]
    with pytest.raises(
        InputError,
        match='limits: the property does not exist. Did you mean "limit"?',
    ):
        run_operator(Totals(**{"limits": 3}), {"clicks": {1: [("a", 1)]}})


def test_resources_opened_in_setup_are_closed_after_an_error() -> None:
    # Rules: O35
    called: list[str] = []

    class Opened(_Wrong):
        def setup(self) -> None:
            called.append("setup")

        def teardown(self) -> None:
            called.append("teardown")

    with pytest.raises(ValueError, match="no such user"):
        run_operator(Opened(what="raises"), {"clicks": {3: [("a", 1)]}})
    assert called == ["setup", "teardown"]
