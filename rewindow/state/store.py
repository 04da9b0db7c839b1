"""Loads and saves states as DataFrames. Small states are kept in memory, larger ones in files.

Only a small state passes through the driver. A state in files stays in Spark, and so does a new
state after a large group. Files are written to a folder per attempt and window, one per bucket of
the key, and are read once more to compute their digests. They become part of the replay when a
checkpoint names them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from rewindow.application import Node
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.sequences import map_values, numbered_names
from rewindow.spark.columns import equal_or_null, or_false, renamed_columns
from rewindow.spark.digests import bucket_of, sum_of_rows
from rewindow.spark.frames import (
    check_columns,
    empty_frame,
    spark_schema,
    to_arrow,
    to_frame,
    write_files,
)
from rewindow.state.files import (
    DELETED,
    FIELD,
    OperatorState,
    StateFile,
    StateFiles,
    bytes_in_memory,
    read_rows,
    write_state,
)
from rewindow.storage.delta import plain_schema

CHANGES_SHARE = 0.5
"""Increments are kept as long as their total size is at most this fraction of the base."""
STEPS_MAX = 16
"""Number of increments after which a new base is written, however small they are, because each one
has a file per bucket."""
_PART = re.compile(r"part-(\d+)-")
_STEP = "_rw_step"


class InlineStates:
    """States in memory. They are stored in a cell of a checkpoint."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def load(self, state: OperatorState) -> DataFrame:
        """Returns a state as a frame."""
        assert isinstance(state, pa.Table), "a state in memory"
        return to_frame(self._spark, state)

    def save(self, node: Node, frame: DataFrame, place: str) -> pa.Table:
        """Computes a frame and returns it as the state of an operator."""
        return to_arrow(frame, state_schema(node), what(node))


