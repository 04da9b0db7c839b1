"""Rows whose instants and dates are outside of the years that Python knows."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from rewindow.storage.python_rows import python_rows
from rewindow.windows import format_time

US = pa.timestamp("us", tz="UTC")
DAY_US = 86_400_000_000
YEAR_20224 = 576_072_086_400_000_000
KNOWN = datetime(2024, 1, 1, tzinfo=UTC)
KNOWN_US = 1_704_067_200_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), "-290308-12-21T19:59:05.224192Z"),
        (YEAR_20224, "+20224-12-31T00:00:00Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999Z"),
        (-62_167_219_200_000_001, "-0001-12-31T23:59:59.999999Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_of_any_year_are_formatted_as_iso_8601(value: int, text: str) -> None:
    assert format_time(value) == text


def test_instants_outside_the_python_datetime_range_are_returned_as_text() -> None:
    struct = pa.struct([("at", US), ("n", pa.int64())])
    kinds = {
        "plain": pa.int64(),
        "at": US,
        "naive_s": pa.timestamp("s"),
        "day": pa.date32(),
        "inside": struct,
        "listed": pa.list_(US),
        "mapped": pa.map_(pa.string(), US),
    }
    days = YEAR_20224 // DAY_US
    rows = [
        (
            1,
            YEAR_20224,
            YEAR_20224 // 1_000_000,
            days,
            {"at": YEAR_20224, "n": 7},
            [KNOWN_US],
            [("a", YEAR_20224)],
        ),
        (2, KNOWN_US, KNOWN_US // 1_000_000, 19_723, {"at": None, "n": None}, None, []),
        (3, None, None, None, None, [YEAR_20224, None], None),
    ]
    columns = [
        pa.array(list(column), kind)
        for column, kind in zip(zip(*rows, strict=True), kinds.values(), strict=True)
    ]
    far = "+20224-12-31T00:00:00Z"
    table = pa.table(columns, list(kinds))
    assert python_rows(table) == [
        {
            "plain": 1,
            "at": far,
            "naive_s": far,
            "day": "+20224-12-31",
            "inside": {"at": far, "n": 7},
            "listed": [KNOWN],
            "mapped": [("a", far)],
        },
        {
            "plain": 2,
            "at": KNOWN,
            "naive_s": KNOWN.replace(tzinfo=None),
            "day": date(2024, 1, 1),
            "inside": {"at": None, "n": None},
            "listed": None,
            "mapped": [],
        },
        {
            "plain": 3,
            "at": None,
            "naive_s": None,
            "day": None,
            "inside": None,
            "listed": [far, None],
            "mapped": None,
        },
    ]
    assert python_rows(table.slice(1, 1)) == table.slice(1, 1).to_pylist()
