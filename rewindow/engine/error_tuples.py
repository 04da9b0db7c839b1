"""Converts error tuples that an operator emits to rows of an error table (docs/rules/decisions.md
X14).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application.error_tuples import EMITTED, GIVEN, REASON, check_reasons, error_columns
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.sequences import excluding
from rewindow.spark.frames import conform
from rewindow.tuple_engine.frames import EMITTED as ORDER


def as_errors(
    frame: DataFrame,
    port: pa.Schema,
    what: str,
    replay_id: str,
    epoch: int,
) -> DataFrame:
    """Returns `window_id`, the port's columns, and the columns of every error table.

    Columns that the operator did not set are null. The column with the order of emission is kept if
    the frame has it.

    Args:
        frame: the rows that the operator emits on the port; it may have the columns of `GIVEN`.
        port: the port's schema.
        what: description of the port for messages.
        replay_id: the replay, stored with each row.
        epoch: the attempt, stored with each row.

    Raises:
        InputError: a column is absent or has another type.
    """
    unset = dict.fromkeys(excluding(GIVEN.names, frame.columns), F.lit(None).cast("string"))
    rows = conform(
        frame.withColumns(unset) if unset else frame,
        pa.schema([*port, *GIVEN]),
        what,
        more=[ORDER],
    )
    origin = {
        "_rw_replay": F.lit(replay_id),
        "_rw_window": F.col("window_id"),
        "_rw_attempt": F.lit(epoch).cast("bigint"),
        REASON: F.coalesce(REASON, F.lit(EMITTED)),
    }
    return rows.withColumns(origin).select(
        "window_id",
        *map(quoted_column, error_columns(port).names),
        *{ORDER}.intersection(rows.columns),
    )


def check_stored_reasons(folder: Location, port: str) -> None:
    """Checks the reasons of written error tuples, see `check_reasons`.

    Raises:
        InputError: a reason is invalid; the message has it.
    """
    reasons = pq.read_table(folder.uri, columns=[REASON], partitioning=None)[REASON]
    check_reasons(pc.unique(reasons).to_pylist(), port)
