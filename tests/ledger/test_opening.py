"""Opening a ledger: made once, upgraded once, quick afterwards; failures in words without secrets."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from rewindow.errors import InputError, LedgerError
from rewindow.ledger import Ledger, connection
from rewindow.ledger.models import VERSION, counters, metadata
from rewindow.ledger.place import LedgerPlace
from tests.ledger.life import WORKERS, new_schema, results, stop_in_a_write, writer
from tests.ledger.workers import open_at_once


def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """A new SQLite ledger, and what lies beside it, is closed to other users; its folder is made."""
    file = tmp_path / "deep" / "er" / "ledger.sqlite"
    Ledger.open(f"sqlite:///{file}").replays.newest()
    for made in (file, *file.parent.glob("ledger.sqlite-*"), *file.parent.glob("*.locks/*")):
        assert stat.S_IMODE(made.stat().st_mode) == 0o600, made


def test_migrations_make_what_the_models_say(new_url: str) -> None:
    """The upgraded database and the models do not differ, and the newest migration is the version asked for."""
    ledger = Ledger.open(new_url)
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with ledger.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == VERSION


def test_opening_again_is_quick(new_url: str) -> None:
    """Opening a ledger that is up to date takes less than 100 ms."""
    Ledger.open(new_url).close()
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        Ledger.open(new_url).close()
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.1


def test_opening_again_does_not_import_alembic_or_tables(new_url: str) -> None:
    """Opening a ledger that is up to date imports neither Alembic nor Delta nor Arrow."""
    Ledger.open(new_url).close()
    heavy = ("alembic", "deltalake", "pyarrow", "pyspark")
    code = f"""
import sys
from rewindow.ledger import Ledger
Ledger.open({new_url!r}).replays.newest()
print([name for name in {heavy!r} if name in sys.modules])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "[]", found.stderr


def test_processes_that_open_a_new_ledger_at_once_all_get_it(
    request: pytest.FixtureRequest, workers: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """Four processes make and upgrade the same ledger at the same moment; none fails, on either database."""
    server = request.getfixturevalue("postgresql")
    urls = [f"sqlite:///{tmp_path / str(number) / 'ledger.sqlite'}" for number in range(6)]
    urls += [new_schema(server) for _ in range(4)]
    jobs = [workers.submit(open_at_once, urls) for _ in range(WORKERS)]
    assert results(jobs) == [[True] * len(urls)] * WORKERS


def test_newer_ledger_is_refused(new_url: str) -> None:
    """A ledger that a newer Rewindow has upgraded is left alone."""
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for make in (True, False):
        with pytest.raises(InputError, match=f"is at version 9999, this Rewindow knows up to {VERSION}"):
            Ledger.open(new_url, make=make)


@pytest.mark.parametrize("make", [True, False])
def test_ledger_of_an_unknown_version_is_refused_with_the_way_back(new_url: str, make: bool) -> None:
    """A ledger from before the first migration cannot be upgraded: it is left alone, and can be restored."""
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    with pytest.raises(InputError, match="is at version 0004, which this Rewindow cannot upgrade") as caught:
        Ledger.open(new_url, make=make)
    assert "rewindow ledger rebuild" in caught.value.hint
    with ledger.database.reading() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0004"


def test_tables_stand_in_a_schema_of_their_own(postgresql: str) -> None:
    """On a shared server nothing of ours lies among another product's tables."""
    ledger = Ledger.open(postgresql)
    with ledger.database.reading() as connection:
        query = "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_name = 'replays'"
        assert "rewindow" in connection.execute(text(query)).scalars().all()
        in_public = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        assert connection.execute(text(in_public)).scalar_one() == 0


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:s3cret@127.0.0.1:1/rewindow", "postgresql://me@127.0.0.1:1/rewindow?password=s3cret"],
)
def test_server_that_does_not_answer_is_named_without_its_password(url: str) -> None:
    """The error names the server and what to do; neither it nor what it was caused by shows the password."""
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    assert 'ledger "postgresql://127.0.0.1:1/rewindow" does not answer' in str(caught.value)
    assert "Hint:" in str(caught.value) and caught.value.retryable
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_setting_that_the_driver_does_not_know_is_the_users_error() -> None:
    """A wrong setting in the URL is not worth a retry; the message names it."""
    url = "postgresql://me:s3cret@127.0.0.1:1/rewindow?no_such_option=1"
    with pytest.raises(InputError, match="no_such_option") as caught:
        Ledger.open(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's driver is an extra: without it, the message says what to install; any driver's URL means ours."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for kind in ("postgresql", "postgresql+psycopg2"):
        with pytest.raises(InputError, match="psycopg") as caught:
            Ledger.open(f"{kind}://me:s3cret@127.0.0.1:1/rewindow")
        assert "rewindow[postgresql]" in caught.value.hint


def test_user_who_may_not_create_a_schema_is_told(postgresql: str) -> None:
    """A user without the right to make the ledger gets an error in words, which names the right."""
    admin = Ledger.open(new_schema(postgresql))
    with admin.database.writing() as connection:
        connection.execute(text("DROP ROLE IF EXISTS guest"))
        connection.execute(text("CREATE ROLE guest LOGIN"))
    with pytest.raises(InputError, match="permission denied") as caught:
        Ledger.open(new_schema(postgresql).replace("postgres:@", "guest:@"))
    assert "create a schema" in caught.value.hint


@pytest.mark.parametrize(
    "url", ["not a url s3cret", "mysql://me:s3cret@host/x", "sqlite://", "postgres://a:s3cret@b/c"]
)
def test_url_of_another_kind_is_refused_without_showing_it(url: str) -> None:
    """Only databases that processes can share are taken; the message does not repeat the URL."""
    with pytest.raises(InputError) as caught:
        Ledger.open(url)
    assert "s3cret" not in str(caught.value)


def test_damaged_file_names_the_way_back(tmp_path: Path) -> None:
    """A file that is no database is a LedgerError that names `rewindow ledger rebuild`."""
    (tmp_path / "ledger.sqlite").write_bytes(b"this is not a database" * 500)
    with pytest.raises(LedgerError, match="rewindow ledger rebuild"):
        Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite'}").replays.newest()


def test_process_that_is_stopped_in_a_write_is_named(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock holds up every write: the error tells which process to end, and does not call the file damaged."""
    monkeypatch.setattr(connection, "_WAIT_SECONDS", 0.1)
    ledger = Ledger.open(sqlite_url)
    with writer(Path(sqlite_url.removeprefix("sqlite:///"))) as process:
        stop_in_a_write(process)
        with pytest.raises(LedgerError, match=rf"locked; open in process {process.pid} \(stopped\)") as caught:
            ledger.leases.release("r")
    assert caught.value.retryable and "rebuild" not in caught.value.hint
    ledger.leases.release("r")


def test_folder_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    """A state folder that is a file is a LedgerError, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="does not answer"):
        Ledger.open(f"sqlite:///{tmp_path / 'file' / 'ledger.sqlite'}")


def test_server_that_stops_is_an_error_in_words(new_url: str) -> None:
    """A failure of the database in the middle of the work is a LedgerError too; wrong SQL stays a bug."""
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("DROP TABLE stale_ranges"))
    with pytest.raises(Exception, match="stale_ranges") as caught:
        ledger.stale.ranges()
    assert isinstance(caught.value, LedgerError) == bool(ledger.database.place.file)


