"""Gate results and acceptances. They allow a replay to be published."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    """Summary of the gate's result for an output: the results of the checks by name, and the file
    name of the page. It does not list windows.
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
    """The gate's result for each output, or the error that prevented a result."""

    outputs: list[OutputSummary]
    error: str


@dataclass(frozen=True)
class Check:
    """The gate's result for a replay.

    Attributes:
        verdict: "passed" or "failed".
        results: location of the detailed results.
        tables: content of the replay's tables when the gate read them
            (`rewindow.storage.layout.staged_contents`); None if it did not read them.
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
    """A user's decision that a replay may be published regardless of the gate's result.

    It is never deleted. `tables` are as in Check.
    """

    replay_id: str
    reason: str
    who: str
    tables: Contents | None
    accepted_at: datetime


class Checks(LedgerPart):
    """Gate results and acceptances in the ledger."""

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
        """Records a gate result.

        If the gate has passed, an ended replay becomes checked. If it has failed, a checked replay
        becomes ended.

        Args:
            replay_id: the replay.
            verdict: "passed" or "failed".
            results: location of the detailed results.
            summary: the result for each output.
            epoch: the attempt that was checked.
            tables: what was checked, see Check; without it, the check does not allow a publication.

        Raises:
            InputError: the replay is unknown or has not ended, or the verdict is invalid.
        """
        if verdict not in (PASSED, FAILED):
            raise InputError(f'verdict must be "{PASSED}" or "{FAILED}", not "{verdict}"')
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
        """Records that a user accepts an ended replay with the present content of its tables.

        The replay becomes checked.

        Raises:
            InputError: the replay is unknown or has not ended, or no reason is given.
        """
        if not reason.strip() or not who.strip():
            raise InputError(
                "an acceptance needs a reason and a name",
                hint="Give the reason: "
                f'rewindow publish {replay_id} --accept "known outage of a station"',
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
        """Returns the gate results of all replays or of one replay, newest first."""
        columns = checks.c[tuple(Check.__dataclass_fields__)]
        query = select(*columns).order_by(checks.c.check_id.desc()).limit(limit)
        if replay_id is not None:
            query = query.where(checks.c.replay_id == replay_id)
        with self.reading() as connection:
            return read_rows(connection, query, Check)

    def verdicts(self, replay_ids: Sequence[str]) -> dict[str, str]:
        """Returns the newest verdict of each replay. Replays without one are left out."""
        query = select(checks.c.replay_id, checks.c.verdict).order_by(checks.c.check_id)
        with self.reading() as connection:
            rows = connection.execute(query.where(checks.c.replay_id.in_(replay_ids)))
            return dict(map(tuple, rows))

    def acceptances(self, replay_id: str) -> list[Acceptance]:
        """Returns the acceptances of a replay, newest first."""
        columns = acceptances.c[tuple(Acceptance.__dataclass_fields__)]
        query = select(*columns).where(acceptances.c.replay_id == replay_id)
        with self.reading() as connection:
            ordered = query.order_by(acceptances.c.acceptance_id.desc())
            return read_rows(connection, ordered, Acceptance)
