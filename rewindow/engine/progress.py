"""Progress reports of committed groups, for listeners and for the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rewindow.engine.computation import Counts, GroupResult
from rewindow.ledger import PortCount
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class Progress:
    """A committed group, as reported to a listener."""

    first: int
    last: int
    mark: int
    of: int
    checkpoint: bool
    seconds: float
    tuples: Mapping[str, int] = field(default_factory=dict)


def output_tuples(result: GroupResult) -> dict[str, int]:
    """Returns the number of tuples in a group for each output."""
    return {name: digests.tuples for name, digests in result.digests.items()}


def port_counts(
    windows: WindowRange,
    counts: Counts,
    result: GroupResult,
    errors: Collection[str],
) -> list[PortCount]:
    """Returns the number of tuples in a group for each port, for the ledger.

    `errors` are the names of the error tables.
    """
    first = windows.first
    last = windows.last
    ports = [
        PortCount("in", name, first, last=last, tuples=count.tuples)
        for name, count in counts.items()
    ]
    for name, tuples in output_tuples(result).items():
        ports.append(
            PortCount("error" if name in errors else "out", name, first, last=last, tuples=tuples)
        )
    return ports + [
        PortCount("dropped", port, first, last=last, tuples=count.tuples)
        for port, count in result.dropped.items()
    ]
