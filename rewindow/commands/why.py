"""`rewindow why`: shows the history of one window: inputs, attempts, checkpoint, digests,
checks.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.application.overrides import DEFAULT
from rewindow.commands.completion import subjects
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, out, print_facts, print_json, print_rows
from rewindow.inspection.next_steps import cause
from rewindow.inspection.window_life import WindowLife, window_life


def why(
    subject: Annotated[
        str,
        typer.Argument(
            help="Id of a replay; or name of an application, for the window that readers see.",
            autocompletion=subjects,
        ),
    ],
    window: Annotated[str, typer.Argument(help="Window id, or a time inside the window.")],
    as_json: AsJson = False,
) -> None:
    """Print the history of one window: its inputs, the attempts that computed it, its outputs, and
    the results of checks.

    Examples:

        rewindow why flight_delays 377311

        rewindow why flight_delays 2013-01-16T07:30Z
    """
    life = window_life(load_project(), subject, window)
    if as_json:
        print_json(life.to_json())
    else:
        _show(life)


def _show(life: WindowLife) -> None:
    span = f"{life.begin} to {life.end}"
    out.print(
        f"[bold]window {life.window}[/bold], {span}, in replay {escape(life.replay)}, {life.state}"
    )
    if life.message:
        out.print(escape(f"why {life.state}: {cause(life.message)}"))
    if life.purged:
        out.print(f"not shown, because they were purged: {' and '.join(life.purged)} of the replay")
    rows = [
        (
            entry.stream,
            entry.state,
            *((entry.seal.tuples, entry.seal.sealed_at) if entry.seal else ("", "")),
        )
        for entry in life.inputs
    ]
    print_rows("", ("input", "state", "tuples", "sealed at"), rows)
    facts = [
        (
            fact.direction,
            fact.port,
            fact.tuples,
            fact.attempt,
            "lost" if fact.lost else (fact.digest or "")[9:17],
            f"{fact.began_at:%H:%M:%S}",
            str(fact.group_first),
            str(fact.group_last),
        )
        for fact in life.facts
    ]
    print_rows("", ("", "port", "tuples", "attempt", "digest", "begun", "group from", "to"), facts)
    if life.checkpoint:
        names = ", ".join(
            f"{state.operator or 'no state'} ({state.rows} rows)" for state in life.checkpoint
        )
        out.print(
            f"\ncheckpoint at or before this window: window {life.checkpoint[0].window_id}: "
            f"{escape(names)}"
        )
    _show_properties(life)
    print_facts({"quarantined tuples": life.quarantined, "failed checks": len(life.checks)})
    if any(fact.direction == "error" and fact.tuples for fact in life.facts):
        out.print(f"error tuples: rewindow errors {escape(life.replay)} --window {life.window}")
    for check in life.checks:
        where = "this window" if check.windows else "the whole range"
        out.print(
            escape(f"  {check.output}: {check.check} ({check.severity}, {check.status}) in {where}")
        )
    for publication in life.publications:
        act = f"{publication.kind} {publication.number} of {publication.replay}"
        out.print(escape(f"  {act}: {publication.outcome}"))
    _show_others(life)


def _show_others(life: WindowLife) -> None:
    """Prints the replay that readers see, and the other replays of the window."""
    if life.visible is None:
        out.print("readers do not see this window: no replay of it is published")
    elif life.visible != life.replay:
        out.print(escape(f"readers see the output of replay {life.visible} in this window"))
    rows = [
        (
            other.replay,
            other.state,
            other.mode.replace("_", " "),
            f"{other.planned_at:%Y-%m-%d %H:%M}",
        )
        for other in life.others
    ]
    if rows:
        print_rows("", ("other replays", "state", "mode", "planned"), rows, whole=1)


def _show_properties(life: WindowLife) -> None:
    """Prints the properties that were set; the JSON also has those with the default of their
    class.
    """
    rows = [
        (
            one.operator or "application",
            one.name,
            json.dumps(one.value, ensure_ascii=False),
            one.source,
        )
        for one in life.properties
        if one.source != DEFAULT
    ]
    if rows:
        print_rows("", ("operator", "property", "value", "from"), rows)