def test_password_is_blotted_out_of_what_a_driver_says() -> None:
    """Whatever a driver puts into its message, the password is not passed on, wherever the URL had it."""
    for url in ("postgresql://me:s3cret@host/x", "postgresql://me@host/x?password=s3cret"):
        place = LedgerPlace.parse(url)
        assert place.without_password("cannot log in as me:s3cret") == "cannot log in as me:***"
        assert place.name == "postgresql://host/x"


def test_connections_end_with_their_ledger(sqlite_url: str) -> None:
    """A page that opens a ledger at each view leaves no connection behind."""
    file = Path(sqlite_url.removeprefix("sqlite:///"))

    def handles() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{fd}") == str(file) for fd in os.listdir("/proc/self/fd"))

    for _ in range(5):
        Ledger.open(sqlite_url).replays.newest()
    assert handles() == 0


def test_an_empty_ledger_file_is_damage_and_not_a_new_ledger(tmp_path: Path) -> None:
    """It is refused by name and left as it is; a new ledger appears whole."""
    file = tmp_path / "ledger.sqlite"
    file.touch()
    with pytest.raises(LedgerError, match="is an empty file") as error:
        Ledger.open(f"sqlite:///{file}")
    assert "rewindow ledger rebuild" in error.value.hint and file.stat().st_size == 0
    file.unlink()
    Ledger.open(f"sqlite:///{file}").close()
    assert file.stat().st_size > 0 and not file.with_name("ledger.sqlite.new").exists()


def test_a_new_ledger_takes_nothing_from_the_log_of_a_lost_one(tmp_path: Path) -> None:
    """Who removes the file alone, while a process reads it, leaves its write-ahead log behind."""
    file = tmp_path / "ledger.sqlite"
    lost = Ledger.open(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("SELECT count(*) FROM replays").fetchall()
        with lost.database.serialised() as connection:
            connection.execute(update(counters).values(value=7))
        lost.close()
        file.unlink()
        assert file.with_name("ledger.sqlite-wal").stat().st_size > 0
        with Ledger.open(f"sqlite:///{file}").database.reading() as connection:
            assert connection.execute(select(counters.c.value)).scalars().all() == [0]