class FileStates:
    """States in files. Each has a base, and increments with later changes."""

    def __init__(self, spark: SparkSession, folder: Location) -> None:
        self._spark = spark
        self._folder = folder

    def load(self, state: OperatorState) -> DataFrame:
        """Returns a state as a frame: its base with all increments applied."""
        assert isinstance(state, StateFiles), "a state in files"
        base = self._read(state.paths(0), state.schema)
        if not state.steps:
            return base
        # A key may be in several steps, and its newest step replaces the rows of all others. The
        # window function that finds the newest step covers only the increments, which are small.
        # The base, which is large, is not sorted: an anti-join removes the changed keys from it.
        schema = with_gone(state.schema)
        parts = []
        for step in range(1, state.steps + 1):
            paths = state.paths(step)
            if paths:
                parts.append(self._read(paths, schema).withColumn(_STEP, F.lit(step)))
        newest = F.max(_STEP).over(Window.partitionBy(*map(quoted_column, state.key)))
        changes = reduce(DataFrame.unionByName, parts).withColumn("_rw_newest", newest)
        return _changed(
            base,
            changes.where(F.col(_STEP) == F.col("_rw_newest")),
            state.key,
        )

    def save(self, node: Node, frame: DataFrame, place: str) -> StateFiles:
        """Computes a frame and writes it to files as the state of an operator.

        Args:
            node: the operator.
            frame: the state.
            place: folder of the attempt and window; must not be used before.
        """
        schema = state_schema(node)
        operator = node.operator
        files = self._write(
            node,
            frame,
            schema,
            f"{place}/{node.name}/{FIELD}",
        )
        total = sum(int(file.hashes, 16) for file in files) % 2**64
        key = operator.state_key_columns()
        rows = sum(file.rows for file in files)
        return StateFiles(
            self._folder,
            schema,
            rows,
            hashes=total,
            key=key,
            buckets=operator.state_buckets,
            files=tuple(files),
        )

    def add(
        self,
        node: Node,
        changes: DataFrame,
        before: StateFiles,
        place: str,
    ) -> StateFiles:
        """Writes the changes of a state as a new increment, and returns the state after it.

        Row count and hash sum of the new state are computed without reading all of it: the sums of
        the replaced rows are subtracted, those of the new rows are added.
        """
        where = f"{place}/{node.name}/{FIELD}.changes"
        files = self._write(
            node,
            changes,
            with_gone(before.schema),
            where,
            before.steps + 1,
        )
        written = self._read(
            [str(self._folder / file.path) for file in files],
            with_gone(before.schema),
        )
        old = self.load(before).join(
            _other_keys(written, before.key),
            _same_key(before.key),
            "left_semi",
        )
        rows = before.rows
        total = before.hashes
        for sign, frame in ((-1, old), (1, written.where(~F.col(DELETED)))) if files else ():
            count, hashes = _sums(frame.select(*map(quoted_column, before.schema.names)))
            rows = rows + sign * count
            total = (total + sign * hashes) % 2**64
        return replace(
            before,
            rows=rows,
            hashes=total,
            files=(*before.files, *files),
        )

    def _read(self, paths: list[str], schema: pa.Schema) -> DataFrame:
        wanted = spark_schema(schema)
        return (
            self._spark.read.schema(wanted).parquet(*paths)
            if paths
            else empty_frame(self._spark, wanted)
        )

    def _write(
        self,
        node: Node,
        frame: DataFrame,
        schema: pa.Schema,
        where: str,
        step: int = 0,
    ) -> list[StateFile]:
        """Writes a frame with one file per bucket.

        Returns a description of each file, with the sums that are read from the file.
        """
        wanted = spark_schema(schema)
        operator = node.operator
        if DELETED in schema.names:
            frame = frame.withColumn(
                DELETED,
                or_false(DELETED) if DELETED in frame.columns else F.lit(False),
            )
        columns = []
        for field in wanted.fields:
            columns.append(F.col(quoted_column(field.name)).cast(field.dataType))
        rows = check_columns(frame, schema, what(node)).select(*columns)
        keyed = spark_schema(state_schema(node))
        bucket = bucket_of(keyed, operator.state_key_columns(), operator.state_buckets)
        write_files(rows.repartitionById(operator.state_buckets, bucket), self._folder / where)
        written = self._read([str(self._folder / where)], schema)
        sums = written.groupBy(F.col("_metadata.file_name").alias("name")).agg(
            F.count(F.lit(1)).alias("rows"),
            sum_of_rows(wanted).alias("hashes"),
        )
        rows = sorted(sums.collect(), key=lambda row: row["name"])
        return [self._noted(where, row, step) for row in rows]

    def _noted(self, where: str, row: Row, step: int) -> StateFile:
        """Returns the description of a written file. The number in the file name is its bucket."""
        path = f"{where}/{row['name']}"
        part = _PART.match(row["name"])
        assert part, f"Spark names its files part-..., not {row['name']}"
        return StateFile(
            path,
            int(part[1]),
            row["rows"],
            bytes=(self._folder / path).size(),
            hashes=row["hashes"],
            step=step,
        )


