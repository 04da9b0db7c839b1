"""Names that the columns of a recorded stream may not have."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from rewindow.errors import InputError
from rewindow.recording.tuples import check_event_columns
from rewindow.settings.config import StreamConfig

POSITION = [T.StructField(name, T.LongType()) for name in ("__file", "__row")]
SAID = [T.StructField(name, T.StringType()) for name in ("__reason", "__payload")]
OWN = [T.StructField("window_id", T.LongType()), T.StructField("arrived_at", T.TimestampType())]


@pytest.mark.parametrize(
    "name",
    ["offset", "Offset", "ATTEMPT", "Window_ID", "_rw_is_timer", "_RW_x"],
)
def test_reserved_column_name_is_rejected_ignoring_case(name: str) -> None:
    # Rules: X22
    stream = StreamConfig(source="x", arrived_at="at")
    schema = T.StructType([*POSITION, *SAID, *OWN, T.StructField(name, T.StringType())])
    with pytest.raises(
        InputError,
        match=f'event column "{name}" of stream "clicks" cannot be recorded',
    ):
        check_event_columns("clicks", stream, schema)
    check_event_columns(
        "clicks",
        stream,
        T.StructType([*POSITION, *SAID, *OWN, T.StructField("rw", T.StringType())]),
    )
