"""Names that the columns of a recorded stream may not have."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.recording.tuples import check_event_columns

POSITION = [T.StructField(name, T.LongType()) for name in ("__file", "__row")]
SAID = [T.StructField(name, T.StringType()) for name in ("__reason", "__payload")]
OWN = [T.StructField("window_id", T.LongType()), T.StructField("arrived_at", T.TimestampType())]


@pytest.mark.parametrize("name", ["offset", "Offset", "ATTEMPT", "Window_ID", "_rw_is_timer", "_RW_x"])
def test_a_column_that_tables_have_or_operators_add_is_refused(name: str) -> None:
    """Before anything is read, with the way out; capital letters make no difference (X22)."""
    stream = StreamConfig(source="x", arrived_at="at")
    schema = T.StructType([*POSITION, *SAID, *OWN, T.StructField(name, T.StringType())])
    with pytest.raises(InputError, match=f'event column "{name}" of stream "clicks" cannot be recorded'):
        check_event_columns("clicks", stream, schema)
    check_event_columns("clicks", stream, T.StructType([*POSITION, *SAID, *OWN, T.StructField("rw", T.StringType())]))
