"""The staged tables of a replay. Each table is opened only once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.storage.delta import Table
from rewindow.storage.layout import CHECKPOINTS, FACTS


@dataclass(frozen=True)
class StagedReplay:
    """A replay's plan with its staged tables.

    Attributes:
        plan: its plan.
        root: folder of its tables.
        versions: table name to the version that is read. Tables without an entry are read at the
            version that is the newest when they are opened.
    """

    plan: Plan
    root: Location
    versions: Mapping[str, int] = field(default_factory=dict)
    _opened: dict[str, Table] = field(default_factory=dict, repr=False, compare=False)

    def table(self, name: str) -> Table:
        """Returns one of the staged tables.

        Raises:
            MissingTableError: the replay does not have the table, for example after a purge.
            TableError: the version does not exist, or the log is damaged.
        """
        if name not in self._opened:
            self._opened[name] = Table.open(self.root / name, self.versions.get(name))
        return self._opened[name]

    @property
    def facts(self) -> Table:
        """The table of window facts."""
        return self.table(FACTS)

    @property
    def checkpoints(self) -> Table:
        """The table of checkpoints."""
        return self.table(CHECKPOINTS)
