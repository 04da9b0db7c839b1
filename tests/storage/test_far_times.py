"""Times that Python's datetime lacks, as text; no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.playback.lines import json_lines
from rewindow.storage import far_times
from rewindow.storage.far_times import python_rows

US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (2**63 - 1, US, "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), US, "-290308-12-21T19:59:05.224192Z"),
        (576_085_478_400_000_000, pa.timestamp("us"), "+20225-06-04T00:00:00.000000"),
        (2**31 - 1, pa.date32(), "+5881580-07-11"),
        (-(2**31), pa.date32(), "-5877641-06-23"),
    ],
)
def test_time_beyond_python_is_text_with_a_signed_year(
    value: int,
    kind: pa.DataType,
    text: str,
) -> None:
    plain = pa.array([value, None], pa.int32() if kind == pa.date32() else pa.int64())
    rows = pa.table({"until": plain.cast(kind), "n": [1, 2]})
    assert python_rows(rows) == [{"until": text, "n": 1}, {"until": None, "n": 2}]
    assert [json.loads(line)["until"] for line in json_lines(rows)] == [text, None]


def test_rows_within_python_are_as_before() -> None:
    rows = pa.table({"at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], US)})
    assert python_rows(rows) == rows.to_pylist()


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_text_of_a_time_is_that_of_iso_8601(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    text = far_times._far(micros, timedelta(microseconds=1))
    assert text == f"+{moment.isoformat(timespec='microseconds')}"
