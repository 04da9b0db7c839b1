"""Failing tuples: finds the tuples at which operators fail, and computes their commit group without
them (R93).

The failing tuples are decided before anything of the group is committed, and their tables are
committed with the group by the same protocol as its outputs. Each is identified by its window and
its recorded offset, or by its columns and its number among equal tuples, which are the same in
every attempt. An attempt that computes a window again leaves out from the start what an earlier
attempt has put into these tables, and finds the others again in the same order.

A tuple operator reports the tuples at which `process` fails. Of any other failure the tuple is
unknown: then the group is computed with fewer and fewer of the container's input tuples, until the
first one is found without which the rest before it can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from rewindow.application import Node, OperatorContext, PortHandle
from rewindow.application.error_tuples import DETAIL, FAILED, POSITION, RAISED, REASON
from rewindow.application.failing import failed_handle
from rewindow.engine.computation import GroupResult, PlannedAttempt
from rewindow.engine.group_cache import staged_columns, window_starts
from rewindow.engine.operator_errors import OperatorFailed
from rewindow.errors import RewindowError
from rewindow.facts.group_facts import check_error_counts
from rewindow.facts.window_facts import WindowFacts
from rewindow.location import Location
from rewindow.names import quoted_column, whole_replay
from rewindow.spark.frames import to_frame
from rewindow.spark.transient_errors import has_lost_worker
from rewindow.storage import Table, query
from rewindow.tuple_engine.failing import FailingTuple, TuplesFailed, error_text
from rewindow.tuple_engine.frames import EMITTED, columns_hash, order_columns
from rewindow.tuple_engine.tagged_rows import HASH, ORDER
from rewindow.windows import WindowRange

JOBS_MAX = 40
"""How often a group is computed to find the failing tuples of one window."""
_WINDOW = "window_id"
_OFFSET = "offset"
_ROW_HASH = "_rw_row_hash"
_NUMBER = "_rw_number"
_IDENTITY = [_WINDOW, _ROW_HASH, _NUMBER]
_WANTED = {_WINDOW: "_rw_at", ORDER: "_rw_at_order", HASH: "_rw_at_hash"}
_CRASHED = "the Python worker crashed"
Compute = Callable[[Iterable[str]], GroupResult]


class FailingTuples:
    """The failing tuples of the group that is computed.

    Args:
        planned: the replay, its application and tables, and the attempt's epoch.
        say: called with lines for people.
        hint: what to do where the search ends without a result.
    """

    def __init__(
        self,
        spark: SparkSession,
        planned: PlannedAttempt,
        say: Callable[[str], None],
        hint: str,
    ) -> None:
        self._spark = spark
        self._planned = planned
        self._tables = planned.app.failing
        self._say = say
        self._hint = hint
        self._earlier: dict[PortHandle, pa.Table] = {}
        self._known: dict[PortHandle, pa.Table] = {}
        self._read: dict[PortHandle, DataFrame] = {}
        self._sources: dict[PortHandle, DataFrame] = {}
        self._until: int | None = None
        self._rows: Mapping[PortHandle, pa.Table] = {}
        self._at: int | None = None
        self._jobs = 0

    def compute(self, windows: WindowRange, run: Compute, staged: Iterable[str]) -> GroupResult:
        """Computes a group without its failing tuples.

        Raises:
            RewindowError: the operator fails without a tuple to blame, or too many tuples fail.
        """
        for handle in self._tables:
            rows = self._committed(handle)
            inside = (pc.field(_WINDOW) >= windows.first) & (pc.field(_WINDOW) <= windows.last)
            self._known[handle] = rows.filter(inside)
        passed = windows.first - 2
        has_crashed = False
        while True:
            try:
                return self._run(run, staged)
            except Exception as error:
                if not _is_failure(error):
                    raise
                if not has_crashed and not isinstance(error, OperatorFailed):
                    # A worker may have crashed for a reason that has nothing to do with a tuple.
                    has_crashed = True
                    continue
                passed = self._search(windows, run, passed, error)

    def without(self, node: Node, port: str, frame: DataFrame) -> DataFrame:
        """Returns the tuples of an input port without those that fail."""
        handle = failed_handle(node.name, port)
        if handle not in self._tables:
            return frame
        self._read[handle] = frame
        if not self._known[handle].num_rows:
            return frame
        return self._left(handle, frame).select(*map(quoted_column, frame.columns))

    def shown(self, source: PortHandle, frame: DataFrame) -> DataFrame:
        """Returns the tuples of an input of the container; during a search those that are tried."""
        self._sources[source] = frame
        if self._until is None:
            return frame
        before = frame.where(F.col(_WINDOW) <= self._until)
        rows = self._rows.get(source)
        return before if rows is None else before.unionByName(to_frame(self._spark, rows))

    def write(self, handle: PortHandle, folder: Location, context: OperatorContext) -> Location:
        """Writes a table of failing tuples of the group into a folder, and returns the folder."""
        app = self._planned.app
        rows = self._known[handle].sort_by([(_WINDOW, "ascending"), (POSITION, "ascending")])
        schema = staged_columns(app.columns(app.errors()[str(handle)]))
        same = {
            "attempt": self._planned.epoch,
            "_rw_replay": whole_replay(self._planned.plan.replay_id),
            "_rw_attempt": self._planned.epoch,
            REASON: RAISED,
        }
        columns = []
        for field in schema:
            if field.name in rows.column_names:
                column = rows[field.name]
            elif field.name in same:
                column = pa.repeat(pa.scalar(same[field.name], field.type), rows.num_rows)
            elif field.name == "arrived_at":
                column = window_starts(rows[_WINDOW], context.grid)
            elif field.name == _OFFSET:
                column = pa.array(range(rows.num_rows), field.type)
            else:
                column = rows[_WINDOW]
            columns.append(column.cast(field.type))
        folder.delete_tree()
        folder.make_folder()
        pq.write_table(pa.table(columns, schema=schema), (folder / "part-failed.parquet").uri)
        return folder

    def _run(self, run: Compute, staged: Iterable[str]) -> GroupResult:
        """Computes the group, or a part of it, without the tuples that operators report."""
        while True:
            try:
                return run(staged)
            except TuplesFailed as failed:
                self._spend(min(failed.tuples, key=attrgetter("window")).window, failed)
                self._add_reported(failed)

    def _spend(self, window: int, error: Exception) -> None:
        """Counts one more computation of the group.

        Raises:
            RewindowError: there were too many for one window.
        """
        if window != self._at:
            self._at = window
            self._jobs = 0
        self._jobs += 1
        if self._jobs > JOBS_MAX:
            detail = f"The group was computed {JOBS_MAX} times without the tuples of window "
            detail += f"{window} that fail. Nothing of it was committed."
            raise RewindowError(str(error).partition("\n")[0], detail=detail, hint=self._hint)

    def _search(self, windows: WindowRange, run: Compute, passed: int, error: Exception) -> int:
        """Finds the first input tuple of the container with which the group cannot be computed.

        Args:
            passed: a window up to which the group can be computed, or one before the group.

        Returns:
            The window before that of the tuple.
        """
        last = error

        def passes(until: int, rows: Mapping[PortHandle, pa.Table], window: int) -> bool:
            nonlocal last
            self._spend(window, last)
            self._until = until
            self._rows = rows
            try:
                self._run(run, ())
            except Exception as failure:
                if not _is_failure(failure):
                    raise
                last = failure
                return False
            finally:
                self._until = None
                self._rows = {}
            return True

        low = max(passed, windows.first - 1)
        high = windows.last
        if passed < low and not passes(low, {}, high):
            raise error
        while high - low > 1:
            middle = (low + high) // 2
            if passes(middle, {}, windows.last):
                low = middle
            else:
                high = middle
        parts = self._rows_of(high)
        begin = 0
        end = sum(rows.num_rows for rows in parts.values())
        if not end:
            raise error
        while end - begin > 1:
            middle = (begin + end) // 2
            if passes(high - 1, _first_rows(parts, middle), high):
                begin = middle
            else:
                end = middle
        self._add_found(_first_rows(parts, end), last)
        return high - 1

    def _rows_of(self, window: int) -> dict[PortHandle, pa.Table]:
        """Returns the input tuples of a window by source, in an order that is always the same."""
        parts = {}
        for source in sorted(self._sources, key=str):
            frame = self._sources[source]
            rows = frame.where(F.col(_WINDOW) == window)
            by = EMITTED if EMITTED in frame.columns else _OFFSET
            if by not in frame.columns:
                by = _ROW_HASH
                rows = rows.withColumn(by, columns_hash(to_arrow_schema(frame.schema)))
            parts[source] = rows.toArrow().sort_by(by).select(frame.columns)
        return parts

    def _add_found(self, parts: Mapping[PortHandle, pa.Table], error: Exception) -> None:
        """Adds the last one of some input tuples, for every port that reads it."""
        source, rows = list(parts.items())[-1]
        frame = to_frame(self._spark, rows)
        tuple_ = rows.slice(rows.num_rows - 1)
        detail = error.reason if isinstance(error, OperatorFailed) else _CRASHED
        for handle in self._tables:
            node, port = self._reader(handle)
            if node.feeds[port] != source:
                continue
            number = tuple_[_OFFSET][0].as_py() if self._has_offset(handle, frame) else None
            if number is None:
                row_hash = columns_hash(self._tables[handle])
                [wanted] = to_frame(self._spark, tuple_).select(row_hash).collect()
                number = frame.where(row_hash == wanted[0]).count()
            found = tuple_.append_column(_NUMBER, pa.array([number]))
            self._add(handle, found.append_column(DETAIL, pa.array([error_text(detail)])))

    def _add_reported(self, failed: TuplesFailed) -> None:
        """Adds the tuples that the tasks of a tuple operator have reported."""
        by_port = attrgetter("port")
        for port, tuples in groupby(sorted(failed.tuples, key=by_port), by_port):
            handle = failed_handle(failed.operator, port)
            self._add(handle, self._located(handle, list(tuples)))

    def _located(self, handle: PortHandle, tuples: list[FailingTuple]) -> pa.Table:
        """Returns reported tuples with their columns and numbers."""
        node, port = self._reader(handle)
        schema = node.input_ports()[port].schema
        assert schema is not None, "a tuple operator declares the columns of its ports"
        windows = sorted({one.window for one in tuples})
        frame = self._read[handle].where(F.col(_WINDOW).isin(windows))
        order = order_columns(frame, schema, has_offset=self._has_offset(handle, frame))
        rows = self._left(handle, frame).select("*", *order)
        if HASH not in rows.columns:
            rows = rows.withColumn(HASH, F.lit(None).cast("bigint"))
        wanted = pa.table(
            {
                _WANTED[_WINDOW]: [one.window for one in tuples],
                _WANTED[ORDER]: [one.order for one in tuples],
                _WANTED[HASH]: pa.array([one.row_hash for one in tuples], pa.int64()),
                DETAIL: [one.detail for one in tuples],
            }
        )
        same = F.lit(True)
        for name, of_wanted in _WANTED.items():
            same &= F.col(name).eqNullSafe(F.col(of_wanted))
        found = rows.join(F.broadcast(to_frame(self._spark, wanted)), same)
        found = found.toArrow().sort_by([(_WINDOW, "ascending"), (_NUMBER, "ascending")])
        # Equal tuples without an order are one to the task: any of them may be left out.
        return _distinct(found, [_WINDOW, ORDER, HASH])

    def _add(self, handle: PortHandle, rows: pa.Table) -> None:
        """Adds failing tuples of a port, with their number and detail.

        Raises:
            InputError: a window has more of them than are allowed.
        """
        node, port = self._reader(handle)
        kind = "offset" if self._has_offset(handle, self._read[handle]) else "occurrence"
        positions = []
        for number in rows[_NUMBER].to_pylist():
            positions.append(f"{node.feeds[port]}, {kind} {number}")
        rows = rows.append_column(POSITION, pa.array(positions, pa.string()))
        known = self._known[handle]
        added = _distinct(
            pa.concat_tables([known, rows.select(known.column_names).cast(known.schema)]),
            [_WINDOW, POSITION],
        )
        assert added.num_rows > known.num_rows, "a failing tuple is left out already"
        self._known[handle] = added
        counts = added.group_by(_WINDOW).aggregate([([], "count_all")])
        check_error_counts(
            self._planned.plan,
            {str(handle): WindowFacts.of(counts.rename_columns([_WINDOW, "tuples"]))},
        )
        first = rows.slice(0, 1).to_pylist()[0]
        self._say(
            f'operator "{node.name}" fails at {rows.num_rows:,} tuples, such as {first[POSITION]} '
            f"of window {first[_WINDOW]} ({first[DETAIL]}): they go to {handle}"
        )

    def _committed(self, handle: PortHandle) -> pa.Table:
        """Returns the failing tuples of a port that earlier attempts have committed."""
        if handle not in self._earlier:
            own = [(_WINDOW, pa.int64()), (POSITION, pa.string()), (DETAIL, pa.string())]
            schema = pa.schema([*own, *self._tables[handle]])
            table = Table.open(self._planned.root / str(handle))
            rows = schema.empty_table()
            if any(file.rows for file in table.files()):
                found = query("select * from t", t=table).select(schema.names).cast(schema)
                rows = _distinct(found, [_WINDOW, POSITION])
            self._earlier[handle] = rows
        return self._earlier[handle]

    def _left(self, handle: PortHandle, frame: DataFrame) -> DataFrame:
        """Returns the tuples of a port that are not known to fail, with their identity."""
        columns = self._tables[handle]
        has_offset = self._has_offset(handle, frame)
        row_hash = F.lit(0).cast("bigint") if has_offset else columns_hash(columns)
        known = self._known[handle]
        numbers = []
        for position in known[POSITION].to_pylist():
            numbers.append(int(position.rpartition(" ")[2]))
        failing = to_frame(
            self._spark, known.append_column(_NUMBER, pa.array(numbers, pa.int64()))
        ).withColumn(_ROW_HASH, row_hash)
        number = F.col(_OFFSET).cast("bigint")
        if not has_offset:
            order = F.col(EMITTED) if EMITTED in frame.columns else F.lit(0)
            number = (
                F.row_number()
                .over(SparkWindow.partitionBy(_WINDOW, _ROW_HASH).orderBy(order))
                .cast("bigint")
            )
        rows = frame.withColumn(_ROW_HASH, row_hash).withColumn(_NUMBER, number)
        return rows.join(F.broadcast(failing.select(*_IDENTITY)), _IDENTITY, "left_anti")

    def _has_offset(self, handle: PortHandle, frame: DataFrame) -> bool:
        """Returns whether the offset names a tuple of a port in every attempt."""
        node, port = self._reader(handle)
        return port not in node.unordered and _OFFSET in frame.columns

    def _reader(self, handle: PortHandle) -> tuple[Node, str]:
        """Returns the operator and the input port of a table."""
        return self._planned.app.nodes[str(handle.operator)], handle.port.removesuffix(FAILED)


def _is_failure(error: Exception) -> bool:
    """Returns whether an operator has failed, at a tuple perhaps."""
    return isinstance(error, OperatorFailed) or has_lost_worker(error)


def _first_rows(parts: Mapping[PortHandle, pa.Table], count: int) -> dict[PortHandle, pa.Table]:
    """Returns the first tuples of several sources, taken one source after the other."""
    first = {}
    for source, rows in parts.items():
        if count > 0:
            first[source] = rows.slice(0, count)
        count -= rows.num_rows
    return first


def _distinct(rows: pa.Table, names: list[str]) -> pa.Table:
    """Returns the rows without those that equal an earlier one in some columns."""
    seen: dict[tuple[Any, ...], int] = {}
    for place, values in enumerate(zip(*(rows[name].to_pylist() for name in names), strict=True)):
        seen.setdefault(values, place)
    return rows.take(pa.array(list(seen.values()), pa.int64()))
