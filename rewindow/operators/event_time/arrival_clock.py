"""The arrival clock of a piece of a recording. Its ticks drive the watermark."""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.operators.event_time.settings import EventTime

SMALL = 1_000_000
"""Up to this number, ticks or ends of windows are broadcast to every task; more of them are
joined by a shuffle.
"""


@dataclass(frozen=True)
class ArrivalClock:
    """The arrival clock of a piece of a recording: its settings, the origin of its ticks, and the
    start and end of the piece.

    None means that a value is unknown.
    """

    settings: EventTime
    origin_us: int = 0
    start_us: int | None = None
    end_us: int | None = None

    def is_few(self, step_us: int, most: int = SMALL) -> bool:
        """Returns whether the number of steps between start and end is at most `most`; False if
        start or end is unknown.
        """
        if self.start_us is None or self.end_us is None:
            return False
        return (self.end_us - self.start_us) // step_us <= most

    def has_few_ticks(self, most: int = SMALL) -> bool:
        """Returns whether the number of ticks between start and end is at most `most`."""
        return self.is_few(self.settings.watermark_interval_us, most)
