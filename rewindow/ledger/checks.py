"""Gate results and acceptances: by which right a replay may be published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from sqlalchemy import insert, select

from rewindow.errors import InputError
from rewindow.ledger.connection import Database, LedgerPart, read_rows
from rewindow.ledger.models import acceptances, checks
from rewindow.ledger.replays import Replays, ReplayState, read_replay

if TYPE_CHECKING:
    from rewindow.storage.layout import Contents

PASSED = "passed"
FAILED = "failed"


class OutputSummary(TypedDict):
    """What the gate said of an output, without the windows; checks by their names, the page by its
    file's name.
    """

    output: str
    suite: str
    verdict: str
    windows: int
    evaluated: int
    failed: list[str]
    warnings: list[str]
    noted: list[str]
    docs: str


class CheckSummary(TypedDict, total=False):
    """What the gate said of each output, or the error for which it came to no verdict."""

    outputs: list[OutputSummary]
    error: str


@dataclass(frozen=True)
class Check:
    """What the gate said of a replay: "passed" or "failed", and where its results lie.

    Attributes:
        tables: what the replay's tables held when the gate read them
            (`rewindow.storage.layout.staged_contents`); None when it did not come to that.
    """

    replay_id: str
    epoch: int | None
    verdict: str
    results: str
    summary: CheckSummary
    tables: Contents | None
    checked_at: datetime


@dataclass(frozen=True)
class Acceptance:
    """Somebody's word that a replay may be published whatever the gate said; kept for ever.
    `tables` as in Check.
    """

    replay_id: str
    reason: str
    who: str
    tables: Contents | None
    accepted_at: datetime


class Checks(LedgerPart):
    """The part of the ledger that keeps gate results and acceptances."""

    def __init__(self, database: Database, replays: Replays) -> None:
        super().__init__(database)
        self._replays = replays

    def record(
        self,
        replay_id: str,
        verdict: str,
        results: str = "",
        summary: CheckSummary | None = None,
        epoch: int | None = None,
        tables: Contents | None = None,
    ) -> None:
        """Enters a gate result. An ended replay that passed is checked; a checked one that failed
        is ended again.

        Args:
            tables: what was judged, see Check; without it nothing can be published by right of this
                check.

        Raises:
            InputError: the replay is unknown or has not ended, or the verdict is neither "passed"
                nor "failed".
        """
        if verdict not in (PASSED, FAILED):
            raise InputError(
                f'verdict "{verdict}" is unknown, allowed are "{PASSED}" and "{FAILED}"'
            )
        row = {
            "verdict": verdict,
            "results": str(results),
            "summary": json.loads(json.dumps(summary or {})),
        }
        with self.serialised() as connection:
            state = read_replay(connection, replay_id).state
            if state not in (ReplayState.PUBLISHED, ReplayState.UNDONE):
                self._replays.move(
                    connection,
                    replay_id,
                    ReplayState.CHECKED if verdict == PASSED else ReplayState.ENDED,
                )
            values = {
                "replay_id": replay_id,
                "epoch": epoch,
                "tables": tables,
                **row,
            }
            connection.execute(insert(checks).values(**values, checked_at=self.now))

    def accept(self, replay_id: str, reason: str, who: str, tables: Contents | None = None) -> None:
        """Enters that somebody takes an ended replay as it is, with what its tables hold; it is
        then checked.

        Raises:
            InputError: the replay is unknown or has not ended, or no reason is given.
        """
        if not reason.strip() or not who.strip():
            raise InputError(
                "an acceptance needs a reason and a name",
                hint=f'Say why: rewindow publish {replay_id} --accept "known outage of a station"',
            )
        with self.serialised() as connection:
            state = read_replay(connection, replay_id).state
            if state not in (ReplayState.PUBLISHED, ReplayState.UNDONE):
                self._replays.move(
                    connection,
                    replay_id,
                    ReplayState.CHECKED,
                    message=f"accepted by {who}: {reason}",
                )
            values = {
                "replay_id": replay_id,
                "reason": reason,
                "who": who,
                "tables": tables,
            }
            connection.execute(insert(acceptances).values(**values, accepted_at=self.now))

    def newest(self, replay_id: str | None = None, limit: int = 100) -> list[Check]:
        """Returns gate results, newest first; of one replay if so asked."""
        columns = checks.c[tuple(Check.__dataclass_fields__)]
        query = select(*columns).order_by(checks.c.check_id.desc()).limit(limit)
        if replay_id is not None:
            query = query.where(checks.c.replay_id == replay_id)
        with self.reading() as connection:
            return read_rows(connection, query, Check)

    def acceptances(self, replay_id: str) -> list[Acceptance]:
        """Returns who accepted a replay, newest first."""
        columns = acceptances.c[tuple(Acceptance.__dataclass_fields__)]
        query = select(*columns).where(acceptances.c.replay_id == replay_id)
        with self.reading() as connection:
            ordered = query.order_by(acceptances.c.acceptance_id.desc())
            return read_rows(connection, ordered, Acceptance)
