"""Window ids of Apache Apex, and the windows of ours that they stand for
(docs/rules/windows_and_checkpoints.md).

Our window id is an index on the grid. Apex packs the second at which an epoch of 16,000 windows
begins and a counter within that epoch into one number. Whoever has recordings or logs with such ids
turns them into ours, and ours into them, to read or compare both:

>>> from rewindow.windows import Grid
>>> ids = ApexIds(Grid(width_ms=500, origin_ms=1_357_016_400_000))
>>> ids.id_of(3), ids.window_of(5828341058135654403)
(5828341058135654403, 3)
>>> ids.id_of(16_000) - ids.id_of(15_999)
34359738352001
>>> ids.distance(ids.id_of(15_999), ids.id_of(16_000))
1
"""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.errors import InputError
from rewindow.windows import Grid

COUNTERS = 16_000
"""Windows of an epoch: the counter runs from 0 to 15,999 (W2)."""
INITIAL = -1
"""The id of the initial state, before any window (W8)."""
_COUNTER_BITS = 32
_HEXADECIMAL_DIGITS = 16
_ID_MAX = 2**63


@dataclass(frozen=True)
class ApexIds:
    """The ids that Apex gives to the windows of a grid, whose origin is the time at which its
    application began.

    Both are needed as they were recorded: the ids do not tell them (W4).
    """

    grid: Grid

    def id_of(self, window: int) -> int:
        """Returns the id of one of our windows (W1, W6).

        Raises:
            InputError: the window lies before the grid's origin, or too late for 64 bits.
        """
        if window < 0:
            raise InputError(
                f"window {window} has no Apex id: they begin at the origin of the grid, with "
                "window 0"
            )
        epoch, counter = divmod(window, COUNTERS)
        found = self._base_s(epoch) << _COUNTER_BITS | counter
        if not -_ID_MAX <= found < _ID_MAX:
            raise InputError(
                f"window {window} has no Apex id: its time does not fit into 32 bits of seconds"
            )
        return found

    def window_of(self, apex_id: int) -> int:
        """Returns our window of an id (W7); counter 0 of the first epoch, which Apex itself skips,
        is one too (W11).

        Raises:
            InputError: the id is that of the initial state, or belongs to another grid.
        """
        if apex_id == INITIAL:
            raise InputError("Apex id -1 stands for the initial state, which is before any window")
        base_s = apex_id >> _COUNTER_BITS
        counter = apex_id & (1 << _COUNTER_BITS) - 1
        epoch_ms = COUNTERS * self.grid.width_us // 1000
        epoch = max(0, -((self._origin_ms - base_s * 1000) // epoch_ms))
        if counter >= COUNTERS or self._base_s(epoch) != base_s:
            raise InputError(
                f"Apex id {apex_id} belongs to no window of this grid",
                detail=f"It says epoch second {base_s}, counter {counter}; an epoch has "
                f"{COUNTERS:,} windows of "
                f"{self.grid.width_us // 1000} ms, the first one begins at {self._origin_ms} ms.",
                hint="Give origin and width of the recording that the id is from.",
            )
        return epoch * COUNTERS + counter

    def start_us(self, apex_id: int) -> int:
        """Returns when the window of an id begins, in microseconds; for the initial state the
        origin (W7, W8).
        """
        return self.grid.start_us(0 if apex_id == INITIAL else self.window_of(apex_id))

    def after(self, apex_id: int) -> int:
        """Returns the id that follows: Apex begins with counter 1, so after the initial state comes
        window 1 (W8).
        """
        return self.id_of(1 if apex_id == INITIAL else self.window_of(apex_id) + 1)

    def distance(self, first: int, second: int) -> int:
        """Returns how many windows the second id is after the first one; their difference would be
        wrong (W9).
        """
        before, after = (0 if one == INITIAL else self.window_of(one) for one in (first, second))
        return after - before

    def sort_key(self, apex_id: int) -> int:
        """Returns a number by which ids are in the order of their windows, the initial state first
        (W9).
        """
        return INITIAL if apex_id == INITIAL else self.window_of(apex_id)

    def _base_s(self, epoch: int) -> int:
        return (self._origin_ms + epoch * COUNTERS * (self.grid.width_us // 1000)) // 1000

    @property
    def _origin_ms(self) -> int:
        return self.grid.origin_us // 1000


def state_name(apex_id: int) -> str:
    """Returns the name under which Apex stores the state after a window (W13).

    >>> state_name(-1), state_name(5828341058135654403)
    ('ffffffffffffffff', '50e26d5000000003')
    """
    return f"{apex_id % (1 << 64):0{_HEXADECIMAL_DIGITS}x}"


def id_of_state(name: str) -> int:
    """Returns the id of a stored state by its name (W13).

    >>> id_of_state("ffffffffffffffff"), id_of_state("50e26d5000000003")
    (-1, 5828341058135654403)

    Raises:
        InputError: the name is none of a state, as that of one that is still being written.
    """
    if len(name) != _HEXADECIMAL_DIGITS or set(name) - set("0123456789abcdef"):
        raise InputError(
            f'"{name}" is not the name of a state of Apex',
            detail="It has 16 digits, 0 to 9 and a to f in lower case.",
        )
    found = int(name, 16)
    return found - (1 << 64) if found >= _ID_MAX else found
