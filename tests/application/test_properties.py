"""Properties: what is checked, when, and how it is told (docs/rules/operators.md O53, O54, O60)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from rewindow.application import Application, FrameOperator, InputPort, OutputPort, PortHandle, validate
from rewindow.errors import ValidationFailed
from rewindow.windows import parse_duration

X = pa.schema([("x", pa.int64())])
Word = Annotated[str, StringConstraints(pattern="[a-z]+|[0-9]+")]
COMPARISONS = "Value has to be one of lte, lt, eq, ne, gt, gte"


class Inner(BaseModel):
    """A nested object."""

    code: str = Field("ok", pattern="[a-z]+")
    most: int = Field(1, le=5)


class Checked(FrameOperator):
    """An operator with each of the constraints."""

    inputs: ClassVar = {"a": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}

    limit: int = Field(1, ge=-2, le=9)
    maybe: int | None = Field(None, ge=0)
    code: str = Field("ok", pattern="[a-z]+|[0-9]+")
    case: str = Field("Ok", pattern=re.compile("(?i)[a-z]+"))
    unset: str | None = Field(None, pattern="[a-z]+")
    words: list[Word | None] = []
    named: dict[str, Word] = {}
    inner: Inner = Inner()
    several: list[Inner] = []
    comparison: str = "eq"
    low: int = 0
    twice: int = 0

    @field_validator("comparison")
    @classmethod
    def _check_comparison(cls, value: str) -> str:
        if value not in ("lte", "lt", "eq", "ne", "gt", "gte"):
            raise AssertionError(COMPARISONS)  # as `assert` does, to which pytest adds a text of its own
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.limit:
            raise ValueError("low must not be above limit")
        self.twice = 2 * self.limit
        return self


class Timed(Checked):
    """An operator with a property that must not be read twice: a number means seconds, and becomes microseconds."""

    wait: Annotated[int, BeforeValidator(parse_duration)] = Field("1 minute")


class Various(FrameOperator):
    """An operator with patterns in places of their own."""

    inputs: ClassVar = {"a": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}

    pair: tuple[Annotated[str, Field(pattern="^[a-z]+$")], str, Word] = ("abc", "DEF 1", "12")
    any_length: tuple[Word, ...] = ("a", "b")
    either: Annotated[str, Field(pattern="^[a-z]+$")] | list[str] = "abc"
    nested: list[Inner] | Inner = []
    verbose: str = Field("abc", pattern="(?x) ^[a-z]+$ # letters")


class WithPython(Various):
    """An operator whose patterns are Python's; those of a nested object are its own."""

    model_config = ConfigDict(regex_engine="python-re")

    ahead: str = Field("abc", pattern="(?=a)[a-z]+")
    inner: Inner = Inner()


def violations(operator: FrameOperator) -> list[tuple[str, str]]:
    """Returns value and message of the violations of an application of one operator; all must be of O53."""
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
def test_what_holds_is_accepted(given: dict[str, Any]) -> None:
    """Bounds are inclusive, null passes a pattern where null is allowed, a pattern's alternatives are its own."""
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
        ({"inner": Inner(code="1a")}, "inner.code = '1a'"),
        ({"several": [Inner(), Inner(code="1a")]}, "several.1.code = '1a'"),
        ({"inner": {"most": 6}}, "inner.most = 6"),
        ({"nosuch": 1}, "nosuch = 1"),
    ],
)
def test_what_does_not_hold_is_named_with_path_and_value(given: dict[str, Any], value: str) -> None:
    """O53: a pattern must match the whole text, in lists and nested objects too."""
    assert [row[0] for row in violations(Checked(**given))] == [value]


def test_a_pattern_is_held_only_against_what_it_is_declared_for() -> None:
    """O53: each item of a tuple against its own; what may be one of several kinds against those of nested objects."""
    assert violations(Various()) == violations(Various(either=["X Y"], nested=Inner())) == []
    wrong = Various(pair=("abc", "DEF 1", "1a"), any_length=("a", "1a"), nested=[Inner(code="1a")])
    assert [row[0] for row in violations(wrong)] == [
        "any_length.1 = '1a'",
        "nested.0.code = '1a'",
        "pair.2 = '1a'",
    ]


def test_a_pattern_is_read_by_the_engine_that_the_operator_sets() -> None:
    """O53: look-around as well; a pattern that cannot be held against a whole text is as strict as pydantic is."""
    assert violations(WithPython()) == []
    assert violations(Various(verbose="1a"))[0][0] == violations(WithPython(verbose="1a"))[0][0] == "verbose = '1a'"
    assert [row[0] for row in violations(WithPython(ahead="abc1"))] == ["ahead = 'abc1'"]
    assert [row[0] for row in violations(WithPython(inner={"code": "1a"}))] == ["inner.code = '1a'"]


