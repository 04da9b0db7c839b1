"""Each launch rule as a newcomer meets it: one fault, one message, and advice beside it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import ClassVar

import pytest

from rewindow.application import (
    Application,
    FrameOperator,
    InputPort,
    Mode,
    OutputPort,
    PortHandle,
    apply_overrides,
    cycles,
    find_violations,
    validation,
)
from rewindow.application.advice import ADVICE
from rewindow.application.overrides import OPTION, overrides_from
from rewindow.operators import DelayOperator, OutputOperator, TupleOperator
from tests.application.test_validation import Echo, LostKey, Needed, Pass, X, good, more

S = PortHandle(None, "s")


class Torn(Pass):
    """One that cannot say what it emits."""

    def output_ports(self) -> dict[str, OutputPort]:
        raise LookupError("no columns yet")


class Rootless(FrameOperator):
    outputs: ClassVar = {"out": OutputPort(X, optional=True)}


class Around(DelayOperator):
    columns: ClassVar = X


class Older(Pass):
    """One with a method of an old name."""

    def skipped(self) -> None:
        pass


def _twice(app: Application) -> None:
    shared = app.nodes["pass"].operator
    app.output("more", app.add("again", shared, a=S), key=["x"])


def _wait_for_each_other(app: Application) -> None:
    first = app.add("first", Pass(), container="left", a=S)
    second = app.add("second", Pass(), container="right", a=first)
    app.output("more", app.add("third", Pass(), container="left", a=second), key=["x"])


def _around(app: Application) -> None:
    app.add("frames", Pass(), a=PortHandle("around", "out"), b=S)
    app.add("around", Around(), tuples=PortHandle("frames", "out"))


def _unfed(app: Application) -> None:
    app.add("around", Around(), tuples=PortHandle("again", "out"))
    app.add("again", Around(), tuples=PortHandle("around", "out"))


class Told(TupleOperator):
    inputs: ClassVar = {"a": InputPort(X), "told": InputPort(X, control=True)}
    outputs: ClassVar = {"out": OutputPort(X)}

    def process_a(self, row: object) -> None:
        pass

    process_told = process_a  # type: ignore[pydantic-field]


class Each(TupleOperator):
    inputs: ClassVar = {"a": InputPort(X), "back": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}

    def process_a(self, row: object) -> None:
        pass

    process_back = process_a  # type: ignore[pydantic-field]


class Whole(Pass):
    """One whose application windows no checkpoint may cut."""

    may_be_cut: ClassVar = False


class Ordered(Pass):
    def ordered_ports(self) -> tuple[str, ...]:
        return ("a",)


class Sent(OutputOperator):
    inputs: ClassVar = {"a": InputPort(X)}

    def process(self, row: object) -> None:
        pass


def _told(app: Application) -> None:
    app.add("told", Told(), a=S, told=PortHandle("around", "out"))
    app.add("around", Around(), tuples=PortHandle("told", "out"))


def _spread(app: Application) -> None:
    app.add("each", Each(), a=S, back=PortHandle("around", "out"), spread=2)
    app.add("around", Around(), tuples=PortHandle("each", "out"))


def _loses(app: Application) -> None:
    first = app.add("loses", Pass(), mode="at_most_once", a=S)
    app.output("more", app.add("strict", Pass(), mode="exactly_once", a=first), key=["x"])


FAULTS: list[tuple[str, Callable[[Application], object], str]] = [
    ("H17", lambda app: app.add("1st", Pass(), a=S),
     "1st: operator names are letters, digits and _, not starting with a digit (1st)"),
    ("O9", lambda app: app.add("root", Rootless()), "root: an operator without input ports cannot "
                                                    "be a root: "
     "use app.input (root)"),
    ("O12", lambda app: app.add("odd", Pass(), a=S, z=S), "odd.z: unknown input port; existing "
                                                          "ports: a, b (z)"),
    ("O12", lambda app: app.output("more", app.add("echo", Echo(), a=S), key=["x"]),
     "echo.a: an input port and an output port have the same name (a)"),
    ("O12", lambda app: app.add("torn", Torn(), a=S), "torn: its ports or state cannot be listed "
     "(LookupError: no columns yet)"),
    ("O13", lambda app: app.output("more", more(app), key=["y"]),
     "more.more: key column is not in the port's schema (y)"),
    ("O13", lambda app: app.output("more", more(app), key=["x"], sorted_by=["window_id", "y"]),
     "more.more: sorted_by is not in the port's schema (y)"),
    ("O14", lambda app: app.add("idle", Pass()), "idle.a: input port needs a stream (a)"),
    ("O15", lambda app: app.add("needed", Needed(), a=S), "needed.out: output port must be "
                                                          "connected (out)"),
    ("O18", lambda app: app.output("more", PortHandle("pass", "out"), key=["x"]),
     "pass.out: the port already feeds output out, and a port belongs to one stream (more)"),
    ("O48", lambda app: app.add("pass", Pass(), a=S), "pass: operator name is taken by another one "
                                                      "(pass)"),
    ("O50", lambda app: app.input("unread"), "unread: the stream has no reader (unread)"),
    ("O50", lambda app: app.add("lost", Pass(), a=PortHandle("pass", "nosuch")),
     "lost.a: the stream has no source: the output port does not exist (pass.nosuch)"),
    ("O51", lambda app: app.add("loop", Pass(), a=PortHandle("loop", "out")),
     "loop: the application must be acyclic (loop)"),
    ("O52", lambda app: app.add("later", Around(), tuples=S, application_windows=4),
     "later: a delay operator passes on every window: leave application_windows and slide_windows "
     "out (4)"),
    ("O53", lambda app: app.add("wrong", Pass(factor=10), a=S),
     "wrong: it must be less than or equal to 9 (factor = 10)"),
    ("O28", lambda app: apply_overrides(app, overrides_from({"pass.factr": 2}, OPTION)),
     "pass: Pass has no such property or attribute. Did you mean \"factor\"? It has: factor, mode, "
     "container, checkpoint_windows, application_windows, slide_windows, partitions, partitioner, "
     "spread, locality. (factr = 2, from --set)"),
    ("R13", lambda app: app.add("older", Older(), a=S), "older: this method was renamed to "
                                                        "state_after_skip: rename it (skipped)"),
    ("R20", lambda app: app.add("cut", Pass(), mode="at_most_once", a=S, application_windows=4),
     "cut: checkpoint windows must be a multiple of its 4 application windows (1)"),
    ("R39", _loses, "strict.a: an at-most-once operator may feed only at-most-once ones "
     "(loses at most once -> strict exactly once)"),
    ("R85", lambda app: app.output("more", more(app), key=["x"], tolerance=-1),
     "more: tolerance must be a number, at least 0 (-1)"),
    ("W3", lambda app: setattr(app, "window", "1.5 ms"),
     "window width must be a whole number of ms, from 1 ms to 503079487 ms (5.8 days) (1.5 ms)"),
    ("W18", lambda app: app.add("long", Pass(), a=S, application_windows=0),
     "long: application windows must be at least 1 (0)"),
    ("W30", lambda app: app.add("far", Pass(), a=S, application_windows=4, slide_windows=5),
     "far: a window slides by at least 1 and at most the application windows; otherwise windows "
     "would be skipped (5)"),
    ("O103", lambda app: app.add("near", Pass(), a=S, locality="together"),
     'near: locality can only be "apart" (together)'),
    ("W50", lambda app: app.add("whole", Whole(), a=S, application_windows=4, checkpoint_windows=6),
     "whole: no checkpoint may be inside its application window: checkpoint windows must be a "
     "multiple of its 4 windows (6)"),
    ("W56", lambda app: app.add("k", Pass(), a=S, checkpoint_windows=0),
     "k: checkpoint windows must be at least 1 (0)"),
    ("X55", _spread, "each: an operator in a cycle cannot be spread: its instances run "
     "independently (2)"),
    ("X53", _wait_for_each_other, "these containers would wait for each other: one reads a stream "
     "of the other (left, right)"),
    ("X12", _twice, 'again: operator "pass" already uses the same instance; create one for each '
                    'name (Pass)'),
    ("X40", _around, "frames: it receives all windows of a group at once, so it cannot be in a "
                     "cycle: make it a TupleOperator (Pass)"),
    ("X40", _unfed, "around: nothing outside of the cycle feeds it (again, around)"),
    ("X44", _told, "told.told: a control port cannot be fed from its own cycle, whose key "
                   "ranges run independently (around.out)"),
    ("X43", lambda app: app.add("late", Ordered(), a=PortHandle("pass", "out")),
     "late.a: its results depend on the order of tuples, and tuples that are published or come "
     "from an operator have no recorded order: set order_by (pass.out)"),
    ("X46", lambda app: app.add("sent", Sent(), a=S),
     "sent: an operator that writes to external systems can only run in tests: a replay may "
     "compute windows again after a crash (Sent)"),
    ("X47", lambda app: app.add("k", LostKey(), a=S), "k: state_key is not a column of the state "
                                                      "(nosuch)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil", "message"), FAULTS)
def test_violation_message_contains_operator_port_value_reason_and_advice(
    rule: str,
    spoil: Callable[[Application], object],
    message: str,
) -> None:
    # Rules: O60
    app = good()
    spoil(app)
    found = {str(one): one.rule for one in find_violations(app, Mode.EXACTLY_ONCE)}
    assert found.get(message) == rule, "\n".join(found)
    assert ADVICE[rule].endswith(".")


def test_every_launch_validation_rule_has_a_message_and_advice() -> None:
    reported = set(
        re.findall(
            r'Violation\(\s*"([A-Z]\d+)"',
            inspect.getsource(validation) + inspect.getsource(cycles),
        )
    )
    assert reported <= ADVICE.keys()
    assert reported <= {rule for rule, _, _ in FAULTS}
