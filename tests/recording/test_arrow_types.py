"""Arrow types as other types: what fits, how values are converted, what is counted; no Spark."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.recording.sources.arrow_types import (
    CUT,
    LEFT_OUT,
    TWICE,
    converted,
    spark_type,
    wider_type,
)

BERLIN = "Europe/Berlin"
US = pa.timestamp("us")
INSTANT = pa.timestamp("us", "UTC")
FINE = pa.struct([("t", pa.timestamp("ns")), ("v", pa.float64())])
WHOLE = pa.struct([("t", US), ("v", pa.int64())])
CHANGES = [datetime(2024, month, day, 2, 30) for month, day in ((3, 31), (10, 27), (11, 3))]
ROW = {"t": datetime(1970, 1, 1, 0, 0, 0, 1), "v": 1}


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.list_(pa.uint8(), 2), pa.list_(pa.int16())),
        (
            pa.map_(pa.string(), pa.timestamp("ns", "Asia/Tokyo")),
            pa.map_(pa.string(), pa.timestamp("us", "Asia/Tokyo")),
        ),
        (pa.struct([("a", pa.date64())]), pa.struct([("a", pa.date32())])),
        (pa.uuid(), pa.binary()),
    ],
)
def test_every_arrow_type_maps_to_a_spark_type_for_all_its_values(
    given_type: pa.DataType,
    wanted: pa.DataType,
) -> None:
    assert spark_type(given_type) == wanted


@pytest.mark.parametrize(
    ("values", "given_type", "wanted", "expected"),
    [
        ([200, None], pa.uint8(), pa.int16(), [200, None]),
        ([5, 2**53 + 1], pa.int64(), pa.float64(), None),
        ([2**40 + 5], pa.int64(), pa.int32(), None),
        ([7], pa.int64(), pa.int32(), [7]),
        ([1.7], pa.float64(), pa.int64(), None),
        ([1.0, None], pa.float64(), pa.int64(), [1, None]),
        ([0.1], pa.float64(), pa.float32(), None),
        ([0.5], pa.float32(), pa.float64(), [0.5]),
        ([float("nan")], pa.float64(), pa.int64(), None),
        ([2**64 - 1], pa.uint64(), pa.int64(), None),
        ([2**64 - 1], pa.uint64(), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
        ([5], pa.int64(), pa.decimal128(21, 2), [Decimal("5.00")]),
        ([10**9], pa.int64(), pa.decimal128(10, 2), None),
        ([Decimal("1.25")], pa.decimal128(3, 2), pa.decimal128(9, 4), [Decimal("1.2500")]),
        ([Decimal("1.25")], pa.decimal128(3, 2), pa.decimal128(3, 1), None),
        ([1.25], pa.float64(), pa.decimal128(10, 2), [Decimal("1.25")]),
        ([1.255], pa.float64(), pa.decimal128(10, 2), None),
        ([5], pa.int64(), pa.string(), ["5"]),
        ([b"\xff"], pa.binary(), pa.string(), None),
        ([None, None], pa.null(), pa.float64(), [None, None]),
        ([date(1969, 1, 1)], pa.date64(), pa.date32(), [date(1969, 1, 1)]),
        ([[{"t": None, "v": 1.7}]], pa.list_(FINE), pa.list_(WHOLE), None),
        (
            [None, [], [None, {"t": 1500, "v": 1.0}]],
            pa.large_list(FINE),
            pa.list_(WHOLE),
            [None, [], [None, ROW]],
        ),
        ([{"t": 1500, "v": 1.0}, None], FINE, WHOLE, [ROW, None]),
        (
            [[("a", 1)], None, [("b", None)]],
            pa.map_(pa.string(), pa.uint8()),
            pa.map_(pa.string(), pa.int16()),
            [[("a", 1)], None, [("b", None)]],
        ),
    ],
)
def test_type_conversion_keeps_the_value_or_raises_an_error(
    values: list[Any],
    given_type: pa.DataType,
    wanted: pa.DataType,
    expected: list[Any] | None,
) -> None:
    # A slice of a longer array has offsets, as batches of a file may have.
    array = pa.array([values[-1], *values], given_type).slice(1)
    if expected is None:
        with pytest.raises(pa.ArrowInvalid):
            converted(array, wanted, "UTC", Counter())
    else:
        found = converted(array, wanted, "UTC", Counter())
        assert (found.type, found.to_pylist()) == (wanted, expected)


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.float64(), pa.string()),
        (pa.int64(), US),
        (pa.bool_(), pa.int64()),
        (pa.date32(), US),
        (pa.list_(pa.int64()), pa.int64()),
    ],
)
def test_conversion_of_incompatible_values_raises_an_error(
    given_type: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        converted(pa.array([], given_type), wanted, "UTC", Counter())


def test_nanoseconds_are_rounded_down_and_counted_even_in_lists() -> None:
    notes: Counter[str] = Counter()
    times = pa.array([-1500, 1500, 2000, None], pa.timestamp("ns"))
    cut = converted(times, US, "UTC", notes)
    assert cut.cast(pa.int64()).to_pylist() == [-2, 1, 2, None]
    converted(pa.array([[{"t": 1500, "v": 1}]], pa.list_(FINE)), pa.list_(WHOLE), "UTC", notes)
    assert notes == {CUT: 3}


ZONES = (BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC", "Asia/Tokyo")


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(1900, 1, 1), datetime(2037, 12, 31)) | st.sampled_from(CHANGES),
)
def test_local_time_is_converted_to_an_instant_as_in_python_or_rejected(
    zone: str,
    local: datetime,
) -> None:
    info = ZoneInfo(zone)
    first, last = (local.replace(tzinfo=info, fold=fold).astimezone(UTC) for fold in (0, 1))
    notes: Counter[str] = Counter()
    if first.astimezone(info).replace(tzinfo=None) != local:
        with pytest.raises(pa.ArrowInvalid):
            converted(pa.array([local], US), INSTANT, zone, notes)
    else:
        found = converted(pa.array([local], US), INSTANT, zone, notes)
        assert found.to_pylist() == [first]
        assert notes[TWICE] == (first != last)


def test_instant_is_not_converted_to_a_local_time() -> None:
    with pytest.raises(pa.ArrowInvalid):
        converted(pa.array([datetime(2024, 7, 1, 12, tzinfo=UTC)], INSTANT), US, BERLIN, Counter())


def test_common_type_can_represent_the_values_of_both_types() -> None:
    whole, real = (
        pa.list_(pa.struct([("v", kind), ("k", pa.string())]))
        for kind in (pa.int64(), pa.float64())
    )
    assert wider_type(whole, real) == real
    assert wider_type(pa.string(), pa.int64()) == pa.string()
    assert wider_type(pa.string(), pa.float64()) is None


def test_values_of_fields_missing_in_the_target_type_are_dropped_and_counted() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    rows = pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 3, "b": "y"}], kind)
    notes: Counter[str] = Counter()
    found = converted(rows, pa.struct([("a", pa.int64())]), "UTC", notes)
    assert found.to_pylist() == [{"a": 1}, None, {"a": 2}, {"a": 3}]
    assert notes == {LEFT_OUT: 2}
