"""Upgrades a ledger's tables to the version that this Rewindow uses.

Several processes can try it at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from rewindow.errors import InputError
from rewindow.ledger.models import VERSION
from rewindow.ledger.url import LedgerUrl
from rewindow.processes.file_lock import file_lock

if TYPE_CHECKING:
    from alembic.config import Config

_ADVISORY_KEY = 0x5265_7769_6E64_6F77
"""Key of PostgreSQL's advisory lock during an upgrade."""


def make_current(place: LedgerUrl, engine: Engine) -> None:
    """Upgrades a ledger that is not at VERSION.

    If the ledger is at VERSION, this needs only two small reads and does not import Alembic.

    Raises:
        InputError: a newer Rewindow has upgraded it, or no migration starts from its version.
    """
    with engine.begin() as connection:
        if _version(connection) == VERSION:
            return
    with _alone(place, engine) as connection:
        _refuse_unknown(place, _version(connection))
        _migrate(connection)


def check_current(place: LedgerUrl, engine: Engine) -> None:
    """Checks that a ledger is at VERSION.

    Changes nothing.

    Raises:
        InputError: it is older or newer, or has no tables yet.
    """
    with engine.begin() as connection:
        version = _version(connection)
    if version != VERSION:
        _refuse_unknown(place, version)
        raise InputError(
            f'ledger "{place.name}" is at version {version or "none"}, '
            f"but this version of Rewindow needs {VERSION}",
            hint="Any command that writes, such as rewindow list, upgrades an older one.",
        )


def _refuse_unknown(place: LedgerUrl, found: str | None) -> None:
    """Raises an error for a version that no migration of this Rewindow can upgrade.

    A new ledger has no version.
    """
    if found is None:
        return
    if found > VERSION:
        raise InputError(
            f'ledger "{place.name}" is at version {found}, this Rewindow supports up to {VERSION}',
            hint="Use the newer Rewindow that upgraded it.",
        )
    from alembic.script import ScriptDirectory

    known = {
        script.revision for script in ScriptDirectory.from_config(_settings()).walk_revisions()
    }
    if found not in known:
        raise InputError(
            f'ledger "{place.name}" is at version {found}, which this Rewindow cannot upgrade',
            detail=f"It upgrades ledgers from version {min(known)} on. Nothing was changed.",
            hint="Move the ledger away, or set another ledger URL, and restore it from the tables: "
            "rewindow ledger rebuild",
        )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.execute(
        text("SELECT version_num FROM alembic_version")
    ).scalar_one_or_none()
    return None if version is None else str(version)


@contextmanager
def _alone(place: LedgerUrl, engine: Engine) -> Iterator[Connection]:
    if place.file:
        immediate = engine.execution_options(rewindow_begin="BEGIN IMMEDIATE")
        with file_lock(place.lock_file("open")), immediate.begin() as connection:
            yield connection
        return
    with engine.connect() as connection:
        connection.detach()  # The lock is the session's and ends with it.
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _ADVISORY_KEY})
        # Only a new transaction sees the schema that another process has just created.
        connection.commit()
        with connection.begin():
            _create_schema(connection)
            yield connection


def _create_schema(connection: Connection) -> None:
    """Creates the first schema of the search path, so that the ledger's tables are separate from
    others.
    """
    if connection.execute(text("SELECT current_schema()")).scalar_one() is None:
        path = str(connection.execute(text("SHOW search_path")).scalar_one())
        name = path.split(",")[0].strip().strip('"')
        connection.exec_driver_sql(
            f"CREATE SCHEMA {connection.dialect.identifier_preparer.quote(name)}"
        )


def _migrate(connection: Connection) -> None:
    from alembic import command

    config = _settings()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _settings() -> Config:
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
