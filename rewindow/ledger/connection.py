"""Connects a ledger to its database: transactions for reads and writes, and error messages.

SQLite serialises every write by BEGIN IMMEDIATE. With a deferred transaction, two writers could
both check a condition before one of them inserts. On PostgreSQL, a serialised write locks one row,
the publication counter. It is always locked before any row of a replay, so that there are no
deadlocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self, TypeVar

import psutil
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    create_engine,
    event,
    literal_column,
    select,
)
from sqlalchemy import exc as failures

from rewindow.errors import InputError, LedgerError
from rewindow.ledger.models import counters
from rewindow.ledger.url import LedgerUrl

PUBLICATION_COUNTER = "publication"
Row = TypeVar("Row")
_WAIT_SECONDS = 30
_FULL_BYTES = 1 << 16
_OF_THE_MACHINE = (
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_PERM",
    "SQLITE_NOMEM",
)
_BEGIN = "rewindow_begin"
_POSTGRESQL_OPTIONS = (
    "-c search_path=rewindow -c synchronous_commit=on"
    f" -c lock_timeout={_WAIT_SECONDS}s"
    " -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
_CLOCK_US = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
}


def read_rows(
    connection: Connection,
    query: Executable,
    row_of: Callable[..., Row],
) -> list[Row]:
    """Returns the rows of a query as objects whose fields are the columns."""
    return [row_of(**row._mapping) for row in connection.execute(query)]


class Database:
    """Transactions and the database's clock, for all parts of the ledger.

    Attributes:
        now: SQL expression for the database's time.
        copy: folder of the copy that is read if the ledger's folder is read-only; otherwise None.
    """

    copy: Path | None = None

    def __init__(self, place: LedgerUrl, engine: Engine) -> None:
        self.place = place
        self.engine = engine
        weakref.finalize(self, _close_connections, engine, os.getpid()).atexit = False
        self.now: ColumnElement[Any] = literal_column(_CLOCK_US[engine.dialect.name], BigInteger)
        if place.file:
            self._reader = engine
            self._writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        else:
            self._reader = engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = engine.execution_options(isolation_level="READ COMMITTED")

    @classmethod
    def open(cls, url: str, *, make: bool = True) -> Self:
        """Returns the database at a SQLAlchemy URL.

        It is created on first use, and upgraded if it is older.

        Args:
            url: of the database.
            make: if False, nothing is written, and a ledger that does not exist or is older is an
                error.

        Raises:
            InputError: the URL is not one of SQLite or PostgreSQL, contains settings that the
                server does not support or allow, or a newer Rewindow has upgraded this ledger.
            LedgerError: the database does not answer.
        """
        from rewindow.ledger.upgrade import check_current, make_current

        place = LedgerUrl.parse(url)
        if not make and place.file and not place.file.is_file():
            raise InputError(
                f'ledger "{place.name}" does not exist',
                hint="The first command that plans a replay creates it.",
            )
        copy = None
        if place.is_read_only():
            copy = Path(mkdtemp(prefix="rewindow-ledger-"))
            place = place.copied(copy)
        engine = create_ledger_engine(place)
        try:
            with answering(place):
                if make:
                    place.create()
                    make_current(place, engine)
                else:
                    check_current(place, engine)
        except failures.ProgrammingError as error:
            detail = place.without_password(" ".join(str(error.orig).split()))
            hint = "Check the URL's settings; the user must be allowed to create a schema, once."
            raise InputError(
                f'ledger "{place.name}" is not configured correctly',
                detail=f"{detail}.",
                hint=hint,
            ) from None
        database = cls(place, engine)
        if copy is not None:
            database.copy = copy
            weakref.finalize(database, shutil.rmtree, copy, ignore_errors=True)
        return database

    def close(self) -> None:
        """Closes all connections. The ledger opens new ones if it is used again."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a transaction for reads. All reads in it see the same state of the ledger."""
        with answering(self.place), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields a transaction for writes.

        Either all of them take effect or none.

        Raises:
            LedgerError: its folder is read-only.
        """
        if self.copy is not None:
            raise LedgerError(
                f'ledger "{self.place.name}" cannot be written to: its folder is read-only',
                detail="Nothing was changed. Commands that only read the ledger still work.",
                hint="Make the state folder writable, or run the command where it is writable.",
            )
        with answering(self.place), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def serialised(self) -> Iterator[Connection]:
        """Yields a transaction for writes that excludes all other serialised writes.

        So what the transaction has read does not change before it writes.
        """
        with self.writing() as connection:
            if not self.place.file:
                one_row = select(counters.c.value).where(counters.c.name == PUBLICATION_COUNTER)
                connection.execute(one_row.with_for_update()).one()
            yield connection


class LedgerPart:
    """Base class for the parts of the ledger. It provides the transactions of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reading = database.reading
        self.writing = database.writing
        self.serialised = database.serialised

    @property
    def now(self) -> ColumnElement[Any]:
        """The SQL expression for the database's time."""
        return self._database.now


