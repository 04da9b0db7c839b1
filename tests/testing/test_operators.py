"""Tuple operators in the framework that users test them with: life cycle, keys, state, errors, crashes; no JVM."""

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
    """Clicks of each user so far, from a limit on."""

    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}
    limit: int = 1
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, click: Any) -> None:
        """Counts and emits."""
        self.total += click.count
        if self.total >= self.limit:
            self.emit("out", click.user, self.total)


def random_clicks(seed: int, windows: int = 12) -> dict[str, dict[int, list[tuple[str, int]]]]:
    """Returns clicks of a few users, and windows without any."""
    import random

    chosen = random.Random(seed)
    return {
        "clicks": {
            window: [(chosen.choice("abcd"), chosen.randint(1, 5)) for _ in range(chosen.randint(0, 6))]
            for window in range(windows)
        }
    }


def test_state_goes_from_window_to_window_and_properties_count() -> None:
    """Tuples may be mappings or sequences; the state is that after the last window (W57, W59)."""
    given = {"clicks": {7: [("ann", 1), {"user": "ann", "count": 1}], 9: [("ann", 1), ("bob", 5)]}}
    found = run_operator(Totals(limit=2), given)
    assert found["out"] == [(7, "ann", 2), (9, "ann", 3), (9, "bob", 5)]
    assert found.states == {"ann": {"total": 3}, "bob": {"total": 5}}


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_into_groups_and_key_ranges_shows(seed: int) -> None:
    """R86, X41; a plain loop over the tuples comes to the same."""
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


def test_an_operator_in_which_groups_show_is_caught() -> None:
    """What is kept in an attribute and not in a state is lost at the end of a group."""

    class Forgetful(Totals):
        transient: ClassVar = ("seen",)

        def setup(self) -> None:
            self.seen = 0

        def process(self, click: Any) -> None:
            self.seen += 1
            self.emit("out", click.user, self.seen)

    with pytest.raises(AssertionError, match='port "out" differs with seed [0-9]: groups of .*: window ') as error:
        check_grouping(Forgetful(), {"clicks": {4: [("a", 1)], 5: [("a", 1)]}})
    assert "window 5: in one group only (5, 'a', 2); cut only (5, 'a', 1)" in str(error.value)


def test_every_window_is_begun_and_ended_also_an_empty_one() -> None:
    """In their order, tuples in between; setup first, teardown last (O25, O31, O33, O35)."""
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
    assert called == ["setup", "begin 5", "a", "end 5", "begin 6", "end 6", "begin 7", "b", "c", "end 7", "teardown"]


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
        """Keeps a tuple."""
        self.seen.append(row.count)

    def process_right(self, row: Any) -> None:
        """Emits what was kept."""
        if self.seen:
            self.emit("out", user=row.name, total=sum(self.seen))
        else:
            self.forget()
            self.emit_error("unknown", row, "emitted", "never seen")


def test_ports_are_aligned_by_window_and_share_a_key() -> None:
    """Tuples of a window come port by port (W35, W41, O39, X43); error tuples say why."""
    given = {"right": {1: [("ann",)], 2: [("bob",), ("ann",)]}, "left": {1: [("ann", 4)], 2: [("ann", 5)]}}
    found = check_grouping(Joined(), given, runs=8)
    assert found["out"] == [(1, "ann", 4), (2, "ann", 9)]
    assert found["unknown"] == [(2, "bob", None, "emitted", "never seen")]
    assert found.states == {"ann": {"seen": [4, 5]}}


def test_an_operator_that_depends_on_the_order_of_its_ports_is_caught_where_that_is_asked_for() -> None:
    """In a replay the order is that of their declaration (X43); in a live system it would be none."""
    given = {"right": {1: [("ann",)]}, "left": {1: [("ann", 4)]}}
    with pytest.raises(AssertionError, match=r'port "out" differs with seed \d+: .*, ports in the order right, left'):
        check_grouping(Joined(), given, runs=8, any_port_order=True)


def test_keys_are_gone_through_in_their_order_and_can_be_forgotten() -> None:
    """At the end of a window, whichever tuples it had."""

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


