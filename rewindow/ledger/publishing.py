"""Locks for publishers. A table has one publisher at a time, and a lock ends with its process.

The locks avoid conflicts between publishers. If one publishes without a lock nevertheless, the
transaction ids prevent damage (publications.py).
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
    """Locks all tables. Yields the first table that another process has locked, or None if all are
    locked here.

    The wait, at most `wait_s` seconds, is for all tables together. It is needed because a server
    notices the end of a killed publisher only after a moment.
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
    """Yields a separate session.

    The session locks of PostgreSQL end with the session, even after a crash.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.detach()
        yield connection
