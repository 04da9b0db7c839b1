"""Opening a ledger: made once, upgraded once, quick afterwards; failures in words without
secrets.
"""

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
from rewindow.ledger.url import LedgerUrl
from tests.ledger.life import WORKERS, new_schema, results, stop_in_a_write, writer
from tests.ledger.workers import open_at_once


def test_ledger_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "ledger.sqlite"
    Ledger.open(f"sqlite:///{file}").replays.newest()
    for made in (file, *file.parent.glob("ledger.sqlite-*"), *file.parent.glob("*.locks/*")):
        assert stat.S_IMODE(made.stat().st_mode) == 0o600, made


def test_migrations_create_the_schema_defined_by_the_models(new_url: str) -> None:
    ledger = Ledger.open(new_url)
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with ledger.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == VERSION


def test_opening_an_up_to_date_ledger_is_faster_than_100_ms(new_url: str) -> None:
    Ledger.open(new_url).close()
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        Ledger.open(new_url).close()
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.1


def test_opening_an_up_to_date_ledger_imports_no_alembic_delta_or_arrow(new_url: str) -> None:
    Ledger.open(new_url).close()
    heavy = ("alembic", "deltalake", "pyarrow", "pyspark")
    code = f"""
import sys
from rewindow.ledger import Ledger
Ledger.open({new_url!r}).replays.newest()
print([name for name in {heavy!r} if name in sys.modules])"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.strip() == "[]", found.stderr


def test_concurrent_processes_can_all_open_a_new_ledger(
    request: pytest.FixtureRequest,
    workers: ProcessPoolExecutor,
    tmp_path: Path,
) -> None:
    server = request.getfixturevalue("postgresql")
    urls = [f"sqlite:///{tmp_path / str(number) / 'ledger.sqlite'}" for number in range(6)]
    urls += [new_schema(server) for _ in range(4)]
    jobs = [workers.submit(open_at_once, urls) for _ in range(WORKERS)]
    assert results(jobs) == [[True] * len(urls)] * WORKERS


def test_newer_ledger_is_rejected(new_url: str) -> None:
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for make in (True, False):
        with pytest.raises(
            InputError,
            match=f"is at version 9999, this Rewindow supports up to {VERSION}",
        ):
            Ledger.open(new_url, make=make)


@pytest.mark.parametrize("make", [True, False])
def test_ledger_of_an_unknown_version_is_rejected_unchanged_and_can_be_restored(
    new_url: str,
    make: bool,
) -> None:
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    with pytest.raises(
        InputError,
        match="is at version 0004, which this Rewindow cannot upgrade",
    ) as caught:
        Ledger.open(new_url, make=make)
    assert "rewindow ledger rebuild" in caught.value.hint
    with ledger.database.reading() as connection:
        assert (
            connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
            == "0004"
        )


def test_tables_are_created_in_a_separate_schema(postgresql: str) -> None:
    ledger = Ledger.open(postgresql)
    with ledger.database.reading() as connection:
        query = (
            "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_name = "
            "'replays'"
        )
        assert "rewindow" in connection.execute(text(query)).scalars().all()
        in_public = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        assert connection.execute(text(in_public)).scalar_one() == 0


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@127.0.0.1:1/rewindow",
        "postgresql://me@127.0.0.1:1/rewindow?password=s3cret",
    ],
)
def test_unreachable_server_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    assert 'ledger "postgresql://127.0.0.1:1/rewindow" does not answer' in str(caught.value)
    assert "Hint:" in str(caught.value) and caught.value.retryable
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_unknown_driver_setting_is_a_user_error() -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/rewindow?no_such_option=1"
    with pytest.raises(InputError, match="no_such_option") as caught:
        Ledger.open(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_missing_driver_is_reported_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for kind in ("postgresql", "postgresql+psycopg2"):
        with pytest.raises(InputError, match="psycopg") as caught:
            Ledger.open(f"{kind}://me:s3cret@127.0.0.1:1/rewindow")
        assert 'pip install "psycopg[binary]"' in caught.value.hint


def test_missing_permission_to_create_a_schema_is_reported(postgresql: str) -> None:
    admin = Ledger.open(new_schema(postgresql))
    with admin.database.writing() as connection:
        connection.execute(text("DROP ROLE IF EXISTS guest"))
        connection.execute(text("CREATE ROLE guest LOGIN"))
    with pytest.raises(InputError, match="permission denied") as caught:
        Ledger.open(new_schema(postgresql).replace("postgres:@", "guest:@"))
    assert "create a schema" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    ["not a url s3cret", "mysql://me:s3cret@host/x", "sqlite://", "postgres://a:s3cret@b/c"],
)
def test_unsupported_url_is_rejected_without_showing_it(url: str) -> None:
    with pytest.raises(InputError) as caught:
        Ledger.open(url)
    assert "s3cret" not in str(caught.value)


def test_damaged_ledger_file_error_suggests_ledger_rebuild(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"this is not a database" * 500)
    with pytest.raises(LedgerError, match="rewindow ledger rebuild"):
        Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite'}").replays.newest()


def test_process_suspended_during_a_write_is_reported(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its lock blocks every write, but the file is not damaged.
    monkeypatch.setattr(connection, "_WAIT_SECONDS", 0.1)
    ledger = Ledger.open(sqlite_url)
    with writer(Path(sqlite_url.removeprefix("sqlite:///"))) as process:
        stop_in_a_write(process)
        with pytest.raises(
            LedgerError,
            match=rf"locked; open in process {process.pid} \(stopped\)",
        ) as caught:
            ledger.leases.release("r")
    assert caught.value.retryable and "rebuild" not in caught.value.hint
    ledger.leases.release("r")


def test_folder_that_cannot_be_created_is_a_ledger_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="does not answer"):
        Ledger.open(f"sqlite:///{tmp_path / 'file' / 'ledger.sqlite'}")


def test_server_failure_is_a_ledger_error_and_invalid_sql_is_not(new_url: str) -> None:
    ledger = Ledger.open(new_url)
    with ledger.database.writing() as connection:
        connection.execute(text("DROP TABLE stale_ranges"))
    with pytest.raises(Exception, match="stale_ranges") as caught:
        ledger.stale.ranges()
    assert isinstance(caught.value, LedgerError) == bool(ledger.database.place.file)


def test_password_is_redacted_in_driver_messages() -> None:
    for url in ("postgresql://me:s3cret@host/x", "postgresql://me@host/x?password=s3cret"):
        place = LedgerUrl.parse(url)
        assert place.without_password("cannot log in as me:s3cret") == "cannot log in as me:***"
        assert place.name == "postgresql://host/x"


def test_connections_are_closed_with_their_ledger(sqlite_url: str) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))

    def handles() -> int:
        return sum(
            os.path.realpath(f"/proc/self/fd/{fd}") == str(file)
            for fd in os.listdir("/proc/self/fd")
        )

    for _ in range(5):
        Ledger.open(sqlite_url).replays.newest()
    assert handles() == 0


def test_empty_ledger_file_is_reported_as_damaged(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    file.touch()
    with pytest.raises(LedgerError, match="is an empty file") as error:
        Ledger.open(f"sqlite:///{file}")
    assert "rewindow ledger rebuild" in error.value.hint and file.stat().st_size == 0
    file.unlink()
    Ledger.open(f"sqlite:///{file}").close()
    assert file.stat().st_size > 0 and not file.with_name("ledger.sqlite.new").exists()


def test_new_ledger_ignores_the_write_ahead_log_of_a_lost_ledger(tmp_path: Path) -> None:
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
