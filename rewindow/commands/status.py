"""`rewindow status`: shows attempts, progress, losses, gate, publication and stale windows of a
replay.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, ReplayId, err, out, print_facts, print_json, print_rows
from rewindow.errors import InputError
from rewindow.inspection.replay_status import ReplayStatus, replay_status
from rewindow.inspection.visibility import outcome
from rewindow.recording.result import size_words
from rewindow.settings.config import Config
from rewindow.storage.streams import sealed_streams
from rewindow.windows import format_time


def status(
    replay_id: ReplayId,
    page: Annotated[
        bool, typer.Option("--page", help="Write the replay's HTML page, and print its path.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress and state of a replay, and the next command.

    Examples:

        rewindow status flight_delays-376949-385704-1f2e3d

        rewindow status flight_delays-376949-385704-1f2e3d --page
    """
    config = load_project()
    if page:
        _page(config, replay_id, as_json)
        return
    found = _found(config, replay_id)
    if as_json:
        print_json(found.to_dict())
    else:
        _show(config, found)


def _found(config: Config, replay_id: str) -> ReplayStatus:
    try:
        return replay_status(config, replay_id)
    except InputError as error:
        if replay_id in {*config.streams, *sealed_streams(config.state / "streams")}:
            hint = f'"{replay_id}" is a stream: rewindow streams show {replay_id}. To list '
            "replays: rewindow list"
            raise InputError(error.primary, detail=error.detail, hint=hint) from error
        raise


def _show(config: Config, found: ReplayStatus) -> None:
    row = found.row
    plan = found.plan
    begin = format_time(plan.grid.start_us(plan.first))
    end = format_time(plan.grid.end_us(plan.last))
    out.print(
        f"[bold]{escape(row.replay_id)}[/bold]: {escape(row.application)}, {escape(found.state)}"
    )
    print_facts(
        {
            "windows": f"{found.progress}; {plan.range}, {begin} to {end}",
            "mode": plan.mode_words,
            "checkpoint": f"window {plan.grid.describe(plan.window_of(row.checkpoint_mark))}"
            if row.checkpoint_mark
            else "start state",
            **({"state": _sizes(found)} if found.states else {}),
            **({"purpose": plan.reason} if plan.reason else {}),
            **({"candidate": plan.candidate.words} if plan.candidate else {}),
            **(
                {f"why {'it stopped' if found.is_gone else row.state.value}": found.cause}
                if found.cause
                else {}
            ),
            **({"log": found.log} if found.log else {}),
        }
    )
    if plan.is_divided:
        columns = ("container", "mode", "state", "attempts", "committed up to", "reads")
        print_rows("\ncontainers", columns, _containers(found))
        for output in plan.outputs:
            out.print(escape(f"{output.name}: {output.promise}"))
    unended = "its process is gone" if found.is_gone else "running"
    attempts = [
        (
            attempt.epoch,
            f"{attempt.began_at:%H:%M:%S}",
            attempt.outcome.value if attempt.outcome else unended,
            f"window {plan.window_of(attempt.mark)}" if attempt.mark else "nothing",
            attempt.message.split("\n")[0],
        )
        for attempt in found.attempts
    ]
    print_rows("\nattempts", ("attempt", "began", "end", "committed up to", "message"), attempts)
    totals = [(t.direction, t.port, t.windows, t.tuples, t.lost_windows) for t in found.ports]
    print_rows("\nports", ("", "port", "windows", "tuples", "windows lost"), totals)
    _show_partitions(found)
    for line in found.lost_to_states:
        out.print(escape(line))
    if found.error_tuples:
        out.print(
            f"\n{found.error_tuples:,} error tuples; to list them: rewindow errors "
            f"{escape(row.replay_id)}"
        )
    for check in found.checks[:1]:
        out.print(f"\ngate: {check.verdict}, see {escape(str(config.state / check.results))}")
    acts = [
        (
            one.number,
            one.kind,
            str(one.range),
            f"{one.opened_at:%Y-%m-%d %H:%M}",
            outcome(one, found.publications),
        )
        for one in found.publications
    ]
    if acts:
        print_rows("\npublications", ("number", "act", "windows", "begun", "outcome"), acts)
    for one in found.publications:
        for line in one.details.overrides:
            out.print(escape(f"publication {one.number} accepted: {line} ({one.details.accepted})"))
    if found.recovery:
        out.print(f"\nnext attempt, {escape(found.recovery)}")
    for stale in found.stale:
        out.print(
            f"[yellow]stale[/yellow]: {escape(stale.table_name)} [{stale.first}, {stale.last}]"
        )
    out.print(f"\n{escape(found.next_steps)}")


def _show_partitions(found: ReplayStatus) -> None:
    rows = []
    for one in found.partitions:
        largest = f"{one.largest:.0%}, {one.largest_seconds:.1f} s"
        rows.append((one.operator, one.partitions, one.rows, f"{one.seconds:.1f}", largest))
    columns = ("operator", "partitions", "tuples", "seconds", "largest partition")
    print_rows("\npartitions", columns, rows)
    for one in found.partitions:
        if one.advice:
            out.print(escape(one.advice))


def _containers(found: ReplayStatus) -> list[tuple[object, ...]]:
    """Returns a row for each container of a replay."""
    plan = found.plan
    # A container has a row in the ledger once it is planned.
    known = {}
    for row in found.containers:
        known[row.replay_id.partition("@")[2]] = row
    rows: list[tuple[object, ...]] = []
    for one in plan.containers:
        state = "waits"
        epoch = 0
        committed = "nothing"
        if one.name in known:
            row = known[one.name]
            state = row.state.value
            epoch = row.epoch
            if row.mark:
                committed = f"window {plan.window_of(row.mark)}"
        rows.append(
            (
                one.name,
                one.mode.words,
                state,
                epoch,
                committed,
                ", ".join(one.after) or "streams",
            )
        )
    return rows


def _sizes(found: ReplayStatus) -> str:
    return ", ".join(
        f"{one.operator} {one.rows:,} rows, {size_words(one.bytes)}" for one in found.states
    )


def _page(config: Config, replay_id: str, as_json: bool) -> None:
    from rewindow.pages.replay_page import build_replay_page, purged_tables

    path = build_replay_page(config, replay_id)
    purged = purged_tables(config, replay_id)
    if purged:
        err.print(
            f"the page was written before these tables were purged: {escape(', '.join(purged))}"
        )
    if as_json:
        print_json({"page": str(path)})
    else:
        out.print(escape(str(path)), soft_wrap=True)
