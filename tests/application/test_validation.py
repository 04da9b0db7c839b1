"""Launch validation: every violation at once, each with its rule."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pytest
from pydantic import Field

from rewindow.application import Application, FrameOperator, InputPort, Mode, OutputPort, PortHandle
from rewindow.errors import ValidationFailed

X = pa.schema([("x", pa.int64())])


class Pass(FrameOperator):
    """An operator with a property and one port each way."""

    inputs: ClassVar = {"a": InputPort(X), "b": InputPort(X, optional=True)}
    outputs: ClassVar = {"out": OutputPort(X)}
    factor: int = Field(1, ge=1, le=9)


class Keeper(Pass):
    """A stateful one."""

    state_schema: ClassVar = X


def good() -> Application:
    app = Application("good", window="1 hour")
    node = app.add("pass", Pass(), a=app.input("s"))
    app.output("out", node, key=["x"])
    return app


def rules(app: Application, mode: Mode = Mode.EXACTLY_ONCE, recorded: dict | None = None) -> list[str]:
    try:
        app.validate(mode, recorded)
    except ValidationFailed as error:
        return [violation.rule for violation in error.violations]
    return []


def test_a_sound_application_passes() -> None:
    """No violation, and nothing runs."""
    assert rules(good(), recorded={"s": X}) == []


def test_all_violations_are_reported_together_ordered_by_operator_and_rule() -> None:
    """O60: one run of the validation names every broken rule."""
    app = Application("bad app", window="0 s", checkpoint_windows=0)
    app.add("1st", Pass(factor=0, more=1), a=PortHandle("nobody", "out"), z=app.input("s"))
    with pytest.raises(ValidationFailed) as caught:
        app.validate()
    found = [(violation.operator, violation.rule) for violation in caught.value.violations]
    assert found == sorted(found)
    assert {rule for _, rule in found} >= {"W3", "H17", "O53", "O50", "O12"}
    assert 'application "bad app" breaks' in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("W56", lambda app: setattr(app, "checkpoint_windows", 0)),
        ("W3", lambda app: setattr(app, "window", "1.5 ms")),
        ("O48", lambda app: app.add("pass", Pass(), a=PortHandle(None, "s"))),
        ("O14", lambda app: app.add("idle", Pass())),
        ("O12", lambda app: app.add("odd", Pass(), a=PortHandle(None, "s"), nosuch=PortHandle(None, "s"))),
        ("O50", lambda app: app.input("unread")),
        ("O51", lambda app: app.add("loop", Pass(), a=PortHandle("loop", "out"))),
        ("O53", lambda app: app.add("wrong", Pass(factor=10), a=PortHandle(None, "s"))),
        ("O13", lambda app: app.output("more", PortHandle("pass", "out"), key=["nosuch"])),
        ("O48", lambda app: app.output("facts", PortHandle("pass", "out"), key=["x"])),
        ("W56", lambda app: app.add("k", Pass(), a=PortHandle(None, "s"), checkpoint_windows=0)),
    ],
)
def test_each_rule_is_reported(rule: str, spoil: object) -> None:
    """A single fault gives just its own rule."""
    app = good()
    spoil(app)  # type: ignore[operator]
    assert rules(app) == [rule]


def test_a_rejected_duplicate_leaves_the_graph_as_it_was() -> None:
    """O49: the first instance stays."""
    app = good()
    before = app.nodes["pass"].operator
    app.add("pass", Pass(factor=5), a=PortHandle(None, "s"))
    assert app.nodes["pass"].operator is before


def test_the_same_instance_may_be_added_again() -> None:
    """O48: adding the same instance under its name is accepted."""
    app = good()
    app.add("pass", app.nodes["pass"].operator, a=PortHandle(None, "s"))
    assert rules(app) == []


def test_a_recorded_stream_of_the_wrong_type_is_refused() -> None:
    """O13: the recording's schema is held against the port's; further columns are welcome (O44)."""
    assert rules(good(), recorded={"s": pa.schema([("x", pa.string())])}) == ["O13"]
    assert rules(good(), recorded={"s": pa.schema([("x", pa.int64()), ("y", pa.string())])}) == []


def test_at_most_once_may_not_feed_another_mode() -> None:
    """R39, R40: the pair is refused, an unset downstream inherits."""
    app = good()
    first = app.add("amo", Pass(), mode="at_most_once", a=PortHandle(None, "s"))
    app.add("inherits", Pass(), a=first)
    assert "R39" not in rules(app, Mode.AT_MOST_ONCE)
    app.add("eo", Pass(), mode="exactly_once", a=first)
    assert "R39" in rules(app, Mode.AT_MOST_ONCE)


def test_a_second_container_is_refused_with_the_reason() -> None:
    """Two modes need two containers, which this release lacks; the message says so."""
    app = good()
    app.add("alo", Pass(), mode="at_least_once", a=PortHandle(None, "s"))
    with pytest.raises(ValidationFailed, match="second container"):
        app.validate()


def test_an_operator_with_a_schema_for_its_state_is_stateful() -> None:
    """W70: statelessness is declared, not guessed."""
    assert Keeper().is_stateful and not Pass().is_stateful
    assert Keeper().initial_state().num_rows == 0
