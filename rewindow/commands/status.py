"""`rewindow status`: where a replay stands: attempts, marks, losses, gate, publication, what is stale."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow.commands.screen import AsJson, ReplayId, err, out, print_facts, print_json, print_rows
from rewindow.config import Config
from rewindow.errors import RewindowError
from rewindow.launcher.outlook import expect_recovery
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay, State
from rewindow.publication.losses import Losses, losses_of
from rewindow.recovery import Plan
from rewindow.tables import Table
from rewindow.tables.staging import FACTS
from rewindow.windows import format_time, to_ranges


def status(
    replay_id: ReplayId,
    page: Annotated[bool, typer.Option("--page", help="Draw the replay's page, and print its path.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where a replay stands, and the next command.

    Examples:

        rewindow status flight_delays-376949-385704-1f2e3d

        rewindow status flight_delays-376949-385704-1f2e3d --page
    """
    config = Config.load()
    if page:
        _page(config, replay_id, as_json)
        return
    ledger = Ledger.open(config.ledger_url)
    row = ledger.replay(replay_id)
    plan = row.read_plan()
    if as_json:
        losses = _losses(config, plan)
        told = {"state_lost": losses.state_lost, "skipped": losses.skipped, "recovery": _expected(config, row)}
        print_json(_as_dict(ledger, row) | told)
        return
    begin, end = format_time(plan.grid.start_us(plan.first)), format_time(plan.grid.end_us(plan.last))
    out.print(f"[bold]{escape(replay_id)}[/bold]: {escape(row.application)}, {row.state.value}")
    print_facts(
        {
            "windows": f"{row.mark:,} of {len(plan.range):,} committed, {plan.range}, {begin} to {end}",
            "mode": plan.mode.words,
            "checkpoint": f"window {plan.window_of(row.checkpoint_mark)}" if row.checkpoint_mark else "start state",
            "reason": plan.reason or "none given",
            **({"message": row.message} if row.message else {}),
        }
    )
    attempts = [
        (
            one.epoch,
            f"{one.began_at:%H:%M:%S}",
            one.outcome.value if one.outcome else "running",
            one.mark,
            one.message.split("\n")[0],
        )
        for one in ledger.attempts(replay_id)
    ]
    print_rows("\nattempts", ("epoch", "began", "end", "mark", "message"), attempts)
    totals = [(t.direction, t.port, t.windows, t.tuples, t.lost_windows) for t in ledger.totals(replay_id)]
    print_rows("\nports", ("", "port", "windows", "tuples", "windows lost"), totals)
    for line in _lost_to_states(config, plan):
        out.print(escape(line))
    errors = sum(total.tuples for total in ledger.totals(replay_id) if total.direction == "error")
    if errors:
        out.print(f"\n{errors:,} error tuples; list them: rewindow errors {escape(replay_id)}")
    for check in ledger.checks(replay_id)[:1]:
        out.print(f"\ngate: {check.verdict}, see {escape(check.results)}")
    expected = _expected(config, row)
    if expected:
        out.print(f"\nnext attempt, {escape(str(expected))}")
    for stale in ledger.stale(row.application):
        out.print(f"[yellow]stale[/yellow]: {escape(stale.table_name)} [{stale.first}, {stale.last}]")
    out.print(f"\n{escape(next_step(row))}")


def _lost_to_states(config: Config, plan: Plan) -> list[str]:
    """Returns what skips have cost the states, in words (X2, X3)."""
    losses = _losses(config, plan)
    found = [
        f"state_lost: the state of {name} lacks windows {', '.join(map(str, parts))}; their outputs stay"
        for name, parts in losses.state_lost.items()
    ]
    for name, windows in losses.skipped.items():
        where = ", ".join(map(str, to_ranges(windows)))
        found.append(f"skipped: {name} dropped {sum(windows.values()):,} tuples of windows {where} from its state")
    return found


def _losses(config: Config, plan: Plan) -> Losses:
    facts = config.replay_root(plan.replay_id) / FACTS
    return losses_of(plan, Table.open(facts), None, plan.range) if Table.exists(facts) else Losses()


def _page(config: Config, replay_id: str, as_json: bool) -> None:
    from rewindow.reports.replay_page import build_replay_page, purged_tables

    path = build_replay_page(config, replay_id)
    purged = purged_tables(config, replay_id)
    if purged:
        err.print(f"the page was drawn before these tables were purged: {escape(', '.join(purged))}")
    if as_json:
        print_json({"page": str(path)})
    else:
        out.print(escape(str(path)), soft_wrap=True)


def _expected(config: Config, row: Replay) -> str | None:
    """Returns how the next attempt of a replay that has stopped goes on (R8)."""
    if row.state is not State.FAILED:
        return None
    try:
        return str(expect_recovery(config, row.read_plan()))
    except RewindowError as error:
        return f"none: {error.primary}"


def next_step(row: Replay) -> str:
    """Returns what to do next with a replay, in words."""
    name = row.replay_id
    return {
        State.PLANNED: f"Next: rewindow replay --resume {name}",
        State.RUNNING: f"It runs; should its process be gone: rewindow replay --resume {name}",
        State.FAILED: f"Next: rewindow replay --resume {name}, or give it up: rewindow abandon {name}",
        State.ENDED: f"Next: rewindow check {name}",
        State.CHECKED: f"Next: rewindow publish {name}",
        State.PUBLISHED: f"Take it back with: rewindow undo {name}",
        State.UNDONE: f"Publish it again with: rewindow publish {name}",
        State.ABANDONED: "Nothing is left to do.",
    }[row.state]


def _as_dict(ledger: Ledger, row: Replay) -> dict[str, Any]:
    return {
        "replay": row.replay_id,
        "application": row.application,
        "state": row.state,
        "mode": row.mode,
        "first": str(row.first),
        "last": str(row.last),
        "mark": row.mark,
        "checkpoint_mark": row.checkpoint_mark,
        "windows": len(row.range),
        "message": row.message,
        "attempts": [vars(attempt) for attempt in ledger.attempts(row.replay_id)],
        "ports": [vars(total) for total in ledger.totals(row.replay_id)],
        "checks": [vars(check) for check in ledger.checks(row.replay_id)],
        "stale": [vars(stale) for stale in ledger.stale(row.application)],
    }
