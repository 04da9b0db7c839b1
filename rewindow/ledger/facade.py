"""The ledger combines its parts over one database."""

from __future__ import annotations

from collections.abc import Iterable

from rewindow.ledger.attempts import Attempts
from rewindow.ledger.checks import Checks
from rewindow.ledger.connection import Database
from rewindow.ledger.leases import Leases
from rewindow.ledger.notices import Notices
from rewindow.ledger.outbox import Outbox
from rewindow.ledger.publications import Publications
from rewindow.ledger.replays import Replays, ReplayState
from rewindow.ledger.segments import CountsIndex
from rewindow.ledger.staleness import Staleness
from rewindow.windows import WindowRange


class Ledger:
    """All records that processes share. It is safe for concurrent use.

    Every method of a part is one transaction: if it raises an error, nothing was written.

    Attributes:
        replays: the planned replays and their states.
        attempts: epochs, attempts and their progress.
        counts: windows and tuples of each port, an index of the facts.
        leases: locks on windows of tables, which replays take.
        checks: gate results and acceptances.
        publications: publications, undos and withdrawals.
        outbox: publications whose asset events are not emitted yet.
        stale: published windows that were computed from a state that has changed since.
        notices: what notifiers have sent about conditions.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.replays = Replays(database)
        self.counts = CountsIndex(database)
        self.attempts = Attempts(database, self.replays, self.counts)
        self.leases = Leases(database)
        self.checks = Checks(database, self.replays)
        self.publications = Publications(database)
        self.outbox = Outbox(database)
        self.stale = Staleness(database)
        self.notices = Notices(database)

    @classmethod
    def open(cls, url: str, *, make: bool = True) -> Ledger:
        """Returns the ledger at a URL, see Database.open."""
        return cls(Database.open(url, make=make))

    def close(self) -> None:
        """Closes all connections. The ledger opens new ones if it is used again."""
        self.database.close()

    def run_container(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> None:
        """Leases the range of a replay and marks the replay as running while one of its containers
        runs.

        Raises: see take_over.
        """
        windows = WindowRange(first, last)
        with self.database.serialised() as connection:
            self.leases.grant(connection, replay_id, tables, windows=windows)
            self.replays.move(connection, replay_id, ReplayState.RUNNING)

    def take_over(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> int:
        """Leases the range of a replay, as `leases.acquire` does, and returns its next epoch, in
        one transaction.

        The launcher of the previous attempt may record the end of that attempt at any moment, which
        would end the replay's leases. After this transaction, that launcher gets a FencedError
        instead.

        Raises:
            OverlapError: another replay has leased windows of the range; the error names it, its
                range and its state.
            InputError: the replay is unknown, or in a state in which no attempt can start.
        """
        windows = WindowRange(first, last)
        with self.database.serialised() as connection:
            self.leases.grant(connection, replay_id, tables, windows=windows)
            return self.attempts.give_epoch(connection, replay_id)
