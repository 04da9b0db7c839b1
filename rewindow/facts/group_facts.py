"""Facts: one row for every window and port of a replay, with counts and digests.

The rows of an output are also its seals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Output
from rewindow.errors import InputError, TableError
from rewindow.facts.window_facts import COUNTS_SCHEMA, Ids, WindowFacts, unequal
from rewindow.names import whole_replay
from rewindow.recovery import Plan
from rewindow.storage.fields import fields_without
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

_OF_THE_GROUP = ("group_first", "group_last", "began_at", "ended_at")
_PART = pa.schema(fields_without(FACTS_SCHEMA, _OF_THE_GROUP))


@dataclass
class GroupFacts:
    """Collects the fact rows of one commit group as columns, because a group can have a million
    windows.

    Attributes:
        windows: the group's windows.
        above: the mark of the facts table as a window. Only later windows get a row, because the
            earlier ones are committed already.
    """

    windows: WindowRange
    attempt: int
    began_at: datetime
    above: int

    def __post_init__(self) -> None:
        self._parts: list[pa.Table] = []
        first = max(self.windows.first, self.above + 1)
        self._new = np.arange(first, max(first, self.windows.last + 1))

    def add_input(
        self,
        stream: str,
        counts: WindowFacts,
        missing: Sequence[WindowRange] = (),
        *,
        lost: bool = False,
    ) -> None:
        """Adds a row for each window of an input, even for empty windows.

        Args:
            stream: name of the input.
            counts: tuples per window.
            missing: windows that are missing from the stream of another container; they are marked
                as lost.
            lost: whether the tuples of all windows are not processed.

        Rules: R15
        """
        rows = counts.reindex(self._new, tuples=0).rows
        gone = np.full(len(self._new), lost)
        for windows in missing:
            gone |= (self._new >= windows.first) & (self._new <= windows.last)
        self._add("in", stream, rows.append_column("lost", pa.array(gone)))

    def add_dropped(self, port: str, counts: WindowFacts, lost: bool = False) -> None:
        """Adds a row for each window of an output port that is not read.

        Error ports are not included.

        Rules: O16
        """
        self._add("dropped", port, counts.reindex(self._new, tuples=0).rows, lost=lost)

    def add_output(self, output: Output, seals: WindowFacts) -> None:
        """Adds the seals of an output or an error table, even for windows without tuples.

        Rules: O65, O66
        """
        if len(self._new):
            new = seals.within(WindowRange(int(self._new[0]), int(self._new[-1])))
            self._add(output.direction, output.name, new.rows)

    def add_lost(self, output: Output, lost: WindowRange) -> None:
        """Adds a row for each window of an output or an error table that the mode at most once
        gives up.
        """
        windows = self._new[(self._new >= lost.first) & (self._new <= lost.last)]
        self._add(output.direction, output.name, _without_tuples(windows), lost=True)

    def add_skip(self, operator: str, lacking: Ids, dropped: WindowFacts) -> None:
        """Adds the losses of an operator's state by an at-most-once skip, including windows before
        the group.

        Args:
            operator: its name; facts have it instead of a port.
            lacking: windows whose output is kept, but which are missing from the state: state_lost.
            dropped: tuples, by window, that waited in the state and were dropped.

        Rules: X2, X3
        """
        self._add("state", operator, _without_tuples(lacking), lost=True)
        self._add("skipped", operator, dropped.rows, lost=True)

    def table(self) -> pa.Table:
        """Returns the rows, with the current time as the end of the group."""
        own = {
            "group_first": self.windows.first,
            "group_last": self.windows.last,
            "began_at": self.began_at,
        }
        rows = pa.concat_tables([_PART.empty_table(), *self._parts])
        for name, value in {**own, "ended_at": datetime.now(UTC)}.items():
            field = FACTS_SCHEMA.field(name)
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        return rows.select(FACTS_SCHEMA.names)

    def _add(self, direction: str, port: str, windows: pa.Table, *, lost: bool = False) -> None:
        """Adds a row for each window of a table. Columns that the table does not have
        are constant.
        """
        same = {
            "direction": direction,
            "port": port,
            "attempt": self.attempt,
            "lost": lost,
        }
        columns = {}
        for field in _PART:
            if field.name in windows.column_names:
                columns[field.name] = windows[field.name]
            else:
                value = pa.scalar(same.get(field.name), field.type)
                columns[field.name] = pa.repeat(value, windows.num_rows)
        self._parts.append(pa.table(columns, schema=_PART))


def _without_tuples(windows: Ids) -> pa.Table:
    return pa.table({"window_id": windows, "tuples": np.zeros_like(windows)})


def check_error_counts(plan: Plan, digests: Mapping[str, WindowFacts]) -> None:
    """Checks the number of error tuples per window and port before the group is committed.

    Raises:
        InputError: a window has more error tuples than allowed; the message has the first such
            window of the first such port.

    Rules: O71
    """
    for error in plan.errors:
        bound = plan.errors_max if error.errors_max is None else error.errors_max
        if bound is None:
            continue
        counts = digests[error.name].rows if error.name in digests else COUNTS_SCHEMA.empty_table()
        beyond = counts.filter(pc.greater(counts["tuples"], bound))
        if beyond.num_rows:
            is_default = error.errors_max is None
            setting = "setting replay.errors_max" if is_default else "errors_max of the port"
            raise InputError(
                f"window {beyond['window_id'][0]} has {beyond['tuples'][0].as_py():,} error tuples "
                f'on port "{error.name}", at most {bound:,} are allowed ({setting})',
                detail="Its commit group was not committed.",
                hint="Correct the operator or its input, or increase the setting; then plan the "
                f"range again: rewindow abandon {whole_replay(plan.replay_id)}",
            )


def check_input_counts(stream: str, counted: WindowFacts, sealed: WindowFacts) -> None:
    """Checks that the windows of an input contain as many tuples as were sealed.

    Raises:
        TableError: a count differs; the message has the first such window.

    Rules: R58 (only the counts)
    """
    counted = counted.reindex(sealed.ids, tuples=0)
    wrong = np.flatnonzero(unequal(counted.rows["tuples"], sealed.rows["tuples"])).tolist()
    if wrong:
        window = sealed.ids[wrong[0]]
        tuples = counted.rows["tuples"][wrong[0]]
        expected = sealed.rows["tuples"][wrong[0]]
        raise TableError(
            f'window {window} of stream "{stream}" has {tuples} tuples, but {expected} were sealed',
            hint="The stream was changed after it was sealed. Record it again, or restore the "
            "version of the plan.",
        )
