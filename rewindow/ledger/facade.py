"""The ledger: its parts over one database, for everything that processes must agree on."""

from __future__ import annotations

from collections.abc import Iterable

from rewindow.ledger.attempts import Attempts
from rewindow.ledger.checks import Checks
from rewindow.ledger.connection import Database
from rewindow.ledger.leases import Leases
from rewindow.ledger.publications import Publications
from rewindow.ledger.replays import Replays, ReplayState
from rewindow.ledger.segments import CountsIndex
from rewindow.ledger.staleness import Staleness
from rewindow.windows import WindowRange


class Ledger:
    """Safe for many processes at once; every method of a part is one transaction: when it raises,
    nothing was written.

    Attributes:
        replays: what was planned, and the state that each is in.
        attempts: epochs, attempts and their progress.
        counts: windows and tuples of each port, an index of the facts.
        leases: who may work on which windows of which tables.
        checks: gate results and acceptances.
        publications: acts that made windows visible, and took them back.
        stale: windows published from a state that has since changed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.replays = Replays(database)
        self.counts = CountsIndex(database)
        self.attempts = Attempts(database, self.replays, self.counts)
        self.leases = Leases(database)
        self.checks = Checks(database, self.replays)
        self.publications = Publications(database)
        self.stale = Staleness(database)

    @classmethod
    def open(cls, url: str, *, make: bool = True) -> Ledger:
        """Returns the ledger at a URL, see Database.open."""
        return cls(Database.open(url, make=make))

    def close(self) -> None:
        """Closes all connections; the ledger can be used again and then opens new ones."""
        self.database.close()

    def run_container(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> None:
        """Leases the range of a replay and marks it as running, while one of its containers runs.

        Raises: see take_over.
        """
        windows = WindowRange(first, last)
        with self.database.serialised() as connection:
            self.leases.grant(connection, replay_id, tables, windows=windows)
            self.replays.move(connection, replay_id, ReplayState.RUNNING)

    def take_over(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> int:
        """Grants a replay its range, as `leases.acquire` does, and gives out its next epoch, or
        does neither.

        Whoever launched the attempt before may enter its end at any moment, which ends the replay's
        leases: from the moment of the grant on it is a FencedError.

        Raises:
            OverlapError: another replay holds windows of the range; names it, its range and its
                state.
            InputError: the replay is unknown, or in a state in which nothing is left to run.
        """
        windows = WindowRange(first, last)
        with self.database.serialised() as connection:
            self.leases.grant(connection, replay_id, tables, windows=windows)
            return self.attempts.give_epoch(connection, replay_id)
