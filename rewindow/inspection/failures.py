"""The first cause of a failure among the attempts of a replay."""

from __future__ import annotations

from collections.abc import Sequence

from rewindow.inspection.next_steps import cause
from rewindow.ledger import AttemptRecord, Ledger
from rewindow.ledger.attempts import FAILURES
from rewindow.ledger.replays import Replay


def all_attempts(ledger: Ledger, row: Replay) -> list[AttemptRecord]:
    """Returns the attempts of a replay and of its containers, in the order of their starts."""
    found = ledger.attempts.of(row.replay_id)
    for container in ledger.replays.containers(row.replay_id):
        found += ledger.attempts.of(container.replay_id)
    return sorted(found, key=lambda attempt: attempt.began_at)


def first_cause(attempts: Sequence[AttemptRecord]) -> tuple[AttemptRecord, str] | None:
    """Returns the attempt with which the newest series of failures started, and its cause as text;
    None if the newest attempt has not failed.

    An attempt that commits windows ends a series, because the cause before it was overcome. Later
    attempts of the same series often fail with a message about the earlier ones, which hides the
    cause.

    Args:
        attempts: attempts of a replay and of its containers, in the order of their starts.
    """
    newest = {attempt.replay_id: attempt for attempt in attempts}
    failed = [name for name, attempt in newest.items() if attempt.outcome in FAILURES]
    first = None
    for attempt in reversed(attempts):
        if attempt.replay_id not in failed[:1]:
            continue
        if attempt.message and attempt.outcome in FAILURES:
            first = attempt
        if attempt.mark is not None:
            break
    return None if first is None else (first, cause(first.message))
