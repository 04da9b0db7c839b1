"""Delivery of published windows: to files, to PostgreSQL and to a class of the project."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from rewindow.commands import deliver as commands
from rewindow.delivery.deliver import DeliveryResult, deliver
from rewindow.delivery.postgresql import PostgresTarget
from rewindow.delivery.targets import target_of
from rewindow.errors import DeliveryError, InputError, OverlapError, RewindowError
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.storage import query
from tests.publication.staging import DELAYS, OUTPUTS, StagedReplay, state_of

STREAM = "flight_delays.delays"


def published(config: Config, replay_id: str, first: int, last: int, seed: int) -> None:
    """Publishes windows with some rows of airports."""
    staged(config, replay_id, first, last, seed)
    publish(config, replay_id)


def staged(
    config: Config,
    replay_id: str,
    first: int,
    last: int,
    seed: int,
    application: str = "flight_delays",
) -> None:
    """Stages windows with some rows of airports."""
    chosen = random.Random(seed)
    replay = StagedReplay(
        config, replay_id, first, last, application=application, outputs=("delays",)
    )
    by_window = {}
    for window in range(first, last + 1):
        rows = []
        for origin in chosen.sample(["EWR", "JFK", "", 'L"G,A\n', "Zürich"], chosen.randrange(5)):
            flights = chosen.choice([None, *range(9)])
            row = {"origin": origin, "flights": flights, "delay": None}
            rows.append({**dict.fromkeys(OUTPUTS["delays"].names, 7), **row})
        by_window[window] = rows
    replay.group(first, last, {"delays": by_window}, state=state_of(seed))
    replay.end()


def visible(config: Config) -> Counter[tuple[Any, ...]]:
    sql = "select window_id, origin, flights, delay from t"
    rows = query(sql, t=config.stream_table(STREAM)).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def run(config: Config, target: str, **how: Any) -> DeliveryResult:
    at_least_once = how.pop("at_least_once", False)
    return deliver(
        config,
        STREAM,
        target,
        target_of(config, target, create=True),
        at_least_once=at_least_once,
        **how,
    )


def in_lake(config: Config) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for file in (config.root / "lake" / STREAM).glob("*.parquet"):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            found[int(file.stem.partition("=")[2]), *row.values()] += 1
    return found


def in_sheets(config: Config) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parsing = csv.ParseOptions(newlines_in_values=True)
    for file in (config.root / "sheets" / STREAM).glob("*.csv"):
        rows = csv.read_csv(file, convert_options=options, parse_options=parsing)
        for row in rows.to_pylist():
            found[int(file.stem.partition("=")[2]), *row.values()] += 1
    return found


def in_hook(config: Config) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for window, (_, rows) in json.loads((config.root / "hooked.json").read_text()).items():
        for row in rows:
            found[int(window), *row.values()] += 1
    return found


@pytest.mark.parametrize("target", ["lake", "sheets", "hook", "warehouse"])
def test_delivery_target_equals_the_published_output_after_publish_and_undo(
    target: str, config: Config, warehouse: psycopg.Connection[Any]
) -> None:
    # Rules: X54, R66
    here = {"lake": in_lake, "sheets": in_sheets, "hook": in_hook}
    here["warehouse"] = lambda config: in_warehouse(warehouse)
    stored = here[target]
    published(config, "one", 100, 119, seed=1)
    first = run(config, target)
    assert (first.written, first.removed, first.unchanged) == (20, 0, 0)
    assert first.promise == "exactly once"
    assert stored(config) == visible(config) and visible(config)
    assert run(config, target, dry_run=True).written == 0
    assert run(config, target).unchanged == 20
    published(config, "two", 110, 129, seed=2)
    second = run(config, target)
    assert second.unchanged >= 10 and second.written == 30 - second.unchanged
    assert stored(config) == visible(config)
    undo(config, "two")
    third = run(config, target)
    assert third.removed == 10
    assert stored(config) == visible(config)


KILLED = """
import os, signal, sys
from rewindow.delivery import deliver as d, postgresql
from rewindow.delivery.targets import target_of
from rewindow.settings.config import Config

