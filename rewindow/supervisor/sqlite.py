"""Airflow's SQLite database under several processes: writers wait for each other, and never find out too late.

Airflow opens a savepoint, reads, then writes. With SQLite the read fixes what the transaction sees; if another process
commits before the write, the write fails at once with "database is locked", however long the timeout. Creating a
backfill beside a busy scheduler failed so. Taking the write lock before the savepoint makes it wait instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 60.0
_LOCAL_SETTINGS = '''"""Airflow reads this at its start; written by `rewindow up`."""

from rewindow.supervisor.sqlite import create_metadata_engine

__all__ = ["create_metadata_engine"]
'''


def write_local_settings(home: Path) -> None:
    """Makes Airflow create its engine here; `config/airflow_local_settings.py` is Airflow's own place for that."""
    folder = home / "config"
    folder.mkdir(exist_ok=True, mode=0o700)
    (folder / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)


def create_metadata_engine(sql_alchemy_conn: str, *, engine_args: dict[str, Any], connect_args: dict[str, Any]) -> Any:
    """Returns Airflow's SQLAlchemy engine; its signature is Airflow's."""
    from sqlalchemy import create_engine, event

    connect_args = {"timeout": TIMEOUT_SECONDS, **connect_args}
    engine = create_engine(sql_alchemy_conn, connect_args=connect_args, **engine_args)
    event.listen(engine, "savepoint", _take_write_lock)
    return engine


def _take_write_lock(connection: Any, name: str) -> None:
    raw = connection.connection.driver_connection
    if not raw.in_transaction:
        raw.execute("BEGIN IMMEDIATE")
