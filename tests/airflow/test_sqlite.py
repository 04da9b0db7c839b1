"""Airflow's SQLite database under several writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.embedded.sqlite import create_metadata_engine


def test_savepoint_in_the_airflow_database_waits_for_the_write_lock(tmp_path: Path) -> None:
    # A reader that writes later in its savepoint would otherwise fail at once when overtaken.
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError

    url = f"sqlite:///{tmp_path / 'a.db'}"
    engine = create_metadata_engine(url, engine_args={}, connect_args={})
    other = create_metadata_engine(url, engine_args={}, connect_args={"timeout": 0})
    with engine.begin() as connection:
        connection.execute(text("pragma journal_mode=wal"))
        connection.execute(text("create table t (n int)"))
    with engine.connect() as first, other.connect() as second:
        nested = first.begin_nested()
        assert first.execute(text("select count(*) from t")).scalar() == 0
        with pytest.raises(OperationalError, match="locked"):
            second.execute(text("insert into t values (2)"))
        first.execute(text("insert into t values (1)"))
        nested.commit()
        first.commit()
    engine.dispose()
    other.dispose()
