"""Computes digests of a table's rows again, if its seals may be wrong or all rows must be read.

Uses Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.certificate.snapshots import SEALS_SCHEMA, Snapshot
from rewindow.facts.readers import staged_seals
from rewindow.facts.readers_frame import readers_frame
from rewindow.names import quoted_column
from rewindow.recovery import OutputPlan
from rewindow.spark.digests import empty_digests, window_digests
from rewindow.storage.damage import damaged_error, find_damage
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def seals_of_rows(
    spark: SparkSession,
    snapshot: Snapshot,
    output: OutputPlan,
    windows: Sequence[WindowRange],
) -> pa.Table:
    """Computes the seals of an output from the current rows of a snapshot, for the sealed windows
    of the given ranges.

    Raises:
        TableError: a file is damaged (names it and its windows).
    """
    asked = [part for part in windows if part.overlap(snapshot.range)]
    sealed = snapshot.output_seals(output.name)["window_id"].to_pylist()
    try:
        frame = _rows(spark, snapshot, output)
        empty, empty_float = empty_digests(frame.schema)
        found = {row["window_id"]: row for row in _digests(frame, asked)}
    except Exception:
        # A damaged file may be the cause. Looking for one reads every file, so it is done only
        # after a failure.
        damage = []
        for part in asked:
            damage += find_damage(snapshot.data[output.name], output.name, part)
        if damage:
            raise damaged_error(damage, "") from None
        raise
    nothing = {"tuples": 0, "digest": empty, "float_digest": empty_float}
    seals = []
    for window in sealed:
        if any(window in part for part in asked):
            digests = {**nothing, **found.get(window, {})}
            seals.append({**digests, "window_id": window, "port": output.name, "seals": 1})
    return pa.Table.from_pylist(seals, SEALS_SCHEMA)


def _rows(spark: SparkSession, snapshot: Snapshot, output: OutputPlan) -> DataFrame:
    """Returns window_id and the event columns of the visible rows in a snapshot."""
    table = snapshot.data[output.name]
    if snapshot.facts is not None:
        return readers_frame(
            spark,
            table,
            staged_seals(snapshot.facts, output.name, snapshot.range),
            windows=snapshot.range,
        )
    frame = spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path))
    names = ["window_id", *dict(output.columns)]
    return frame.select(*map(quoted_column, names))


def _digests(frame: DataFrame, windows: Sequence[WindowRange]) -> list[dict[str, object]]:
    inside = " or ".join(f"window_id between {part.first} and {part.last}" for part in windows)
    return window_digests(frame.where(inside)).toArrow().to_pylist() if inside else []
