"""Creates the pool of Spark tasks in the database of Airflow.

Only the API server calls this module, because tasks may not use the database.
"""

from __future__ import annotations

import logging

from rewindow_airflow.operators import POOL

_log = logging.getLogger(__name__)


def ensure_pool() -> None:
    """Creates the pool of Spark tasks with one slot if it does not exist. An existing pool is not
    changed.

    Airflow never starts the tasks of a missing pool, and reports this only in the log of the
    scheduler.
    """
    from airflow.models.pool import Pool
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if Pool.get_pool(POOL) is None:
            Pool.create_or_update_pool(
                POOL,
                slots=1,
                description="Spark jobs that may run at once",
                include_deferred=False,
            )
    except SQLAlchemyError as error:  # No table yet, or another API server was faster.
        _log.warning('pool "%s" was not created: %s', POOL, error)
