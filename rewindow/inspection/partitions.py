"""Shows how evenly the tuples of a replay were divided between the partitions of its operators.

Rules: O83
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rewindow.ledger import Ledger
from rewindow.ledger.attempts import GroupTiming
from rewindow.ledger.replays import Replay

_GROUPS_MAX = 1_000_000


@dataclass(frozen=True)
class OperatorPartitions:
    """The partitions of a tuple operator in all commit groups of a replay.

    Attributes:
        partitions: number of partitions that ran.
        rows: number of tuples in all partitions.
        largest: share of the tuples that are in the largest partition, from 0 to 1.
        seconds: duration of all partitions, added up.
        largest_seconds: duration of the largest partition.
        advice: a recommendation for the user; empty if nothing is wrong.
    """

    operator: str
    partitions: int
    rows: int
    largest: float
    seconds: float
    largest_seconds: float
    advice: str


def operator_partitions(timings: Iterable[GroupTiming]) -> list[OperatorPartitions]:
    """Returns the partitions of each tuple operator, with counts added up over all commit
    groups.
    """
    rows: dict[str, Counter[int]] = {}
    seconds: dict[str, Counter[int]] = {}
    emitted = Counter[str]()
    for timing in timings:
        for operator, (partitions, tuples) in timing.partitions.items():
            emitted[operator] += tuples
            for number, count, took in partitions:
                rows.setdefault(operator, Counter())[number] += count
                seconds.setdefault(operator, Counter())[number] += took  # type: ignore[assignment]
    found = []
    for operator, of_partition in sorted(rows.items()):
        number, most = max(of_partition.items(), key=lambda item: item[1])
        total = sum(of_partition.values())
        # A unifier sees all partial results. If it emits more than a partition gets, the operators
        # after it have most of the work.
        is_unifier = operator.endswith(".unifier")
        advice = ""
        if is_unifier and emitted[operator] > total / len(of_partition):
            advice = (
                f"{operator} emits {emitted[operator]:,} tuples, more than one of its partitions "
                "receives: divide the downstream operators into partitions, too"
            )
        found.append(
            OperatorPartitions(
                operator,
                len(of_partition),
                rows=total,
                largest=most / total if total else 0.0,
                seconds=round(sum(seconds[operator].values()), 3),
                largest_seconds=round(seconds[operator][number], 3),
                advice=advice,
            )
        )
    return found


def partitions_of(ledger: Ledger, row: Replay) -> list[OperatorPartitions]:
    """Returns the partitions of tuple operators in a replay and its containers."""
    timings = []
    for one in ledger.replays.containers(row.replay_id) or [row]:
        timings += ledger.attempts.timings(one.replay_id, limit=_GROUPS_MAX)
    return operator_partitions(timings)
