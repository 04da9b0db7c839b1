"""An attempt's process is named by boot and start ticks, not by a wall-clock time that moves with the clock."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replaces the start time; an attempt that runs during the upgrade is not ended by the next one, only fenced."""
    op.add_column("attempts", sa.Column("process_identity", sa.String(96)))
    op.drop_column("attempts", "process_started_at")
