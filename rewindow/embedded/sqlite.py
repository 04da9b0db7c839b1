"""Configures Airflow's SQLite database for several processes, so that writers wait for each other
instead of failing.

Airflow opens a savepoint, reads, then writes. In SQLite the read fixes the snapshot of the
transaction. If another process commits before the write, the write fails immediately with "database
is locked", regardless of the timeout. For example, creating a backfill next to a busy scheduler
failed. Acquiring the write lock before the savepoint makes it wait instead.

The API server writes its audit log in its event loop. If a request that has the write lock needs
that loop to commit, both wait forever: two simultaneous clicks froze Airflow until the timeout. So
a separate thread writes the log.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 60.0
_LOG_MODULE = "airflow.models.log"
_log_writer = ThreadPoolExecutor(1, thread_name_prefix="audit-log")
_LOCAL_SETTINGS = '''"""Airflow reads this at its start; written by `rewindow up`."""

from rewindow.embedded.sqlite import create_metadata_engine

__all__ = ["create_metadata_engine"]
'''


def write_local_settings(home: Path) -> None:
    """Writes `config/airflow_local_settings.py`, a hook with which Airflow creates its database
    engine with this module.
    """
    folder = home / "config"
    folder.mkdir(exist_ok=True, mode=0o700)
    (folder / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)


def create_metadata_engine(
    sql_alchemy_conn: str,
    *,
    engine_args: dict[str, Any],
    connect_args: dict[str, Any],
) -> Any:
    """Returns Airflow's SQLAlchemy engine, in which writers wait for each other.

    Entries of the audit log that come from an event loop are written by another thread. Airflow
    defines the signature of this function.
    """
    from sqlalchemy import create_engine, event
    from sqlalchemy.orm import Session

    connect_args = {"timeout": TIMEOUT_SECONDS, **connect_args}
    engine = create_engine(sql_alchemy_conn, connect_args=connect_args, **engine_args)
    event.listen(engine, "savepoint", _take_write_lock)
    event.listen(Session, "before_flush", _write_log_elsewhere)
    return engine


def _take_write_lock(connection: Any, name: str) -> None:
    raw = connection.connection.driver_connection
    if not raw.in_transaction:
        raw.execute("BEGIN IMMEDIATE")


def _write_log_elsewhere(session: Any, context: object, instances: object) -> None:
    """Removes the entries of the audit log from a session that is about to write in an event
    loop.
    """
    entries = [entry for entry in session.new if type(entry).__module__ == _LOG_MODULE]
    if entries and _is_in_event_loop():
        bind = session.get_bind()
        for entry in entries:
            session.expunge(entry)
        _log_writer.submit(_write_log, bind, entries)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _write_log(bind: Any, entries: list[Any]) -> None:
    from sqlalchemy.orm import Session

    try:
        with Session(bind) as session, session.begin():
            session.add_all(entries)
    except Exception:  # The request was already answered, so it is only logged.
        logging.getLogger(__name__).exception("an entry of the audit log was not written")
