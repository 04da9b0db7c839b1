"""Locks of publishers: one table has one publisher at a time, and a lock ends with the process that
holds it.

A lock keeps publishers from meeting; that a late one does no harm is the transaction id's work
(publications.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

from sqlalchemy import Connection, Engine, text

from rewindow.ledger.url import LedgerUrl
from rewindow.processes.file_lock import file_lock

_POLL_SECONDS = 0.05
_TRY = text("SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/' || :name, 0))")


@contextmanager
def publisher_locks(
    place: LedgerUrl,
    engine: Engine,
    tables: Iterable[str],
    wait_s: float,
) -> Iterator[str | None]:
    """Holds the locks of all tables; gives the first table that somebody else publishes, None when
    all are held.

    The wait is for all tables together: a server notices the end of a killed publisher a moment
    later.
    """
    give_up_at = time.monotonic() + wait_s
    with ExitStack() as held:
        session = None if place.file else held.enter_context(_own_session(engine))
        for name in sorted(set(tables)):
            while not _try(place, session, name, held=held):
                if time.monotonic() >= give_up_at:
                    yield name
                    return
                time.sleep(_POLL_SECONDS)
        yield None


def _try(place: LedgerUrl, session: Connection | None, name: str, held: ExitStack) -> bool:
    if session is not None:
        return bool(session.execute(_TRY, {"name": name}).scalar_one())
    return held.enter_context(
        file_lock(place.lock_file(f"publish-{quote(name, safe='')}"), wait=False)
    )


@contextmanager
def _own_session(engine: Engine) -> Iterator[Connection]:
    """Gives a session of its own: PostgreSQL's session locks end with it, whichever way that
    happens.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.detach()
        yield connection