def _close_connections(engine: Engine, opened_by: int) -> None:
    """Closes the connections of a ledger.

    A forked process does not close the connections of its parent.
    """
    engine.dispose(close=os.getpid() == opened_by)


def create_ledger_engine(place: LedgerUrl) -> Engine:
    """Returns an engine with the ledger's settings: full durability, foreign keys, and limited
    waits for locks.

    Raises:
        InputError: the driver for PostgreSQL is not installed.
    """
    if not place.file:
        theirs = place.url.query.get("options", "")
        options = (
            f"{_POSTGRESQL_OPTIONS} {theirs if isinstance(theirs, str) else ' '.join(theirs)}"
        ).strip()
        settings = {"options": options, "connect_timeout": 10}
        try:
            return create_engine(place.url, pool_pre_ping=True, connect_args=settings)
        except ImportError as error:
            hint = 'Install it: pip install "psycopg[binary]".'
            raise InputError(
                f"the driver for PostgreSQL is not installed: {error}",
                hint=hint,
            ) from error
    engine = create_engine(place.url, connect_args={"timeout": _WAIT_SECONDS})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, record: object) -> None:
    # Otherwise Python itself would begin transactions, as deferred ones.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # Entries must survive a power failure.


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


@contextmanager
def answering(place: LedgerUrl) -> Iterator[None]:
    """Turns failures of the database into LedgerError. Errors in the SQL itself are not changed,
    because they are bugs.

    The original error is not chained, because its text may contain the connection's settings.
    """
    try:
        yield
    except (
        failures.OperationalError,
        failures.InterfaceError,
        failures.InternalError,
        failures.TimeoutError,
        sqlite3.Error,
    ) as error:
        raise _no_answer(place, error) from None
    except failures.DatabaseError as error:
        if type(error) is not failures.DatabaseError:
            raise
        raise _no_answer(place, error) from None
    except (ValueError, OverflowError) as error:
        # The bytes of a SQLite file were changed: text that is not UTF-8 (also within an error),
        # truncated JSON, an unknown state, a time out of range.
        if not place.file:
            raise
        raise _no_answer(place, error) from error
    except OSError as error:
        if (
            not place.file
            or error.filename is None
            or not str(error.filename).startswith(str(place.file.parent))
        ):
            raise
        raise _no_answer(place, error) from None


def _no_answer(place: LedgerUrl, error: Exception) -> LedgerError:
    cause = getattr(error, "orig", None) or error
    text = place.without_password(" ".join(str(cause).split()))
    why = "does not answer"
    hint = "Start the database, or set another ledger URL in rewindow.toml or REWINDOW_LEDGER."
    code = getattr(cause, "sqlite_errorname", "")
    if place.file and code.startswith("SQLITE_BUSY"):
        text = f"{text.rstrip('.')}; {_who_has(place.file)}"
        hint = (
            "If one of these processes hangs or is stopped, continue or end it, and try again. "
            "The ledger is undamaged."
        )
    elif place.file and _is_of_the_machine(cause, code):
        if _is_full(place.file, cause, code):
            why = "cannot be written to: the disk is full"
        hint = (
            f"The ledger is undamaged, do not move it. Free space on the disk of "
            f"{place.file.parent}, or make that folder writable, and run the same command again."
        )
    elif place.file:
        why = "is damaged"
        hint = (
            "Restore it from a backup. Without a backup: move it away; `rewindow ledger rebuild` "
            "creates a new one from the tables, without gate results and acceptances."
        )
    return LedgerError(
        f'ledger "{place.name}" {why}',
        detail=text.rstrip(".") + ".",
        hint=hint,
    )


def _is_of_the_machine(cause: Exception, code: str) -> bool:
    """Returns whether SQLite could not read or write its file because of the machine.

    The file itself may be undamaged.
    """
    return isinstance(cause, OSError) or (
        code.startswith(_OF_THE_MACHINE) and code != "SQLITE_IOERR_SHORT_READ"
    )


def _is_full(file: Path, cause: Exception, code: str) -> bool:
    # SQLite reports a full disk as an I/O error when it maps the file's index into memory.
    if code == "SQLITE_FULL" or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    return code.startswith("SQLITE_IOERR") and shutil.disk_usage(file.parent).free < _FULL_BYTES


def _who_has(file: Path) -> str:
    """Returns a text with the other processes of this host that have a file open.

    If some of these are stopped, it lists only those.
    """
    # A stopped process keeps the lock until it continues, so only it is named.
    states = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(
                entry.path == str(file) for entry in process.open_files()
            ):
                states[process.pid] = process.status()
    stopped = {pid: state for pid, state in states.items() if state == psutil.STATUS_STOPPED}
    named = [f"{pid} ({state})" for pid, state in sorted((stopped or states).items())]
    return (
        f"open in process {', '.join(named)}" if named else "no other visible process has it open"
    )
