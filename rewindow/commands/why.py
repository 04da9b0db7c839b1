"""`rewindow why`: one window's life: inputs, attempts, checkpoint, digests, checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow.commands.screen import AsJson, out, print_facts, print_json, print_rows
from rewindow.config import Config
from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay, State
from rewindow.recovery import Plan
from rewindow.tables import Table, query
from rewindow.tables.staging import CHECKPOINTS, FACTS
from rewindow.windows import format_time, parse_time


def why(
    subject: Annotated[str, typer.Argument(help="A replay's id, or an application: then its newest replay of it.")],
    window: Annotated[str, typer.Argument(help="Window id, or a time inside the window.")],
    as_json: AsJson = False,
) -> None:
    """Print the life of one window: what went in, who computed it, what came out, what was found wrong.

    Examples:

        rewindow why flight_delays 377311

        rewindow why flight_delays 2013-01-16T07:30Z
    """
    config = Config.load()
    ledger = Ledger.open(config.ledger_url)
    row, number = _find(config, ledger, subject, window)
    life = _life(config, ledger, row, number)
    if as_json:
        print_json(life)
    else:
        _show(life)


def _find(config: Config, ledger: Ledger, subject: str, window: str) -> tuple[Replay, int]:
    """Returns the newest replay that holds a window; one given up, or without facts, only for want of others."""
    found = ledger.find(subject)
    candidates = [found] if found else [row for row in ledger.replays(subject, limit=200) if row.plan]
    if not candidates:
        raise InputError(f'there is no replay "{subject}", and none of an application of that name')
    passed_over = []
    for row in candidates:
        number = int(window) if window.isdigit() else row.read_plan().grid.window(parse_time(window))
        if number in row.range:
            if row.state is not State.ABANDONED and _has_facts(config, row):
                return row, number
            passed_over.append((row, number))
    if passed_over:
        return next((entry for entry in passed_over if _has_facts(config, entry[0])), passed_over[0])
    raise InputError(f"window {window} is in no replay of {subject}", hint="See the ranges with: rewindow list")


def _has_facts(config: Config, row: Replay) -> bool:
    return Table.exists(config.replay_root(row.replay_id) / FACTS)


def _life(config: Config, ledger: Ledger, row: Replay, window: int) -> dict[str, Any]:
    plan = row.read_plan()
    root = config.replay_root(row.replay_id)
    there = [name for name in (FACTS, CHECKPOINTS) if Table.exists(root / name)]
    return {
        "replay": row.replay_id,
        "window": str(window),
        "from": format_time(plan.grid.start_us(window)),
        "to": format_time(plan.grid.end_us(window)),
        "state": row.state.value,
        "inputs": [_input(config, entry.stream, entry.windows_version, window) for entry in plan.inputs],
        "purged": [name for name in (FACTS, CHECKPOINTS) if name not in there],
        "facts": _facts(root, window) if FACTS in there else [],
        "checkpoint": _checkpoint(root, window) if CHECKPOINTS in there else [],
        "checks": _checks(config, row.replay_id, window),
        "quarantined": _quarantined(config, plan, window),
        "publications": [
            {"number": p.number, "kind": p.kind, "replay": p.replay_id, "closed_at": p.closed_at}
            for p in ledger.publications(application=row.application)
            if window in p.range
        ],
        "attempts": [vars(attempt) for attempt in ledger.attempts(row.replay_id)],
    }


def _facts(root: Path, window: int) -> list[Any]:
    sql = f"select * from f where window_id = {window} order by direction, port, attempt"
    return list(query(sql, f=root / FACTS).to_pylist())


def _checkpoint(root: Path, window: int) -> list[Any]:
    """Returns the states of the newest checkpoint at or before a window."""
    sql = f"""select operator, window_id, rows, digest, attempt from c
              where window_id <= {window} order by window_id desc, attempt desc, operator limit 20"""
    saved = query(sql, c=root / CHECKPOINTS).to_pylist()
    return [entry for entry in saved if entry["window_id"] == saved[0]["window_id"]]


def _input(config: Config, stream: str, version: int, window: int) -> dict[str, Any]:
    seals = Table.open(config.windows_table(stream), version)
    found = query(f"select * from w where window_id = {window}", w=seals).to_pylist()
    if not found:
        return {"stream": stream, "state": "missing"}
    return {"stream": stream, "state": "sealed" if found[0]["tuples"] else "empty", **found[0]}


def _checks(config: Config, replay_id: str, window: int) -> list[Any]:
    from rewindow.quality import failures

    return [vars(found) for found in failures(config, replay_id, window)]


def _quarantined(config: Config, plan: Plan, window: int) -> int:
    """Returns how many tuples of the replay's inputs were put aside; another stream's ids may be of another grid."""
    if not Table.exists(config.quarantine_table):
        return 0
    sources = ", ".join(f"'{entry.stream}'" for entry in plan.inputs)
    sql = f"select count(*) as n from q where window_id = {window} and source in ({sources})"
    return int(query(sql, q=config.quarantine_table)["n"][0].as_py())


def _show(life: dict[str, Any]) -> None:
    span = f"{life['from']} to {life['to']}"
    out.print(f"[bold]window {life['window']}[/bold], {span}, in replay {escape(life['replay'])}, {life['state']}")
    if life["purged"]:
        out.print(f"not told, since they were purged: {' and '.join(life['purged'])} of the replay")
    rows = [(i["stream"], i["state"], i.get("tuples", ""), i.get("sealed_at", "")) for i in life["inputs"]]
    print_rows("", ("input", "state", "tuples", "sealed at"), rows)
    facts = [
        (f["direction"], f["port"], f["tuples"], f["attempt"], "lost" if f["lost"] else (f["digest"] or "")[9:17],
         f"{f['began_at']:%H:%M:%S}", f["group_first"], f["group_last"])
        for f in life["facts"]
    ]  # fmt: skip
    print_rows("", ("", "port", "tuples", "attempt", "digest", "begun", "group from", "to"), facts)
    if life["checkpoint"]:
        newest = life["checkpoint"][0]
        names = ", ".join(f"{c['operator'] or 'no state'} ({c['rows']} rows)" for c in life["checkpoint"])
        out.print(f"\ncheckpoint at or before it: window {newest['window_id']}: {escape(names)}")
    print_facts({"quarantined tuples": life["quarantined"], "failed checks": len(life["checks"])})
    if any(fact["direction"] == "error" and fact["tuples"] for fact in life["facts"]):
        out.print(f"error tuples: rewindow errors {escape(life['replay'])} --window {life['window']}")
    for check in life["checks"]:
        where = "this window" if check["windows"] else "the whole range"
        out.print(escape(f"  {check['output']}: {check['check']} ({check['severity']}, {check['status']}) of {where}"))
    for publication in life["publications"]:
        out.print(escape(f"  {publication['kind']} {publication['number']} of {publication['replay']}"))
