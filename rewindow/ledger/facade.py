"""The ledger: one object over one database, for everything that processes must agree on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewindow.ledger.attempts import Attempts
from rewindow.ledger.checks import Checks
from rewindow.ledger.leases import Leases
from rewindow.ledger.publications import Publications
from rewindow.ledger.staleness import Staleness

if TYPE_CHECKING:
    from rewindow.config import Config
    from rewindow.ledger.rebuild import Rebuilt


class Ledger(Attempts, Leases, Checks, Publications, Staleness):
    """Replays, attempts, leases, checks, publications and stale ranges; safe for many processes at once.

    `Ledger.open(url)` returns it. Every method is one transaction: when it raises, nothing of it was written.
    """

    def reindex(self, replay_id: str) -> None:
        """Makes the index of a replay's window facts anew from its facts table.

        Raises:
            InputError: the replay is unknown.
            TableError: its facts are not there.
        """
        from rewindow.ledger.rebuild import segments_of
        from rewindow.tables.staging import FACTS

        parts = segments_of(Path(self.replay(replay_id).root) / FACTS)
        with self.serialised() as connection:
            self.replace_index(connection, replay_id, parts)

    @classmethod
    def rebuild(cls, config: Config) -> Rebuilt:
        """Makes a lost ledger again from the tables; see rewindow.ledger.rebuild for what comes back.

        Raises:
            InputError: the ledger has replays already.
        """
        from rewindow.ledger.rebuild import rebuild

        ledger = cls.open(config.ledger_url)
        try:
            return rebuild(ledger, config)
        finally:
            ledger.close()