d.WINDOWS_AT_ONCE = 8
config = Config.load(sys.argv[1])
left = [int(sys.argv[2])]
execute = postgresql.PostgresTarget._execute

def dying(self, *given):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(self, *given)

postgresql.PostgresTarget._execute = dying
d.deliver(config, "flight_delays.delays", "warehouse", target_of(config, "warehouse", create=True))
"""


def killed_at(config: Config, statement: int) -> bool:
    """Delivers in a process that is killed before a statement; returns whether it came so far."""
    command = [sys.executable, "-c", KILLED, str(config.file), str(statement)]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
    return ended.returncode != 0


def in_warehouse(warehouse: psycopg.Connection[Any]) -> Counter[tuple[Any, ...]]:
    rows = warehouse.execute("select window_id, origin, flights, delay from delays")
    return Counter(rows.fetchall())


@pytest.mark.parametrize(
    "statements",
    [
        (7, 12),
        pytest.param((1, 6, 9, 11, 15), marks=pytest.mark.long),
        pytest.param((1, 3, 6, 7, 8, 9, 10, 11, 12, 15), marks=pytest.mark.exhaustive),
    ],
)
def test_window_is_stored_once_if_the_process_is_killed(
    statements: tuple[int, ...], config: Config, warehouse: psycopg.Connection[Any]
) -> None:
    published(config, "one", 100, 139, seed=3)
    assert sum(killed_at(config, statement) for statement in statements) >= 2
    run(config, "warehouse")
    assert in_warehouse(warehouse) == visible(config)


@pytest.mark.parametrize(
    "statements",
    [
        (5, 9, 12),
        pytest.param(range(1, 40, 3), marks=pytest.mark.long),
        pytest.param(range(1, 40), marks=pytest.mark.exhaustive),
    ],
)
def test_window_is_stored_once_if_the_connection_is_lost(
    statements: Sequence[int],
    config: Config,
    warehouse: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute = PostgresTarget._execute
    monkeypatch.setattr("rewindow.delivery.deliver.WINDOWS_AT_ONCE", 8)
    left = 0

    def losing(self: Any, *given: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            pid = self._connection.info.backend_pid
            warehouse.execute("select pg_terminate_backend(%s, 5000)", (pid,))
        return execute(self, *given)

    monkeypatch.setattr(PostgresTarget, "_execute", losing)
    for number, statement in enumerate(statements):
        published(config, f"r{number}", 100 + number % 7, 120 + number % 5, seed=number)
        if number % 3 == 2:
            undo(config, f"r{number}")
        left = statement
        with suppress(DeliveryError):
            run(config, "warehouse")
        left = 0
        run(config, "warehouse")
        assert in_warehouse(warehouse) == visible(config), statement


def test_rows_that_the_database_rejects_are_stored_with_their_reason(
    config: Config, warehouse: psycopg.Connection[Any]
) -> None:
    # Rules: R67
    published(config, "one", 100, 119, seed=1)
    run(config, "warehouse")
    warehouse.execute("delete from rewindow_delivered")
    warehouse.execute("delete from delays")
    warehouse.execute("alter table delays add check (flights < 3)")
    found = run(config, "warehouse")
    expected = Counter({row: n for row, n in visible(config).items() if (row[2] or 0) >= 3})
    assert found.rejected == sum(expected.values()) > 0
    rows = warehouse.execute(
        "select window_id, row->>'origin', (row->>'flights')::int, null, reason "
        "from rewindow_rejected"
    ).fetchall()
    assert Counter(row[:4] for row in rows) == expected
    assert all("violates check constraint" in row[4] for row in rows)
    stored = warehouse.execute("select window_id, origin, flights, delay from delays").fetchall()
    assert Counter(stored) + expected == visible(config)
    assert run(config, "warehouse").written == 0


def test_second_delivery_to_a_table_fails_while_the_first_is_running(
    config: Config, warehouse: psycopg.Connection[Any]
) -> None:
    published(config, "one", 100, 104, seed=1)
    run(config, "warehouse")
    other = target_of(config, "warehouse")
    sql = "select origin, flights, delay from t limit 0"
    columns = query(sql, t=config.stream_table(STREAM)).schema
    other.open(STREAM, columns)
    with pytest.raises(OverlapError, match="another process is delivering to table delays"):
        run(config, "warehouse")
    other.close()
    assert run(config, "warehouse").unchanged == 5


def test_table_that_does_not_match_the_output_is_rejected(
    config: Config, warehouse: psycopg.Connection[Any]
) -> None:
    published(config, "one", 100, 104, seed=2)
    with pytest.raises(InputError, match="table delays does not exist"):
        deliver(config, STREAM, "warehouse", target_of(config, "warehouse"))
    warehouse.execute("create table delays (window_id bigint, origin text, flights integer)")
    with pytest.raises(InputError, match="column flights of table delays has type integer"):
        run(config, "warehouse")
    warehouse.execute("alter table delays alter flights type bigint")
    with pytest.raises(InputError, match="column delay of table delays does not exist"):
        run(config, "warehouse")
    warehouse.execute("alter table delays add delay numeric(12, 2)")
    warehouse.execute("insert into delays values (102, 'EWR', 1, 2)")
    with pytest.raises(InputError, match="1 rows of window 102, which was never delivered"):
        run(config, "warehouse")
    assert warehouse.execute("select count(*) from delays").fetchone() == (1,)
    warehouse.execute("delete from delays")
    run(config, "warehouse")
    warehouse.execute("delete from delays where window_id = 104")
    warehouse.execute("update rewindow_delivered set digest = 'old' where window_id = 104")
    assert "another program has changed its rows" in run(config, "warehouse").notes[0]


@pytest.mark.parametrize("target", ["lake", "warehouse"])
def test_output_with_a_new_column_is_redelivered_only_for_changed_windows(
    target: str,
    config: Config,
    warehouse: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published(config, "one", 100, 109, seed=3)
    run(config, target)
    wider = DELAYS.append(pa.field("cancelled", pa.int64()))
    monkeypatch.setitem(OUTPUTS, "delays", wider)
    published(config, "two", 105, 114, seed=3)
    if target == "warehouse":
        with pytest.raises(InputError, match="column cancelled of table delays does not exist"):
            run(config, target)
        warehouse.execute("alter table delays add cancelled bigint")
    result = run(config, target)
    sql = "select window_id, origin, flights, delay, cancelled from t"
    rows = query(sql, t=config.stream_table(STREAM)).to_pylist()
    expected = Counter(tuple(row.values()) for row in rows)
    if target == "warehouse":
        found = Counter(warehouse.execute(sql.replace("from t", "from delays")).fetchall())
        assert found == expected
    else:
        found = Counter()
        for window, *values in in_lake(config).elements():
            found[window, *values, *[None] * (4 - len(values))] += 1
        assert found == expected
    assert result.unchanged >= 5
    assert {row[4] for row in expected} == {None, 7}


def test_command_without_a_target_runs_every_configured_delivery(
    config: Config,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published(config, "one", 100, 104, seed=1)
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    with pytest.raises(InputError, match="no target lists an output in its `outputs`"):
        deliver_all()
    settings = config.file.read_text()
    for target in ("warehouse", "sheets", "lake"):
        section = f"[targets.{target}]\n"
        settings = settings.replace(section, f'{section}outputs = ["{STREAM}"]\n')
    config.file.write_text(settings)
    monkeypatch.delenv("WAREHOUSE_URL", raising=False)
    with pytest.raises(InputError, match="variable WAREHOUSE_URL is not set"):
        deliver_all(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [one["target"] for one in found["deliveries"]] == ["lake", "sheets"]
    assert len(found["failures"]) == 1
    assert in_lake(config) == in_sheets(config) == visible(config)
    config.file.write_text(settings.replace(f'outputs = ["{STREAM}"]', 'outputs = ["delays"]', 1))
    with pytest.raises(InputError, match="outputs"):
        Config.load(config.file)


def deliver_all(**options: Any) -> None:
    commands.deliver("", "", **{"create": False, "dry_run": False, "as_json": False, **options})


def test_dry_run_creates_nothing(config: Config, warehouse: psycopg.Connection[Any]) -> None:
    published(config, "one", 100, 104, seed=2)
    warehouse.execute(
        "create table delays (window_id bigint, origin text, flights bigint, delay numeric(12, 2))"
    )
    assert run(config, "warehouse", dry_run=True).written == 5
    tables = "select table_name from information_schema.tables where table_schema = current_schema"
    assert warehouse.execute(tables).fetchall() == [("delays",)]


def test_delivery_messages_do_not_contain_the_password(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(config, "one", 100, 100, seed=2)
    url = "postgresql://somebody:geheim123@127.0.0.1:1/warehouse"
    monkeypatch.setenv("WAREHOUSE_URL", url)
    with pytest.raises(DeliveryError, match="cannot be reached") as raised:
        run(config, "warehouse")
    assert "geheim" not in str(raised.value)
    assert isinstance(target_of(config, "warehouse"), PostgresTarget)


def test_target_that_cannot_list_its_windows_requires_at_least_once(config: Config) -> None:
    published(config, "one", 100, 104, seed=2)
    with pytest.raises(InputError, match="does not list its windows"):
        run(config, "forgetful")
    found = run(config, "forgetful", at_least_once=True)
    assert (found.written, found.promise) == (5, "at least once")
    assert run(config, "forgetful", at_least_once=True).written == 0
    assert (config.root / "forgetful.txt").read_text().split() == [str(n) for n in range(100, 105)]


def test_full_disk_keeps_the_old_files_and_the_next_run_completes_the_delivery(
    config: Config,
) -> None:
    published(config, "one", 100, 119, seed=2)
    code = """
