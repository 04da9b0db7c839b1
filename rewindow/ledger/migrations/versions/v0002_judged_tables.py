"""Checks and acceptances name what the tables of the replay held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column; what was judged before has none, and must be checked again before it is published."""
    for name in ("checks", "acceptances"):
        op.add_column(name, sa.Column("tables", sa.JSON()))