def test_a_message_of_ones_own_is_shown_unchanged() -> None:
    """O54: raised as an error or asserted."""
    assert violations(Checked(comparison="most")) == [("comparison = 'most'", COMPARISONS)]
    assert violations(Checked(low=2))[0][1] == "low must not be above limit"


def test_defaults_are_checked() -> None:
    """O53: a default is a value like any other."""

    class Wrong(Checked):
        limit: int = Field(10, le=9)
        code: str = Field("a1", pattern="[a-z]+")

    assert [row[0] for row in violations(Wrong())] == ["limit = 10"]
    assert [row[0] for row in violations(Wrong(limit=9))] == ["code = 'a1'"]


def test_a_property_set_later_is_checked_like_one_that_was_given() -> None:
    """O53: nothing is raised, the launch names it; a sound value is converted, and validators see it."""
    operator = Checked()
    operator.limit = "4"  # type: ignore[assignment]
    assert (operator.limit, operator.twice) == (4, 8) and violations(operator) == []
    operator.limit = 10
    assert [row[0] for row in violations(operator)] == ["limit = 10"]
    other = Checked()
    other.low = 7
    assert violations(other)[0][1] == "low must not be above limit"
    other = Checked()
    other.inner.code = "1a"
    assert [row[0] for row in violations(other)] == ["inner.code = '1a'"]


def test_properties_that_must_change_together_are_set_one_after_the_other() -> None:
    """O53: what is wrong only in between is not held against them; in the end values are converted."""
    operator = Checked()
    operator.low = "7"  # type: ignore[assignment]
    assert violations(operator)[0][1] == "low must not be above limit"
    operator.limit = "9"  # type: ignore[assignment]
    assert violations(operator) == [] and (operator.low, operator.limit, operator.twice) == (7, 9, 18)
    operator.limit = 6
    assert violations(operator)[0][1] == "low must not be above limit"


def test_a_property_that_was_wrong_from_the_start_can_be_set_right() -> None:
    """O53, O60: what else is wrong is still named, all of it."""
    operator = Checked(limit=10, code=None, inner={"most": 6})
    operator.limit = "4"  # type: ignore[assignment]
    assert [row[0] for row in violations(operator)] == ["code = None", "inner.most = 6"]
    operator.maybe = -1
    assert [row[0] for row in violations(operator)] == ["code = None", "inner.most = 6", "maybe = -1"]
    operator.code, operator.inner, operator.maybe = "ok", Inner(), None
    assert violations(operator) == [] and operator.limit == 4
    lacking = ByColumns()
    lacking.columns = ["x"]
    assert violations(lacking) == []


def test_setting_one_property_leaves_the_others() -> None:
    """A duration is not read a second time; what was changed in place is neither lost nor unseen."""
    operator = Timed(wait="2 minutes", words=["a"])
    operator.words.append("b")
    operator.inner.code = "abc"
    operator.limit = 4
    assert (operator.wait, Timed().wait) == (120_000_000, 60_000_000)
    assert (operator.words, operator.inner.code, operator.limit) == (["a", "b"], "abc", 4)
    copied = operator.model_copy(update={"code": "copied"})
    copied.limit = 5
    assert (copied.code, copied.limit, operator.code, operator.limit) == ("copied", 5, "ok", 4)


def test_a_duration_that_cannot_be_read_is_a_violation() -> None:
    """O60: what Rewindow's own readers refuse in a validator is reported, not raised."""
    assert violations(Timed(wait="2 minutes")) == []
    assert violations(Timed(wait="soon"))[0] == ("properties = {'wait': 'soon'}", 'duration "soon" cannot be read')
    operator = Timed()
    operator.wait = "soon"  # type: ignore[assignment]
    assert violations(operator)[0] == ("properties = {'wait': 'soon'}", 'duration "soon" cannot be read')


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


@pytest.mark.parametrize(("given", "value"), [({}, "columns = {}"), ({"columns": [1]}, "columns.0 = 1")])
def test_ports_that_cannot_be_told_do_not_hide_other_violations(given: dict[str, Any], value: str) -> None:
    """O60: the missing or wrong property is one violation, those of others stay, and none is made up."""
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


def test_ports_that_fail_with_sound_properties_are_a_defect_of_the_operator() -> None:
    """It is not taken for a wrong property."""

    class Broken(ByColumns):
        def _schema(self) -> pa.Schema:
            raise KeyError("column")

    app = Application("one", window="1 hour")
    with pytest.raises(KeyError):
        app.output("out", app.add("one", Broken(columns=["x"]), a=app.input("s")), key=["x"])
