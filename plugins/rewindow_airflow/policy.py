"""Settings that all DAGs of Rewindow share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

SINCE = datetime(2013, 1, 1, tzinfo=UTC)
"""The first day that `replay_daily` may replay, here that of the example. Set it to the first day
of your stream.
"""

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "rewindow",
    "retries": 20,
    "retry_delay": timedelta(seconds=3),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}
"""`retries` is set to a high limit, because the ledger counts attempts without a new checkpoint and
gives up earlier.

Rules: R90, R91
"""
