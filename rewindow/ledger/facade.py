"""The ledger: one object over one database, for everything that processes must agree on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewindow.ledger.attempts import Attempts
from rewindow.ledger.checks import Checks
from rewindow.ledger.leases import Leases
from rewindow.ledger.publications import Publications
from rewindow.ledger.staleness import Staleness
from rewindow.windows import WindowRange


class Ledger(Attempts, Leases, Checks, Publications, Staleness):
    """Replays, attempts, leases, checks, publications and stale ranges; safe for many processes at once.

    `Ledger.open(url)` returns it. Every method is one transaction: when it raises, nothing of it was written.
    """

    def take_over(self, replay_id: str, tables: Iterable[str], first: int, last: int) -> int:
        """Grants a replay its range, as `acquire` does, and gives out its next epoch, or does neither.

        Whoever launched the attempt before may enter its end at any moment, which ends the replay's leases: from the
        moment of the grant on it is a FencedError.

        Raises:
            OverlapError: another replay holds windows of the range; names it, its range and its state.
            InputError: the replay is unknown, or in a state in which nothing is left to run.
        """
        windows = WindowRange(first, last)
        with self.serialised() as connection:
            self._grant(connection, replay_id, tables, windows)
            return self._next_epoch(connection, replay_id)

    def fill_index(self, replay_id: str, root: Path) -> None:
        """Makes the index of a replay's window facts anew from its facts table if it has holes.

        Args:
            root: folder of the replay's tables; purged facts leave the index as it is.
        """
        from rewindow.ledger.facts_index import segments_of
        from rewindow.tables import Table
        from rewindow.tables.staging import FACTS

        facts = root / FACTS
        if self.index_is_whole(replay_id) or not Table.exists(facts):
            return
        parts = segments_of(facts)
        with self.serialised() as connection:
            self.replace_index(connection, replay_id, parts)
