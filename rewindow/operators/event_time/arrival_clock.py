"""The arrival clock of a piece of a recording, on which the ticks stand (docs/rules/event_time.md
section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.operators.event_time.settings import EventTime

SMALL = 1_000_000
"""So many ticks or ends of windows are sent to every task; more of them are joined by a shuffle."""


@dataclass(frozen=True)
class ArrivalClock:
    """The arrival clock of a piece of a recording: its settings, where ticks are counted from, its
    begin and end.
    """

    settings: EventTime
    origin_us: int = 0
    start_us: int | None = None
    end_us: int | None = None

    def is_few(self, step_us: int, most: int = SMALL) -> bool:
        """Returns whether so many steps as lie between begin and end are few; not, where these are
        not known.
        """
        if self.start_us is None or self.end_us is None:
            return False
        return (self.end_us - self.start_us) // step_us <= most

    def has_few_ticks(self, most: int = SMALL) -> bool:
        """Returns whether the ticks between begin and end are few."""
        return self.is_few(self.settings.interval_us, most)
