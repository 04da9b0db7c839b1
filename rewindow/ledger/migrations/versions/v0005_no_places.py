"""A replay's folder follows from its id and the state folder, which may be moved: the ledger no longer keeps it."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drops the column; paths in older plans are made relative when a plan is read."""
    op.drop_column("replays", "root")
