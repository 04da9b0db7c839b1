"""Properties and attributes from outside of the code: which value counts, its type, and what is
said of a wrong one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pydantic import Field

from rewindow.application import (
    Application,
    FrameOperator,
    InputPort,
    Mode,
    OutputPort,
    apply_overrides,
    describe_graph,
    find_violations,
)
from rewindow.application.overrides import FILE, FORM, OPTION, overrides_from
from rewindow.errors import InputError

X = pa.schema([("x", pa.int64())])


class Tuned(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}
    least: int = Field(1, ge=1, le=9)
    share: float = 0.5
    keys: tuple[str, ...] = ("a",)
    label: str | None = "none"
    late_by: str = Field("1 h", alias="lateness")


def build(**properties: Any) -> Application:
    app = Application("app", window="1 hour", checkpoint_windows=6)
    app.output("out", app.add("tuned", Tuned(**properties), rows=app.input("rows")), key=["x"])
    return app


def shown(app: Application) -> dict[str, tuple[object, str]]:
    [operator] = describe_graph(app).operators
    return {one.name: (one.value, one.source) for one in operator.properties}


def test_more_specific_override_wins_and_each_value_records_its_source() -> None:
    # Rules: O28
    # The order is: class < code < rewindow.toml < --set < form.
    app = build(least=2, share=0.1, keys=("b",))
    given = [
        *overrides_from({"tuned.share": 0.2, "tuned.keys": ["c"]}, FILE),
        *overrides_from({"tuned.keys": '["d"]'}, OPTION),
    ]
    apply_overrides(app, given)
    assert not find_violations(app)
    assert shown(app) == {
        "least": (2, "code"),
        "share": (0.2, "rewindow.toml"),
        "keys": (["d"], "--set"),
        "label": ("none", "default"),
        "late_by": ("1 h", "default"),
    }
    apply_overrides(app, [*given, *overrides_from({"tuned.keys": '["e"]'}, FORM)])
    assert shown(app)["keys"] == (["e"], "form")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("least", "7", 7),
        ("share", "0.25", 0.25),
        ("keys", '["x", "y"]', ("x", "y")),
        ("label", "null", None),
        ("label", "7", "7"),
        ("label", "[1]", "[1]"),
        ("late_by", "2 h", "2 h"),
        ("lateness", "3 h", "3 h"),
    ],
)
def test_override_text_is_parsed_as_the_type_of_its_property_or_as_json(
    name: str,
    text: str,
    value: object,
) -> None:
    app = build()
    apply_overrides(app, overrides_from({f"tuned.{name}": text}, OPTION))
    assert not find_violations(app)
    assert getattr(app.nodes["tuned"].operator, "late_by" if name == "lateness" else name) == value


def test_attributes_are_overridden_like_properties() -> None:
    # Rules: O23, O103
    app = build()
    values = {
        "tuned.mode": "at_least_once",
        "tuned.checkpoint_windows": "5",
        "tuned.locality": "apart",
    }
    own = overrides_from(values, OPTION)
    whole = [
        one.model_copy(update={"operator": "", "name": "checkpoint_windows", "value": 12})
        for one in own[:1]
    ]
    apply_overrides(app, [*own, *whole])
    node = app.nodes["tuned"]
    assert (node.mode, node.checkpoint_windows, app.checkpoint_windows) == (
        Mode.AT_LEAST_ONCE,
        5,
        12,
    )
    assert shown(app)["mode"] == ("at_least_once", "--set")
    assert node.locality == "apart" and shown(app)["locality"] == ("apart", "--set")


def test_all_wrong_overrides_are_reported_together() -> None:
    # Rules: O53, O60
    app = build()
    apply_overrides(
        app,
        [
            *overrides_from({"tuned.least": 0, "tuned.leest": 1}, FILE),
            *overrides_from(
                {"tunde.least": "1", "tuned.share": "much", "tuned.mode": "twice"},
                OPTION,
            ),
            *overrides_from({"tuned.checkpoint_windows": "some"}, FORM),
        ],
    )
    assert [str(one).partition(" It has")[0] for one in find_violations(app)] == [
        'tunde: no operator has this name. Did you mean "tuned"? Existing operators: tuned. '
        "(least = '1', from --set)",
        "tuned: it must be a whole number (checkpoint_windows = 'some', from form)",
        'tuned: Tuned has no such property or attribute. Did you mean "least"?',
        "tuned: recovery mode \"twice\" is unknown (mode = 'twice', from --set)",
        "tuned: it must be greater than or equal to 1 (least = 0, from rewindow.toml)",
        "tuned: it must be a valid number, unable to parse string as a number (share = 'much', "
        "from --set)",
    ]


def test_property_of_an_unknown_operator_is_rejected_by_name() -> None:
    with pytest.raises(InputError, match='property "least" lacks the name of its operator'):
        overrides_from({"least": "1"}, OPTION)


class Rejecting(FrameOperator):
    """An operator with an error port whose bound is in its code."""

    inputs: ClassVar = {"rows": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X), "bad": OutputPort(X, error=True, errors_max=7)}


def rejecting() -> Application:
    app = Application("app", window="1 hour")
    app.output("out", app.add("part.split", Rejecting(), rows=app.input("rows"))["out"], key=["x"])
    return app


def test_error_port_has_a_separate_tuple_limit() -> None:
    # Rules: O28, O71
    app = rejecting()
    assert shown(app) == {"bad.errors_max": (7, "code")}
    in_file = overrides_from({"part.split.bad": {"errors_max": 5}}, FILE)
    apply_overrides(app, in_file)
    assert not find_violations(app)
    assert (
        app.nodes["part.split"].error_bound("bad"),
        app.nodes["part.split"].error_bound("out"),
    ) == (5, None)
    assert shown(app) == {"bad.errors_max": (5, "rewindow.toml")}
    app = rejecting()
    apply_overrides(app, [*in_file, *overrides_from({"part.split.bad.errors_max": "0"}, OPTION)])
    assert shown(app) == {"bad.errors_max": (0, "--set")}
    assert [one.path for one in app.given] == ["part.split.bad.errors_max"]


def test_output_stream_attributes_can_be_overridden() -> None:
    # Rules: O28
    app = build()
    apply_overrides(
        app,
        overrides_from(
            {
                "outputs.out.tolerance": "0.5",
                "outputs.out.sorted_by": '["x"]',
                "outputs.out.suite": "mine",
            },
            OPTION,
        ),
    )
    assert not find_violations(app)
    found = app.outputs["out"]
    assert (found.tolerance, found.sorted_by, found.suite) == (0.5, ("x",), "mine")


def test_invalid_port_and_stream_attributes_are_reported_with_operator_and_port() -> None:
    # Rules: O30
    app = rejecting()
    given = {
        "part.split.bad.errors_max": "-1",
        "part.split.out.errors_max": 3,
        "part.split.bad.error_max": 3,
        "outputs.out.tolerance": "far",
        "outputs.out.sorted_by": "x",
        "outputs.out.sorted": ["x"],
        "outputs.out.suite": 3,
        "outputs.outt.tolerance": 1,
    }
    apply_overrides(app, overrides_from(given, OPTION))
    assert [str(one) for one in find_violations(app)] == [
        'no output has the name outt. Did you mean "out"? Existing outputs: out. (tolerance = '
        "1, from --set)",
        'out: an output has no such attribute. Did you mean "sorted_by"? It has: sorted_by, '
        "tolerance, suite. "
        "(sorted = ['x'], from --set)",
        "out: it must be a list of columns, such as [\"user\"] (sorted_by = 'x', from --set)",
        'out: it must be the name of a suite, such as "delays" (suite = 3, from --set)',
        "out: it must be a number, at least 0 (tolerance = 'far', from --set)",
        'part.split.bad: a port has no such attribute. Did you mean "errors_max"? It has: '
        "errors_max. "
        "(error_max = 3, from --set)",
        "part.split.bad: it must be a whole number, 0 or more (errors_max = '-1', from --set)",
        "part.split.out: only an error port has a limit of error tuples (errors_max = 3, from "
        "--set)",
    ]
    assert app.nodes["part.split"].error_bound("bad") == 7


def test_tuple_limit_in_code_must_be_nonnegative_and_on_an_error_port() -> None:
    class Odd(FrameOperator):
        inputs: ClassVar = {"rows": InputPort(X)}
        outputs: ClassVar = {
            "out": OutputPort(X, errors_max=1),
            "bad": OutputPort(X, error=True, errors_max=-1),
        }

    app = Application("app", window="1 hour")
    app.output("out", app.add("odd", Odd(), rows=app.input("rows"))["out"], key=["x"])
    assert [(one.rule, one.port, one.value) for one in find_violations(app)] == [
        ("O28", "bad", "-1"),
        ("O28", "out", "1"),
    ]
