"""Reads the index of a replay's window facts from its facts table.

The module is imported only when needed, because it imports Delta.
"""

from __future__ import annotations

from rewindow.ledger.stretches import SEGMENT_WINDOWS, PortStretch
from rewindow.location import Location
from rewindow.storage.queries import query

_SEGMENTS = f"""
with newest as (
    select *, row_number() over (partition by direction, port, window_id order by attempt desc)
        as nth from facts
    where direction not in ('state', 'skipped')
), runs as (
    select *, coalesce(lost, false) as given_up, window_id - row_number() over
        (partition by direction, port, coalesce(lost, false) order by window_id) as island
    from newest where nth = 1
)
select direction, port, min(window_id) as first, max(window_id) as last, sum(tuples) as tuples,
    given_up as lost,
    max(attempt) as epoch, min(began_at) as began_at, max(ended_at) as ended_at
from runs group by direction, port, given_up, island, window_id / {SEGMENT_WINDOWS}
"""


def segments_of(facts: Location) -> list[PortStretch]:
    """Returns the index of a facts table as stretches of windows.

    For each window, the newest attempt counts.
    """
    return [PortStretch(**row) for row in query(_SEGMENTS, facts=facts).to_pylist()]
