"""The catalogue of operators: its page, and what it lists."""

from __future__ import annotations

from itertools import chain

import pytest

import library_page
from rewindow.errors import InputError
from rewindow.loading.library import (
    EXAMPLES,
    describe_operator,
    library_operator,
)


@pytest.mark.parametrize("name", library_page.OPERATORS)
def test_library_page_is_up_to_date(name: str) -> None:
    page = (library_page.DOCS / name).read_text()
    assert page == library_page.written(name), "run: python scripts/library_page.py"


def test_each_operator_is_documented_on_exactly_one_library_page() -> None:
    listed = sorted(chain.from_iterable(library_page.OPERATORS.values()))
    assert listed == sorted(EXAMPLES)


def test_operator_description_contains_ports_and_properties() -> None:
    page = describe_operator("TopN")
    assert page.line.endswith("by default the largest ones.")
    assert page.inputs == ["rows"] and list(page.outputs) == ["out"]
    assert page.outputs["out"]["rank"] == "int32"
    lines = {one.name: one for one in page.properties}
    assert (lines["top"].type, lines["top"].default) == ("whole number", None)
    assert (lines["per"].type, lines["per"].default) == ("list of text", "[]")
    assert "columns" not in lines


@pytest.mark.parametrize(
    "name",
    ["Aggregate", "Deduplicate", "Enrich", "Join", "Sample", "Select", "Split", "TopN", "Union"],
)
def test_every_property_of_a_frame_operator_is_described(name: str) -> None:
    for line in describe_operator(name).properties:
        assert line.about, f"{name}.{line.name}"


def test_unknown_operator_raises_an_error_with_the_closest_name() -> None:
    with pytest.raises(InputError) as caught:
        library_operator("topn")
    assert '"TopN"' in caught.value.hint and str(sorted(EXAMPLES)[0]) in caught.value.hint
