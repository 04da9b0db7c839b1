"""Streams between two containers: a container reads the staged output of another one.

The reader uses the rows of the newest sealed attempt of each window. Its plan has pinned the digest
of their seals, so every attempt reads the same tuples, even if the writer has recomputed windows
that its tables had lost. Columns, rows and order are the same as between two operators of one
container: the offsets of staged rows are the order of emission.

Rules: O39, O106, R6, R42, R52, X53
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from rewindow.application import Application, PortHandle
from rewindow.errors import NotDeterministicError
from rewindow.facts.group_facts import check_input_counts
from rewindow.facts.readers import seals_digest, seen_rows, staged_seals
from rewindow.facts.window_facts import WindowFacts
from rewindow.location import Location
from rewindow.names import quoted_column, whole_replay
from rewindow.recovery import InputPlan, Plan
from rewindow.spark.frames import read_windows, to_frame
from rewindow.storage import Table, query
from rewindow.storage.checksums import with_noted
from rewindow.storage.files import name_in
from rewindow.storage.inputs import InputFiles, open_input
from rewindow.tuple_engine.emission_order import EmissionOrder
from rewindow.tuple_engine.frames import EMITTED
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OFFSET = "offset"


class CutStream:
    """A port of another container, with the tuples that the plan has pinned.

    Args:
        spark: the session.
        source: the port.
        app: the part of the application that reads it.
        plan: the plan of the reader.
        state: the state folder.

    Raises:
        NotDeterministicError: the writer has computed windows again, with another result.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: PortHandle,
        app: Application,
        plan: Plan,
        state: Location,
    ) -> None:
        entry = next(planned for planned in plan.inputs if planned.stream == str(source))
        assert app.whole is not None, "only a part reads ports of other containers"
        node = app.whole.nodes[str(source.operator)]
        port = node.output_ports()[source.port]
        self._spark = spark
        self._plan = plan
        self._name = entry.stream
        self._writer = entry.container
        open_input(entry, state)
        self._table = Table.open(entry.table(state))
        self._facts = Table.open(entry.windows_table(state))
        check_seals(plan, entry, state)
        lost = chain(*plan.missing_upstream()[entry.stream])
        self._lost = pa.array(lost, pa.int64())
        self._schema: pa.Schema = port.schema
        is_ordered = EmissionOrder(app.whole).has_order(source.operator) and not port.control
        self._has_order = is_ordered and _OFFSET not in port.schema.names

    @cached_property
    def files(self) -> InputFiles:
        """The files of the port, with the checksums that the writer's commits have recorded."""
        noted = {}
        for file in with_noted(self._table, self._table.files()):
            if file.checksum:
                noted[name_in(self._table, file)] = (file.size, file.checksum)
        plan = self._plan
        whole = whole_replay(plan.replay_id)
        return InputFiles(
            self._name,
            self._table,
            checksums=plan.verify_inputs,
            noted=noted,
            origin=f' Container "{self._writer}" has staged it for container "{plan.container}".',
            hint="Restore the file from a backup and resume: rewindow replay --resume "
            f"{whole}; or abandon the replay and plan the range again: {plan.command}",
        )

    def read(self, windows: WindowRange) -> DataFrame:
        """Returns the tuples of a range, with the same columns as within one container."""
        seals = self._seals(windows)
        attempts = to_frame(self._spark, seals.select(["window_id", "attempt"]))
        newest = F.broadcast(attempts)
        rows = read_windows(
            self._spark,
            self._table,
            windows,
        )
        rows = rows.join(newest, ["window_id", "attempt"], "left_semi")
        columns = []
        for name in ["window_id", *self._schema.names]:
            columns.append(F.col(quoted_column(name)))
        if self._has_order:
            columns.append(F.col(_OFFSET).alias(EMITTED))
        return rows.select(*columns)

    def count(
        self,
        windows: WindowRange,
        *,
        check: bool,
    ) -> WindowFacts:
        """Returns the sealed number of tuples in each window.

        Raises:
            TableError: with `check`, if the files have another number of tuples.
        """
        sealed = WindowFacts.of(self._seals(windows))
        if check:
            sql = f"""select window_id, count(*) as tuples from (
                {seen_rows("o_rows", self._port, columns="o.window_id")})
                where window_id between {windows.first} and {windows.last} group by window_id"""
            counts = query(
                sql,
                o_rows=self._table,
                facts=self._facts,
            )
            check_input_counts(self._name, WindowFacts.of(self._without_lost(counts)), sealed)
        return sealed

    @property
    def _port(self) -> str:
        return self._table.path.name

    def _seals(self, windows: WindowRange) -> pa.Table:
        return self._without_lost(staged_seals(self._facts, self._port, windows))

    def _without_lost(self, rows: pa.Table) -> pa.Table:
        """Returns the rows of the windows that the writer has computed.

        A window that is missing from all inputs of the writer is lost for its readers, even if the
        writer has emitted tuples in it.
        """
        return rows.filter(pc.invert(pc.is_in(rows["window_id"], self._lost)))


def check_seals(
    plan: Plan,
    entry: InputPlan,
    state: Location,
) -> None:
    """Checks that the seals of another container's stream are those that the plan has pinned.

    Args:
        plan: the plan of the reader.
        entry: an input of it that another container has staged.
        state: the state folder.

    Raises:
        NotDeterministicError: the writer has computed windows again, with another result.
    """
    facts = Table.open(entry.windows_table(state))
    sealed = staged_seals(facts, entry.table(state).name, plan.range)
    if seals_digest(sealed) != entry.seals_digest:
        raise NotDeterministicError(
            f'container "{entry.container}" has computed windows of {entry.stream} again, and they '
            f'differ from those that container "{plan.container}" has read',
            detail="An operator of it is not deterministic. Nothing was computed from them.",
            hint=f"Plan the range again: {plan.command}. To find the operator: rewindow "
            f"check-determinism {plan.application}",
        )
