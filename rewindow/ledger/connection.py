"""Connection of a ledger to its database: reads, writes, serialised writes, and failures in words.

SQLite serialises every write by BEGIN IMMEDIATE (a deferred transaction that checks first and
inserts later lets two writers pass the same check). On PostgreSQL a serialised write locks one row,
the publication counter; it is always taken before any row of a replay, so that no two writes wait
for each other in a circle.
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
    """Returns the rows of a query as objects that have its columns as fields."""
    return [row_of(**row._mapping) for row in connection.execute(query)]


class Database:
    """What every part of the ledger stands on: transactions and the database's clock.

    Attributes:
        now: SQL expression for the database's time.
        copy: folder of the copy that is read instead of a file that cannot be written to, None as a
            rule.
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
        """Returns the database at an SQLAlchemy URL; made on first use, brought up to date when it
        is older.

        Args:
            url: of the database.
            make: without it, a ledger that is not there or is older is refused, and nothing is
                written.

        Raises:
            InputError: the URL is not one of SQLite or PostgreSQL or asks for what the server does
                not know or allow, or a newer Rewindow has upgraded this ledger.
            LedgerError: the database does not answer.
        """
        from rewindow.ledger.upgrade import check_current, make_current

        place = LedgerUrl.parse(url)
        if not make and place.file and not place.file.is_file():
            raise InputError(
                f'ledger "{place.name}" is not there',
                hint="The first command that plans a replay makes it.",
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
            hint = "Look at the URL's settings; the user must be allowed to create a schema, once."
            raise InputError(
                f'ledger "{place.name}" is set up wrongly',
                detail=f"{detail}.",
                hint=hint,
            ) from None
        database = cls(place, engine)
        if copy is not None:
            database.copy = copy
            weakref.finalize(database, shutil.rmtree, copy, ignore_errors=True)
        return database

    def close(self) -> None:
        """Closes all connections; the ledger can be used again and then opens new ones."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Gives a transaction that sees one state of the ledger."""
        with answering(self.place), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Gives a transaction for writes; all of them are kept, or none.

        Raises:
            LedgerError: its folder cannot be written to.
        """
        if self.copy is not None:
            raise LedgerError(
                f'ledger "{self.place.name}" cannot be written to: its folder is read-only',
                detail="Nothing was changed. What reading can answer is answered.",
                hint="Make the state folder writable, or run this where it is.",
            )
        with answering(self.place), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def serialised(self) -> Iterator[Connection]:
        """Gives a transaction for writes that runs alone: what it read still holds when it
        writes.
        """
        with self.writing() as connection:
            if not self.place.file:
                one_row = select(counters.c.value).where(counters.c.name == PUBLICATION_COUNTER)
                connection.execute(one_row.with_for_update()).one()
            yield connection


class LedgerPart:
    """A part of the ledger: its transactions are those of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reading = database.reading
        self.writing = database.writing
        self.serialised = database.serialised

    @property
    def now(self) -> ColumnElement[Any]:
        """SQL expression for the database's time."""
        return self._database.now


def _close_connections(engine: Engine, opened_by: int) -> None:
    """Closes connections with their ledger; a forked process leaves those of its parent alone."""
    engine.dispose(close=os.getpid() == opened_by)


def create_ledger_engine(place: LedgerUrl) -> Engine:
    """Returns an engine with our settings: full durability, foreign keys, bounded waits for locks.

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
    connection.isolation_level = (
        None  # Python would begin transactions by itself, and deferred ones.
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # What was begun must outlive a power cut.


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


@contextmanager
def answering(place: LedgerUrl) -> Iterator[None]:
    """Turns failures of the database into LedgerError; wrong SQL stays a bug.

    The failure itself is not chained: drivers may put the connection's settings into its text.
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
        # Bytes of a SQLite file that were changed: text that is not UTF-8 (also in the text of an
        # error), JSON that is cut, an unknown state, a time out of range.
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
            "If a process of it hangs or is stopped, let it go on or end it, and try again. "
            "The ledger is whole."
        )
    elif place.file and _is_of_the_machine(cause, code):
        if _is_full(place.file, cause, code):
            why = "cannot be written to: the disk is full"
        hint = (
            f"The ledger is whole, leave it where it is. Make room on the disk of "
            f"{place.file.parent}, or make that folder writable, and run the same command again."
        )
    elif place.file:
        why = "is damaged"
        hint = (
            "Put a copy of it back. Without one: move it away; `rewindow ledger rebuild` makes a "
            "new one from the tables, without gate results and acceptances."
        )
    return LedgerError(
        f'ledger "{place.name}" {why}',
        detail=text.rstrip(".") + ".",
        hint=hint,
    )


def _is_of_the_machine(cause: Exception, code: str) -> bool:
    """Returns whether SQLite could not read or write its file, which may be as it was written."""
    return isinstance(cause, OSError) or (
        code.startswith(_OF_THE_MACHINE) and code != "SQLITE_IOERR_SHORT_READ"
    )


def _is_full(file: Path, cause: Exception, code: str) -> bool:
    # SQLite reports a full disk as an input or output error where it maps the file's index.
    if code == "SQLITE_FULL" or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    return code.startswith("SQLITE_IOERR") and shutil.disk_usage(file.parent).free < _FULL_BYTES


def _who_has(file: Path) -> str:
    """Returns which other processes of this host have a file open; those that are stopped, when
    there are any.
    """
    # A stopped process holds the lock for as long as it is stopped, so it is named alone.
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(
                entry.path == str(file) for entry in process.open_files()
            ):
                found[process.pid] = process.status()
    stopped = {pid: state for pid, state in found.items() if state == psutil.STATUS_STOPPED}
    named = [f"{pid} ({state})" for pid, state in sorted((stopped or found).items())]
    return (
        f"open in process {', '.join(named)}"
        if named
        else "no other process that we may see has it open"
    )
