"""Adds the outbox of asset events. Publications that exist already count as emitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the empty outbox."""
    op.create_table(
        "outbox",
        sa.Column(
            "number",
            sa.BigInteger(),
            sa.ForeignKey("publications.number"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("dag_id", sa.String(250)),
        sa.Column("run_id", sa.String(250)),
        sa.Column("task_id", sa.String(250)),
        sa.Column("map_index", sa.Integer()),
        sa.Column("done_at", sa.BigInteger()),
    )
    op.create_index("outbox_by_end", "outbox", ["done_at"])
