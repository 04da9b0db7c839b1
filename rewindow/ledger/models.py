"""Tables of the ledger.

Times are whole microseconds since the epoch, from the clock of the database.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

from rewindow.windows import to_datetime

VERSION = "0007"
"""The newest migration. A ledger at this version is opened without reading the migrations."""


class Moment(TypeDecorator[datetime]):
    """A time that is stored as microseconds since the epoch and is an aware UTC datetime in
    Python.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Converts a datetime to the stored value."""
        return None if value is None else (value - to_datetime(0)) // timedelta(microseconds=1)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Converts the stored value to a datetime."""
        return None if value is None else to_datetime(int(value))


metadata = MetaData()


def _replay_id(primary_key: bool = True) -> Column[str]:
    reference = ForeignKey("replays.replay_id")
    return Column("replay_id", String(255), reference, primary_key=primary_key, nullable=False)


counters = Table(
    "counters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

replays = Table(
    "replays",
    metadata,
    Column("replay_id", String(255), primary_key=True),
    Column("application", String(255), nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("mode", String(32), nullable=False),
    Column("code_version", String(255), nullable=False),
    Column("plan", JSON, nullable=False),
    Column("state", String(32), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("mark", BigInteger, nullable=False),
    Column("checkpoint_mark", BigInteger, nullable=False),
    Column("checkpoint_epoch", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    Index("replays_by_application", "application", "created_at"),
    Index("replays_by_state", "state"),
)

attempts = Table(
    "attempts",
    metadata,
    _replay_id(),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("host", String(255)),
    Column("pid", BigInteger),
    Column("process_group", BigInteger),
    Column("process_identity", String(96)),
    Column("mark", BigInteger),
    Column("outcome", String(32)),
    Column("message", Text, nullable=False),
    Column("began_at", Moment, nullable=False),
    Column("heard_at", Moment, nullable=False),
    Column("ended_at", Moment),
)

group_timings = Table(
    "group_timings",
    metadata,
    _replay_id(),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("mark", BigInteger, primary_key=True, autoincrement=False),
    Column("timings", JSON, nullable=False),
    Column("reported_at", Moment, nullable=False),
)

segments = Table(
    "segments",
    metadata,
    _replay_id(),
    Column("direction", String(8), primary_key=True),
    Column("port", String(255), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("tuples", BigInteger, nullable=False),
    Column("lost", Boolean, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("after_checkpoint", Boolean, nullable=False),
    Column("began_at", Moment, nullable=False),
    Column("ended_at", Moment, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("table_name", String(255), primary_key=True),
    _replay_id(),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("granted_at", Moment, nullable=False),
    Index("leases_by_replay", "replay_id"),
)

publications = Table(
    "publications",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _replay_id(primary_key=False),
    Column("kind", String(16), nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("undoes", BigInteger, ForeignKey("publications.number")),
    Column("details", JSON, nullable=False),
    Column("withdrawn", Text),
    Column("opened_at", Moment, nullable=False),
    Column("closed_at", Moment),
    Index("publications_by_replay", "replay_id"),
    Index("publications_by_undone", "undoes"),
    Index("publications_by_closing", "closed_at"),
)

publication_tables = Table(
    "publication_tables",
    metadata,
    Column(
        "number",
        BigInteger,
        ForeignKey("publications.number"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("table_name", String(255), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("version_before", BigInteger),
    Column("version_after", BigInteger),
    Column("done_at", Moment),
    Index("publication_tables_by_table", "table_name", "number"),
)

outbox = Table(
    "outbox",
    metadata,
    Column(
        "number",
        BigInteger,
        ForeignKey("publications.number"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("dag_id", String(250)),
    Column("run_id", String(250)),
    Column("task_id", String(250)),
    Column("map_index", Integer),
    Column("done_at", Moment),
    Index("outbox_by_end", "done_at"),
)

stale_ranges = Table(
    "stale_ranges",
    metadata,
    Column("application", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("marked_at", Moment, nullable=False),
)

checks = Table(
    "checks",
    metadata,
    Column("check_id", Integer, primary_key=True),
    _replay_id(primary_key=False),
    Column("epoch", BigInteger),
    Column("verdict", String(16), nullable=False),
    Column("results", Text, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("tables", JSON(none_as_null=True)),
    Column("checked_at", Moment, nullable=False),
    Index("checks_by_replay", "replay_id"),
)

acceptances = Table(
    "acceptances",
    metadata,
    Column("acceptance_id", Integer, primary_key=True),
    _replay_id(primary_key=False),
    Column("reason", Text, nullable=False),
    Column("who", String(255), nullable=False),
    Column("tables", JSON(none_as_null=True)),
    Column("accepted_at", Moment, nullable=False),
    Index("acceptances_by_replay", "replay_id"),
)

notices = Table(
    "notices",
    metadata,
    Column("notifier", String(250), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("subject", String(750), primary_key=True),
    Column("condition", JSON, nullable=False),
    Column("sent_measure", BigInteger),
    Column("claim", String(32)),
    Column("changed_at", Moment, nullable=False),
)

recordings = Table(
    "recordings",
    metadata,
    Column("stream", String(255), primary_key=True),
    Column("dag_id", String(250), nullable=False),
    Column("interval_us", BigInteger, nullable=False),
)
