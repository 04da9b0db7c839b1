"""Failing tuples: finds the tuples for which operators fail, and computes their commit group
without them.

Rewindow finds all failing tuples of a group before it commits any table of the group. The tables of
failing tuples are committed with the outputs, by the same protocol. A tuple is identified by its
window and its recorded offset, or by a hash of its columns if another operator has emitted it. Both
are the same in every attempt. An attempt that computes a window again leaves out the tuples that an
earlier attempt has stored in these tables, and finds the others again in the same order.

A tuple operator reports the tuples for which `process` fails. After any other failure, the tuple is
unknown. Then the group is computed with parts of the container's input tuples, until the first
tuple that makes the computation fail is known.

Rules: R93
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewindow.application import Node, PortHandle
from rewindow.application.error_tuples import DETAIL, FAILED, POSITION, RAISED, REASON
from rewindow.application.failing import failed_handle
from rewindow.engine.computation import GroupResult, PlannedAttempt
from rewindow.engine.operator_errors import OperatorFailed
from rewindow.errors import RewindowError
from rewindow.facts.group_facts import check_error_counts
from rewindow.facts.window_facts import WindowFacts
from rewindow.names import quoted_column
from rewindow.sequences import quantity
from rewindow.spark.frames import arrow_schema, to_frame
from rewindow.spark.transient_errors import has_lost_worker
from rewindow.storage import Table, query
from rewindow.tuple_engine.failing import TUPLE_KEY, TuplesFailed, error_text
from rewindow.tuple_engine.frames import EMITTED, tuple_key
from rewindow.windows import WindowRange

logger = logging.getLogger(__name__)

JOBS_MAX = 40
"""Most computations of a group to find the failing tuples of one window."""
_WINDOW = "window_id"
_OFFSET = "offset"
_IDENTITY = [_WINDOW, TUPLE_KEY]
Compute = Callable[[Iterable[str]], GroupResult]
Parts = Mapping[PortHandle, pa.Table]
Found = Sequence[Any]
"""Window, key and detail of a failing tuple."""
NO_PARTS: Parts = MappingProxyType({})


class FailingTuples:
    """The failing tuples of the current group.

    Args:
        planned: the replay, its application and tables, and the attempt's epoch.
        hint: hint of the error if the search ends without a result.
    """

    def __init__(
        self,
        spark: SparkSession,
        planned: PlannedAttempt,
        hint: str,
    ) -> None:
        self._spark = spark
        self._planned = planned
        self._tables = planned.app.failing
        self._hint = hint
        self._committed: dict[PortHandle, pa.Table] = {}
        self._known: dict[PortHandle, pa.Table] = {}
        self._read: dict[PortHandle, DataFrame] = {}
        self._sources: dict[PortHandle, DataFrame] = {}
        self._until: int | None = None
        self._shown = NO_PARTS
        self._at: int | None = None
        self._jobs = 0

    def compute(self, windows: WindowRange, run: Compute, staged: Iterable[str]) -> GroupResult:
        """Computes a group without its failing tuples.

        Raises:
            RewindowError: no tuple is the cause of the failure, or too many tuples fail.
        """
        inside = (pc.field(_WINDOW) >= windows.first) & (pc.field(_WINDOW) <= windows.last)
        for handle in self._tables:
            if handle not in self._committed:
                self._committed[handle] = self._in_table(handle)
            self._known[handle] = self._committed[handle].filter(inside)
        passed = None
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
                passed = self._search(
                    windows,
                    run,
                    passed,
                    error,
                )

    def rows(self, handle: PortHandle) -> DataFrame | None:
        """Returns the failing tuples of a port in the group, with the columns of error tuples; None
        if there are none.
        """
        known = self._known[handle]
        if not known.num_rows:
            return None
        return to_frame(self._spark, known).withColumn(REASON, F.lit(RAISED))

    def without(self, node: Node, port: str, frame: DataFrame) -> DataFrame:
        """Returns the tuples of an input port, except the failing ones."""
        handle = failed_handle(node.name, port)
        if handle not in self._tables:
            return frame
        self._read[handle] = frame
        if not self._known[handle].num_rows:
            return frame
        keys = self._known[handle].select(_IDENTITY)
        left = self._joined(
            handle,
            frame,
            keys,
            "left_anti",
        )
        return left.select(*map(quoted_column, frame.columns))

    def shown(self, source: PortHandle, frame: DataFrame) -> DataFrame:
        """Returns the tuples of a container's input.

        During a search, it returns only a part of them.
        """
        self._sources[source] = frame
        if self._until is None:
            return frame
        before = frame.where(F.col(_WINDOW) <= self._until)
        rows = self._shown.get(source)
        return before if rows is None else before.unionByName(to_frame(self._spark, rows))

    def _run(self, run: Compute, staged: Iterable[str]) -> GroupResult:
        """Computes the group, or a part of it, without the tuples that operators report as
        failing.
        """
        while True:
            try:
                return run(staged)
            except TuplesFailed as failed:
                by_port: dict[str, list[Found]] = {}
                for port, *identified in sorted(failed.tuples):
                    by_port.setdefault(port, []).append(identified)
                self._spend(min(map(attrgetter("window"), failed.tuples)), failed)
                for port, tuples in by_port.items():
                    handle = failed_handle(failed.operator, port)
                    self._add(
                        handle,
                        self._read[handle],
                        tuples,
                    )

    def _spend(self, window: int, error: Exception) -> None:
        """Counts one more computation of the group.

        Raises:
            RewindowError: this window needs more than JOBS_MAX computations.
        """
        self._jobs = self._jobs + 1 if window == self._at else 1
        self._at = window
        if self._jobs > JOBS_MAX:
            at = self._planned.plan.grid.describe(window)
            detail = f"The failing tuples of window {at} were not all found: the "
            detail += f"group was computed {JOBS_MAX} times. The group was not committed."
            raise RewindowError(
                str(error).partition("\n")[0],
                detail=detail,
                hint=self._hint,
            )
        # A search commits nothing for a long time; its lines show that the attempt is not stuck.
        logger.info(
            f"searching window {self._planned.plan.grid.describe(window)} for failing tuples: its "
            "commit group is computed again, "
            f"{self._jobs} of at most {JOBS_MAX} times"
        )

    def _search(
        self,
        windows: WindowRange,
        run: Compute,
        passed: int | None,
        error: Exception,
    ) -> int:
        """Finds the first input tuple of the container with which the group cannot be computed.

        The search is binary: first over windows, then over the tuples of the window that was found.
        The order of tuples is the same in every attempt. Each step computes the group with all
        tuples up to the middle. If that fails, the tuple is in the first half, otherwise in the
        second half.

        Args:
            windows: the windows of the group.
            run: computes the group.
            passed: a window up to which the group can be computed, None if none is known.
            error: the failure of the whole group.

        Returns:
            The window before the window of that tuple.
        """
        low = windows.first - 1 if passed is None else passed
        high = windows.last
        if passed is None and self._failure(
            run,
            error,
            high,
            low,
        ):
            raise error
        while high - low > 1:
            middle = (low + high) // 2
            failure = self._failure(
                run,
                error,
                windows.last,
                middle,
            )
            if failure is None:
                low = middle
            else:
                high = middle
                error = failure
        parts = self._rows_of(high)
        begin = 0
        end = sum(rows.num_rows for rows in parts.values())
        while end - begin > 1:
            middle = (begin + end) // 2
            failure = self._failure(
                run,
                error,
                high,
                high - 1,
                _first_rows(parts, middle),
            )
            if failure is None:
                begin = middle
            else:
                end = middle
                error = failure
        if not end or not self._add_last(_first_rows(parts, end), error):
            raise error
        return high - 1

    def _failure(
        self,
        run: Compute,
        error: Exception,
        window: int,
        until: int,
        shown: Parts = NO_PARTS,
    ) -> Exception | None:
        """Computes the group with a part of its input tuples.

        Returns the error of an operator; None if no operator fails.

        Args:
            error: the previous error.
            window: the window that is searched.
            until: the last window whose tuples are all included.
            shown: further input tuples, by source.
        """
        self._spend(window, error)
        self._until = until
        self._shown = shown
        try:
            self._run(run, ())
        except Exception as failure:
            if not _is_failure(failure):
                raise
            return failure
        finally:
            self._until = None
            self._shown = NO_PARTS
        return None

    def _rows_of(self, window: int) -> dict[PortHandle, pa.Table]:
        """Returns the input tuples of a window by source, in an order that is the same in every
        attempt.
        """
        parts = {}
        for source in sorted(self._sources, key=str):
            frame = self._sources[source]
            by = EMITTED if EMITTED in frame.columns else TUPLE_KEY
            key = tuple_key(
                frame,
                arrow_schema(frame.schema),
                has_offset=not source.operator,
            )
            rows = frame.where(F.col(_WINDOW) == window).withColumn(TUPLE_KEY, key)
            parts[source] = rows.toArrow().sort_by(by).select(frame.columns)
        return parts

    def _add_last(self, parts: Parts, error: Exception) -> bool:
        """Records the last of the given input tuples as failing, for every port that reads it.

        Returns whether it was new.
        """
        source, rows = list(parts.items())[-1]
        last = to_frame(self._spark, rows.slice(rows.num_rows - 1))
        crash = "the Python worker crashed"
        detail = error_text(error.reason if isinstance(error, OperatorFailed) else crash)
        is_new = False
        for handle in self._tables:
            node, port = self._reader(handle)
            if node.feeds[port] == source:
                [row] = last.select(_WINDOW, self._key(handle, last)).collect()
                is_new |= self._add(
                    handle,
                    self._sources[source],
                    [[*row, detail]],
                )
        return is_new

    def _add(
        self,
        handle: PortHandle,
        frame: DataFrame,
        found: Iterable[Found],
    ) -> bool:
        """Records the tuples of a frame as failing tuples of a port.

        Returns whether at least one of them was new.

        Raises:
            InputError: a window has more failing tuples than allowed.
        """
        columns = map(pa.array, zip(*found, strict=True))
        wanted = pa.table(list(columns), names=[*_IDENTITY, DETAIL])
        node, port = self._reader(handle)
        left = self.without(node, port, frame)
        rows = self._joined(handle, left, wanted, "inner").toArrow()
        if not rows.num_rows:
            return False
        kind = "offset" if self._has_offset(handle, left) else "hash"
        source = f"{node.feeds[port]}, {kind} "
        position = pc.binary_join_element_wise(
            source,
            pc.cast(rows[TUPLE_KEY], pa.string()),
            "",
        )
        rows = rows.append_column(POSITION, position)
        known = self._known[handle]
        known = pa.concat_tables([known, rows.select(known.column_names).cast(known.schema)])
        self._known[handle] = known
        counts = known.group_by(_WINDOW).aggregate([([], "count_all")])
        counted = WindowFacts.of(counts.rename_columns([_WINDOW, "tuples"]))
        check_error_counts(self._planned.plan, {str(handle): counted})
        window = rows[_WINDOW][0].as_py()
        is_staged = window >= self._planned.plan.first
        place = f"stored in {handle}" if is_staged else "left out of the warm-up"
        logger.info(
            f'operator "{node.name}" fails for {quantity(rows.num_rows, "tuple")}, {place}; the '
            f"first is in window {self._planned.plan.grid.describe(window)}, {rows[POSITION][0]} "
            f"({rows[DETAIL][0]})"
        )
        return True

    def _in_table(self, handle: PortHandle) -> pa.Table:
        """Returns the failing tuples of a port that earlier attempts have committed, without
        duplicates.
        """
        own = [(_WINDOW, pa.int64()), (POSITION, pa.string()), (DETAIL, pa.string())]
        schema = pa.schema([*own, *self._tables[handle], (TUPLE_KEY, pa.int64())])
        table = Table.open(self._planned.root / str(handle))
        if not any(file.rows for file in table.files()):
            return schema.empty_table()
        # Several attempts may have stored the same tuples of a window.
        newest = "select *, max(attempt) over (partition by window_id) as newest from t"
        rows = query(f"select * from ({newest}) where attempt = newest", t=table)
        keys = [int(text.rpartition(" ")[2]) for text in rows[POSITION].to_pylist()]
        return rows.append_column(TUPLE_KEY, pa.array(keys)).select(schema.names).cast(schema)

    def _joined(
        self,
        handle: PortHandle,
        frame: DataFrame,
        keys: pa.Table,
        how: str,
    ) -> DataFrame:
        """Returns the tuples of a port, with their keys, joined with a table of keys."""
        rows = frame.withColumn(TUPLE_KEY, self._key(handle, frame))
        return rows.join(
            F.broadcast(to_frame(self._spark, keys)),
            _IDENTITY,
            how,
        )

    def _key(self, handle: PortHandle, frame: DataFrame) -> Column:
        node, port = self._reader(handle)
        schema = node.input_ports()[port].schema or self._tables[handle]
        return tuple_key(
            frame,
            schema,
            has_offset=self._has_offset(handle, frame),
        )

    def _has_offset(self, handle: PortHandle, frame: DataFrame) -> bool:
        node, port = self._reader(handle)
        return port not in node.unordered and _OFFSET in frame.columns

    def _reader(self, handle: PortHandle) -> tuple[Node, str]:
        """Returns the operator and the input port that a table belongs to."""
        return self._planned.app.nodes[str(handle.operator)], handle.port.removesuffix(FAILED)


def _is_failure(error: Exception) -> bool:
    """Returns whether an operator has failed, possibly because of a tuple."""
    return isinstance(error, OperatorFailed) or has_lost_worker(error)


def _first_rows(parts: Parts, count: int) -> dict[PortHandle, pa.Table]:
    """Returns the first tuples of several sources, one source after the other."""
    first = {}
    for source, rows in parts.items():
        if count > 0:
            first[source] = rows.slice(0, count)
        count -= rows.num_rows
    return first
