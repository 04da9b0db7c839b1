"""Whole applications in the framework that users test them with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, InputPort, OutputPort
from rewindow.errors import InputError, ValidationFailed
from rewindow.loading.catalog import load_application
from rewindow.operators import StateField, TupleOperator
from rewindow.settings.config import Config
from rewindow.state.row_hash import row_hashes
from rewindow.testing import CRASH, check_application, run_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = pa.schema([("user", pa.string()), ("count", pa.int64())])
TOTALS = pa.schema([("user", pa.string()), ("total", pa.int64())])


class Totals(TupleOperator):
    """Clicks of each user so far; a click without a user is an error tuple."""

    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {
        "out": OutputPort(TOTALS),
        "rejected": OutputPort(pa.schema([("count", pa.int64())]), error=True),
    }
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, click: Any) -> None:
        if click.user is None:
            self.emit_error("rejected", (click.count,), "null_key")
            return
        self.total += click.count
        self.emit("out", click.user, self.total)


class Leader(TupleOperator):
    """The largest total at the end of each window, and whether it is that of a known user."""

    inputs: ClassVar = {
        "totals": InputPort(TOTALS),
        "known": InputPort(pa.schema([("name", pa.string())])),
    }
    outputs: ClassVar = {
        "out": OutputPort(pa.schema([("user", pa.string()), ("known", pa.bool_())]))
    }
    best = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    user = StateField(pa.string())  # type: ignore[pydantic-field]
    names = StateField(pa.list_(pa.string()), [])  # type: ignore[pydantic-field]

    def process_totals(self, row: Any) -> None:
        """Keeps the largest one, that of the first name among equal ones."""
        if (row.total, self.user or "") > (self.best, row.user):
            self.best = row.total
            self.user = row.user

    def process_known(self, row: Any) -> None:
        self.names.append(row.name)

    def end_window(self) -> None:
        self.emit("out", self.user, self.user in self.names)


def leaders() -> Application:
    app = Application("leaders", window="1 second")
    totals = app.add("totals", Totals(), clicks=app.input("clicks"))
    leader = app.add("leader", Leader(), totals=totals, known=app.input("users"))
    app.output("totals", totals, key=["user"])
    app.output("leader", leader, key=["user"])
    return app


GIVEN: dict[str, dict[int, list[Any]]] = {
    "clicks": {7: [("ann", 1), ("bob", 2), (None, 5)], 9: [{"user": "ann", "count": 4}]},
    "users": {8: ["bob"], 9: ["ann"]},
}


def test_operators_run_in_sequence_over_the_same_windows() -> None:
    found = run_application(leaders(), GIVEN)
    assert sorted(found["totals"]) == [(7, "ann", 1), (7, "bob", 2), (9, "ann", 5)]
    assert found["leader"] == [(7, "bob", False), (8, "bob", True), (9, "ann", True)]
    assert found["totals.rejected"] == [(7, 5, None, "null_key", None)]
    assert found.ports["totals.out"] == found["totals"]
    assert found.states["totals"] == {"ann": {"total": 5}, "bob": {"total": 2}}


def test_deterministic_application_is_independent_of_grouping_and_port_order() -> None:
    # Rules: R86
    check_application(leaders(), GIVEN, runs=8, any_port_order=True)

    class Forgetful(Leader):
        transient: ClassVar = ("windows",)

        def setup(self) -> None:
            self.windows = 0

        def end_window(self) -> None:
            self.windows += 1
            self.emit("out", str(self.windows), True)

    app = leaders()
    app.nodes["leader"] = type(app.nodes["leader"])(
        "leader",
        Forgetful(),
        None,
        1,
        app.nodes["leader"].feeds,
    )
    with pytest.raises(AssertionError, match='port "leader.out" differs with seed 0: groups of'):
        check_application(app, GIVEN)


def test_crash_causes_the_loss_allowed_by_its_mode() -> None:
    whole = run_application(leaders(), GIVEN)
    dying = {**GIVEN, "clicks": {**GIVEN["clicks"], 9: [CRASH, *GIVEN["clicks"][9]]}}
    assert run_application(leaders(), dying) == whole
    lossy = run_application(leaders(), dying, mode="at_most_once")
    assert lossy.lost == [9]
    assert lossy.ports == {
        port: [row for row in rows if row[0] != 9] for port, rows in whole.ports.items()
    }


def test_crash_in_an_application_of_several_containers_is_rejected() -> None:
    # Rules: X53
    app = leaders()
    app.nodes["leader"] = replace(app.nodes["leader"], container="second")
    assert run_application(app, GIVEN) == run_application(leaders(), GIVEN)
    dying = {**GIVEN, "clicks": {**GIVEN["clicks"], 9: [CRASH, *GIVEN["clicks"][9]]}}
    with pytest.raises(InputError, match="has 2 containers, but simulated crashes need"):
        run_application(app, dying)


class Numbers(TupleOperator):
    """Numbers tuples as they come; with a key, those of each key."""

    inputs: ClassVar = {"rows": InputPort(CLICKS)}
    outputs: ClassVar = {"out": OutputPort(CLICKS)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.emit("out", row.user, self.seen)
        self.seen += 1


class KeyedNumbers(Numbers):
    inputs: ClassVar = {"rows": InputPort(CLICKS, key=("user",))}


@pytest.mark.parametrize("key_ranges", [1, 3])
def test_operators_read_tuples_in_emission_order_or_by_row_hash(key_ranges: int) -> None:
    # Rules: O39, X43
    given = {"rows": {0: [(user, 0) for user in "cabbagecab"]}}
    for first, second, follows in (
        (Numbers(), Numbers(), True),
        (KeyedNumbers(), KeyedNumbers(), True),
        (Numbers(), KeyedNumbers(), True),
        (KeyedNumbers(), Numbers(), False),
    ):
        app = Application("one", window="1 second")
        reader = app.add("second", second, rows=app.add("first", first, rows=app.input("rows")))
        app.output("out", reader, key=["user"])
        found = run_application(app, given, key_ranges=key_ranges)
        emitted = found.ports["first.out"]
        if follows:
            wanted = emitted
        else:
            _, users, counts = zip(*emitted, strict=True)
            rows = pa.table({"user": users, "count": counts})
            hashes = row_hashes(rows).view("int64").tolist()
            wanted = [row for _, row in sorted(zip(hashes, emitted, strict=True))]
        seen: dict[str, int] = {}
        expected = []
        for place, (window, user, _) in enumerate(wanted):
            at = seen.setdefault(user, 0) if second.key_schema().names else place
            seen[user] = seen.get(user, 0) + 1
            expected.append((window, user, at))
        assert sorted(found["out"]) == sorted(expected)
        if follows and not second.key_schema().names:
            assert [row[1] for row in found["out"]] == list("cabbagecab")


class Strays(KeyedNumbers):
    """Emits each tuple under its own key and under another one, and at the end a batch."""

    def process(self, row: Any) -> None:
        self.emit("out", row.user, row.count)
        self.emit("out", "abc"[row.count % 3], row.count)

    def end_window(self) -> None:
        for user in self.keys():
            self.emit_batch("out", pa.table({"user": [user, "b"], "count": [self.seen, 7]}))


class KeyedFolds(KeyedNumbers):
    """Emits what depends on all tuples of the key before, and on their order."""

    def process(self, row: Any) -> None:
        self.seen = (self.seen * 31 + row.count) % 1_000_003
        self.emit("out", row.user, self.seen)


def test_order_of_tuples_with_other_keys_is_independent_of_key_ranges() -> None:
    # Rules: O39, X43
    app = Application("one", window="1 second")
    reader = app.add("second", KeyedFolds(), rows=app.add("first", Strays(), rows=app.input("r")))
    app.output("out", reader, key=["user"])
    given = {
        "r": {0: [(user, count) for count, user in enumerate("cabbagecab" * 3)], 1: [("a", 1)]}
    }
    check_application(app, given, runs=10)
    rows = run_application(app, given, key_ranges=4).ports["first.out"]
    assert len({row[1] for row in rows}) > 3


def test_operator_can_read_its_name_and_application() -> None:
    class Named(Numbers):
        def process(self, row: Any) -> None:
            self.emit("out", self.context.operator, 0)

    app = Application("one", window="1 second")
    app.output("out", app.add("named", Named(), rows=app.input("rows")), key=["user"])
    assert run_application(app, {"rows": {0: [("a", 1)]}})["out"] == [(0, "one.named", 0)]


def test_invalid_test_run_arguments_are_rejected() -> None:
    with pytest.raises(InputError, match='"leaders" reads no stream "visits"'):
        run_application(leaders(), {"visits": {1: []}})
    with pytest.raises(
        InputError,
        match='a tuple of stream "clicks" has 1 values, but its columns are user, count',
    ):
        run_application(leaders(), {"clicks": {1: ["ann"]}})
    with pytest.raises(
        InputError,
        match='input "clicks" of operator "totals" lacks the column "count"',
    ):
        run_application(leaders(), {"clicks": {1: [{"user": "ann"}]}})
    app = Application("wrong", window="1 second")
    app.output("totals", app.add("totals", Totals(), click=app.input("clicks")), key=["user"])
    with pytest.raises(ValidationFailed):
        run_application(app, {"clicks": {1: [("ann", 1)]}})


def application(name: str) -> Application:
    folder = Path(__file__).parents[1] / "recovery" / "applications"
    return load_application(Config(applications=[folder]), name).app


@pytest.mark.jvm
def test_frame_operators_equal_tuple_operators_in_any_grouping(spark: SparkSession) -> None:
    rows = {"events": {1: [("a", 1), ("b", 2), ("a", 3)], 3: [("b", -1)], 4: [("c", 7), ("a", 0)]}}
    by_tuples = run_application(application("tuple_totals"), rows)
    for group_windows in (1, 3):
        by_frames = run_application(
            application("totals"),
            rows,
            group_windows=group_windows,
            spark=spark,
        )
        for output in ("sums", "totals"):
            assert sorted(by_frames[output]) == sorted(by_tuples[output])
        states = {row["key"]: {"total": row["total"]} for row in by_frames.states["totals"]}
        assert states == by_tuples.states["totals"]
