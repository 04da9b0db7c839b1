"""The ledger: shared records of replays, in SQLite (embedded) or PostgreSQL (shared).

It stores what the tables cannot: which replay may run next, what was started, what was accepted,
and the numbers of publications. Its leases and states prevent duplicate work. They do not prevent
two attempts from writing. The tables do, by checking transaction ids (rewindow.storage).
"""

from rewindow.ledger.attempts import AttemptEnd, AttemptRecord, GroupTiming
from rewindow.ledger.checks import Acceptance, Check
from rewindow.ledger.facade import Ledger
from rewindow.ledger.leases import Lease
from rewindow.ledger.notices import ClaimedChange, Condition, Transition
from rewindow.ledger.outbox import Emitter
from rewindow.ledger.publication_rows import Publication, PublishedTable, publish_app_id
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.ledger.staleness import StaleRange
from rewindow.ledger.stretches import PortCount, PortStretch, PortTotal

__all__ = [
    "Acceptance",
    "AttemptEnd",
    "AttemptRecord",
    "Check",
    "ClaimedChange",
    "Condition",
    "Emitter",
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
    "Transition",
    "publish_app_id",
]
