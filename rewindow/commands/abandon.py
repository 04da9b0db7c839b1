"""`rewindow abandon`: end a dead replay and free its range."""

from __future__ import annotations

import socket
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.screen import ReplayId, out
from rewindow.config import Config
from rewindow.launcher.processes import end_process_group
from rewindow.ledger import Ledger


def abandon(replay_id: ReplayId, reason: Annotated[str, typer.Option(help="Why; kept with the replay.")] = "") -> None:
    """End a replay for good: its process, its leases. What is published stays; `rewindow purge` deletes the rest.

    Examples:

        rewindow abandon flight_delays-376949-385704-1f2e3d --reason "wrong code"
    """
    ledger = Ledger.open(Config.load().ledger_url)
    last = ledger.attempts.last(replay_id)
    row = ledger.replays.abandon(replay_id, reason)
    if (
        last is not None
        and last.outcome is None
        and last.host == socket.gethostname()
        and last.process_group
        and last.process_identity
    ):
        end_process_group(last.process_group, last.process_identity)
    out.print(escape(f"replay {replay_id} is abandoned; windows {row.range} of {row.application} are free"))
