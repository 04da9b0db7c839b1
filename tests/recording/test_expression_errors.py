"""What is said of an `event_at` that is not a TIMESTAMP column: how to make one."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from rewindow.errors import InputError
from rewindow.recording.tuples import check_event_columns
from rewindow.settings.config import StreamConfig

EVENTS = T.StructType([
    T.StructField("window_id", T.LongType()), T.StructField("arrived_at", T.TimestampType()),
    T.StructField("at", T.TimestampType()), T.StructField("measured_ms", T.LongType()),
    T.StructField("at_us", T.LongType()), T.StructField("epoch", T.DoubleType()),
    T.StructField("day", T.DateType()),
    T.StructField("told", T.StringType()), T.StructField("read-at", T.StringType()),
])  # fmt: skip


@pytest.mark.parametrize(
    ("event_at", "hint"),
    [
        (
            "measured_ms",
            'select = { measured_at = "timestamp_millis(measured_ms)" } and event_at = '
            '"measured_at"',
        ),
        (
            "at_us",
            'select = { event_time = "timestamp_micros(at_us)" } and event_at = "event_time"',
        ),
        (
            "epoch",
            'select = { epoch_at = "timestamp_seconds(epoch)" } and event_at = "epoch_at" in the '
            "stream's",
        ),
        ("epoch", "For another unit, use timestamp_millis or timestamp_micros."),
        ("day", 'select = { day_at = "CAST(day AS TIMESTAMP)" } and event_at = "day_at"'),
        (
            "told",
            "add its format, such as to_timestamp(told, 'yyyyMMdd HH:mm').",
        ),
        (
            "read-at",
            'select = { event_time = "to_timestamp(`read-at`)" } and event_at = "event_time"',
        ),
        (
            'f(told, "x")',
            'select = { event_time = "f(told, \\"x\\")" } and event_at = "event_time"',
        ),
        ("att", 'Did you mean "at"? Event columns: at timestamp, measured_ms bigint'),
    ],
)
def test_invalid_event_timestamp_is_rejected_with_a_hint(event_at: str, hint: str) -> None:
    stream = StreamConfig(source="x.csv", arrived_at="at", event_at=event_at)
    with pytest.raises(InputError, match="is not a TIMESTAMP column") as caught:
        check_event_columns("s", stream, EVENTS)
    assert hint in caught.value.hint
