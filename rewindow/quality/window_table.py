"""The window report: one row for every window of a replay's range, including windows without
output.

Rows are counted in the staged output, by its key. Measures that the replay has stored with its
facts are used. Other measures are computed now. Facts, seals of the inputs and quarantine are small
and already grouped by window. All of them are combined in arrays indexed by window, so that a
window that occurs nowhere still has a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import GateError, RewindowError
from rewindow.facts.losses import losses_of
from rewindow.facts.seals import read_seals, stream_end
from rewindow.loading.measures import (
    Measure,
    every_output_has,
    for_datafusion,
    query_of,
    recorded_name,
    refusal,
    table_name,
    values_of,
)
from rewindow.loading.suites import COLUMNS, HOW_TO
from rewindow.location import Location
from rewindow.progress.steps import step
from rewindow.quality.report_queries import (
    Ints,
    aggregate_sql,
    distinct_attempts,
    numbers,
    plain_numbers,
    rows_sql,
)
from rewindow.quality.stored_measures import StoredMeasures, written_by_attempts
from rewindow.recovery import InputPlan, OutputPlan, Plan
from rewindow.sequences import excluding, names_of
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS, state_folder
from rewindow.storage.queries import in_order


@dataclass(frozen=True)
class Sources:
    """The tables from which a report is computed, and the state folder with the inputs."""

    staged: Table
    facts: Table
    quarantine: Table | None
    checkpoints: Table | None
    state: Location

    @classmethod
    def open(
        cls,
        root: Location,
        output: str,
        quarantine: Location,
        versions: Mapping[str, int] | None = None,
    ) -> Sources:
        """Opens the tables of a replay at the given versions, or at their newest versions."""
        at = dict(versions or {})
        quarantined = Table.open(quarantine) if Table.exists(quarantine) else None
        checkpoints = (
            Table.open(root / CHECKPOINTS, at.get(CHECKPOINTS))
            if Table.exists(root / CHECKPOINTS)
            else None
        )
        staged = Table.open(root / output, at.get(output))
        facts = Table.open(root / FACTS, at.get(FACTS))
        return cls(staged, facts, quarantined, checkpoints, state_folder(root))


@dataclass(frozen=True)
class WindowReport:
    """The window report of an output, and the origin of the values of the suite's measures.

    Attributes:
        stored: measures whose values the replay has stored.
        measured: measures that were computed now.
        remark: why stored values were not used, empty if they were.
    """

    table: pa.Table
    stored: tuple[str, ...]
    measured: tuple[str, ...]
    remark: str = ""


def build_report(
    plan: Plan,
    output: OutputPlan,
    sources: Sources,
    measures: tuple[Measure, ...],
) -> pa.Table:
    """Returns the table of `make_report`."""
    return make_report(plan, output, sources, measures=measures).table


def make_report(
    plan: Plan,
    output: OutputPlan,
    sources: Sources,
    measures: tuple[Measure, ...],
) -> WindowReport:
    """Returns the window report of an output. Measures that the replay has stored are not computed
    again.

    Columns, all per window: `window_id`, `starts_at`, `output_rows` (of the attempt that readers
    see), `sealed_rows` (count in its seal), `tuples_in` and `tuples_in_<input>`, `recorded_tuples`,
    `unaccounted_tuples` (recorded, but neither processed nor declared lost), `lost` (1: given up by
    at most once), `lost_tuples`, `undeclared_lost` (1: no seal and no declared loss), `repeated`
    (rows of other attempts), `undeclared_repeated` (those that the mode does not allow),
    `repeated_keys`, `null_keys`, `heartbeats`, `data_rows`, `late`, `quarantined`, `error_tuples`
    (on the error ports upstream of the output, and of operators that feed no output), `gaps`
    (inputs whose window is empty), `missing_inputs` (inputs whose window is not sealed),
    `attempts`, `affected` (1: computed from a state that lacks lost windows), `not_verifiable` (1:
    computed by an operator that reads external systems, or downstream of one), and the suite's
    measures.

    Raises:
        GateError: rows are outside of the range, or a measure cannot be computed.
        TableError: a table of the replay is missing, or a seal of an input is damaged.

    Rules: R14, R53, R88
    """
    known = values_of(plan, output)
    measures = tuple(measure.bound(known) for measure in measures)
    report = _Report(plan, output, sources)
    for what, add in (
        ("its facts", report.add_facts),
        ("seals of the inputs", report.add_inputs),
        ("counting its rows by key", report.add_rows),
        ("its measures", lambda: report.add_measures(measures)),
        ("quarantine", report.add_quarantine),
    ):
        with step(f"{output.name}: {what}"):
            add()
    stored = excluding(names_of(measures), report.taken_now)
    measured = excluding(names_of(measures), stored)
    return WindowReport(
        report.table(measures), tuple(stored), tuple(measured), remark=report.remark
    )


def _facts_of(rows: pa.Table, direction: str, port: str) -> pa.Table:
    """Returns the facts of a port, ordered by window and attempt.

    The newest attempt of a window comes last.
    """
    mine = rows.filter(
        pc.and_(pc.equal(rows["direction"], direction), pc.equal(rows["port"], port))
    )
    return in_order(mine, "window_id", "attempt")


class _Report:
    """A report under construction.

    `columns` has one array per column, indexed by window. `taken` has the attempt whose rows
    readers see, or -1 for an unsealed window.
    """

    def __init__(self, plan: Plan, output: OutputPlan, sources: Sources) -> None:
        self.plan = plan
        self.output = output
        self.sources = sources
        self.size = len(plan.range)
        self.columns: dict[str, Any] = {}
        self.measured: dict[str, pa.Array] = {}
        self.taken_now: set[str] = set()
        self.remark = ""

    # --- facts

    def add_facts(self) -> None:
        """Adds seals, losses, attempts and input counts from the facts."""
        rows = query(
            "select window_id, direction, port, tuples, attempt, lost from facts",
            facts=self.sources.facts,
        )
        self._add_seals(_facts_of(rows, "out", self.output.name))
        self._add_inputs_of_facts(rows)
        self._add_errors(rows)

    def _add_seals(self, rows: pa.Table) -> None:
        window, attempt, tuples, lost = numbers(rows, "window_id", "attempt", "tuples", "lost")
        index = self._index(window, "facts")
        self.taken = np.full(self.size, -1, dtype=np.int64)
        sealed_rows = np.zeros(self.size, dtype=np.int64)
        # Facts come by window and attempt, and of equal indices NumPy assigns the last: the newest
        # attempt wins.
        newest = np.flatnonzero(lost == 0)
        self.taken[index[newest]] = attempt[newest]
        sealed_rows[index[newest]] = tuples[newest]
        given_up = np.zeros(self.size, dtype=np.int64)
        given_up[index[lost == 1]] = 1
        self.sealed = self.taken >= 0
        self.columns["sealed_rows"] = sealed_rows
        self.columns["lost"] = np.where(self.sealed, 0, given_up)
        allowed = self.columns["lost"] if self.plan.may_lose else 0
        self.columns["undeclared_lost"] = (~self.sealed).astype(np.int64) - allowed
        self.columns["attempts"] = distinct_attempts(index, attempt, self.size)
        self.columns["affected"] = self._affected()
        self.columns["not_verifiable"] = self.sealed.astype(np.int64)
        if not self.output.reads_outside:
            self.columns["not_verifiable"][:] = 0

    def _affected(self) -> Ints:
        """Returns 1 for the sealed windows of a stateful output that were computed from a state
        that lacks windows.

        Rules: R14
        """
        losses = losses_of(
            self.plan, self.sources.facts, self.sources.checkpoints, windows=self.plan.range
        )
        first = losses.affected_first.get(self.output.name, self.plan.last + 1)
        return np.where(
            np.arange(self.plan.first, self.plan.last + 1) >= first,
            self.sealed,
            0,
        ).astype(np.int64)

    def _add_errors(self, rows: pa.Table) -> None:
        """Adds the counts of visible error tuples, which the newest attempt that sealed them has
        written.
        """
        total = np.zeros(self.size, dtype=np.int64)
        for error in self.plan.errors_of(self.output):
            seals = _facts_of(rows, "error", error.name)
            window, tuples = numbers(seals.filter(pc.invert(seals["lost"])), "window_id", "tuples")
            of_port = np.zeros(self.size, dtype=np.int64)
            of_port[self._index(window, "facts")] = tuples
            total += of_port
        self.columns["error_tuples"] = total

    def _add_inputs_of_facts(self, rows: pa.Table) -> None:
        done = np.zeros(self.size, dtype=np.int64)
        lost_tuples = np.zeros(self.size, dtype=np.int64)
        for entry in self.plan.inputs:
            window, tuples, lost = numbers(
                _facts_of(rows, "in", entry.stream),
                "window_id",
                "tuples",
                "lost",
            )
            index = self._index(window, "facts")
            # Facts mark an input as lost if any output lost the window. If this output has the
            # window, it did process the input.
            lost = np.where(self.sealed[index], 0, lost)
            processed = np.zeros(self.size, dtype=np.int64)
            given_up = np.zeros(self.size, dtype=np.int64)
            processed[index] = np.where(lost == 1, 0, tuples)
            given_up[index] = np.where(lost == 1, tuples, 0)
            self.columns[_column("tuples_in", entry.stream)] = processed
            done = done + processed
            lost_tuples = lost_tuples + given_up
        self.columns["tuples_in"] = done
        self.columns["lost_tuples"] = lost_tuples

    # --- inputs

    def add_inputs(self) -> None:
        """Adds columns from the seals of the inputs: tuples, empty windows, missing windows."""
        recorded, gaps, missing = np.zeros((3, self.size), dtype=np.int64)
        for entry in self.plan.inputs:
            seals = Table.open(entry.windows_table(self.sources.state), entry.windows_version)
            rows = read_seals(seals, self.plan.range)
            window, tuples = numbers(rows, "window_id", "tuples")
            index = self._index(window, entry.stream)
            recorded[index] += tuples
            gaps[index] += tuples == 0
            # After the end of a stream no window is ever sealed, and none is missing.
            unsealed = np.ones(self.size, dtype=np.int64)
            unsealed[index] = 0
            end = stream_end(seals)
            if end is not None:
                unsealed[max(0, end + 1 - self.plan.first) :] = 0
            missing += unsealed
        self.columns |= {"recorded_tuples": recorded, "gaps": gaps, "missing_inputs": missing}
        accounted = self.columns["tuples_in"] + self.columns["lost_tuples"]
        self.columns["unaccounted_tuples"] = np.where(self.sealed, recorded - accounted, 0)

    # --- rows

    def add_rows(self) -> None:
        """Adds the counts of stored rows, and of rows that repeat the declared key of another row
        of their attempt.

        They are counted in the rows themselves, because seals only contain the expected counts.
        Only the columns of the key are read.
        """
        rows = self._ask(rows_sql(self.output.key), [], t=self.sources.staged)
        window, attempt, count, repeats = numbers(rows, "window_id", "attempt", "rows", "repeats")
        index = self._index(window, f"output {self.output.name}", count)
        taken = self.taken[index] == attempt
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, index, count)
        for column, values in (("output_rows", count), ("repeated_keys", repeats)):
            self.columns[column] = np.zeros(self.size, dtype=np.int64)
            self.columns[column][index[taken]] = values[taken]
        self.columns["repeated"] = np.where(self.sealed, total - self.columns["output_rows"], 0)
        allowed = self.plan.may_repeat
        self.columns["undeclared_repeated"] = np.where(allowed, 0, self.columns["repeated"])

    def add_measures(self, measures: tuple[Measure, ...]) -> None:
        """Adds the suite's measures and the measures of every output.

        Stored values are used if possible, and the rest is computed from the rows.
        """
        own = every_output_has(self.output.key, self.sources.staged.schema)
        every = [*own, *measures]
        stored = self._stored(every)
        rest = []
        for measure in every:
            if stored is not None and self._is_stored(stored, measure):
                self.measured[measure.name] = self._spread(*stored.values(measure), measure)
            else:
                rest.append(measure)
        self.taken_now = set(names_of(rest))
        self._add_aggregates([measure for measure in rest if not measure.over_rows])
        for measure in rest:
            if measure.over_rows:
                self.add_row_measure(measure)
        for measure in own:
            self.columns[measure.name] = pc.fill_null(self.measured[measure.name], 0).to_numpy(
                zero_copy_only=False
            )
        self.columns["data_rows"] = self.columns["output_rows"] - self.columns["heartbeats"]

    def _stored(self, measures: list[Measure]) -> StoredMeasures | None:
        """Returns the stored measures; None if they belong to other rows than the current ones."""
        stored = StoredMeasures(
            self.plan, self.output, self.sources.facts, taken=self.taken, measures=measures
        )
        differs = self.sealed & (self.columns["output_rows"] != self.columns["sealed_rows"])
        if stored.is_empty or not (differs.any() or not written_by_attempts(self.sources.staged)):
            return stored
        self.remark = "the staged files are not those that the facts describe"
        return None

    def _is_stored(self, stored: StoredMeasures, measure: Measure) -> bool:
        # Measures that are queries over rows are never stored.
        has_rows = self.sealed & (self.columns["output_rows"] > 0)
        return not measure.over_rows and stored.has(measure, has_rows)

    def _add_aggregates(self, measures: list[Measure]) -> None:
        """Adds aggregate measures in one pass over the staged rows, per window and attempt."""
        if not measures:
            return
        of_the_suite = [measure for measure in measures if measure.name not in COLUMNS]
        rows = self._ask(aggregate_sql(measures), of_the_suite, t=self.sources.staged)
        window, attempt = numbers(rows, "window_id", "attempt")
        index = self._index(window, f"output {self.output.name}")
        taken = self.taken[index] == attempt
        for measure in measures:
            values = rows[measure.name].filter(pa.array(taken))
            self.measured[measure.name] = self._spread(values, index[taken], measure)

    def add_row_measure(self, measure: Measure) -> None:
        """Adds a row measure: a query over the rows that readers see."""
        several = bool(self.columns["repeated"].any() or not self.sealed.all())
        inputs = {stream: self._input(measure, stream) for stream in measure.inputs}
        missing = {name: entry.missing for name, entry in inputs.items()}
        sql = query_of(measure, self.output.name, self.plan.range, inputs=missing, several=several)
        tables = {
            recorded_name(name): Table.open(entry.table(self.sources.state), entry.version)
            for name, entry in inputs.items()
        }
        rows = self._ask(
            sql,
            [measure],
            staged=self.sources.staged,
            facts=self.sources.facts,
            **tables,
        )
        if rows.column_names != ["window_id", "value"]:
            raise GateError(
                f'measure "{measure.name}" returns the columns {", ".join(rows.column_names)} '
                "instead of window_id, value"
            )
        index = self._index(numbers(rows, "window_id")[0], f'measure "{measure.name}"')
        if len(np.unique(index)) < len(index):
            raise GateError(
                f'measure "{measure.name}" of output "{self.output.name}" returns several values '
                "for a window",
                hint="Its query needs: group by window_id.",
            )
        self.measured[measure.name] = self._spread(rows["value"], index, measure)

    def _input(self, measure: Measure, name: str) -> InputPlan:
        known = {table_name(entry.stream): entry for entry in self.plan.inputs}
        if name in known:
            return known[name]
        raise GateError(
            f'measure "{measure.name}" of output "{self.output.name}" refers to input "{name}", '
            "which does not exist",
            detail=f"Inputs of the replay: {', '.join(sorted(known)) or 'none'}.",
        )

    def add_quarantine(self) -> None:
        """Adds counts of late and otherwise quarantined tuples of the inputs."""
        late = np.zeros(self.size, dtype=np.int64)
        other = np.zeros(self.size, dtype=np.int64)
        if self.sources.quarantine is not None:
            streams = ", ".join(f"'{entry.stream}'" for entry in self.plan.inputs)
            sql = f"""select window_id, count(*) filter (where reason like 'late%') as late,
                count(*) as rows from q
                      where source in ({streams}) and {self._inside()} group by window_id"""
            window, late_rows, rows = numbers(
                query(sql, q=self.sources.quarantine),
                "window_id",
                "late",
                "rows",
            )
            index = self._index(window, "quarantine")
            late[index] = late_rows
            other[index] = rows - late_rows
        self.columns |= {"late": late, "quarantined": other}

    # --- together

    def table(self, measures: tuple[Measure, ...]) -> pa.Table:
        """Returns the report: a row for each window of the range, with its start, its counts, and a
        column for each measure.
        """
        grid = self.plan.grid
        first = self.plan.first
        starts = np.arange(self.size, dtype=np.int64) * grid.width_us + grid.start_us(first)
        inputs = [_column("tuples_in", entry.stream) for entry in self.plan.inputs]
        before = COLUMNS.index("tuples_in") + 1
        names = [*COLUMNS[COLUMNS.index("starts_at") + 1 : before], *inputs, *COLUMNS[before:]]
        columns: dict[str, Any] = {
            "window_id": pa.array(np.arange(first, self.plan.last + 1, dtype=np.int64)),
            "starts_at": pa.array(starts, pa.timestamp("us", tz="UTC")),
            **{name: pa.array(self.columns[name], pa.int64()) for name in names},
        }
        for measure in measures:
            columns[measure.name] = self.measured[measure.name]
        return pa.table(columns)

    def _inside(self) -> str:
        return f"window_id between {self.plan.first} and {self.plan.last}"

    def _index(self, window: Ints, where: str, count: Ints | None = None) -> Ints:
        """Returns indexes in the report.

        Raises an error for windows outside of the range, which would otherwise be ignored.
        """
        outside = (window < self.plan.first) | (window > self.plan.last)
        if outside.any():
            rows = f"{int(count[outside].sum())} rows" if count is not None else "rows"
            raise GateError(
                f"{where} of replay {self.plan.replay_id} has {rows} of window "
                f"{int(window[outside][0])}, "
                f"which is outside its range {self.plan.grid.describe(self.plan.range)}"
            )
        return window - self.plan.first

    def _spread(self, values: pa.ChunkedArray, index: Ints, measure: Measure) -> pa.Array:
        """Returns a measure for every window: null if the window is not sealed, and `empty` if it
        has no rows.
        """
        seen = self.sealed[index]
        plain = plain_numbers(values).filter(pa.array(seen))
        index = index[seen]
        if pa.types.is_floating(plain.type) and pc.any(pc.is_nan(plain)).as_py():
            window = self.plan.first + int(
                index[pc.fill_null(pc.is_nan(plain), False).to_numpy(zero_copy_only=False)].min()
            )
            raise GateError(
                f'measure "{measure.name}" of output "{self.output.name}" is not a number in '
                f"window {self.plan.grid.describe(window)}",
                detail="Checks would ignore it.",
                hint="Correct the output, or leave such values out in the SQL: filter (where not "
                "isnan(column)).",
            )
        position = np.full(self.size, -1, dtype=np.int64)
        position[index] = np.arange(len(index))
        values_by_window = plain.take(pa.array(position, mask=position < 0))
        if measure.empty is not None:
            bare = pa.array(self.sealed & (position < 0))
            is_whole = float(measure.empty).is_integer()
            kind = values_by_window.type if is_whole else pa.float64()
            empty = pa.scalar(measure.empty)
            try:
                values_by_window = pc.if_else(bare, empty.cast(kind), values_by_window.cast(kind))
            except pa.ArrowException as error:
                raise GateError(
                    f'measure "{measure.name}" is of type {values.type}, which cannot be '
                    f"{measure.empty} in a window "
                    "without rows",
                    hint='Make it a number, or set "empty": null.',
                ) from error
        return values_by_window

    def _ask(self, sql: str, measures: list[Measure], **tables: Table) -> pa.Table:
        try:
            return query(for_datafusion(sql), **tables)
        except RewindowError:
            raise
        except Exception as error:  # DataFusion has no separate class for invalid SQL
            names = ", ".join(f'"{measure.name}"' for measure in measures)
            what = f"measures {names} of output" if measures else "output"
            raise GateError(
                f'{what} "{self.output.name}" cannot be computed: {refusal(error)}',
                hint=f"A measure is SQL of DataFusion over the output's columns; see {HOW_TO}.",
            ) from error


def _column(prefix: str, stream: str) -> str:
    return f"{prefix}_{table_name(stream)}"