class SizedStates:
    """The states of an attempt.

    Each is in memory or in files, depending on its size.

    Args:
        folder: the folder of states of the replay.
        inline_bytes: states up to this size are kept in memory.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Location,
        inline_bytes: int,
    ) -> None:
        self._inline = InlineStates(spark)
        self._files = FileStates(spark, folder)
        self._folder = folder
        self._inline_bytes = inline_bytes

    def load(self, state: OperatorState) -> DataFrame:
        """Returns a state as a frame."""
        return (self._inline if isinstance(state, pa.Table) else self._files).load(state)

    def load_all(self, states: Mapping[str, OperatorState]) -> dict[str, DataFrame]:
        """Returns all states as frames, by operator."""
        return map_values(self.load, states)

    def save(
        self,
        node: Node,
        frame: DataFrame,
        before: OperatorState,
        place: str,
        *,
        is_small: bool,
    ) -> OperatorState:
        """Computes a frame and stores it as the next state of an operator.

        Args:
            node: the operator.
            frame: the state after the group.
            before: the state before the group.
            place: folder of the attempt and group.
            is_small: whether the group is small, so that a small state remains small after it.
        """
        if is_small and isinstance(before, pa.Table):
            rows = self._inline.save(node, frame, place)
            key = node.operator.state_key_columns()
            buckets = node.operator.state_buckets
            return write_state(
                rows,
                self._inline_bytes,
                self._folder,
                place=f"{place}/{node.name}/{FIELD}",
                key=key,
                buckets=buckets,
            )
        files = self._files.save(node, frame, place)
        if files.bytes() > self._inline_bytes or bytes_in_memory(files) > self._inline_bytes:
            return files
        rows = read_rows(files)
        if rows.num_rows and rows.nbytes > self._inline_bytes:
            return files
        (self._folder / place / node.name).delete_tree()
        return rows

    def save_changes(
        self,
        node: Node,
        changes: DataFrame,
        before: OperatorState,
        place: str,
        *,
        is_small: bool,
        tuples: int,
    ) -> OperatorState:
        """Stores the next state of an operator with `state_increments`, which returns only changes.

        If the base is large, only the changes are written. A new base is written if the increments
        exceed their allowed fraction of it. It is also written if a group has so many tuples that
        the increments would probably exceed that fraction.

        Args:
            node, before, place, is_small: see `save`.
            changes: rows of keys that were changed or removed.
            tuples: number of tuples of the group.
        """
        if isinstance(before, pa.Table) or tuples > CHANGES_SHARE * before.rows:
            whole = _renewed(
                self.load(before),
                changes,
                node.operator.state_key_columns(),
                is_small=is_small,
            )
            return self.save(node, whole, before, place, is_small=is_small)
        after = self._files.add(node, changes, before, place)
        if (
            after.rows
            and after.steps < STEPS_MAX
            and after.bytes() - after.bytes(0) <= CHANGES_SHARE * after.bytes(0)
        ):
            return after
        whole = self.save(
            node,
            self._files.load(after),
            before,
            place,
            is_small=False,
        )
        (self._folder / place / node.name / f"{FIELD}.changes").delete_tree()
        return whole


def _changed(state: DataFrame, changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns a state after changes. All rows of a changed key are replaced, and the rows of a
    removed key are deleted.

    The changes are read twice, and the state is not sorted. This is efficient for few changes in
    files and a large state.
    """
    kept = state.join(_other_keys(changes, key), _same_key(key), "left_anti")
    return kept.unionByName(
        changes.where(~F.col(DELETED)).select(*map(quoted_column, state.columns))
    )


def _renewed(
    state: DataFrame,
    changes: DataFrame,
    key: Sequence[str],
    *,
    is_small: bool,
) -> DataFrame:
    """Returns the same result as `_changed`, but computes the changes only once.

    They may be the entire work of a group.
    """
    gone = or_false(DELETED) if DELETED in changes.columns else F.lit(False)
    columns = list(map(quoted_column, state.columns))
    old = state.select(*columns, F.lit(0).alias(_STEP), F.lit(False).alias(DELETED))
    new = changes.select(*columns, F.lit(1).alias(_STEP), gone.alias(DELETED))
    by_key = list(map(quoted_column, key))
    if is_small:
        both = old.unionByName(new).coalesce(1)
    else:
        # Each side is exchanged by the key at most once; Spark skips a side that has it already.
        both = old.repartition(*by_key).unionByName(new.repartition(*by_key))
    rows = both.withColumn("_rw_newest", F.max(_STEP).over(Window.partitionBy(*by_key)))
    return rows.where((F.col(_STEP) == F.col("_rw_newest")) & ~F.col(DELETED)).select(*columns)


def _other_keys(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    return frame.select(*renamed_columns(numbered_names(key, "_rw_key_")))


def _same_key(key: Sequence[str]) -> Column:
    """Returns the join condition that is true for equal keys. Two nulls count as equal."""
    return reduce(Column.__and__, equal_or_null(numbered_names(key, "_rw_key_")))


def _sums(frame: DataFrame) -> tuple[int, int]:
    (row,) = frame.agg(
        F.count(F.lit(1)),
        F.coalesce(sum_of_rows(frame.schema), F.lit("0")),
    ).collect()
    return row[0], int(row[1], 16)


def with_gone(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of an increment: the columns of the state, and `DELETED`."""
    return pa.schema([*schema, (DELETED, pa.bool_())])


def state_schema(node: Node) -> pa.Schema:
    """Returns the columns of a stateful operator's state."""
    schema = node.operator.state_columns()
    assert schema is not None, f"{node.name} is stateful"
    return plain_schema(schema)


def what(node: Node) -> str:
    """Returns a description of an operator's state for an error."""
    return f'state of operator "{node.name}"'
