"""Notices: what notifiers have sent about conditions, such as a failed gate.

Conditions are level-triggered. A caller finds out which conditions are true now; the ledger
compares them with what was sent, and returns the changes to send. The caller has claimed these
changes: it sends and then confirms them. If it dies in between, its claim expires, and the next
caller sends them again. So each change is sent at least once, and normally once. Every notifier has
its own notices, so if one fails, the others do not send again.

The ledger also stores which DAG records a stream, so that a standstill is noticed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rewindow.ledger.connection import LedgerPart, read_rows
from rewindow.ledger.models import notices, recordings
from rewindow.windows import to_datetime

_CLAIM_MAX = timedelta(minutes=5)
_WORSE_FACTOR = 2
_OVER = 0
"""Sent measure of a condition that has ended. It is stored for a day: a caller that looked earlier
must not report the condition as a new one.
"""
_OVER_MAX = timedelta(days=1)


class Transition(StrEnum):
    """The change of a condition that a notifier sends."""

    STARTED = "started"
    WORSENED = "worsened"
    ENDED = "ended"


@dataclass(frozen=True)
class Condition:
    """Something that a person on duty should know.

    Attributes:
        kind: one of `rewindow.settings.conditions.CONDITIONS`.
        subject: a run, a replay, an output or a stream. A kind and a subject identify a condition.
        measure: how bad it is, such as a number of windows; 1 if it has no degrees.
        what: the condition as a sentence without a full stop.
        where: application or stream, windows and times; empty if they are not known.
        next_step: the next step of a person.
        dag, run, task: of Airflow; empty if there is none.
        replay: id of the replay; empty if there is none.
    """

    kind: str
    subject: str
    measure: int
    what: str
    where: str
    next_step: str
    dag: str = ""
    run: str = ""
    task: str = ""
    replay: str = ""


@dataclass(frozen=True)
class ClaimedChange:
    """A change that a notifier must send, and then confirm with its claim."""

    condition: Condition
    change: Transition
    claim: str


@dataclass(frozen=True)
class Recording:
    """A stream and the DAG that records it, with the time between two recordings."""

    stream: str
    dag_id: str
    interval_us: int


class Notices(LedgerPart):
    """The notices in the ledger."""

    def clock(self) -> datetime:
        """Returns the time of the database. Call it before finding out which conditions are
        true.
        """
        with self.reading() as connection:
            return self._clock(connection)

    def open(self, notifier: str) -> list[Condition]:
        """Returns the conditions that a notifier has reported, or must still report, as true."""
        c = notices.c
        is_open = (c.notifier == notifier) & c.sent_measure.is_distinct_from(_OVER)
        with self.reading() as connection:
            rows = connection.execute(select(c.condition).where(is_open))
            return [Condition(**row.condition) for row in rows]

    def claim(
        self,
        notifier: str,
        true: Iterable[Condition],
        over: Iterable[Condition],
        seen_at: datetime,
    ) -> list[ClaimedChange]:
        """Claims and returns the changes that the caller must send.

        A notice that has changed since `seen_at` is left as it is, because the caller may have
        seen an older state than the process that changed it.

        Args:
            notifier: name of the notifier.
            true: conditions that are true.
            over: conditions that were true.
            seen_at: time before the caller looked at the conditions.
        """
        c = notices.c
        states = [(condition, True) for condition in true]
        states += [(condition, False) for condition in over]
        changes = []
        # Two evaluations at the same time must not both claim a change.
        with self.serialised() as connection:
            now = self._clock(connection)
            for condition, is_true in states:
                key = {"notifier": notifier, "kind": condition.kind, "subject": condition.subject}
                row = connection.execute(select(notices).filter_by(**key)).first()
                if row is not None:
                    is_claimed = row.claim is not None and now - row.changed_at < _CLAIM_MAX
                    if is_claimed or row.changed_at > seen_at:
                        continue
                # A notifier that has not sent the start yet must not send the end alone.
                sent = row.sent_measure if row is not None else None
                change = _change(
                    sent,
                    condition.measure,
                    is_true=is_true,
                )
                values: dict[str, Any] = {"condition": asdict(condition), "changed_at": now}
                if change is not None:
                    claim = secrets.token_hex(16)
                    values["claim"] = claim
                    changes.append(
                        ClaimedChange(
                            condition,
                            change,
                            claim,
                        )
                    )
                elif is_true:
                    continue
                else:
                    values["sent_measure"] = _OVER
                if row is None:
                    connection.execute(insert(notices).values(**key, **values))
                else:
                    connection.execute(update(notices).filter_by(**key).values(**values))
            is_old = (c.sent_measure == _OVER) & (c.changed_at < now - _OVER_MAX)
            connection.execute(delete(notices).where(is_old))
        return changes

    def confirm(
        self,
        change: ClaimedChange,
        *,
        is_sent: bool,
    ) -> None:
        """Records whether a claimed change was sent, and ends the claim."""
        values: dict[str, Any] = {"claim": None, "changed_at": self.now}
        if is_sent:
            is_over = change.change is Transition.ENDED
            values["sent_measure"] = _OVER if is_over else change.condition.measure
        with self.writing() as connection:
            connection.execute(update(notices).filter_by(claim=change.claim).values(**values))

    def schedule(
        self,
        stream: str,
        dag_id: str,
        interval_us: int,
    ) -> None:
        """Stores the DAG that records a stream, and its interval."""
        with self.serialised() as connection:
            connection.execute(delete(recordings).filter_by(stream=stream))
            values = {"stream": stream, "dag_id": dag_id, "interval_us": interval_us}
            connection.execute(insert(recordings).values(**values))

    def recordings(self) -> dict[str, Recording]:
        """Returns the recordings by stream."""
        with self.reading() as connection:
            rows = read_rows(
                connection,
                select(recordings),
                Recording,
            )
        return {row.stream: row for row in rows}

    def _clock(self, connection: Connection) -> datetime:
        return to_datetime(int(connection.execute(select(self.now)).scalar_one()))


def _change(
    sent: int | None,
    measure: int,
    *,
    is_true: bool,
) -> Transition | None:
    """Returns what must be sent about a condition.

    Args:
        sent: measure that was sent last; None if the start was not sent yet.
        measure: present measure.
        is_true: whether the condition is true.
    """
    if not is_true:
        return Transition.ENDED if sent else None
    if not sent:
        return Transition.STARTED
    return Transition.WORSENED if measure >= _WORSE_FACTOR * sent else None
