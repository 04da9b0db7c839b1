"""`rewindow abandon`: ends a dead replay and releases its range."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import ReplayId, out
from rewindow.launcher import verbs
from rewindow.ledger import Ledger, ReplayState


def abandon(
    replay_id: ReplayId,
    reason: Annotated[str, typer.Option(help="Reason, which is stored with the replay.")] = "",
) -> None:
    """End a replay permanently: stop its process and release its leases. Published windows are
    kept; `rewindow purge` deletes the rest.

    Examples:

        rewindow abandon flight_delays-376949-385704-1f2e3d --reason "wrong code"
    """
    config = load_project()
    was = Ledger.open(config.ledger_url).replays.get(replay_id).state
    row = verbs.abandon(config, replay_id, reason=reason)
    already = " already" if was is ReplayState.ABANDONED else ""
    out.print(
        escape(
            f"replay {replay_id} is abandoned{already}; windows {row.describe(row.range)} of "
            f"{row.application} are free"
        )
    )