def test_an_operator_with_a_key_and_no_state_is_divided_too() -> None:
    """It has no rows of state that could hold a key (X41, X49)."""

    class Passed(TupleOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
        outputs: ClassVar = {"out": OutputPort(CLICKS)}

        def process(self, click: Any) -> None:
            self.emit("out", click.user, click.count)

    clicks = random_clicks(2)
    wanted = sorted((window, *row) for window, rows in clicks["clicks"].items() for row in rows)
    assert sorted(check_grouping(Passed(), clicks)["out"]) == wanted


def test_values_of_every_kind_come_back_as_they_were() -> None:
    """Timestamps are microseconds, both ways; a map is a dict."""
    kinds = pa.schema([
        ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string())),
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
def test_a_crash_is_a_value_among_the_tuples(mode: str, out: list[Any], lost: list[int]) -> None:
    """What was emitted before it is not seen; at most once gives the window up, and the state has not seen it."""
    given = {"clicks": {1: [("a", 1)], 2: [("a", 2), CRASH], 3: [("a", 3)]}}
    found = run_operator(Totals(), given, mode=mode)
    assert (found["out"], found.lost, found.crashes) == (out, lost, 1)


class Batched(Totals):
    """The same, called with Arrow batches."""

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        """Adds up a batch of one window, and emits its totals as a batch."""
        sums = pa.Table.from_batches([rows]).group_by("user", use_threads=False).aggregate([("count", "sum")])
        totals = []
        for user, count in zip(sums["user"].to_pylist(), sums["count_sum"].to_pylist(), strict=True):
            self.at(user)
            self.total += count
            totals.append(self.total)
        self.emit_batch("out", pa.table({"user": sums["user"], "total": pa.array(totals, pa.int64())}))


def test_batches_come_to_the_same_state() -> None:
    """A batch has tuples of one window; what is emitted as a batch is in it."""
    clicks = random_clicks(3)
    found, by_tuple = run_operator(Batched(), clicks), run_operator(Totals(), clicks)
    assert found.states == by_tuple.states
    assert {row[:2] for row in found["out"]} == {row[:2] for row in by_tuple["out"]}


class _Wrong(Totals):
    """Does what its test says."""

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
        ("no port", 'there is no output port "nowhere"'),
        ("too few", r'port "out" has 2 columns \(user, total\), 1 values were given'),
        ("unknown column", 'column "sum" of port "out" is given twice or is none of its columns'),
        ("wrong type", 'column "total" of port "out" of _Wrong is int64, a value was str \'many\''),
        ("wrong state", "column \"total\" of state of _Wrong is int64, a value was str 'many'"),
        ("state of no key", "state of _Wrong is used where no tuple says of which key"),
        ("assigned to no key", "state of _Wrong is used where no tuple says of which key"),
        ("property", '_Wrong assigns "what", which is neither state nor transient'),
        ("raises", "no such user"),
    ],
)
def test_what_breaks_a_rule_is_said_in_words(what: str, words: str) -> None:
    """Where it is done (O33, X49)."""
    with pytest.raises((RewindowError, ValueError), match=words) as error:
        run_operator(_Wrong(what=what), {"clicks": {3: [("a", 1)]}})
    if what == "raises":
        (note,) = error.value.__notes__
        assert note == "in process of port clicks of _Wrong, window 3, at the tuple clicks(user='a', count=1)"


def test_what_cannot_be_is_told_before_anything_is_called() -> None:
    """Properties, ports, keys and callbacks are looked at together; ports say what their tuples are (O22, O53, X41)."""

    class Nothing(TupleOperator):
        inputs: ClassVar = {"a": InputPort(CLICKS, key=("name",)), "b": InputPort()}
        limit: int = 0

    class Floating(TupleOperator):
        inputs: ClassVar = {"a": InputPort(pa.schema([("x", pa.float64())]), key=("x",))}

        def process(self, row: Any) -> None:
            raise AssertionError(row)

    (wrong,) = Floating().wrong_properties()
    assert wrong.message == "key x is a float or nested: it has no one value"
    found = [(one.path, one.message) for one in Nothing(limit="many").wrong_properties()]
    assert ("a", "key name is not in the port's columns") in found
    assert ("b", "an input port of a tuple operator needs a schema") in found
    assert any(path == "limit" for path, _ in found)
    with pytest.raises(InputError, match='there is no input port "visits"'):
        run_operator(Totals(), {"visits": {}})
    with pytest.raises(InputError, match='port "clicks" has no column "name"'):
        run_operator(Totals(), {"clicks": {1: [{"name": "a"}]}})
    with pytest.raises(InputError, match='column "count" of input port "clicks", window 3, is int64, a value was str'):
        run_operator(Totals(), {"clicks": {3: [("a", "many")]}})
    with pytest.raises(InputError, match="window '1' of a test is not a whole number"):
        run_operator(Totals(), {"clicks": {"1": [("a", 1)]}})  # type: ignore[dict-item]
    with pytest.raises(InputError, match='limits: there is no such property. Did you mean "limit"?'):
        run_operator(Totals(**{"limits": 3}), {"clicks": {1: [("a", 1)]}})


def test_what_setup_has_opened_is_closed_after_an_error_too() -> None:
    """O35."""
    called: list[str] = []

    class Opened(_Wrong):
        def setup(self) -> None:
            called.append("setup")

        def teardown(self) -> None:
            called.append("teardown")

    with pytest.raises(ValueError, match="no such user"):
        run_operator(Opened(what="raises"), {"clicks": {3: [("a", 1)]}})
    assert called == ["setup", "teardown"]
