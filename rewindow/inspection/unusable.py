"""Tuples with an impossible event time, by key and reason.

They are not counted in any lag, lateness or gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewindow.inspection.event_gaps import ARRIVAL, StreamRows
from rewindow.inspection.gap_rows import key_text
from rewindow.operators.event_time.lateness import BAD_TYPE, FAR_FUTURE
from rewindow.operators.event_time.timestamp_checks import FACTORS, is_far, is_shrunk
from rewindow.storage import query
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class Unusable:
    """The tuples of a key with an impossible event time.

    Attributes:
        reason: `far_future` or `bad_type`, as in `lateness`.
        times_too_small: factor by which a timestamp in a wrong unit is too small; None for other
            reasons.
        of: number of all tuples of the key.
    """

    key: Mapping[str, Any]
    reason: str
    times_too_small: int | None
    tuples: int
    of: int

    @property
    def keys(self) -> str:
        """The key as text."""
        return key_text(self.key)

    @property
    def why(self) -> str:
        """The reason as text."""
        if self.times_too_small is None:
            return "more than a day ahead of their arrival"
        return f"{FACTORS[self.times_too_small]} times too small"

    @property
    def words(self) -> str:
        """The key, the count and the reason as text."""
        count = (
            f"all {self.tuples:,}" if self.tuples == self.of else f"{self.tuples:,} of {self.of:,}"
        )
        return f"{self.keys or 'the stream'} {count} {self.why}"

    def row(self) -> dict[str, Any]:
        """Returns the entry as plain values."""
        return {
            "key": self.keys or None,
            "reason": self.reason,
            "times_too_small": self.times_too_small,
            "tuples": self.tuples,
            "of": self.of,
        }


def unusable_tuples(rows: StreamRows, windows: WindowRange) -> list[Unusable]:
    """Returns the tuples with an impossible event time in the given windows, by key and reason.

    The most frequent come first.
    """
    if not rows.can_judge:
        return []
    listed = rows.listed_keys
    by = f"partition by {', '.join(rows.key_names)}" if rows.keys else ""
    shrunk = " ".join(f"when {is_shrunk('t', 'a', (factor,))} then {factor}" for factor in FACTORS)
    # Verdict 0 is too far in the future, a factor is a wrong unit, and null is usable. Usable
    # tuples are grouped too, since `of` adds up all tuples of a key; the outer query drops them.
    sql = f"""
    select * from (
      select {listed} verdict, count(*) as tuples, sum(count(*)) over ({by}) as of
      from (select {listed} case when {is_far("t", "a")} then 0 {shrunk} end as verdict
            from (select {rows.selected_keys} {rows.time_sql} as t, {ARRIVAL} as a from s
                  where window_id between {windows.first} and {windows.last}{rows.of_keys}) as s)
                      as s
      group by {listed} verdict) as s
    where verdict is not null order by tuples desc, {listed} verdict"""
    return [
        Unusable(
            rows.key_of(row),
            BAD_TYPE if row["verdict"] else FAR_FUTURE,
            row["verdict"] or None,
            tuples=row["tuples"],
            of=row["of"],
        )
        for row in query(sql, s=rows.table).to_pylist()
    ]


def describe_unusable(found: Sequence[Unusable], shown: int) -> str:
    """Returns a sentence with the number of excluded tuples, and the keys with the most of them;
    empty if none are excluded.
    """
    if not found:
        return ""
    count = sum(one.tuples for one in found)
    more = len(found) - shown
    words = "; ".join(one.words for one in found[:shown]) + (
        f"; {more:,} keys and reasons more" if more > 0 else ""
    )
    subject = "1 tuple has a timestamp" if count == 1 else f"{count:,} tuples have timestamps"
    return (
        f"{subject} that cannot be correct and are left out of gaps, lag and lateness in event "
        f"time: {words}"
    )
