"""Texts about the values that an expectation allows."""

from __future__ import annotations

from typing import Any

import pytest

from rewindow.quality.bounds import allowed_values

BETWEEN = "expect_column_values_to_be_between"


@pytest.mark.parametrize(
    ("type_", "kwargs", "text"),
    [
        (BETWEEN, {"min_value": 0, "max_value": 600.0}, "at least 0 and at most 600"),
        (BETWEEN, {"min_value": 0.5, "strict_min": True}, "more than 0.5"),
        (BETWEEN, {"max_value": 0, "strict_max": True}, "less than 0"),
        (BETWEEN, {"min_value": None, "max_value": None}, ""),
        ("expect_column_values_to_be_in_set", {"value_set": [0, 2.0]}, "0 or 2"),
        ("expect_column_values_to_not_be_in_set", {"value_set": [0, 2]}, "neither 0 nor 2"),
        ("expect_column_values_to_not_be_in_set", {"value_set": [-1]}, "not -1"),
        ("expect_column_values_to_not_be_null", {"column": "x"}, ""),
    ],
)
def test_allowed_values_name_every_bound(type_: str, kwargs: dict[str, Any], text: str) -> None:
    assert allowed_values(type_, kwargs) == text
