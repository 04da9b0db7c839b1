"""Launch validation: every violation at once, each with its rule."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pytest
from pydantic import Field

from rewindow.application import (
    Application,
    FrameOperator,
    InputPort,
    Mode,
    Node,
    OutputPort,
    PortHandle,
    find_violations,
    validate,
)
from rewindow.errors import ValidationFailed
from rewindow.operators import DelayOperator, TupleOperator

X = pa.schema([("x", pa.int64())])
Y = pa.schema([("y", pa.int64())])


class Pass(FrameOperator):
    inputs: ClassVar = {"a": InputPort(X), "b": InputPort(X, optional=True)}
    outputs: ClassVar = {"out": OutputPort(X)}
    factor: int = Field(1, ge=1, le=9)


class Keeper(Pass):
    state_schema: ClassVar = X


class LostKey(Keeper):
    """One whose state key is no column of its state."""

    state_key: ClassVar = ("nosuch",)


class OddBuckets(Keeper):
    """One whose buckets cannot be cut from a hash."""

    state_buckets: ClassVar = 12


class Keyless(Keeper):
    """One that says which keys changed, and has none."""

    state_increments: ClassVar = True


class Echo(Pass):
    outputs: ClassVar = {"a": OutputPort(X)}


class Needed(Pass):
    """One whose output must be read."""

    outputs: ClassVar = {"out": OutputPort(X, optional=False)}


def good() -> Application:
    app = Application("good", window="1 hour")
    node = app.add("pass", Pass(), a=app.input("s"))
    app.output("out", node, key=["x"])
    return app


def more(app: Application) -> Node:
    return app.add("more", Pass(), a=PortHandle(None, "s"))


def rules(
    app: Application,
    mode: Mode = Mode.EXACTLY_ONCE,
    recorded: dict | None = None,
) -> list[str]:
    try:
        validate(app, mode, recorded)
    except ValidationFailed as error:
        return [violation.rule for violation in error.violations]
    return []


def test_valid_application_has_no_violation_and_runs_nothing() -> None:
    assert rules(good(), recorded={"s": X}) == []


def test_stream_has_exactly_one_writer_port_and_any_number_of_reader_ports() -> None:
    # Rules: O17
    app = good()
    first = app.add("again", Pass(), a=app.input("s"))
    second = more(app)
    app.output("both", app.add("both", Pass(), a=first, b=first), key=["x"])
    assert rules(app) == []
    app.add("both", app.nodes["both"].operator, a=second, b=first)
    assert rules(app) == ["O48"] and app.nodes["both"].feeds["a"] == PortHandle("again", "out")


def test_all_violations_are_reported_together_ordered_by_operator_and_rule() -> None:
    # Rules: O60
    app = Application("bad app", window="0 s", checkpoint_windows=0)
    wrong = Pass(factor=0, more=1)  # type: ignore[call-arg]
    app.add("1st", wrong, a=PortHandle("nobody", "out"), z=app.input("s"))
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    found = [(violation.operator, violation.rule) for violation in caught.value.violations]
    assert found == sorted(found, key=lambda row: (row[0], row[1][0], int(row[1][1:])))
    assert {rule for _, rule in found} >= {"W3", "H17", "O53", "O50", "O12"}
    assert 'application "bad app" cannot be replayed: ' in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("W56", lambda app: setattr(app, "checkpoint_windows", 0)),
        ("W3", lambda app: setattr(app, "window", "1.5 ms")),
        ("O48", lambda app: app.add("pass", Pass(), a=PortHandle(None, "s"))),
        ("O14", lambda app: app.add("idle", Pass())),
        (
            "O12",
            lambda app: app.add(
                "odd",
                Pass(),
                a=PortHandle(None, "s"),
                nosuch=PortHandle(None, "s"),
            ),
        ),
        ("O50", lambda app: app.input("unread")),
        ("O51", lambda app: app.add("loop", Pass(), a=PortHandle("loop", "out"))),
        ("O53", lambda app: app.add("wrong", Pass(factor=10), a=PortHandle(None, "s"))),
        ("O13", lambda app: app.output("more", more(app), key=["nosuch"])),
        ("R85", lambda app: app.output("more", more(app), key=["x"], tolerance=-1e-9)),
        ("R85", lambda app: app.output("more", more(app), key=["x"], tolerance=float("nan"))),
        ("O48", lambda app: app.output("facts", more(app), key=["x"])),
        ("O48", lambda app: app.output("out", more(app), key=["x"])),
        (
            "O48",
            lambda app: app.add(
                "pass",
                app.nodes["pass"].operator,
                mode="exactly_once",
                a=PortHandle(None, "s"),
            ),
        ),
        ("O48", lambda app: (app.input("s", X), app.input("s", Y))),
        ("O18", lambda app: app.output("more", PortHandle("pass", "out"), key=["x"])),
        (
            "O12",
            lambda app: app.output(
                "more",
                app.add("echo", Echo(), a=PortHandle(None, "s")),
                key=["x"],
            ),
        ),
        ("O15", lambda app: app.add("needed", Needed(), a=PortHandle(None, "s"))),
        ("O15", lambda app: (more(app), app.__setattr__("strict_outputs", True))),
        ("W56", lambda app: app.add("k", Pass(), a=PortHandle(None, "s"), checkpoint_windows=0)),
        ("X47", lambda app: app.add("k", LostKey(), a=PortHandle(None, "s"))),
        ("X47", lambda app: app.add("k", OddBuckets(), a=PortHandle(None, "s"))),
        ("X47", lambda app: app.add("k", Keyless(), a=PortHandle(None, "s"))),
    ],
)
def test_single_fault_is_reported_as_exactly_one_violation(rule: str, spoil: object) -> None:
    app = good()
    spoil(app)  # type: ignore[operator]
    assert rules(app) == [rule]


def test_cycle_without_a_delay_operator_is_rejected() -> None:
    # Rules: O51
    class Around(DelayOperator):
        columns: ClassVar = X

    class Count(TupleOperator):
        inputs: ClassVar = {
            "a": InputPort(X),
            "b": InputPort(X, optional=True),
            "c": InputPort(X, optional=True),
        }
        outputs: ClassVar = {"out": OutputPort(X)}

        def process_a(self, row: object) -> None:
            pass

        process_b = process_c = process_a  # type: ignore[pydantic-field]

    def cyclic(**more: PortHandle) -> Application:
        app = good()
        app.add("count", Count(), a=PortHandle(None, "s"), b=PortHandle("around", "out"), **more)
        app.add("around", Around(), tuples=PortHandle("count", "out"))
        return app

    app = cyclic()
    assert rules(app) == []
    assert [[node.name for node in unit] for unit in app.units()] == [["pass"], ["around", "count"]]
    app.add("back", Count(), a=PortHandle("count", "out"))
    assert rules(app) == []
    assert rules(cyclic(c=PortHandle("count", "out"))) == ["O51"] * 2
    app = cyclic(c=PortHandle("back", "out"))
    app.add("back", Count(), a=PortHandle("count", "out"))
    assert rules(app) == ["O51"] * 3
    app = good()
    app.add("self", Around(), tuples=PortHandle("self", "out"))
    assert rules(app) == ["O51"]


def test_modes_are_also_validated_on_the_back_edge_of_a_cycle() -> None:
    # Rules: R41
    class Around(DelayOperator):
        columns: ClassVar = X

    class Count(TupleOperator):
        inputs: ClassVar = {"a": InputPort(X), "b": InputPort(X)}
        outputs: ClassVar = {"out": OutputPort(X)}

        def process_a(self, row: object) -> None:
            pass

        process_b = process_a  # type: ignore[pydantic-field]

    app = good()
    app.add(
        "count",
        Count(),
        mode="exactly_once",
        a=PortHandle(None, "s"),
        b=PortHandle("around", "out"),
    )
    app.add("around", Around(), mode="at_most_once", tuples=PortHandle("count", "out"))
    assert [
        (row.rule, row.operator, row.port) for row in find_violations(app) if row.rule == "R39"
    ] == [("R39", "count", "b")]


def test_callback_method_with_an_old_name_is_rejected() -> None:
    # Rules: R13
    # The old `skipped` is `state_after_skip` today; nothing would call the old one.
    class Old(Pass):
        def skipped(self, state: object) -> object:
            return state

    app = good()
    app.add("old", Old(), a=PortHandle(None, "s"))
    assert rules(app) == ["R13"]


def test_operator_instance_added_under_two_names_is_rejected() -> None:
    # Rules: X12
    app = Application("twice", window="1 s")
    shared = Pass()
    events = app.input("events")
    app.output("one", app.add("one", shared, a=events), key=["x"])
    app.output("two", app.add("two", shared, a=events), key=["x"])
    app.output("three", app.add("three", Pass(), a=events), key=["x"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    [violation] = [row for row in caught.value.violations if row.rule == "X12"]
    assert (violation.operator, violation.value) == ("two", "Pass") and '"one"' in violation.message


def test_violations_are_ordered_by_rule_number() -> None:
    # Rules: O60, O9, O12
    class Rootless(FrameOperator):
        outputs: ClassVar = {"out": OutputPort(X)}

    app = good()
    app.add("root", Rootless(), z=PortHandle(None, "s"))
    assert rules(app) == ["O9", "O12"]


def test_rejected_duplicate_operator_leaves_the_graph_unchanged() -> None:
    # Rules: O49
    app = good()
    app.input("s", X)
    before = (app.nodes["pass"], app.streams["s"], app.outputs["out"])
    app.add("pass", Pass(factor=5), a=PortHandle(None, "s"))
    app.input("s", Y)
    app.output("out", app.nodes["pass"], key=["y"])
    assert (app.nodes["pass"], app.streams["s"], app.outputs["out"]) == before


def test_identical_declaration_may_be_repeated() -> None:
    # Rules: O48
    app = good()
    app.add("pass", app.nodes["pass"].operator, a=app.input("s", X))
    app.output("out", app.nodes["pass"], key=["x"])
    app.input("s")
    assert rules(app) == [] and app.streams["s"] == X


def test_recorded_stream_with_a_wrong_column_type_is_rejected() -> None:
    # Rules: O13, O44
    assert rules(good(), recorded={"s": pa.schema([("x", pa.string())])}) == ["O13"]
    assert rules(good(), recorded={"s": pa.schema([("x", pa.int64()), ("y", pa.string())])}) == []


def test_recorded_stream_with_an_undeclared_schema_is_rejected() -> None:
    # Rules: O13
    app = good()
    app.input("s", pa.schema([("x", pa.int64()), ("y", pa.string()), ("z", pa.int64())]))
    with pytest.raises(ValidationFailed) as caught:
        validate(app, recorded={"s": pa.schema([("x", pa.int64()), ("y", pa.int32())])})
    assert [violation.message for violation in caught.value.violations] == [
        "the recorded stream has column y int32",
        "the recorded stream has column z absent",
    ]
    assert rules(app) == []


def test_at_most_once_operator_upstream_of_another_mode_is_rejected() -> None:
    # Rules: R39, R40, X6
    app = good()
    first = app.add("amo", Pass(), mode="at_most_once", a=PortHandle(None, "s"))
    app.add("inherits", Pass(), a=first)
    assert "R39" not in rules(app, Mode.AT_MOST_ONCE)
    app.add("eo", Pass(), mode="exactly_once", a=first)
    assert "R39" in rules(app, Mode.AT_MOST_ONCE)


def test_reserved_column_names_are_rejected_case_insensitively() -> None:
    # Rules: O13
    class Odd(Pass):
        outputs: ClassVar = {
            "out": OutputPort(
                pa.schema([("Attempt", pa.int64()), ("y", pa.int64()), ("Y", pa.int64())])
            ),
            "errors": OutputPort(pa.schema([("_RW_Reason", pa.string())]), error=True),
            "facts": OutputPort(X, error=True),
        }

    app = good()
    odd = app.add("odd", Odd(), a=PortHandle(None, "s"))
    app.output("odd", odd["out"], key=["y"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert [
        (violation.rule, violation.port, violation.value) for violation in caught.value.violations
    ] == [
        ("O13", "errors", "_RW_Reason"),
        ("O13", "out", "Attempt"),
        ("O13", "out", "Y"),
        ("O13", "out", "y"),
        ("O48", "facts", "facts"),
    ]


def test_operator_without_connected_outputs_causes_a_warning() -> None:
    # Rules: O15, X13
    class Sink(Pass):
        outputs: ClassVar = {}

    class Spare(Pass):
        outputs: ClassVar = {
            "out": OutputPort(X, optional=True),
            "errors": OutputPort(X, error=True),
        }

    app = good()
    assert app.warnings() == []
    for name, operator in (("sink", Sink()), ("spare", Spare())):
        app.add(name, operator, a=PortHandle(None, "s"))
    assert app.warnings() == []
    more(app)
    assert app.warnings() == ["more: none of its output ports is connected or marked optional"]

    class Errors(Pass):
        outputs: ClassVar = {"errors": OutputPort(X, error=True)}

    app.output("errors", app.add("only", Errors(), a=PortHandle(None, "s"))["errors"], key=["x"])
    assert app.warnings()[1:] == ["only: none of its output ports is connected or marked optional"]
    assert rules(app) == []


def test_operator_with_a_state_schema_is_stateful() -> None:
    # Rules: W70
    assert Keeper().is_stateful and not Pass().is_stateful
    assert Keeper().initial_state().num_rows == 0
