"""Published error tuples as a source. Each tuple is recorded again once, in a new window.

    [streams.again]
    source = "errors:shop.split.rejected"
    arrived_at = "arrived_at"

A tuple keeps its columns and arrives when it is fed back. Additional columns refer to its origin.
Tuples whose references are already in the recorded stream are not fed back again, so a run that
died can be repeated.

Rules: R94, X15
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from io import BytesIO

import pyarrow as pa

from rewindow.application.error_tuples import COLUMNS, FROM, FROM_REPLAY, FROM_STREAM, FROM_WINDOW
from rewindow.errors import InputError, TableError
from rewindow.location import location
from rewindow.recording.sources.columns import choose_columns
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import with_numbers
from rewindow.recording.sources.source import (
    ERRORS,
    SourceContents,
    SourceFile,
    SourcePosition,
    source,
)
from rewindow.recording.sources.typed_rows import schema_for_spark
from rewindow.sequences import excluding
from rewindow.storage import Table, query, quoted
from rewindow.windows import WindowRange

_OF_THE_PLACE = ("window_id", "offset", "arrived_at")
_ARRIVED = pa.field("arrived_at", pa.timestamp("us", "UTC"))


@source("errors")
class FedBackSource(FileSource):
    """The error tuples of a published error port that have not been recorded again yet, in the
    order of their windows.
    """

    _rows = pa.table({})

    def check(self) -> None:
        """See Source. This source has no settings to check."""
        self._table = location(self.place.removeprefix(ERRORS))

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """See Source.

        Returns one part with the tuples whose references are not recorded yet.
        """
        table = self._opened()
        new, warnings = self._unfed(table)
        self._rows, complete_us = self._arriving(new, position)
        parts = (
            [SourceFile(self._table.name, self._table.local(), BytesIO, size=0)]
            if new.num_rows
            else []
        )
        contents = SourceContents(
            parts,
            version=table.version,
            warnings=warnings,
            whole=False,
            complete_to_us=complete_us,
        )
        schema = schema_for_spark(self._rows.schema)
        return choose_columns(
            self.name,
            self.stream,
            contents,
            schemas=[(self._table.name, schema)],
            declared=declared,
            recorded=recorded,
        )

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """See Source."""
        chosen = self._rows.select(contents.schema.names).cast(contents.schema)
        yield with_numbers(
            chosen,
            pa.array(range(part.begin_row, part.begin_row + chosen.num_rows), pa.int64()),
        )

    def _opened(self) -> Table:
        try:
            table = Table.open(self._table)
        except TableError as error:
            raise InputError(
                f'source "{ERRORS}{self._table.name}" of stream "{self.name}" is not published',
                hint="The source must be a published error port, as application.operator.port. "
                "Publish a replay of the application first. `rewindow streams` lists all streams.",
            ) from error
        if COLUMNS.names[0] not in table.schema.names:
            raise InputError(
                f'source "{ERRORS}{self._table.name}" of stream "{self.name}" has no error '
                "tuples: it is not an error port",
                hint='To record an output, use a stream with format = "delta".',
            )
        return table

    def _unfed(self, table: Table) -> tuple[pa.Table, list[str]]:
        """Returns the tuples of windows from which no tuple was recorded again yet.

        Also returns a warning about windows that were published again since then.
        """
        replay = quoted(COLUMNS.names[0])
        own = self._table.with_name(self.name)
        if not Table.exists(own) or FROM_WINDOW not in Table.open(own).schema.names:
            return query("select * from e order by window_id, e.offset", e=table), []
        fed = f"""select distinct {quoted(FROM_WINDOW)} as w, {quoted(FROM_REPLAY)} as r from f
                  where {quoted(FROM_STREAM)} = '{self._table.name}'"""
        new = query(
            f"select e.* from e left anti join ({fed}) x on e.window_id = x.w order by "
            "e.window_id, e.offset",
            e=table,
            f=Table.open(own),
        )
        again = query(
            f"""select e.window_id as w, e.{replay} as r, count(*) as n from e join ({fed}) x
                on e.window_id = x.w
                group by e.window_id, e.{replay} having bool_and(e.{replay} <> x.r)""",
            e=table,
            f=Table.open(own),
        )
        if not again.num_rows:
            return new, []
        windows = again["w"].to_pylist()
        count = sum(again["n"].to_pylist())
        return new, [
            f"{count:,} error tuples of windows {WindowRange(min(windows), max(windows))} are not "
            "fed back: error tuples of an earlier publication of these windows were fed back "
            "before"
        ]

    def _arriving(self, new: pa.Table, position: SourcePosition) -> tuple[pa.Table, int]:
        """Returns tuples with their new arrival, and the time up to which no more tuples can
        arrive.

        They arrive at the end of the newest window that has ended, so that this run can seal it. If
        that window is already sealed, they arrive in the open window, and the next run records
        them.
        """
        grid = self.stream.grid
        now_us = time.time_ns() // 1000
        begin_us = grid.start_us(grid.window(now_us))
        is_sealed = (
            position.sealed_last is not None and grid.window(now_us) - 1 <= position.sealed_last
        )
        arrived = pa.repeat(
            pa.scalar(now_us if is_sealed else begin_us - 1, _ARRIVED.type),
            new.num_rows,
        )
        table = pa.repeat(pa.scalar(self._table.name), new.num_rows)
        told = dict(
            zip(
                FROM.names,
                (table, new[COLUMNS.names[0]], new["window_id"], new["offset"]),
                strict=True,
            )
        )
        events = new.select(excluding(new.column_names, {*_OF_THE_PLACE, *COLUMNS.names}))
        for field in FROM:
            events = events.append_column(field, told[field.name].cast(field.type))
        return events.append_column(_ARRIVED, arrived), begin_us
