"""Steps of one length inside opening hours: on some weekdays of a zone, except on closed days.

In a week of a local clock without changes, the points have fixed positions, so they are counted by
arithmetic. Clock changes and closed days divide time into *pieces* in which the local clock runs
evenly. A point is in a piece if its local time is in it. A local time that the clocks skip is in no
piece, and a local time that they show twice is in two.

Rules: G3
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rewindow.operators.columns import floor_div
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

DAY_US = 86_400_000_000
WEEK_US = 7 * DAY_US
MONDAY_US = 4 * DAY_US
"""The first Monday of local clocks, 1970-01-05, from which weeks are counted."""
_YEARS = 1900, 2100
"""Clock changes between these years are read; before and after them, the offset is constant."""
_FAR = 1 << 62
_PIECE = (
    "array<struct<start bigint, offset bigint, base bigint, first bigint, rest bigint, end "
    "bigint, over bigint>>"
)


@dataclass(frozen=True)
class ClockPiece:
    """Time in which the local clock runs evenly, up to the start of the next piece.

    Attributes:
        start: its first instant, in microseconds since 1970-01-01 UTC.
        offset: local time minus UTC.
        base: number of a point minus its number in the plain count of local weeks; None if the
            whole piece is closed.
        first: number of the first point at or after the start.
        rest: if the step of the previous point continues into the piece, the end of that step;
            otherwise the start.
    """

    start: int
    offset: int
    base: int | None
    first: int
    rest: int


@dataclass(frozen=True)
class HoursGrid:
    """Steps of one length from the opening to the close, on some weekdays (0 is Monday) that are
    not closed.

    A point's step ends when the next point starts or the hours end, so a clock change can make it
    longer or shorter. There are no points and no steps between the close and the opening.
    """

    step_us: int
    zone: str
    open_us: int
    close_us: int
    weekdays: tuple[int, ...]
    closed: tuple[date, ...] = ()

    def point(self, at: Column) -> Column:
        """See EventGrid."""
        return _bound(self._next(at), lambda one: F.when(one["is_inside"], one["number"] - 1))

    def start(self, point: Column) -> Column:
        """See EventGrid."""
        return _bound(
            self._piece("first", point),
            lambda piece: self._local(point - piece["base"]) - piece["offset"],
        )

    def end(self, point: Column) -> Column:
        """Returns the instant at which a step ends (exclusive)."""

        def of(piece: Column) -> Column:
            end = self._local(point - piece["base"]) - piece["offset"] + self.step_us
            return F.when(end < piece["end"], end).otherwise(piece["over"])

        return _bound(self._piece("first", point), of)

    def length(self, first: Column, end: Column) -> Column:
        """See EventGrid."""
        return (end - first) * self.step_us

    def clock(self, at: Column) -> Column:
        """Returns the elapsed opening time at an instant; null outside the hours.

        It is the length of the steps of all earlier points plus the elapsed part of the present
        step. On this clock, consecutive points are one step apart, even across nights. The part of
        a step after a clock change counts as its last microsecond.
        """
        return _bound(
            self._next(at),
            lambda one: F.when(one["is_inside"], (one["number"] - 1) * self.step_us + one["since"]),
        )

    def first(self, at_us: int) -> int:
        """See EventGrid."""
        piece = self.pieces[self._index(at_us - 1)]
        return self._number(at_us - 1, piece)

    def start_us(self, point: int) -> int:
        """Returns the instant at which a step starts."""
        piece = self.pieces[self._index_of(point)]
        assert piece.base is not None, "a point is in a piece that is open"
        week, of_week = divmod(point - piece.base, self._of_week)
        day, step = divmod(of_week, self.points_of_day)
        return week * WEEK_US + MONDAY_US + self.opens[day] + step * self.step_us - piece.offset

    def end_us(self, point: int) -> int:
        """Returns the instant at which a step ends (exclusive)."""
        end = self.start_us(point) + self.step_us
        index = self._index_of(point) + 1
        if index == len(self.pieces) or end < self.pieces[index].start:
            return end
        return self.pieces[index].rest

    def openings(self, from_us: int, to_us: int) -> Iterator[tuple[int, int]]:
        """Yields the start and end of each opening between two instants.

        An opening does not extend over midnight.
        """
        at = from_us
        while (start := self.start_us(self.first(at))) < to_us:
            index = self._index(start)
            of_day = (start + self.pieces[index].offset - self.open_us) % DAY_US
            at = start - of_day + self.close_us - self.open_us
            if index + 1 < len(self.pieces) and at >= self.pieces[index + 1].start:
                at = self.pieces[index + 1].rest
            yield start, min(at, to_us)

    def points_in(self, period_us: int) -> int:
        """See EventGrid. The result includes all days that the period touches, and allows for
        days that are longer by a few hours.
        """
        days = period_us // (DAY_US - DAY_US // 8) + 2
        return days * -(-(self.close_us - self.open_us + DAY_US // 8) // self.step_us)

    @cached_property
    def opens(self) -> list[int]:
        """The starts of the hours in a local week, in microseconds."""
        return [day * DAY_US + self.open_us for day in sorted(self.weekdays)]

    @property
    def points_of_day(self) -> int:
        """The number of points on a day without a clock change."""
        return (self.close_us - self.open_us) // self.step_us

    @property
    def _of_week(self) -> int:
        return self.points_of_day * len(self.opens)

    @cached_property
    def pieces(self) -> list[ClockPiece]:
        """All pieces in order of time."""
        # Points are counted within a local week by arithmetic. The base of a piece corrects this
        # count by the number of points that earlier pieces skipped or had twice.
        pieces: list[ClockPiece] = []
        for start, offset, is_open in self._stretches():
            plain = self._plain(start + offset)
            first = -_FAR
            rest = start
            if pieces:
                before = pieces[-1]
                first = self._number(start - 1, before)
                if is_open and self._is_inside(start - 1, before):
                    rest = self._rest(start, offset)
            base = first - plain if pieces else 0
            pieces.append(
                ClockPiece(start, offset, base if is_open else None, first=first, rest=rest)
            )
        return pieces

    def _stretches(self) -> Iterator[tuple[int, int, bool]]:
        """Yields the start and offset of each stretch between clock changes and closed days, and
        whether it is open.
        """
        changes = clock_changes(self.zone)
        for (start, offset), (end, _) in pairwise([*changes, (_FAR, 0)]):
            at = start
            for day in sorted(set(self.closed)):
                midnight = (day.toordinal() - date(1970, 1, 1).toordinal()) * DAY_US - offset
                since = max(midnight, at)
                until = min(midnight + DAY_US, end)
                if since < until:
                    if at < since:
                        yield at, offset, True
                    yield since, offset, False
                    at = until
            if at < end:
                yield at, offset, True

    def _rest(self, start: int, offset: int) -> int:
        """Returns the end of a step in a given piece, if its point is in an earlier piece.

        The step ends where the next point starts or the hours end.
        """
        week = (start + offset - MONDAY_US) % WEEK_US
        opens = self._opening(week)
        return start if opens is None else start + (opens - week) % self.step_us

    def _plain(self, local: int) -> int:
        """Returns the number of points before a local time, counted in weeks without clock changes
        or closed days.
        """
        week, rest = divmod(local - MONDAY_US, WEEK_US)
        points = week * self._of_week
        for opens in self.opens:
            points += min(max(-((opens - rest) // self.step_us), 0), self.points_of_day)
        return points

    def _index(self, at: int) -> int:
        return max(bisect_right(self.pieces, at, key=lambda piece: piece.start) - 1, 0)

    def _index_of(self, point: int) -> int:
        return max(bisect_right(self.pieces, point, key=lambda piece: piece.first) - 1, 0)

    def _number(self, at: int, piece: ClockPiece) -> int:
        """Returns the number of the first point after an instant of a piece."""
        return (
            piece.first if piece.base is None else piece.base + self._plain(at + piece.offset + 1)
        )

    def _is_inside(self, at: int, piece: ClockPiece) -> bool:
        """Returns whether an instant of a piece is in the step of the given point."""
        week = (at + piece.offset - MONDAY_US) % WEEK_US
        is_open = self._opening(week) is not None
        return at < piece.rest or (is_open and self._number(at, piece) > piece.first)

    def _opening(self, week: int) -> int | None:
        """Returns the start of the hours that contain a time in a local week; None if the time is
        outside the hours.
        """
        for opens in self.opens:
            if opens <= week < opens - self.open_us + self.close_us:
                return opens
        return None

    def _next(self, at: Column) -> Column:
        """Returns the number of the first point after an instant.

        Also returns whether the instant is in the step of the previous point, and the elapsed part
        of that step.
        """

        def of(one: Column) -> Column:
            piece = one["piece"]
            week = one["week"]
            rest = one["rest"]
            plain = week * self._of_week
            is_open = F.lit(False)
            for opens in self.opens:
                steps = F.least(
                    F.greatest(floor_div(rest - opens, self.step_us) + 1, F.lit(0)),
                    F.lit(self.points_of_day),
                )
                plain = plain + steps
                is_open = is_open | (
                    (rest >= opens) & (rest < opens - self.open_us + self.close_us)
                )
            number = F.coalesce(piece["base"] + plain, piece["first"])
            is_inside = (at < piece["rest"]) | (is_open & (number > piece["first"]))
            of_step = F.pmod(F.pmod(rest, F.lit(DAY_US)) - self.open_us, F.lit(self.step_us))
            since = F.when(at < piece["rest"], self.step_us - 1).otherwise(of_step)
            found = F.struct(
                number.alias("number"),
                is_inside.alias("is_inside"),
                since.alias("since"),
            )
            return F.when(at.isNotNull(), found)

        def placed(piece: Column) -> Column:
            local = at + piece["offset"] - MONDAY_US
            rest = F.pmod(local, F.lit(WEEK_US))
            return F.struct(
                piece.alias("piece"),
                floor_div(local, WEEK_US).alias("week"),
                rest.alias("rest"),
            )

        return _bound(_bound(self._piece("start", at), placed), of)

    def _local(self, number: Column) -> Column:
        of_week = F.pmod(number, F.lit(self._of_week))
        opens = F.get(
            F.array(*map(F.lit, self.opens)),
            floor_div(of_week, self.points_of_day).cast("int"),
        )
        step = F.pmod(of_week, F.lit(self.points_of_day)) * self.step_us
        return floor_div(number, self._of_week) * WEEK_US + MONDAY_US + opens + step

    def _piece(self, name: str, value: Column) -> Column:
        """Returns the last piece whose start or first point is not after a value, by binary
        search.
        """
        pieces = F.from_json(F.lit(self._as_json), _PIECE)
        # A binary search in one expression, without a join: from the highest bit down, each bit of
        # the index is set if the piece at the resulting index starts at or before the value.
        halves = []
        for bit in reversed(range(len(self.pieces).bit_length())):
            halves.append(F.lit(1 << bit))
        index = F.aggregate(
            F.array(*halves),
            F.lit(0),
            lambda at, half: F.when(F.get(pieces, at + half)[name] <= value, at + half).otherwise(
                at
            ),
        )
        return F.get(pieces, index)

    @cached_property
    def _as_json(self) -> str:
        pieces = []
        for piece, following in pairwise(
            [*self.pieces, ClockPiece(_FAR, 0, None, first=0, rest=_FAR)]
        ):
            pieces.append({**vars(piece), "end": following.start, "over": following.rest})
        return json.dumps(pieces)


def _bound(value: Column, then: Callable[[Column], Column]) -> Column:
    """Returns `then(value)`.

    The value is computed only once, even if the result refers to it several times.
    """
    return F.get(F.transform(F.array(value), then), 0)


@lru_cache(maxsize=8)
def clock_changes(zone: str) -> list[tuple[int, int]]:
    """Returns each instant at which the offset of a zone changes, and the new offset.

    The first entry is the start of `_YEARS`. Both values are in microseconds. The offset is
    compared day by day. If it differs between two days, a binary search finds the second of the
    change.
    """
    clock = ZoneInfo(zone)
    day = 86_400

    def offset(second: int) -> int:
        found = datetime.fromtimestamp(second, clock).utcoffset()
        assert found is not None, "a zone has an offset at every time"
        return int(found.total_seconds())

    first = int(datetime(_YEARS[0], 1, 1, tzinfo=UTC).timestamp())
    last = int(datetime(_YEARS[1], 1, 1, tzinfo=UTC).timestamp())
    changes = [(first, offset(first))]
    for second in range(first + day, last, day):
        if offset(second) == changes[-1][1]:
            continue
        low = second - day
        high = second
        while high - low > 1:
            middle = (low + high) // 2
            if offset(middle) == changes[-1][1]:
                low = middle
            else:
                high = middle
        changes.append((high, offset(high)))
    return [(second * 1_000_000, offset_s * 1_000_000) for second, offset_s in changes]


@lru_cache(maxsize=32)
def hours_grid(
    step_us: int,
    zone: str,
    open_us: int,
    close_us: int,
    weekdays: tuple[int, ...],
    closed: tuple[date, ...],
) -> HoursGrid:
    """Returns the grid for a step inside opening hours.

    It is cached, so its pieces are computed once.
    """
    return HoursGrid(step_us, zone, open_us, close_us=close_us, weekdays=weekdays, closed=closed)
