"""The interface between an attempt and the engine that computes its windows.

`spark_engine` implements it with Spark. The protocol simulation implements it in memory, and thus
runs the takeover, loop and commits of the product itself.
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
"""Input name to the tuples of its windows; windows without tuples may be left out."""
Digests = dict[str, WindowFacts]
"""Output name to the digests of its windows, with a row for every window of the requested range."""
Seals = dict[str, WindowFacts]
"""Output name to its seals: digests, and the attempt whose rows they refer to."""


@dataclass(frozen=True)
class PlannedAttempt:
    """The plan, tables and settings of one attempt of a replay.

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
    """The results of a group before its commit.

    Attributes:
        folders: output name to the folder of its files.
        digests: output name to the digests of its windows.
        states: operator name to its state after the group's last window.
        dropped: name of an output port that nothing reads to the tuples of its windows; error ports
            are never dropped.
        partitions: operator name to the tuples of its partitions, and the number of tuples that it
            emitted.

    Rules: O16, O69
    """

    folders: dict[str, Location] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)
    states: dict[str, OperatorState] = field(default_factory=dict)
    dropped: Counts = field(default_factory=dict)
    partitions: dict[str, tuple[list[PartitionRows], int]] = field(default_factory=dict)


@dataclass
class SkipResult:
    """The states after an at-most-once skip.

    Attributes:
        states: operator name to its state for the next window.
        dropped: operator name to the tuples, by window, that it dropped from its state.
    """

    states: dict[str, OperatorState] = field(default_factory=dict)
    dropped: Counts = field(default_factory=dict)


class Engine(Protocol):
    """Computes the windows of one attempt, and compares them with windows that earlier attempts
    have committed.
    """

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        """Returns the number of tuples of all inputs.

        With `check`, raises an error if the counts differ from the sealed ones.

        Rules: R58 (only the counts)
        """

    def compute(
        self,
        context: OperatorContext,
        mark: int,
        states: States,
        staged: Iterable[str],
        tuples: int,
    ) -> GroupResult:
        """Computes a group once.

        Afterwards, the files of `staged` outputs are in the folder of their table.
        """

    def files(self, output: str, result: GroupResult) -> Sequence[DataFile]:
        """Returns the files of a group's output."""

    def compare_with_committed(
        self,
        windows: WindowRange,
        result: GroupResult,
        staged: Sequence[str],
    ) -> Seals:
        """Compares a group with its committed windows, and returns the seals that were committed
        before.

        Rules: R70
        """

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        """Computes the seals of a range from the rows in an output's table."""

    def skip(self, states: States, skipped: WindowRange) -> SkipResult:
        """Returns the states for the window after an at-most-once skip, and the tuples that were
        dropped from these states.

        Rules: R14, X3
        """

    def join_files(self) -> None:
        """Joins small files of the outputs after all groups are committed. The rows do
        not change.
        """

    def clear_scratch(self) -> None:
        """Deletes scratch files whose content is committed or no longer needed."""
