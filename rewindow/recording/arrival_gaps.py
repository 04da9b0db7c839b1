"""Jumps of the arrival time: tuples so far from all others that a great many windows between them
would be sealed empty.

A device that has lost its clock sends 1970. Such a tuple must neither seal all windows since then
nor, where it comes last, make everything behind it late. So the recording stops, or the tuples on
the smaller side go to quarantine. Once windows are sealed, what lies behind a gap after them never
does: the source may have been silent for so long.
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
from rewindow.sequences import names_of
from rewindow.settings.config import StreamConfig
from rewindow.windows import WindowRange, format_time, to_datetime

_SAMPLES = 3
_REASON = "malformed: arrival is far from all others"


@dataclass(frozen=True)
class ArrivalGap:
    """Tuples that lie behind too many empty windows.

    Attributes:
        empty: how many windows the longest gap has; 0 where all these tuples lie before the
            recording, so that they seal nothing.
        apart: ranges that hold the tuples on the smaller side, and no others.
        main_first: first window of the larger side.
        after_sealed: whether the gap comes after the last sealed window.
    """

    empty: int
    apart: tuple[WindowRange, ...]
    main_first: int
    after_sealed: bool

    @property
    def column(self) -> Column:
        """The condition that a tuple is one of them."""
        return _lies_in(self.apart)

    def as_malformed(self, tuples: DataFrame) -> DataFrame:
        """Returns tuples of which those on the smaller side are malformed."""
        events = names_of(recorded_schema(tuples.schema).fields[3:])
        far = self.column
        return tuples.withColumns(
            {
                REASON: F.when(far, F.lit(_REASON)).otherwise(F.col(REASON)),
                PAYLOAD: F.when(far, tuple_text(events)).otherwise(F.col(PAYLOAD)),
                "window_id": F.when(~far, F.col("window_id")),
            }
        )


def _lies_in(parts: Sequence[WindowRange]) -> Column:
    return F.expr(" or ".join(f"window_id between {part.first} and {part.last}" for part in parts))


def find_gap(
    arrivals: ArrivalCounts,
    sealed: WindowRange | None,
    last: int | None,
    windows_max: int,
) -> ArrivalGap | None:
    """Returns the tuples that lie behind more empty windows than are allowed, None without any.

    Args:
        arrivals: tuples of each window; those of the future wait, and are left alone.
        sealed: windows that are sealed.
        last: the window up to which would be sealed now.
        windows_max: so many empty windows in a row are allowed.
    """
    there = arrivals.present > 0
    ids = arrivals.windows[there]
    counts = arrivals.present[there]
    apart = []
    if sealed is not None:
        before = ids[ids < sealed.first - windows_max - 1]
        if len(before):
            apart.append(WindowRange(int(before[0]), int(before[-1])))
        is_new = ids > sealed.last
        ids = np.concatenate(([sealed.last], ids[is_new]))
        counts = np.concatenate(([0], counts[is_new]))
    # A gap counts as far as it would be sealed: what is open may still be filled.
    sealed_now = ids[1:] if last is None else np.minimum(ids[1:], last + 1)
    empty = sealed_now - ids[:-1] - 1
    ends = np.flatnonzero(empty > windows_max)
    if last is None or not len(ends):
        if not apart:
            return None
        assert sealed is not None, "only what lies before sealed windows is apart here"
        return ArrivalGap(0, tuple(apart), sealed.first, after_sealed=False)
    starts = np.append(0, ends + 1)
    main = 0 if sealed is not None else int(np.argmax(np.add.reduceat(counts, starts)))
    first = int(starts[main])
    behind = int(starts[main + 1]) if main + 1 < len(starts) else len(ids)
    if first:
        apart.append(WindowRange(int(ids[0]), int(ids[first - 1])))
    if behind < len(ids):
        apart.append(WindowRange(int(ids[behind]), int(ids[-1])))
    return ArrivalGap(
        int(empty.max()),
        tuple(apart),
        int(ids[first]),
        after_sealed=sealed is not None,
    )


def refused(
    name: str,
    stream: StreamConfig,
    gap: ArrivalGap,
    *,
    tuples: DataFrame,
    arrivals: ArrivalCounts,
    files: Sequence[SourceFile],
    may_be_quarantined: bool,
) -> InputError:
    """Returns the error for a gap: the rows on its smaller side, and the settings that help.

    Args:
        name, stream: the stream and its settings.
        gap: the tuples that lie apart.
        tuples: all tuples.
        arrivals: how many there are.
        files: the parts of the source.
        may_be_quarantined: whether they are few enough to go to quarantine.
    """
    parts = gap.apart[-1:] if gap.after_sealed else gap.apart
    columns = [F.unix_micros("arrived_at").alias("__us"), FILE, ROW]
    rows = tuples.where(_lies_in(parts)).select(*columns).orderBy("__us", FILE, ROW).head(_SAMPLES)
    count = sum(int(arrivals.present[arrivals.inside(part)].sum()) for part in parts)
    shown = [f"{files[part].name}:{row} ({to_datetime(us).isoformat()})" for us, part, row in rows]
    listed = f"{', '.join(shown)}{', ...' if count > len(shown) else ''}"
    side = "behind the last sealed window" if gap.after_sealed else "on the smaller side"
    ways = []
    if may_be_quarantined and not gap.after_sealed:
        ways.append('on_gap = "quarantine" sets them apart')
        if all(part.last < gap.main_first for part in parts):
            begin = format_time(stream.grid.start_us(gap.main_first))
            ways.append(f'origin = "{begin}" begins the stream behind them')
    if gap.empty <= WINDOWS_MAX:
        ways.append(f"gap_windows_max = {gap.empty} takes the silence as it is")
    return InputError(
        f'arrivals of stream "{name}" jump over {gap.empty:,} windows, gap_windows_max is '
        f"{stream.gap_windows_max:,}",
        detail=f"{count:,} of {arrivals.rows:,} rows lie {side}: {listed}. A wrong clock is enough "
        "for that. Nothing was sealed.",
        hint="Correct these rows, or arrived_at of the stream."
        + (f" Or, as a setting of it: {'; or '.join(ways)}." if ways else ""),
    )
