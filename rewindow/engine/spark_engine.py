"""The Spark engine of an attempt: computes groups, reads inputs, and compares windows with
committed ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewindow.application import Application, OperatorContext, PortHandle
from rewindow.engine.attempt import Attempt
from rewindow.engine.committed import Committed
from rewindow.engine.computation import Counts, GroupResult, PlannedAttempt, Seals, SkipResult
from rewindow.engine.cut_streams import CutStream
from rewindow.engine.group import GroupRunner
from rewindow.engine.joining import FILE_BYTES, join_files
from rewindow.engine.key_sample import sampled
from rewindow.engine.measuring import AskedMeasure, asked_of
from rewindow.engine.operator_errors import next_steps
from rewindow.engine.shuffle import Shuffle
from rewindow.facts.group_facts import check_input_counts
from rewindow.facts.seals import read_seals
from rewindow.facts.window_facts import WindowFacts
from rewindow.loading.catalog import application_modules
from rewindow.loading.measures import Measure
from rewindow.recovery import Plan
from rewindow.spark.frames import count_windows, open_inputs
from rewindow.spark.repeated_tasks import each_task_once
from rewindow.spark.session import send_modules
from rewindow.state.files import States, folder_of
from rewindow.state.store import SizedStates
from rewindow.storage import DataFile, FencedTable, Table, data_files
from rewindow.storage.checksums import with_checksums
from rewindow.storage.inputs import InputFiles
from rewindow.storage.layout import CHECKPOINTS, FACTS, state_folder
from rewindow.windows import WindowRange

Measures = Mapping[str, Sequence[Measure]]
NO_MEASURES: Measures = MappingProxyType({})

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rewindow.ledger import Ledger

logger = logging.getLogger(__name__)


def spark_attempt(
    planned: PlannedAttempt,
    ledger: Ledger,
    session: Callable[[], SparkSession],
    inline_state_bytes: int,
    measures: Measures = NO_MEASURES,
    file_bytes: int = FILE_BYTES,
    **listeners: Any,
) -> Attempt:
    """Returns an attempt that computes with Spark.

    Args:
        planned: the replay, its application and tables, and the attempt's epoch.
        ledger: the ledger.
        session: returns the Spark session; called after the fence, since fencing needs no JVM.
        inline_state_bytes: see SparkEngine.
        measures: see SparkEngine.
        file_bytes: see SparkEngine.
        listeners: see Attempt.
    """

    def engine(tables: Mapping[str, FencedTable]) -> SparkEngine:
        send_modules(application_modules())
        return SparkEngine(
            session(),
            planned,
            tables,
            inline_state_bytes=inline_state_bytes,
            measures=measures,
            file_bytes=file_bytes,
        )

    return Attempt(planned, ledger, engine, **listeners)


class SparkEngine:
    """Computes groups with Spark, and reads the inputs at the versions that the plan has pinned.

    Args:
        spark: the session.
        planned: the replay, its application and tables, and the attempt's epoch.
        tables: the outputs, the error tables and the facts, as this attempt has fenced them.
        inline_state_bytes: states above this size are stored in files.
        measures: output name to the measures of its suite; where possible they are computed
            together with the digests.
        file_bytes: small files of an output are joined up to this size.
    """

    def __init__(
        self,
        spark: SparkSession,
        planned: PlannedAttempt,
        tables: Mapping[str, FencedTable],
        inline_state_bytes: int,
        measures: Measures = NO_MEASURES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        plan = planned.plan
        root = planned.root
        epoch = planned.epoch
        state = state_folder(root)
        self._tables = tables
        self._app = app = planned.app
        self._folder = f"{epoch}-{len(plan.range)}"
        self._file_bytes = file_bytes
        self._inputs = open_inputs(plan, state)
        self._files = {
            stream: InputFiles(stream, table, checksums=plan.verify_inputs)
            for stream, table in self._inputs.items()
        }
        self._seals = {
            entry.stream: Table.open(entry.windows_table(state), entry.windows_version)
            for entry in plan.recorded
        }
        self._cuts = {
            source: CutStream(spark, source, app, plan, state) for source in app.cut_streams()
        }
        self._spark = spark
        self._shuffle = Shuffle(plan.sample_seed or 0)
        self._shuffle.repartition(planned.app)
        states = SizedStates(spark, folder_of(root / CHECKPOINTS), inline_state_bytes)
        asked = (
            _asked(plan, app, measures)
            if "measures" in Table.open(root / FACTS).schema.names
            else {}
        )

        def read(table: Table, windows: WindowRange) -> DataFrame:
            return sampled(
                self._shuffle.read(spark, table, windows),
                table.path.name,
                plan.candidate,
            )

        inputs: dict[PortHandle, Callable[[WindowRange], DataFrame]] = {}
        for stream, table in self._inputs.items():
            inputs[PortHandle(None, stream)] = partial(read, table)
        for source, cut in self._cuts.items():
            inputs[source] = cut.read
        self._runner = GroupRunner(
            spark,
            planned,
            inputs,
            states=states,
            next_steps=next_steps(plan),
            asked=asked,
        )
        self._committed = Committed(plan, root, epoch, runner=self._runner, tables=tables)

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        """Counts each input's tuples per window and compares the counts with the seals.

        Before that, it compares the files with their recorded sizes and checksums.
        """
        for files in self._files.values():
            files.compare(windows)
        counts = {
            stream: WindowFacts.of(count_windows(table, windows))
            for stream, table in self._inputs.items()
        }
        for stream in counts if check else ():
            sealed = read_seals(self._seals[stream], windows, table_id=self._inputs[stream].id)
            check_input_counts(stream, counts[stream], WindowFacts.of(sealed))
        for source, cut in self._cuts.items():
            cut.files.compare(windows)
            counts[str(source)] = cut.count(windows, check=check)
        return counts

    def compute(
        self,
        context: OperatorContext,
        mark: int,
        states: States,
        staged: Iterable[str],
        tuples: int,
    ) -> GroupResult:
        """See GroupRunner.compute.

        In the mode at most once, no task of a group may run twice.

        Rules: R13
        """
        once = (
            each_task_once(self._spark.sparkContext, f"windows {context.windows}")
            if context.mode.may_lose
            else nullcontext()
        )
        with once, self._shuffle.parts(self._spark):
            return self._runner.compute(
                context, mark, states, staged=staged, tuples=self._shuffle.spread(tuples)
            )

    def files(self, output: str, result: GroupResult) -> Sequence[DataFile]:
        """Returns the Parquet files that Spark has written for an output."""
        return with_checksums(data_files(result.folders[output]))

    def compare_with_committed(
        self,
        windows: WindowRange,
        result: GroupResult,
        staged: Sequence[str],
    ) -> Seals:
        """Compares a group with its committed windows, see Committed."""
        committed = self._committed.before(windows, staged)
        self._committed.check(windows, result, committed)
        return committed

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        """See Committed.seals."""
        return self._committed.seals(output, windows)

    def skip(self, states: States, skipped: WindowRange) -> SkipResult:
        """See GroupRunner.skip."""
        return self._runner.skip(states, skipped)

    def join_files(self) -> None:
        """Joins small neighbouring files of each output.

        Files that cannot be read or written are left unchanged.
        """
        for name in self._app.staged():
            output = self._app.outputs.get(name)
            try:
                fewer = join_files(
                    self._tables[name],
                    self._folder,
                    self._file_bytes,
                    output.sorted_by if output else (),
                )
            except OSError as error:
                logger.warning(f"small files of {name} were not joined: {error}")
                continue
            if fewer:
                logger.info(f"{name}: small files were joined, the table has {fewer:,} files less")

    def clear_scratch(self) -> None:
        """Deletes the scratch files."""
        self._runner.clear_scratch()


def _asked(plan: Plan, app: Application, measures: Measures) -> dict[str, list[AskedMeasure]]:
    """Returns the measures of each output that are computed together with its digests."""
    asked = {}
    for output in plan.outputs:
        rows = pa.schema([("window_id", pa.int64()), *app.columns(app.outputs[output.name])])
        asked[output.name] = asked_of(measures.get(output.name, ()), output, rows)
    return asked
