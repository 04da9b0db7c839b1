"""Texts about the values that an expectation allows."""

from __future__ import annotations

from typing import Any

import pytest

from rewindow.quality.bounds import bounds_of

BETWEEN = "expect_column_values_to_be_between"


@pytest.mark.parametrize(
    ("type_", "kwargs", "text"),
    [
        (BETWEEN, {"min_value": 0, "max_value": 600}, "at least 0 and at most 600"),
        (BETWEEN, {"min_value": 0.5, "strict_min": True}, "more than 0.5"),
        (BETWEEN, {"max_value": 0, "strict_max": True}, "less than 0"),
        (BETWEEN, {"min_value": None, "max_value": None}, ""),
        ("expect_column_values_to_be_in_set", {"value_set": [0, 2.0]}, "0 or 2"),
        ("expect_column_values_to_not_be_null", {"column": "x"}, ""),
    ],
)
def test_text_of_bounds_names_each_of_them(type_: str, kwargs: dict[str, Any], text: str) -> None:
    assert bounds_of(type_, kwargs).text == text


def test_bounds_of_other_types_than_numbers_are_infinite() -> None:
    bounds = bounds_of("expect_column_values_to_be_in_set", {"value_set": ["EWR", "JFK"]})
    assert bounds.text == "EWR or JFK"
    assert bounds.allows(-1e300, 1e300)
    bounds = bounds_of("expect_column_values_to_be_in_set", {"value_set": [1, 3]})
    assert bounds.allows(1, 3) and not bounds.allows(0, 2) and not bounds.allows(1, 4)
