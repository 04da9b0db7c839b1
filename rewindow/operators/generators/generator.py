"""Generator: base class of sources that compute tuples from properties and a seed.

Rules: O145 to O147

class Trips(Generator):
    columns: ClassVar = pa.schema(
        [("arrived_at", pa.timestamp("us", "UTC")), ("taxi", pa.int64())]
    )
    taxis: int = 50

    def rows(self, window_id, part, random):
        slots = self.slots(window_id, part, random)
        taxi = self.pick(self.taxis, len(slots.numbers), random)
        return pa.record_batch([slots.arrived_at, taxi], schema=self.columns)
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr

from rewindow.errors import InputError
from rewindow.settings.types import DurationUs, Section, zero_or_more
from rewindow.windows import WINDOWS_MAX, Grid, WindowRange, parse_time

TIME = pa.timestamp("us", "UTC")
_WINDOWS = 1_000
_SECOND = Grid(1_000, 0)


class Lulls(Section):
    """Empty windows at regular intervals.

    Attributes:
        after: number of windows with tuples before each lull.
        windows: number of empty windows in a lull.
    """

    after: int = Field(ge=1)
    windows: int = Field(ge=0)


class ClockSteps(Section):
    """Errors of the clock that produces the event times.

    Attributes:
        every: number of windows between two steps of the clock. It is right for this number of
            windows, then wrong for the same number, and so on.
        by: error of the clock while it is wrong; negative if it is slow.
    """

    every: int = Field(ge=1)
    by: DurationUs


class Slots(NamedTuple):
    """Numbers and times of the tuples in a part of a window.

    Attributes:
        numbers: number of each tuple in the stream, counted from 0.
        arrived_at: arrival of each tuple; arrivals ascend with the numbers.
        event_at: event time of each tuple.
    """

    numbers: np.ndarray
    arrived_at: pa.Array
    event_at: pa.Array


class Generator(BaseModel):
    """A source that computes its tuples instead of reading them.

    `rows` is called for each part of each window, in any order and in several processes. Its result
    must depend only on the properties, the window, the part and `random`. Then every recording has
    the same tuples, for any number of Spark tasks.

    Attributes:
        columns: columns of the tuples.
        arrival: the column with the arrival of a tuple, a timestamp inside its window.
        seed: seed of the random numbers; another seed produces other tuples.
        parts: number of parts of each window, which different Spark tasks can compute. Another
            number of parts produces other tuples.
        rate: number of tuples in a window, in all parts together, 10,000,000 at most.
        skew: 0 picks all keys equally often. 1 picks the second key about half as often as the
            first, the third a third as often, and so on; larger values favour the first keys more.
        disorder: longest delay from the event time of a tuple to its arrival. Delays are random, so
            tuples do not arrive in the order of their event times.
        lulls: empty windows, such as `{ after = 55, windows = 5 }`.
        poison: share of the tuples that have no arrival, from 0 to less than 1. `record` puts them
            into the quarantine.
        clock_steps: errors of the clock of the event time, such as `{ every = 60, by = "-2 s" }`.
        begin: a time in the first window; in UTC unless it has a time zone.
        windows: number of windows after which the stream ends; by default 1,000, or the number that
            `tuples` needs.
        tuples: number of tuples after which the stream ends.
    """

    model_config = ConfigDict(extra="forbid", validate_default=True)

    columns: ClassVar[pa.Schema]
    arrival: ClassVar[str] = "arrived_at"
    _grid: Grid = PrivateAttr(default=_SECOND)

    seed: int = 0
    parts: int = Field(
        default=1,
        ge=1,
        le=1_000,
    )
    rate: int = Field(
        default=100,
        ge=1,
        le=10_000_000,
    )
    skew: float = Field(
        default=0,
        ge=0,
        le=10,
    )
    disorder: Annotated[DurationUs, AfterValidator(zero_or_more)] = 0
    lulls: Lulls = Lulls(after=1, windows=0)
    poison: float = Field(
        default=0,
        ge=0,
        lt=1,
    )
    clock_steps: ClockSteps = ClockSteps(every=1, by=0)
    begin: datetime = datetime(
        2026,
        1,
        1,
    )
    windows: int | None = Field(
        default=None,
        ge=1,
        le=WINDOWS_MAX,
    )
    tuples: int | None = Field(default=None, ge=1)

    def rows(self, window_id: int, part: int, random: np.random.Generator) -> pa.RecordBatch:
        """Returns the tuples of a part of a window.

        Args:
            window_id: the window.
            part: number of the part, from 0.
            random: random numbers, seeded by `seed`, part and window. Use no others.
        """
        raise NotImplementedError

    def on(self, grid: Grid) -> Self:
        """Returns a copy that has the windows of a stream.

        Without a stream, windows are 1 second long.

        Args:
            grid: width and origin of the windows.
        """
        placed = self.model_copy()
        placed._grid = grid
        return placed

    @property
    def window_range(self) -> WindowRange:
        """The windows of the stream, from the first to the last."""
        first = self._grid.window(parse_time(str(self.begin)))
        count = self.windows
        if self.tuples is not None:
            busy = (self.tuples - 1) // self.rate
            needed = busy + busy // self.lulls.after * self.lulls.windows + 1
            count = min(count or needed, needed)
        return WindowRange(first, first + (count or _WINDOWS) - 1)

    def batch(self, window_id: int, part: int) -> pa.RecordBatch:
        """Returns the tuples of a part of a window in the format in which they are recorded,
        including the poison.

        Args:
            window_id: the window.
            part: number of the part, from 0.

        Raises:
            InputError: `rows` returned other columns, or an arrival outside the window.
        """
        # A digest of a text separates the numbers, so that no two parts share random numbers.
        text = f"{self.seed} {part} {window_id}".encode()
        random = np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest(), "big"))
        batch = self.rows(
            window_id,
            part,
            random,
        )
        where = f"{type(self).__name__}, part {part} of window {window_id}"
        if batch.schema != self.columns:
            declared = str(self.columns).splitlines()
            raise InputError(
                f"{where}: columns must be {declared}, not {str(batch.schema).splitlines()}"
            )
        place = self.columns.get_field_index(self.arrival)
        arrivals = batch.column(place)
        arrived_us = arrivals.drop_null().cast(pa.int64()).to_numpy()
        offsets_us = arrived_us - self._grid.start_us(window_id)
        if np.any((offsets_us < 0) | (offsets_us >= self._grid.width_us)):
            raise InputError(
                f"{where}: a tuple has an arrival outside of the window",
                hint="Use the arrivals that `slots` returns.",
            )
        arrivals = pc.if_else(
            random.random(batch.num_rows) < self.poison,
            None,
            arrivals,
        )
        return batch.set_column(
            place,
            self.columns.field(place),
            arrivals,
        )

    def slots(self, window_id: int, part: int, random: np.random.Generator) -> Slots:
        """Returns numbers, arrivals and event times for the tuples in a part of a window.

        They are computed from `rate`, `disorder`, `lulls` and `clock_steps`.

        Args:
            window_id: the window.
            part: number of the part, from 0.
            random: the random numbers that `rows` received.
        """
        index = window_id - self.window_range.first
        before = self._before(index)
        count = self._before(index + 1) - before
        inside = np.arange(count * part // self.parts, count * (part + 1) // self.parts)
        # Each tuple has a separate slice of the window, so arrivals ascend from part to part.
        width_us = self._grid.width_us
        within_us = inside * width_us + random.integers(
            0,
            width_us,
            len(inside),
        )
        arrived_us = self._grid.start_us(window_id) + within_us // max(count, 1)
        event_us = arrived_us - random.integers(
            0,
            self.disorder + 1,
            len(inside),
        )
        if index // self.clock_steps.every % 2:
            event_us += self.clock_steps.by
        return Slots(
            before + inside,
            pa.array(arrived_us, TIME),
            pa.array(event_us, TIME),
        )

    def pick(
        self,
        count: int | np.ndarray,
        size: int,
        random: np.random.Generator,
    ) -> np.ndarray:
        """Returns `size` random keys from 0 to `count` - 1, picked with the generator's `skew`.

        Args:
            count: number of keys; an array has the number for each key that is picked.
            size: number of keys to pick.
            random: the random numbers that `rows` received.
        """
        # The inverse of a continuous Zipf distribution from 1/2 to count + 1/2 needs no table of
        # all keys. The formula does not apply to a skew of exactly 1, so a close value replaces it.
        power = 1 - self.skew or 1e-12
        high = np.expm1(power * np.log(2.0 * np.asarray(count) + 1))
        drawn = np.exp(np.log1p(random.random(size) * high) / power)
        return np.minimum(((drawn - 1) / 2).astype(np.int64), np.asarray(count) - 1)

    def _before(self, index: int) -> int:
        """Returns the number of tuples in the stream before the window with the given index."""
        index = min(max(index, 0), len(self.window_range))
        after = self.lulls.after
        cycles, rest = divmod(index, after + self.lulls.windows)
        count = (cycles * after + min(rest, after)) * self.rate
        return min(count, self.tuples or count)
