"""The task that closes plans of DAG runs that ended before the replay started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator

from rewindow_airflow.failures import mapped_errors
from rewindow_airflow.order import run_state

if TYPE_CHECKING:
    from airflow.sdk import Context

_ENDED = ("success", "failed", "")
"""States of a run that starts no more tasks unless a user clears it. A deleted run has no state."""


class CloseUnstartedOperator(BaseOperator):
    """Abandons planned replays whose DAG run has ended, or was deleted, before an attempt started.

    Nothing is lost: if a user clears such a run, its plan task plans a new replay.
    """

    def execute(self, context: Context) -> list[str]:
        """Returns the ids of the abandoned replays."""
        from rewindow.launcher.verbs import abandon
        from rewindow.ledger import Ledger, ReplayState
        from rewindow.settings.config import Config

        closed = []
        with mapped_errors():
            config = Config.load()
            for row in Ledger.open(config.ledger_url).replays.newest(state=ReplayState.PLANNED):
                dag, run = (row.plan.get(name, "") for name in ("dag", "run"))
                if row.epoch or not run or run_state(dag, run) not in _ENDED:
                    continue
                reason = f"run {run} of DAG {dag} ended before the replay started"
                abandon(config, row.replay_id, reason=reason)
                self.log.info("Replay %s is abandoned: %s", row.replay_id, reason)
                closed.append(row.replay_id)
        return closed
