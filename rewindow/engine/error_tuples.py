"""Error tuples as an operator emits them, made into the rows of an error table
(docs/rules/decisions.md X14).
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
    """Returns `window_id`, the port's columns, and those of every error table; what the operator
    did not give is null. The order of emission stays, where the frame has it.

    Args:
        frame: what the operator emits on the port; it may have the columns of `GIVEN`.
        port: the port's schema.
        what: the port, for messages.

    Raises:
        InputError: a column is absent or has another type.
    """
    nothing = dict.fromkeys(excluding(GIVEN.names, frame.columns), F.lit(None).cast("string"))
    rows = conform(
        frame.withColumns(nothing) if nothing else frame,
        pa.schema([*port, *GIVEN]),
        what,
        more=[ORDER],
    )
    told = {
        "_rw_replay": F.lit(replay_id),
        "_rw_window": F.col("window_id"),
        "_rw_attempt": F.lit(epoch).cast("bigint"),
        REASON: F.coalesce(REASON, F.lit(EMITTED)),
    }
    return rows.withColumns(told).select(
        "window_id",
        *map(quoted_column, error_columns(port).names),
        *{ORDER}.intersection(rows.columns),
    )


def check_stored_reasons(folder: Location, port: str) -> None:
    """Refuses error tuples by their reason, see `check_reasons`.

    Raises:
        InputError: names the reason.
    """
    reasons = pq.read_table(folder.uri, columns=[REASON], partitioning=None)[REASON]
    check_reasons(pc.unique(reasons).to_pylist(), port)