import resource, sys
from rewindow.delivery.deliver import deliver
from rewindow.delivery.targets import target_of
from rewindow.errors import DeliveryError
from rewindow.settings.config import Config

config = Config.load(sys.argv[1])
target = target_of(config, "lake")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    deliver(config, "flight_delays.delays", "lake", target)
except DeliveryError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(config.file)]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    assert 'target "lake" could not store windows 100 to 119' in ended.stdout
    assert run(config, "lake").unchanged < 20
    assert in_lake(config) == visible(config)


def test_files_are_complete_after_a_crash_between_file_and_digest(config: Config) -> None:
    published(config, "one", 100, 104, seed=2)
    run(config, "lake")
    folder = config.root / "lake" / STREAM
    progress = folder / "_delivered.jsonl"
    lines = progress.read_text().splitlines(keepends=True)
    progress.write_text("".join(lines[:3]) + lines[3][:11])
    (folder / ".window_id=104.parquet.tmp").write_text("half")
    (folder / "window_id=100.parquet").unlink()
    assert run(config, "lake").written == 3
    assert in_lake(config) == visible(config)
    assert sorted(file.suffix for file in folder.iterdir()) == [".jsonl"] + [".parquet"] * 5


@pytest.mark.parametrize(
    ("stream", "target", "message"),
    [
        ("flight_delays.delay", "lake", "no output .* is published"),
        (STREAM, "lakes", "target .* is unknown"),
        (STREAM, "hook", "unknown key"),
    ],
)
def test_unknown_delivery_names_raise_an_error(
    stream: str, target: str, message: str, config: Config
) -> None:
    published(config, "one", 100, 100, seed=2)
    config.targets["hook"].settings["url"] = "x"
    with pytest.raises(RewindowError, match=message):
        deliver(config, stream, target, target_of(config, target))
