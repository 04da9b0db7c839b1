"""Ledger: what processes must agree on about replays, in SQLite (embedded) or PostgreSQL (shared).

Leases and states prevent waste; that no two attempts write is the tables' fence (rewindow.storage).
The ledger holds what the tables cannot: who may try next, what was begun, what was accepted, which
number a publication has.
"""

from rewindow.ledger.attempts import AttemptEnd, AttemptRecord, GroupTiming
from rewindow.ledger.checks import Acceptance, Check
from rewindow.ledger.facade import Ledger
from rewindow.ledger.leases import Lease
from rewindow.ledger.publication_rows import Publication, PublishedTable, publish_app_id
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.ledger.staleness import StaleRange
from rewindow.ledger.stretches import PortCount, PortStretch, PortTotal

__all__ = [
    "Acceptance",
    "AttemptEnd",
    "AttemptRecord",
    "Check",
    "GroupTiming",
    "Lease",
    "Ledger",
    "PortCount",
    "PortStretch",
    "PortTotal",
    "Publication",
    "PublishedTable",
    "Replay",
    "ReplayState",
    "StaleRange",
    "publish_app_id",
]
