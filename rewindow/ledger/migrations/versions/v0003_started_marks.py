"""What at most once has begun is in the tables of the replay, not in the ledger."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drops the started marks; a replay that was begun with them is of an older format and is abandoned."""
    op.drop_column("replays", "started")
