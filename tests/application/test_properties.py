"""Properties: what is checked, when, and how it is told (docs/rules/operators.md O53, O54, O60)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from rewindow.application import (
    Application,
    FrameOperator,
    InputPort,
    OutputPort,
    PortHandle,
    matches,
    validate,
)
from rewindow.errors import ValidationFailed
from rewindow.windows import parse_duration

X = pa.schema([("x", pa.int64())])
Word = Annotated[str, matches("[a-z]+|[0-9]+")]
Letters = Annotated[str, matches("[a-z]+")]
COMPARISONS = "Value has to be one of lte, lt, eq, ne, gt, gte"


class Inner(BaseModel):
    code: Letters = "ok"
    most: int = Field(1, le=5)


class Checked(FrameOperator):
    inputs: ClassVar = {"a": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}

    limit: int = Field(1, ge=-2, le=9)
    maybe: int | None = Field(None, ge=0)
    code: Word = "ok"
    case: Annotated[str, matches("(?i)[a-z]+")] = "Ok"
    unset: Letters | None = None
    words: list[Word | None] = []
    named: dict[str, Word] = {}
    inner: Inner = Inner()
    several: list[Inner] = []
    comparison: str = "eq"
    low: int = 0

    @field_validator("comparison")
    @classmethod
    def _check_comparison(cls, value: str) -> str:
        if value not in ("lte", "lt", "eq", "ne", "gt", "gte"):
            raise AssertionError(
                COMPARISONS
            )  # as `assert` does, to which pytest adds a text of its own
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.limit:
            raise ValueError("low must not be above limit")
        return self


class Timed(Checked):
    """An operator with a property that must not be read twice: a number means seconds, and becomes
    microseconds.
    """

    wait: Annotated[int, BeforeValidator(parse_duration)] = Field("1 minute")  # type: ignore[assignment]


def violations(operator: FrameOperator) -> list[tuple[str, str]]:
    """Returns value and message of the violations of an application of one operator; all must be of
    O53.
    """
    app = Application("one", window="1 hour")
    app.output("out", app.add("one", operator, a=app.input("s")), key=["x"])
    found: tuple[Any, ...] = ()
    try:
        validate(app)
    except ValidationFailed as error:
        found = error.violations
    assert all(row.rule == "O53" for row in found)
    return [(row.value, row.message) for row in found]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"limit": 9},
        {"limit": -2, "low": -2},
        {"maybe": None, "unset": None},
        {"code": "abc", "case": "ABC", "unset": "abc"},
        {"code": "12", "words": ["a", None, "12"], "named": {"A1": "a"}},
        {"inner": Inner(code="abc", most=5), "several": [Inner()]},
        {"comparison": "lte"},
    ],
)
def test_valid_property_values_are_accepted(given: dict[str, Any]) -> None:
    assert violations(Checked(**given)) == []


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"limit": 10}, "limit = 10"),
        ({"limit": -3}, "limit = -3"),
        ({"limit": None}, "limit = None"),
        ({"maybe": -1}, "maybe = -1"),
        ({"code": None}, "code = None"),
        ({"code": "a1"}, "code = 'a1'"),
        ({"code": "1a"}, "code = '1a'"),
        ({"code": "a\n"}, r"code = 'a\n'"),
        ({"case": "A1"}, "case = 'A1'"),
        ({"unset": "1a"}, "unset = '1a'"),
        ({"words": ["a", "1a"]}, "words.1 = '1a'"),
        ({"named": {"one": "1a"}}, "named.one = '1a'"),
        ({"inner": {"code": "1a"}}, "inner.code = '1a'"),
        ({"several": [Inner(), {"code": "1a"}]}, "several.1.code = '1a'"),
        ({"inner": {"most": 6}}, "inner.most = 6"),
        ({"nosuch": 1}, "nosuch = 1"),
    ],
)
def test_invalid_property_values_are_reported_with_path_and_value(
    given: dict[str, Any], value: str
) -> None:
    # Rules: O53
    # A pattern must match the whole text, in lists and nested objects too.
    assert [row[0] for row in violations(Checked(**given))] == [value]


def test_message_of_a_custom_validator_is_shown_unchanged() -> None:
    # Rules: O54
    assert violations(Checked(comparison="most")) == [("comparison = 'most'", COMPARISONS)]
    assert violations(Checked(low=2))[0][1] == "low must not be above limit"


def test_default_property_values_are_validated() -> None:
    # Rules: O53
    class Wrong(Checked):
        limit: int = Field(10, le=9)
        code: Letters = "a1"

    assert [row[0] for row in violations(Wrong())] == ["code = 'a1'", "limit = 10"]


def test_property_set_after_construction_is_converted_and_validated_at_launch() -> None:
    # Rules: O53
    operator = Checked()
    operator.set_properties(limit="4")
    assert operator.limit == 4 and violations(operator) == []
    operator.set_properties(limit=10)
    assert [row[0] for row in violations(operator)] == ["limit = 10"]
    operator.set_properties(limit=9, low="7")
    assert violations(operator) == [] and (operator.low, operator.limit) == (7, 9)
    operator.set_properties(limit=6)
    assert violations(operator)[0][1] == "low must not be above limit"


def test_direct_assignment_of_a_property_is_rejected_without_a_change() -> None:
    operator = Checked()
    with pytest.raises(ValidationError, match="frozen"):
        operator.limit = 4  # type: ignore[misc]
    assert operator.limit == 1


def test_correcting_one_invalid_property_still_reports_the_other_violations() -> None:
    # Rules: O53, O60
    operator = Checked(limit=10, code=None, inner={"most": 6})
    operator.set_properties(limit="4")
    assert [row[0] for row in violations(operator)] == ["code = None", "inner.most = 6"]
    operator.set_properties(maybe=-1)
    assert [row[0] for row in violations(operator)] == [
        "code = None",
        "inner.most = 6",
        "maybe = -1",
    ]
    operator.set_properties(code="ok", inner=Inner(), maybe=None)
    assert violations(operator) == [] and operator.limit == 4
    lacking = ByColumns()  # type: ignore[call-arg]
    lacking.set_properties(columns=["x"])
    assert violations(lacking) == []


def test_setting_one_property_does_not_change_other_properties() -> None:
    operator = Timed(wait="2 minutes", words=["a"])
    copied = operator.model_copy()
    operator.set_properties(limit=4)
    assert (operator.wait, operator.words, operator.limit) == (120_000_000, ["a"], 4)
    assert (copied.limit, Timed().wait) == (1, 60_000_000)


def test_invalid_duration_in_a_validator_is_reported_as_a_violation() -> None:
    # Rules: O60
    assert violations(Timed(wait="2 minutes")) == []
    assert violations(Timed(wait="soon"))[0] == (
        "properties = {'wait': 'soon'}",
        'duration "soon" cannot be read',
    )
    operator = Timed()
    operator.set_properties(wait="soon")
    assert violations(operator)[0] == (
        "properties = {'wait': 'soon'}",
        'duration "soon" cannot be read',
    )


class ByColumns(FrameOperator):
    """An operator whose ports and state depend on a property."""

    columns: list[str]

    def input_ports(self) -> Mapping[str, InputPort]:
        return {"a": InputPort(self._schema())}

    def output_ports(self) -> Mapping[str, OutputPort]:
        return {"out": OutputPort(self._schema())}

    def state_columns(self) -> pa.Schema:
        return self._schema()

    def _schema(self) -> pa.Schema:
        return pa.schema([(name.strip(), pa.int64()) for name in self.columns])


@pytest.mark.parametrize(
    ("given", "value"),
    [({}, "columns = {}"), ({"columns": [1]}, "columns.0 = 1")],
)
def test_ports_that_depend_on_an_invalid_property_do_not_hide_other_violations(
    given: dict[str, Any],
    value: str,
) -> None:
    # Rules: O60
    app = Application("one", window="1 hour", strict_outputs=True)
    first = app.add("first", ByColumns(**given), a=app.input("s"))
    app.output("direct", first, key=["x"])
    app.output("out", app.add("second", Checked(limit=10), a=first), key=["x"])
    app.add("third", Checked(), a=PortHandle("nobody", "out"))
    with pytest.raises(ValidationFailed) as caught:
        validate(app, recorded={"s": X})
    found = [(row.operator, row.rule, row.value) for row in caught.value.violations]
    assert found == [
        ("first", "O53", value),
        ("second", "O53", "limit = 10"),
        ("third", "O15", "third"),
        ("third", "O50", "nobody.out"),
    ]


def test_ports_that_fail_with_valid_properties_are_reported_as_an_operator_bug() -> None:
    # Rules: O60
    class Broken(ByColumns):
        def _schema(self) -> pa.Schema:
            raise KeyError("column")

    app = Application("one", window="1 hour")
    app.output("out", app.add("one", Broken(columns=["x"]), a=app.input("s")), key=["x"])
    with pytest.raises(
        ValidationFailed,
        match="one: its ports or state cannot be listed \\(KeyError: 'column'\\)",
    ) as caught:
        validate(app)
    assert [row.rule for row in caught.value.violations] == ["O12"]
