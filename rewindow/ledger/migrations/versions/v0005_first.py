"""The first schema of the ledger.

Its number continues the numbers of earlier versions, which were never released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = None
branch_labels = None
depends_on = None


def _replay_id(primary_key: bool = True) -> sa.Column[str]:
    reference = sa.ForeignKey("replays.replay_id")
    return sa.Column(
        "replay_id",
        sa.String(255),
        reference,
        primary_key=primary_key,
        nullable=False,
    )


def upgrade() -> None:
    """Creates all tables and the single counter."""
    _create_replays()
    _create_runs()
    _create_publications()
    _create_judgements()


def _create_replays() -> None:
    counters = op.create_table(
        "counters",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
    )
    op.bulk_insert(counters, [{"name": "publication", "value": 0}])
    op.create_table(
        "replays",
        sa.Column("replay_id", sa.String(255), primary_key=True),
        sa.Column("application", sa.String(255), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(32), nullable=False),
        sa.Column("code_version", sa.String(255), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_mark", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_epoch", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("replays_by_application", "replays", ["application", "created_at"])
    op.create_index("replays_by_state", "replays", ["state"])


def _create_runs() -> None:
    op.create_table(
        "attempts",
        _replay_id(),
        sa.Column("epoch", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("host", sa.String(255)),
        sa.Column("pid", sa.BigInteger()),
        sa.Column("process_group", sa.BigInteger()),
        sa.Column("mark", sa.BigInteger()),
        sa.Column("outcome", sa.String(32)),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("process_identity", sa.String(96)),
    )
    op.create_table(
        "group_timings",
        _replay_id(),
        sa.Column("epoch", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("mark", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("timings", sa.JSON(), nullable=False),
        sa.Column("reported_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "segments",
        _replay_id(),
        sa.Column("direction", sa.String(8), primary_key=True),
        sa.Column("port", sa.String(255), primary_key=True),
        sa.Column("first", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("tuples", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("after_checkpoint", sa.Boolean(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
    )


def _create_publications() -> None:
    op.create_table(
        "leases",
        sa.Column("table_name", sa.String(255), primary_key=True),
        _replay_id(),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("leases_by_replay", "leases", ["replay_id"])
    op.create_table(
        "publications",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        _replay_id(primary_key=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("undoes", sa.BigInteger(), sa.ForeignKey("publications.number")),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("withdrawn", sa.Text()),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger()),
    )
    op.create_index("publications_by_replay", "publications", ["replay_id"])
    op.create_index("publications_by_undone", "publications", ["undoes"])
    op.create_index("publications_by_closing", "publications", ["closed_at"])
    op.create_table(
        "publication_tables",
        sa.Column(
            "number",
            sa.BigInteger(),
            sa.ForeignKey("publications.number"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("table_name", sa.String(255), primary_key=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("version_before", sa.BigInteger()),
        sa.Column("version_after", sa.BigInteger()),
        sa.Column("done_at", sa.BigInteger()),
    )
    op.create_index("publication_tables_by_table", "publication_tables", ["table_name", "number"])


def _create_judgements() -> None:
    op.create_table(
        "stale_ranges",
        sa.Column("application", sa.String(255), primary_key=True),
        sa.Column("table_name", sa.String(255), primary_key=True),
        sa.Column("first", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("marked_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "checks",
        sa.Column("check_id", sa.Integer(), primary_key=True),
        _replay_id(primary_key=False),
        sa.Column("epoch", sa.BigInteger()),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("results", sa.Text(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("tables", sa.JSON()),
    )
    op.create_index("checks_by_replay", "checks", ["replay_id"])
    op.create_table(
        "acceptances",
        sa.Column("acceptance_id", sa.Integer(), primary_key=True),
        _replay_id(primary_key=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=False),
        sa.Column("tables", sa.JSON()),
    )
    op.create_index("acceptances_by_replay", "acceptances", ["replay_id"])
