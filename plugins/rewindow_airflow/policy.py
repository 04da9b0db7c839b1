"""What all DAGs of Rewindow share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

SINCE = datetime(2013, 1, 1, tzinfo=UTC)
"""The first day that may be replayed by `replay_daily`: the example's. Set your own stream's first
day."""

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "rewindow",
    "retries": 20,
    "retry_delay": timedelta(seconds=3),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}
"""`retries` is a high ceiling: the ledger counts attempts without new checkpoint and gives up first
(R90, R91)."""
