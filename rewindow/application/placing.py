"""How the tuples of a tuple operator are divided between Spark tasks.

No result depends on it, and no stored value refers to the number of a partition.

Rules: O101, O102, X55
"""

from __future__ import annotations

from dataclasses import dataclass

PLACING_ATTRIBUTES = ("partitions", "spread")
"""Attributes that may change while a replay runs."""


@dataclass(frozen=True)
class Placing:
    """How the tuples of an operator are divided between tasks.

    Attributes:
        partitions: number of partitions of the keys; None: Spark chooses the number.
        partitioner: an SQL expression over the key columns that returns the partition of a key, or
            "apex" for `(hash & mask) % partitions`; None: the hash of the key.
        spread: number of instances of an operator without a key, which receive its tuples round
            robin; None: one instance.

    Rules: O86, O88
    """

    partitions: int | None = None
    partitioner: str | None = None
    spread: int | None = None


AS_SPARK = Placing()
"""The default: nothing is declared."""


def mask_of(partitions: int) -> int:
    """Returns the bit mask that Apex uses for a number of partitions: the next power of two, minus
    1.

    Rules: O88

    >>> mask_of(1), mask_of(3), mask_of(4), mask_of(5)
    (0, 3, 3, 7)
    """
    return (1 << (partitions - 1).bit_length()) - 1
