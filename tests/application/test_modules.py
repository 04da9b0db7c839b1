"""Modules: parts of a graph that are added as one operator, and are gone when it is checked (O10,
X50).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pydantic import Field

from rewindow.application import (
    Application,
    InputPort,
    OutputPort,
    Part,
    PortHandle,
    apply_overrides,
    find_violations,
)
from rewindow.application.overrides import overrides_from
from rewindow.errors import ValidationFailed
from rewindow.operators import TupleOperator
from rewindow.testing import run_application

ROWS = pa.schema([("key", pa.string()), ("value", pa.int64())])


class Split(TupleOperator):
    """Rows up to a limit, and the others; one without a key is an error tuple."""

    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {
        "low": OutputPort(ROWS),
        "high": OutputPort(ROWS, optional=True),
        "unnamed": OutputPort(ROWS, error=True),
    }
    limit: int = Field(default=10, ge=0)

    def process(self, row: Any) -> None:
        if row.key is None:
            self.emit_error("unnamed", (row.key, row.value), "null_key")
        else:
            self.emit("low" if row.value <= self.limit else "high", row.key, row.value)


class Doubled(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}

    def process(self, row: Any) -> None:
        self.emit("out", row.key, 2 * row.value)


def cleaned(part: Part, rows: PortHandle, twice: PortHandle | None = None) -> dict[str, Any]:
    """Low rows doubled, and high ones as they are; another stream is doubled too."""
    parts = part.add("split", Split(), rows=rows)
    found = {"low": part.add("doubled", Doubled(), rows=parts["low"]), "high": parts["high"]}
    return found | ({"more": part.add("more", Doubled(), rows=twice)} if twice else {})


def doubled_twice(part: Part, rows: PortHandle) -> Any:
    """A module with a module inside, and one output port."""
    inner = part.module("first", cleaned, rows=rows)
    return part.add("again", Doubled(), rows=inner["low"])


def application(build: Any = cleaned, port: str = "low", **feeds: Any) -> Application:
    app = Application("modular", window="1 hour")
    clean = app.module("clean", build, **feeds or {"rows": app.input("rows")})
    app.output("result", clean[port], key=["key"])
    return app


def told(app: Application) -> list[tuple[str, str]]:
    """Returns rule and text of what is wrong."""
    return [(found.rule, str(found)) for found in find_violations(app)]


def test_module_is_expanded_to_its_operators() -> None:
    # Rules: O10, X50
    app = application()
    assert list(app.nodes) == ["clean.split", "clean.doubled"]
    assert app.nodes["clean.doubled"].feeds == {"rows": PortHandle("clean.split", "low")}
    assert list(app.staged()) == ["result", "clean.split.unnamed"]
    assert told(app) == []
    found = run_application(app, {"rows": {0: [("a", 3), ("b", 30), (None, 1)], 1: [("a", 4)]}})
    assert found["result"] == [(0, "a", 6), (1, "a", 8)]


def test_nested_modules_work_and_modules_end_streams_like_operators() -> None:
    app = Application("modular", window="1 hour")
    once = app.module("outer", doubled_twice, rows=app.input("rows"))
    app.output("result", app.add("last", Doubled(), rows=once), key=["key"])
    assert list(app.nodes) == ["outer.first.split", "outer.first.doubled", "outer.again", "last"]
    assert app.nodes["last"].feeds == {"rows": PortHandle("outer.again", "out")}
    assert told(app) == []


def test_input_port_of_a_module_may_be_unconnected() -> None:
    app = Application("modular", window="1 hour")
    rows = app.input("rows")
    assert list(app.module("a", cleaned, rows=rows).ports) == ["low", "high"]
    assert list(app.module("b", cleaned, rows=rows, twice=rows).ports) == ["low", "high", "more"]


def test_module_properties_are_set_by_operator_name() -> None:
    app = application()
    apply_overrides(app, overrides_from({"clean.split.limit": "2"}, "--set"))
    split = app.nodes["clean.split"].operator
    assert isinstance(split, Split) and split.limit == 2
    apply_overrides(app, overrides_from({"clean.split.limit": "-1"}, "--set"))
    (found,) = told(app)
    assert (
        found[0] == "O53" and "clean.split" in found[1] and "limit = '-1', from --set" in found[1]
    )


@pytest.mark.parametrize(
    ("feeds", "rule", "words"),
    [
        ({}, "O14", "clean.rows: an input port of this module is not fed"),
        (
            {"rows": "rows", "row": "rows"},
            "O10",
            "clean.row: this module has no such input port. It has: rows, twice",
        ),
    ],
)
def test_module_with_unconnected_inputs_is_reported_by_name_and_adds_nothing(
    feeds: dict[str, str],
    rule: str,
    words: str,
) -> None:
    app = Application("modular", window="1 hour")
    clean = app.module(
        "clean",
        cleaned,
        **{port: app.input(stream) for port, stream in feeds.items()},
    )
    app.output("result", clean["low"], key=["key"])
    assert app.nodes == {}
    assert any(found == rule and text.startswith(words) for found, text in told(app)), told(app)


def test_unknown_port_of_a_module_is_reported() -> None:
    (found,) = [text for rule, text in told(application(port="middle")) if rule == "O50"]
    assert "clean.middle" in found


def test_module_names_are_validated() -> None:
    app = Application("modular", window="1 hour")
    clean = app.module("cl-ean", cleaned, rows=app.input("rows"))
    app.output("result", clean["low"], key=["key"])
    assert {rule for rule, _ in told(app)} == {"H17"}
    with pytest.raises(ValidationFailed):
        run_application(app, {"rows": {0: []}})
