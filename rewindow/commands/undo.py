"""`rewindow undo`: undoes the newest publication over a range."""

from __future__ import annotations

from typing import Annotated

import typer

from rewindow.commands.project import load_project
from rewindow.commands.publish import DryRun, LeaveOutDamaged, show, show_expected, was_done
from rewindow.commands.screen import AsJson, JobScreen, ReplayId
from rewindow.inspection.next_steps import next_steps
from rewindow.launcher import verbs
from rewindow.ledger import Ledger
from rewindow.publication.undo_preview import expected_undo


def undo(
    replay_id: ReplayId,
    leave_out_damaged: LeaveOutDamaged = False,
    dry_run: DryRun = False,
    crash: Annotated[
        str | None, typer.Option(help="Drill: kill the job at STEP:NUMBER.", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore the windows that were published before this replay. Fails if a later publication
    overlaps the range; the message names it.

    Examples:

        rewindow undo flight_delays-376949-385704-1f2e3d

        rewindow undo flight_delays-376949-385704-1f2e3d --dry-run
    """
    config = load_project()
    if dry_run:
        return show_expected(
            expected_undo(config, replay_id, leave_out_damaged=leave_out_damaged),
            as_json,
        )
    result = verbs.undo(
        config,
        replay_id,
        leave_out_damaged=leave_out_damaged,
        listener=JobScreen(),
        crash=crash,
    )
    done = f"already undone, as publication {result.number}" if was_done(result) else "undone"
    act, _ = next_steps(config, Ledger.open(config.ledger_url).replays.get(replay_id))
    show(result, as_json, f"{done}. {act}")
