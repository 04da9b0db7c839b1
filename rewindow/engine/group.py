"""Computes one commit group: runs every operator of the application over the group's windows, and
computes each result once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rewindow.application import Node, OperatorContext, PortHandle
from rewindow.application.error_tuples import COLUMNS
from rewindow.engine.computation import Digests, GroupResult, PlannedAttempt, SkipResult
from rewindow.engine.error_tuples import as_errors, check_stored_reasons
from rewindow.engine.failing_tuples import FailingTuples
from rewindow.engine.group_cache import GroupCache, take_over
from rewindow.engine.measuring import NO_MEASURES, AskedMeasure, MeasuredRows
from rewindow.engine.operator_errors import explained, frames_of
from rewindow.engine.ports import levels, ports_to_count, ports_to_write
from rewindow.engine.shared_passes import SharedPasses
from rewindow.errors import InputError
from rewindow.facts.window_facts import COUNTS_SCHEMA, DIGESTS_SCHEMA, WindowFacts, ids_of
from rewindow.location import Location
from rewindow.names import quoted_column, whole_replay
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.sequences import excluding, map_values
from rewindow.spark.digests import digest_columns, empty_digests
from rewindow.spark.frames import (
    conform,
    count_written,
    empty_frame,
    read_files,
    read_windows,
    spark_schema,
    to_arrow,
    window_start,
    write_files,
)
from rewindow.spark.heap import note_states
from rewindow.spark.job import as_rewindow_error
from rewindow.spark.repeated_tasks import JOB_GROUP
from rewindow.spark.session import whole_stages
from rewindow.state.files import OperatorState, size_text
from rewindow.state.store import SizedStates, what
from rewindow.storage import Table
from rewindow.storage.layout import MEASURES
from rewindow.tuple_engine.frames import EMITTED, emitted_frames, states_after
from rewindow.windows import Grid, WindowRange

logger = logging.getLogger(__name__)

SMALL_TUPLES = 200_000
"""Groups up to this number of tuples are computed in one task per output, because more tasks cost
more than they save, and without whole-stage code generation: generated code contains the group's
bounds as constants, so it would be compiled again for each group."""
SORTED_GROUP_BYTES = 4 << 20
"""Size of the row groups of a file with sorted rows. It is small, so that a reader can skip most of
them."""
_ATTEMPTS = ("window_id", "attempt")
_DIGESTS_AND_MEASURES = pa.schema([*DIGESTS_SCHEMA, ("measures", MEASURES)])


Frames = dict[PortHandle, DataFrame]


class GroupRunner:
    """Computes groups of windows for one attempt.

    Args:
        spark: the session.
        planned: the replay, its application and tables, and the attempt's epoch.
        inputs: source to a function that reads the tuples of a recorded stream, or of a port of
            another container.
        states: loads and saves states.
        next_steps: hint for an error in an operator's code.
        asked: output name to the measures that are computed with the digests.
    """

    def __init__(
        self,
        spark: SparkSession,
        planned: PlannedAttempt,
        inputs: Mapping[PortHandle, Callable[[WindowRange], DataFrame]],
        states: SizedStates,
        next_steps: str = "",
        asked: Mapping[str, Sequence[AskedMeasure]] = NO_MEASURES,
    ) -> None:
        self._spark = spark
        self._next_steps = next_steps
        self._states = states
        self._app = app = planned.app
        self._inputs = inputs
        self._root = planned.root
        self._epoch = planned.epoch
        self._tuples = 0
        self._is_small = False
        self._order = app.order()
        self._failing = FailingTuples(spark, planned, hint=next_steps)
        self._shared = SharedPasses(app, self._failing.without)
        self._asked = asked
        self._cache = GroupCache(spark, planned.root, planned.epoch, arrange=self._in_one_task)
        self._aggregates: dict[str, tuple[list[Column], list[Column]]] = {}
        self._staged = app.staged()
        self._outputs = {output.source: output for output in app.outputs.values()}
        self._errors = {error.source: error for error in app.errors().values()}
        self._dropped = app.dropped()
        self._counted = ports_to_count(app)
        written = ports_to_write(app) | self._dropped | set(self._errors)
        self._materialised = written - self._counted - self._shared.unseen

    def compute(
        self,
        context: OperatorContext,
        mark: int,
        states: Mapping[str, OperatorState],
        staged: Iterable[str],
        tuples: int,
    ) -> GroupResult:
        """Returns the files, digests and next states of a group.

        Args:
            context: the group's windows, and the mode.
            mark: mark at the group's end; part of the folder names.
            states: state of every stateful operator before the group.
            staged: outputs whose files are written to the folder of their staged table; others are
                written to scratch.
            tuples: number of tuples of all inputs in the group.
        """
        self._tuples = tuples
        self._is_small = tuples <= SMALL_TUPLES
        compute = partial(self._compute, context, mark, states)
        with whole_stages(self._spark, compiled=not self._is_small):
            if not self._app.failing:
                return compute(staged)
            result = self._failing.compute(context.windows, compute, staged)
            self._store_failing(context, mark, set(staged), result)
            return result

    def _store_failing(
        self,
        context: OperatorContext,
        mark: int,
        staged: set[str],
        result: GroupResult,
    ) -> None:
        """Writes the tables of failing tuples as parts of the group.

        Rules: R93
        """
        replay_id = whole_replay(self._root.name)
        written = {}
        for handle, columns in self._app.failing.items():
            name = str(handle)
            folder = result.folders[name] = self._folder(name, mark, staged)
            rows = self._failing.rows(handle)
            if rows is None:
                # All groups of a warm-up have the same folder.
                folder.delete_tree()
                folder.make_folder()
            else:
                errors = as_errors(rows, columns, name, replay_id, self._epoch)
                self._write(errors, name, mark, staged, context.grid)
            written[name] = self.read_back(name, folder)
        result.digests |= self.digest(written, context.windows)

    def _compute(
        self,
        context: OperatorContext,
        mark: int,
        states: Mapping[str, OperatorState],
        staged: Iterable[str],
    ) -> GroupResult:
        self._cache.clear()
        frames = {}
        for source, read in self._inputs.items():
            frames[source] = self._failing.shown(source, self._in_one_task(read(context.windows)))
        result = GroupResult()
        state_frames = self._states.load_all(states)
        note_states(map_values(size_text, states))
        wanted = set(staged)
        context_of_jobs = self._spark.sparkContext
        with ThreadPoolExecutor(
            max_workers=4,
            initializer=context_of_jobs.setLocalProperty,
            initargs=(JOB_GROUP, context_of_jobs.getLocalProperty(JOB_GROUP)),
        ) as pool:
            # Units of a level do not feed each other, so they run in parallel threads. Spark then
            # runs their jobs at the same time, and small operators share the cores.
            for level in levels(self._shared.units):
                jobs = []
                for unit in level:
                    job = pool.submit(
                        self._run_unit,
                        unit,
                        frames,
                        state_frames,
                        context,
                        mark,
                        wanted,
                        result,
                    )
                    jobs.append(job)
                for job in jobs:
                    frames.update(job.result())
            written = {
                name: self.read_back(name, folder) for name, folder in result.folders.items()
            }
            digests = pool.submit(self.digest, written, context.windows)
            states_next = {}
            for name, state in states.items():
                states_next[name] = pool.submit(
                    self._next_state,
                    self._app.nodes[name],
                    frames,
                    state,
                    state_frames[name],
                    context,
                )
            result.digests = digests.result()
            result.states = {name: job.result() for name, job in states_next.items()}
        for name, partitions in self._cache.partitions.items():
            result.partitions[name] = (partitions, self._cache.emitted[name])
        return result

    def digest(self, outputs: Mapping[str, DataFrame], windows: WindowRange) -> Digests:
        """Computes counts and digests of every window of a range, including empty ones, for several
        outputs in one job.

        The same job computes their measures. Windows without a tuple have no measures.

        Raises:
            InputError: an output has tuples of another window.
        """
        if not outputs:
            return {}
        rows = self._digested(outputs)
        digests = {}
        for name in outputs:
            some = WindowFacts.of(rows.filter(pc.equal(rows["port"], name)), _DIGESTS_AND_MEASURES)
            _check_inside(name, some, windows)
            digest, float_digest = self._empty(name)
            digests[name] = some.reindex(
                ids_of(windows),
                tuples=0,
                digest=digest,
                float_digest=float_digest,
            )
        return digests

    def _digested(self, outputs: Mapping[str, DataFrame]) -> pa.Table:
        """Returns digests and measures.

        If Spark cannot compute a measure, the replay continues without measures, and the gate
        computes them later.
        """
        try:
            parts = [self._digests_of(name, frame) for name, frame in outputs.items()]
            return reduce(DataFrame.unionByName, parts).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            if not any(self._asked.values()):
                raise
            self._asked = NO_MEASURES
            self._aggregates.clear()
            digests = self._digested(outputs)
            logger.warning(
                "from now on the gate computes the measures, since Spark fails to compute one: "
                f"{as_rewindow_error(error).primary}"
            )
            return digests

    def _digests_of(self, output: str, frame: DataFrame) -> DataFrame:
        """Returns an output's digests per window. The expressions are cached, because building them
        takes longer than evaluating them.
        """
        if output not in self._aggregates:
            schema = spark_schema(self._schema(output))
            rows = empty_frame(self._spark, _with_windows(self._schema(output)))
            measures = MeasuredRows(self._asked.get(output, ()), rows)
            digests = digest_columns(schema)
            names = list(map(F.col, DIGESTS_SCHEMA.names))
            self._aggregates[output] = (
                [*digests, *measures.columns],
                [*names, measures.cell, F.lit(output).alias("port")],
            )
        aggregates, chosen = self._aggregates[output]
        return frame.groupBy("window_id").agg(*aggregates).select(*chosen)

    def _in_one_task(self, frame: DataFrame) -> DataFrame:
        """Moves a small frame into one partition.

        Without exchanges, Spark needs one job instead of one per stage.
        """
        return frame.coalesce(1) if self._is_small else frame

    def _empty(self, output: str) -> tuple[str, str | None]:
        """Returns the digest and the float digest of a window without tuples."""
        return empty_digests(spark_schema(self._schema(output)))

    def read_back(self, output: str, folder: Location) -> DataFrame:
        """Returns an output's windows and event columns from its files, without bookkeeping
        columns.
        """
        return self._in_one_task(
            read_files(self._spark, folder, _with_windows(self._schema(output)))
        )

    def committed(self, output: str, windows: WindowRange) -> DataFrame:
        """Returns the rows of a range in a staged table, with the columns window, attempt and event
        columns.
        """
        events = map(quoted_column, self._schema(output).names)
        return read_windows(self._spark, Table.open(self._root / output), windows).select(
            *_ATTEMPTS,
            *events,
        )

    def skip(self, states: Mapping[str, OperatorState], skipped: WindowRange) -> SkipResult:
        """Returns the states for the window after an at-most-once skip, and the tuples that were
        dropped from these states.

        Rules: H58, R14, X3
        """
        result = SkipResult()
        for node in self._order:
            if node.operator.is_stateful:
                before = states[node.name]
                emitted = self._emitted(node, skipped)
                state = self._states.load(before)
                frame = node.operator.state_after_skip(state, skipped, emitted)
                place = f"{self._epoch}-skip"
                result.states[node.name] = (
                    before
                    if frame is state
                    else self._states.save(node, frame, before, place, is_small=True)
                )
                dropped = node.operator.dropped_by_skip(state, skipped, emitted)
                if dropped is not None:
                    counts = to_arrow(
                        dropped,
                        COUNTS_SCHEMA,
                        f"tuples dropped from the {what(node)}",
                    )
                    result.dropped[node.name] = WindowFacts.of(counts)
        return result

    def _emitted(self, node: Node, windows: WindowRange) -> dict[str, DataFrame]:
        """Returns the rows of a range in an operator's outputs, by port."""
        return {
            handle.port: self.committed(output.name, windows).drop("attempt")
            for handle, output in self._outputs.items()
            if handle.operator == node.name
        }

    def clear_scratch(self) -> None:
        """Deletes the scratch files whose content is committed or no longer needed."""
        (self._root / "scratch").delete_tree()

    def _run_unit(
        self,
        unit: list[Node],
        frames: Frames,
        states: Mapping[str, DataFrame],
        context: OperatorContext,
        *more: Any,
    ) -> Frames:
        """Runs one operator, or all operators of a cycle or chain in one pass.

        Rules: O97, X40
        """
        if shared := self._shared.of(unit[0]):
            with explained(unit, context.windows, shared.title, hint=self._next_steps):
                self._shared.run(unit, frames, states, context, self._cache)
        emitted: Frames = {}
        for node in unit:
            emitted |= self._run_node(node, frames | emitted, states, context, *more)
        return emitted

    def _run_node(
        self,
        node: Node,
        frames: Mapping[PortHandle, DataFrame],
        states: Mapping[str, DataFrame],
        context: OperatorContext,
        mark: int,
        staged: set[str],
        result: GroupResult,
    ) -> dict[PortHandle, DataFrame]:
        """Runs an operator and returns the frames of those of its output ports that are read.

        A port that is not read is only counted. A port that is stored or used several times is
        written to files, and its frame reads these files.
        """
        inputs = self._shared.inputs_of(node, frames)
        with explained([node], context.windows, "transform", hint=self._next_steps):
            by_port = self._transform(
                node,
                inputs,
                states.get(node.name),
                context=self._context_of(node, context),
            )
        emitted: Frames = {}
        for port, frame in by_port.items():
            handle = node[port]
            if handle in self._counted:
                with explained(
                    self._computed_with(node),
                    context.windows,
                    f'output port "{port}"',
                    hint=self._next_steps,
                ):
                    result.dropped[str(handle)] = self._count(handle, frame)
                continue
            if handle not in self._materialised:
                emitted[handle] = frame
                continue
            with explained(
                self._computed_with(node),
                context.windows,
                f'output port "{port}"',
                hint=self._next_steps,
            ):
                emitted[handle] = self._materialise(
                    handle,
                    frame,
                    mark,
                    staged=staged,
                    result=result,
                    grid=context.grid,
                )
        return emitted

    def _transform(
        self,
        node: Node,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the frames of an operator's output ports by name."""
        operator = node.operator
        if isinstance(operator, TupleOperator):
            frames = emitted_frames(operator, inputs, state, context=context)
            for port, declared in operator.output_ports().items():
                if declared.control:
                    # Several key ranges may emit the same control tuple; it is kept once (O133).
                    frames[port] = frames[port].drop(EMITTED).distinct()
            return frames
        return frames_of(node, operator.transform(inputs, state, context))

    def _count(self, handle: PortHandle, frame: DataFrame) -> WindowFacts:
        """Returns the number of tuples per window of a port that no operator and no state reads.

        Rules: O16
        """
        schema = self._app.nodes[str(handle.operator)].operator.output_ports()[handle.port].schema
        counts = (
            conform(frame, schema, f'output port "{handle}"')
            .groupBy("window_id")
            .agg(F.count("*").alias("tuples"))
        )
        return WindowFacts.of(to_arrow(counts, COUNTS_SCHEMA, f'tuples of output port "{handle}"'))

    def _computed_with(self, node: Node) -> list[Node]:
        """Returns an operator, and the upstream operators whose frames the same Spark job computes.

        An error can be caused by any of them.
        """
        together = [node]
        for member in together:
            more = []
            for end in excluding(member.feeds.values(), self._materialised):
                feeding = self._app.nodes.get(str(end.operator))
                if feeding and feeding not in together:
                    more.append(feeding)
            together += more
        return together

    def _materialise(
        self,
        handle: PortHandle,
        frame: DataFrame,
        mark: int,
        staged: set[str],
        result: GroupResult,
        grid: Grid,
    ) -> DataFrame:
        """Writes a port's tuples once, so that later steps read the files instead of evaluating the
        plan again.

        The tuples of an error port are written to its error table, and readers of the port read
        them from there. If tasks of a tuple operator have written the tuples themselves, their
        files are used, because these have the order of emission.

        Rules: O39, O69
        """
        schema = self._app.nodes[str(handle.operator)].operator.output_ports()[handle.port].schema
        what = f'output port "{handle}"'
        output = self._outputs.get(handle)
        error = self._errors.get(handle)
        emitted = self._cache.files_of(str(handle.operator), handle.port, frame)
        readers = frame if emitted is not None else None
        if error:
            rows = as_errors(frame, schema, what, whole_replay(self._root.name), self._epoch)
            folder = self._write(rows, error.name, mark, staged, grid)
            check_stored_reasons(folder, error.name)
            result.folders[error.name] = folder
            if readers is None:
                frame = self.read_back(error.name, folder).drop(*COLUMNS.names)
            else:
                readers = frame = frame.drop(*COLUMNS.names)
            if not output:
                return frame
        name = output.name if output else str(handle)
        rows = conform(frame, schema, what)
        by = output.sorted_by if output else ()
        if by:
            rows = rows.sortWithinPartitions(*map(quoted_column, by))
        written = None if by or error else emitted
        folder = (
            self._write(
                rows,
                name,
                mark,
                staged,
                grid,
                SORTED_GROUP_BYTES if by else None,
            )
            if written is None
            else take_over(written, self._folder(name, mark, staged))
        )
        if output:
            result.folders[output.name] = folder
        if handle in self._dropped:
            result.dropped[str(handle)] = WindowFacts.of(count_written(folder))
        if written is not None:
            return self._cache.read(folder, schema)
        if readers is not None:
            return readers
        return self._in_one_task(read_files(self._spark, folder, _with_windows(schema)))

    def _write(
        self,
        rows: DataFrame,
        name: str,
        mark: int,
        staged: set[str],
        grid: Grid,
        row_group_bytes: int | None = None,
    ) -> Location:
        """Writes tuples with bookkeeping columns: to the folder of their table if it is staged,
        otherwise to scratch.

        The offset is the position of writing: the task, and the row within the task. It is unique
        in a window, because one job writes a window. Unlike a consecutive number per window, it
        needs no sort.
        """
        folder = self._folder(name, mark, staged)
        own = {
            "window_id": F.col("window_id"),
            "attempt": F.lit(self._epoch).cast("bigint"),
            "offset": F.col(EMITTED)
            if EMITTED in rows.columns
            else F.monotonically_increasing_id(),
            "arrived_at": window_start(grid),
        }
        events = excluding(rows.columns, {"window_id", EMITTED})
        placed = [value.alias(column) for column, value in own.items() if column not in events]
        write_files(rows.select(*placed, *map(quoted_column, events)), folder, row_group_bytes)
        return folder

    def _folder(self, name: str, mark: int, staged: set[str]) -> Location:
        return (
            self._root / (name if name in staged else f"scratch/{name}") / f"{self._epoch}-{mark}"
        )

    def _next_state(
        self,
        node: Node,
        frames: Mapping[PortHandle, DataFrame],
        before: OperatorState,
        state: DataFrame,
        context: OperatorContext,
    ) -> OperatorState:
        inputs = self._shared.inputs_of(node, frames)
        operator = node.operator
        own_context = self._context_of(node, context)
        outputs = {
            port: frames[node[port]] for port in operator.output_ports() if node[port] in frames
        }
        place = f"{self._epoch}-{context.last}"
        size = {"is_small": self._is_small}
        with explained(
            self._computed_with(node), context.windows, "next_state", hint=self._next_steps
        ):
            if isinstance(operator, TupleOperator):
                frame = states_after(operator, inputs, state, context=own_context)
            else:
                frame = operator.next_state(inputs, outputs, state, own_context)
            if operator.state_increments:
                return self._states.save_changes(
                    node,
                    frame,
                    before,
                    place=place,
                    tuples=self._tuples,
                    **size,
                )
            return self._states.save(node, frame, before, place, **size)

    def _context_of(self, node: Node, context: OperatorContext) -> OperatorContext:
        context = self._cache.context(node.name, replace(context, windowing=node.windowing))
        return replace(
            context,
            operator=f"{self._app.name}.{node.name}",
            unordered=node.unordered,
            followed=self._shared.order.followed(node.name),
            reports_failing=bool(self._app.failing),
        )

    def _schema(self, output: str) -> pa.Schema:
        return self._app.columns(self._staged[output])


def _check_inside(output: str, emitted: WindowFacts, windows: WindowRange) -> None:
    # Rules: W17
    ids = emitted.ids
    outside = ids[(ids < windows.first) | (ids > windows.last)]
    if len(outside):
        raise InputError(
            f'output "{output}" emitted tuples of window {outside[0]}, which is not in its group '
            f"{windows}",
            hint="Emit each tuple in the window that it was computed in.",
        )


def _with_windows(events: pa.Schema) -> StructType:
    return spark_schema(pa.schema([("window_id", pa.int64()), *events]))
