"""The values of a replay in the overview."""

from __future__ import annotations

from typing import Any

from rewindow.inspection.next_steps import cause
from rewindow.inspection.replay_progress import replay_progress
from rewindow.inspection.visibility import outcome
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE, Replay

_ACTS_MAX = 3


def overview_line(ledger: Ledger, row: Replay) -> dict[str, Any]:
    """Returns the values of a replay for the overview. Reads only the ledger.

    These are its range as times, its progress, the newest verdict of the gate, the newest
    publications and undos with their outcomes, and the first line of the reason for its state.
    """
    checks = ledger.checks.newest(row.replay_id, limit=1)
    acts = ledger.publications.newest(row.replay_id)
    return {
        "row": row,
        "times": row.times(),
        "progress": replay_progress(ledger, row),
        "is_open": row.state in RUNNABLE,
        "verdict": checks[0].verdict if checks else "",
        "acts": [f"{act.kind} {act.number}: {outcome(act, acts)}" for act in acts[:_ACTS_MAX]],
        "message": cause(row.message).partition("\n")[0],
    }
