"""Converts between the window ids of Apache Apex and those of Rewindow
(docs/rules/windows_and_checkpoints.md).

A window id of Rewindow is an index on the grid. Apex packs two values into one number: the second
at which an epoch of 16,000 windows starts, and a counter within that epoch. Users with Apex
recordings or logs convert such ids to read or compare them:

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
    """The Apex ids of the windows of a grid, whose origin is the start time of the Apex
    application.

    Width and origin cannot be derived from the ids, so the grid must have the values of the
    recording.

    Rules: W4
    """

    grid: Grid

    def id_of(self, window: int) -> int:
        """Returns the Apex id of a window.

        Raises:
            InputError: the window is before the grid's origin, or its time does not fit into the
                id.

        Rules: W1, W6
        """
        if window < 0:
            raise InputError(
                f"window {window} has no Apex id: the first one is that of window 0, at the origin "
                "of the grid"
            )
        epoch, counter = divmod(window, COUNTERS)
        apex_id = self._base_s(epoch) << _COUNTER_BITS | counter
        if not -_ID_MAX <= apex_id < _ID_MAX:
            raise InputError(
                f"window {window} has no Apex id: its time does not fit into 32 bits of seconds"
            )
        return apex_id

    def window_of(self, apex_id: int) -> int:
        """Returns the window of an Apex id. Counter 0 of the first epoch is accepted, although Apex
        itself skips it.

        Raises:
            InputError: the id is that of the initial state, or belongs to another grid.

        Rules: W7, W11
        """
        if apex_id == INITIAL:
            raise InputError("Apex id -1 stands for the initial state, which is before any window")
        base_s = apex_id >> _COUNTER_BITS
        counter = apex_id & (1 << _COUNTER_BITS) - 1
        epoch_ms = COUNTERS * self.grid.width_us // 1000
        epoch = max(0, -((self._origin_ms - base_s * 1000) // epoch_ms))
        if counter >= COUNTERS or self._base_s(epoch) != base_s:
            raise InputError(
                f"Apex id {apex_id} does not belong to a window of this grid",
                detail=f"Its epoch starts at second {base_s} and its counter is {counter}. In this "
                f"grid an epoch has {COUNTERS:,} windows of {self.grid.width_us // 1000} ms, and "
                f"the first one starts at {self._origin_ms} ms.",
                hint="Use the origin and width of the recording that the id is from.",
            )
        return epoch * COUNTERS + counter

    def start_us(self, apex_id: int) -> int:
        """Returns the start of an id's window, in microseconds since the epoch.

        For the initial state, returns the origin.

        Rules: W7, W8
        """
        return self.grid.start_us(0 if apex_id == INITIAL else self.window_of(apex_id))

    def after(self, apex_id: int) -> int:
        """Returns the next id. Apex starts with counter 1, so window 1 follows the initial state.

        Rules: W8
        """
        return self.id_of(1 if apex_id == INITIAL else self.window_of(apex_id) + 1)

    def distance(self, first: int, second: int) -> int:
        """Returns the number of windows from the first id to the second. The difference of two ids
        would be wrong, because counters restart in every epoch.

        Rules: W9
        """
        before, after = (
            0 if apex_id == INITIAL else self.window_of(apex_id) for apex_id in (first, second)
        )
        return after - before

    def sort_key(self, apex_id: int) -> int:
        """Returns a sort key that orders ids by window.

        The initial state comes first.

        Rules: W9
        """
        return INITIAL if apex_id == INITIAL else self.window_of(apex_id)

    def _base_s(self, epoch: int) -> int:
        return (self._origin_ms + epoch * COUNTERS * (self.grid.width_us // 1000)) // 1000

    @property
    def _origin_ms(self) -> int:
        return self.grid.origin_us // 1000


def state_name(apex_id: int) -> str:
    """Returns the name of the file in which Apex stores the state after a window.

    Rules: W13

    >>> state_name(-1), state_name(5828341058135654403)
    ('ffffffffffffffff', '50e26d5000000003')
    """
    return f"{apex_id % (1 << 64):0{_HEXADECIMAL_DIGITS}x}"


def id_of_state(name: str) -> int:
    """Returns the id of a stored state from its file name.

    Rules: W13

    >>> id_of_state("ffffffffffffffff"), id_of_state("50e26d5000000003")
    (-1, 5828341058135654403)

    Raises:
        InputError: the name is not that of a complete state; Apex uses other names while it writes.
    """
    if len(name) != _HEXADECIMAL_DIGITS or set(name) - set("0123456789abcdef"):
        raise InputError(
            f'"{name}" is not the name of a state of Apex',
            detail="Such a name has 16 hexadecimal digits in lower case.",
        )
    unsigned = int(name, 16)
    return unsigned - (1 << 64) if unsigned >= _ID_MAX else unsigned
