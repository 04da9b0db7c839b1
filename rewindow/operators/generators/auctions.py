"""The generator `auctions`: persons, their auctions, and bids."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from rewindow.operators.generators.generator import TIME, Generator

_GROUP = 50
_AUCTIONS = 3
"""Of each 50 tuples, the first is a person, the next three are auctions, and 46 are bids."""
_KINDS = pa.array(["person", "auction", "bid"])
_LONGEST_US = 3_600_000_000


class Auctions(Generator):
    """Persons, their auctions, and bids, in the proportions 1 : 3 : 46 of the Nexmark benchmark.

    A seller arrives before its auction, and an auction before its bids. Columns that do not apply
    to a kind of tuple are null. Prices are in cents. With a skew, most bids are for the newest
    auctions.

    Attributes:
        open_auctions: number of auctions, counted back from the newest one, that get bids.
    """

    columns: ClassVar = pa.schema(
        [
            ("arrived_at", TIME),
            ("event_at", TIME),
            ("kind", pa.string()),
            ("person", pa.int64()),
            ("auction", pa.int64()),
            ("closes_at", TIME),
            ("price", pa.int64()),
        ]
    )
    open_auctions: int = Field(default=100, ge=1)

    def rows(self, window_id: int, part: int, random: np.random.Generator) -> pa.RecordBatch:
        """Returns the persons, auctions and bids for a part of a window."""
        slots = self.slots(
            window_id,
            part,
            random,
        )
        size = len(slots.numbers)
        group, place = np.divmod(slots.numbers, _GROUP)
        is_person, is_bid = place == 0, place > _AUCTIONS
        is_auction = ~is_person & ~is_bid
        # The group of a tuple starts with a person, so persons 0 to `group` exist.
        chosen = random.integers(
            0,
            group + 1,
            size,
        )
        persons = np.where(
            is_person,
            group,
            chosen,
        )
        newest = (group + 1) * _AUCTIONS - 1
        back = self.pick(
            np.minimum(newest + 1, self.open_auctions),
            size,
            random,
        )
        auctions = np.where(
            is_bid,
            newest - back,
            group * _AUCTIONS + place - 1,
        )
        prices = random.integers(
            100,
            1_000_000,
            size,
        )
        event_us = slots.event_at.cast(pa.int64()).to_numpy()
        closes_us = event_us + random.integers(
            1_000_000,
            _LONGEST_US,
            size,
        )
        return pa.record_batch(
            [
                slots.arrived_at,
                slots.event_at,
                _KINDS.take(pa.array(1 - is_person + is_bid)),
                pa.array(persons),
                pa.array(auctions, mask=is_person),
                pa.array(
                    closes_us,
                    TIME,
                    mask=~is_auction,
                ),
                pa.array(prices, mask=is_person),
            ],
            schema=self.columns,
        )
