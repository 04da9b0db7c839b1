"""The location of a ledger: its URL without secrets, its file, and the lock files next to the
file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from rewindow.errors import InputError, LedgerError
from rewindow.processes.file_lock import file_lock

_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}


@dataclass(frozen=True)
class LedgerUrl:
    """The location of a ledger.

    Attributes:
        name: for messages; without user, password and query.
        file: the SQLite file; None for a server.
    """

    url: URL
    name: str
    file: Path | None

    @classmethod
    def parse(cls, text: str) -> LedgerUrl:
        """Returns the location from a URL.

        Raises:
            InputError: the URL cannot be read, or is neither SQLite's nor PostgreSQL's.
        """
        hint = "Write sqlite:////folder/ledger.sqlite or postgresql://user:password@host/database."
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise InputError("ledger URL cannot be read", hint=hint) from None
        backend = url.get_backend_name()
        if backend not in _DRIVERS or (
            backend == "sqlite" and url.database in (None, "", ":memory:")
        ):
            raise InputError(
                f'a ledger URL of kind "{backend}" cannot be shared by two processes',
                hint=hint,
            )
        url = url.set(drivername=_DRIVERS[backend])
        if backend == "sqlite":
            file = Path(str(url.database)).absolute()
            return cls(url.set(database=str(file)), str(file), file)
        port = f":{url.port}" if url.port else ""
        return cls(url, f"{backend}://{url.host or ''}{port}/{url.database or ''}", None)

    def without_password(self, text: str) -> str:
        """Replaces the URL's password in a text by "***".

        The password can be in front of the host or in the query.
        """
        given = self.url.query.get("password", "")
        secrets = [str(self.url.password or ""), *([given] if isinstance(given, str) else given)]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return text

    def create(self) -> None:
        """Creates the SQLite file in write-ahead mode, readable only by its owner.

        Only one process creates the file. It is created with another name and then renamed, so that
        an empty file is never a new ledger.

        Raises:
            LedgerError: the file exists but is empty.
        """
        if not self.file:
            return
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(self.lock_file("open")):
                if not self.file.exists():
                    # SQLite would apply such files of a lost ledger to the new one.
                    for ending in ("-wal", "-shm"):
                        self.file.with_name(f"{self.file.name}{ending}").unlink(missing_ok=True)
                    self._make_file(self.file)
        if not self.file.stat().st_size:
            raise LedgerError(
                f'ledger "{self.name}" is an empty file',
                detail="A ledger is never empty, not even a new one: this one was truncated.",
                hint="Restore it from a backup; or move it away, then rebuild it from the tables: "
                "rewindow ledger rebuild",
            )

    def _make_file(self, file: Path) -> None:
        new = file.with_name(f"{file.name}.new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(new, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        new.rename(file)

    def is_read_only(self) -> bool:
        """Returns whether the ledger is a file in a folder that this process cannot write to.

        Then SQLite cannot even create its lock for readers.
        """
        return bool(self.file and self.file.is_file() and not os.access(self.file.parent, os.W_OK))

    def copied(self, folder: Path) -> LedgerUrl:
        """Returns the location of a copy in another folder.

        The copy includes the write-ahead log.
        """
        assert self.file, "a server cannot be copied"
        for path in (self.file, self.file.with_name(f"{self.file.name}-wal")):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        copy = folder / self.file.name
        return LedgerUrl(self.url.set(database=str(copy)), self.name, copy)

    def lock_file(self, name: str) -> Path:
        """Returns the path of a lock file next to the SQLite file."""
        assert self.file, "a server uses its own locks"
        return self.file.with_name(self.file.name + ".locks") / name
