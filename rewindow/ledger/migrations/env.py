"""Runs migrations on the connection and in the transaction of rewindow.ledger.upgrade."""

from __future__ import annotations

from alembic import context

from rewindow.ledger.models import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
