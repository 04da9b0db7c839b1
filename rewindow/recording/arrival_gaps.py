"""Finds tuples whose arrival is so far from all others that too many empty windows between them
would be sealed.

A device that has lost its clock sends times in 1970. Such a tuple must not cause all windows since
then to be sealed. If its arrival is the latest, it must not make all following tuples late. So the
recording stops, or the tuples on the smaller side go to quarantine. Tuples after the last sealed
window are never quarantined this way: the source may have been silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewindow.errors import InputError
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.quarantine import tuple_text
from rewindow.recording.sealing import WINDOWS_MAX
from rewindow.recording.sources.source import FILE, ROW, SourceFile
from rewindow.recording.tuples import PAYLOAD, REASON, recorded_schema
from rewindow.sequences import names_of, quantity
from rewindow.settings.config import StreamConfig
from rewindow.windows import WindowRange, format_time

_SAMPLES = 3
_REASON = "malformed: arrival is far from all others"


@dataclass(frozen=True)
class ArrivalGap:
    """Tuples that are separated from the others by too many empty windows.

    Attributes:
        empty: length of the longest gap in windows; 0 if all these tuples are older than the
            recording, so that they seal nothing.
        apart: ranges that contain exactly the tuples on the smaller side.
        main_first: first window of the larger side.
        after_sealed: whether the gap follows the last sealed window.
    """

    empty: int
    apart: tuple[WindowRange, ...]
    main_first: int
    after_sealed: bool

    @property
    def column(self) -> Column:
        """A condition that is true for the tuples on the smaller side."""
        inside = [f"window_id between {part.first} and {part.last}" for part in self.apart]
        return F.expr(" or ".join(inside))

    def as_malformed(self, tuples: DataFrame) -> DataFrame:
        """Marks the tuples on the smaller side as malformed and returns all tuples."""
        events = names_of(recorded_schema(tuples.schema).fields[3:])
        far = self.column
        return tuples.withColumns(
            {
                REASON: F.when(far, F.lit(_REASON)).otherwise(F.col(REASON)),
                PAYLOAD: F.when(far, tuple_text(events)).otherwise(F.col(PAYLOAD)),
                "window_id": F.when(~far, F.col("window_id")),
            }
        )


def find_gap(
    arrivals: ArrivalCounts,
    sealed: WindowRange | None,
    last: int | None,
    windows_max: int,
) -> ArrivalGap | None:
    """Returns the tuples that are separated from the others by too many empty windows; None if no
    gap is too long.

    Args:
        arrivals: tuples of each window; those of the future stay open and are ignored.
        sealed: windows that are sealed.
        last: last window that would be sealed now.
        windows_max: allowed number of consecutive empty windows.
    """
    there = arrivals.present > 0
    ids = arrivals.windows[there]
    counts = arrivals.present[there]
    parts = []
    if sealed is not None:
        parts.append(ids[ids < sealed.first - windows_max - 1])
        is_new = ids > sealed.last
        ids = np.append(sealed.last, ids[is_new])
        counts = np.append(0, counts[is_new])
    # Only the part of a gap that would be sealed counts: open windows may still be filled.
    ends = ids[1:] if last is None else np.minimum(ids[1:], last + 1)
    empty = ends - ids[:-1] - 1
    begins = np.flatnonzero(empty > windows_max) + 1 if last is not None else np.array([], int)
    sides = np.split(ids, begins)
    sizes = np.add.reduceat(counts, np.append(0, begins)) if len(counts) else [0]
    main = 0 if sealed is not None else int(np.argmax(sizes))
    parts += [ids[ids < sides[main][:1]], ids[ids > sides[main][-1:]]]
    # However many gaps exist, two or three ranges cover everything that is not on the larger side.
    apart = tuple(WindowRange(int(part[0]), int(part[-1])) for part in parts if len(part))
    if not apart:
        return None
    return ArrivalGap(
        int(empty.max()) if len(begins) else 0,
        apart,
        int(sides[main][0]),
        after_sealed=sealed is not None and len(begins) > 0,
    )


def refused(
    name: str,
    stream: StreamConfig,
    gap: ArrivalGap,
    *,
    tuples: DataFrame,
    files: Sequence[SourceFile],
    may_be_quarantined: bool,
) -> InputError:
    """Returns the error for a gap, with rows of its smaller side and the settings that can help.

    Args:
        name, stream: the stream and its settings.
        gap: the tuples on the smaller side.
        tuples: all tuples.
        files: the parts of the source.
        may_be_quarantined: whether they are few enough to go to quarantine.
    """
    arrived = F.col("arrived_at").cast("string").alias("__at")
    apart = tuples.where(gap.column).select(FILE, ROW, arrived)
    rows = apart.orderBy("__at", FILE, ROW).head(_SAMPLES)
    listed = [f"{files[row[FILE]].name}:{row[ROW]} ({row['__at']})" for row in rows]
    ways = []
    if may_be_quarantined and not gap.after_sealed:
        ways.append('on_gap = "quarantine" moves these rows to quarantine')
        if gap.apart[-1].last < gap.main_first:
            begin = format_time(stream.grid.start_us(gap.main_first))
            ways.append(f'origin = "{begin}" leaves these rows out')
    if gap.empty <= WINDOWS_MAX:
        ways.append(f"gap_windows_max = {gap.empty} accepts the gap")
    return InputError(
        f'arrivals of stream "{name}" have a gap of {gap.empty:,} windows, but gap_windows_max is '
        f"{stream.gap_windows_max:,}",
        detail=f"{quantity(apart.count(), 'row')} on the smaller side of the gap: "
        f"{', '.join(listed)}. The clock of a sender may be wrong. No window was sealed.",
        hint="Correct these rows, or the stream's setting arrived_at."
        + (f" Or change a setting of the stream: {'; or '.join(ways)}." if ways else ""),
    )
