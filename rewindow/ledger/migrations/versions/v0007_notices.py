"""Adds what notifiers have sent about conditions, and the DAGs that record streams."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates both tables, empty."""
    op.create_table(
        "notices",
        sa.Column("notifier", sa.String(250), primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("subject", sa.String(750), primary_key=True),
        sa.Column("condition", sa.JSON(), nullable=False),
        sa.Column("sent_measure", sa.BigInteger()),
        sa.Column("claim", sa.String(32)),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "recordings",
        sa.Column("stream", sa.String(255), primary_key=True),
        sa.Column("dag_id", sa.String(250), nullable=False),
        sa.Column("interval_us", sa.BigInteger(), nullable=False),
    )
