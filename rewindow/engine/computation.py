"""What an attempt asks of the engine that computes its windows.

Spark is one (`spark_engine`). The simulation of the protocol brings another one, in memory, and so
runs the very takeover, loop and commits of the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rewindow.application import Application, OperatorContext
from rewindow.facts.window_facts import WindowFacts
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.state.files import OperatorState, States
from rewindow.storage import DataFile
from rewindow.tuple_engine.partition_rows import PartitionRows
from rewindow.windows import WindowRange

Counts = dict[str, WindowFacts]
"""Input to the tuples of its windows; windows without tuples may be left out."""
Digests = dict[str, WindowFacts]
"""Output name to the digests of its windows: a row for every window of the range that was asked
for."""
Seals = dict[str, WindowFacts]
"""Output name to its seals: digests, and the attempt whose rows they mean."""


@dataclass(frozen=True)
class PlannedAttempt:
    """The subject of one attempt of a replay.

    Attributes:
        root: folder of the replay's tables.
        epoch: the attempt's fencing number.
    """

    plan: Plan
    app: Application
    root: Location
    epoch: int


@dataclass
class GroupResult:
    """What a group computed, before any of it is committed.

    Attributes:
        folders: output name to the folder of its files.
        states: operator name to its state after the group's last window.
        dropped: output port that nothing reads to the tuples of its windows (O16); error ports are
            never dropped (O69).
        partitions: operator name to what its partitions got, and to the tuples that it emitted.
    """

    folders: dict[str, Location] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)
    states: dict[str, OperatorState] = field(default_factory=dict)
    dropped: Counts = field(default_factory=dict)
    partitions: dict[str, tuple[list[PartitionRows], int]] = field(default_factory=dict)


@dataclass
class SkipResult:
    """What an at-most-once skip makes of the states.

    Attributes:
        states: operator name to the state with which it goes on.
        dropped: operator name to the tuples, by window, that it dropped from its state.
    """

    states: dict[str, OperatorState] = field(default_factory=dict)
    dropped: Counts = field(default_factory=dict)


class Engine(Protocol):
    """Computes the windows of one attempt, and knows what earlier attempts have committed of
    them.
    """

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        """Counts the tuples of all inputs; with `check` they must be as many as were sealed (of R58
        the counts).
        """

    def compute(
        self,
        context: OperatorContext,
        mark: int,
        states: States,
        staged: Iterable[str],
        tuples: int,
    ) -> GroupResult:
        """Computes a group once. The files of `staged` outputs lie in their table's folder
        afterwards.
        """

    def files(self, output: str, result: GroupResult) -> Sequence[DataFile]:
        """Returns the files that a group's output consists of."""

    def compare_with_committed(
        self,
        windows: WindowRange,
        result: GroupResult,
        staged: Sequence[str],
    ) -> Seals:
        """Holds a group against what is committed of it; returns the seals of what was there before
        (R70).
        """

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        """Returns seals of a range, made from the rows that an output's table holds."""

    def skip(self, states: States, skipped: WindowRange) -> SkipResult:
        """Returns the states with which to go on after an at-most-once skip, and what they dropped
        (R14, X3).
        """

    def join_files(self) -> None:
        """Joins small files of the outputs when all groups are committed; no row is another one
        after it.
        """

    def clear_scratch(self) -> None:
        """Deletes scratch files; what is needed of them has been committed."""
