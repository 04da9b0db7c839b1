"""`rewindow why`: one window's life: inputs, attempts, checkpoint, digests, checks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rewindow.commands.screen import AsJson, out, print_facts, print_json, print_rows
from rewindow.config import Config
from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay
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
    row, number = _find(ledger, subject, window)
    life = _life(config, ledger, row, number)
    if as_json:
        print_json(life)
    else:
        _show(life)


def _find(ledger: Ledger, subject: str, window: str) -> tuple[Replay, int]:
    found = ledger.find(subject)
    candidates = [found] if found else ledger.replays(subject, limit=200)
    if not candidates:
        raise InputError(f'there is no replay "{subject}", and none of an application of that name')
    for row in candidates:
        number = int(window) if window.isdigit() else Plan.model_validate(row.plan).grid.window(parse_time(window))
        if number in row.range:
            return row, number
    raise InputError(f"window {window} is in no replay of {subject}", hint="See the ranges with: rewindow list")


def _life(config: Config, ledger: Ledger, row: Replay, window: int) -> dict[str, Any]:
    plan = Plan.model_validate(row.plan)
    root = config.replay_root(row.replay_id)
    facts = query(f"select * from f where window_id = {window} order by direction, port, attempt", f=root / FACTS)
    sql = f"""select operator, window_id, rows, digest, attempt from c
              where window_id <= {window} order by window_id desc, attempt desc, operator limit 20"""
    saved = query(sql, c=Table.open(root / CHECKPOINTS)).to_pylist()
    newest = [entry for entry in saved if entry["window_id"] == saved[0]["window_id"]] if saved else []
    return {
        "replay": row.replay_id,
        "window": str(window),
        "from": format_time(plan.grid.start_us(window)),
        "to": format_time(plan.grid.end_us(window)),
        "state": row.state.value,
        "inputs": [_input(config, entry.stream, entry.windows_version, window) for entry in plan.inputs],
        "facts": facts.to_pylist(),
        "checkpoint": newest,
        "checks": _checks(config, row.replay_id, window),
        "quarantined": _quarantined(config, window),
        "publications": [
            {"number": p.number, "kind": p.kind, "replay": p.replay_id, "closed_at": p.closed_at}
            for p in ledger.publications(application=row.application)
            if window in p.range
        ],
        "attempts": [vars(attempt) for attempt in ledger.attempts(row.replay_id)],
    }


def _input(config: Config, stream: str, version: int, window: int) -> dict[str, Any]:
    seals = Table.open(config.windows_table(stream), version)
    found = query(f"select * from w where window_id = {window}", w=seals).to_pylist()
    if not found:
        return {"stream": stream, "state": "missing"}
    return {"stream": stream, "state": "sealed" if found[0]["tuples"] else "empty", **found[0]}


def _checks(config: Config, replay_id: str, window: int) -> list[Any]:
    from rewindow.quality import failures

    return [vars(found) for found in failures(config, replay_id) if any(window in part for part in found.windows)]


def _quarantined(config: Config, window: int) -> int:
    if not Table.exists(config.quarantine_table):
        return 0
    sql = f"select count(*) as n from q where window_id = {window}"
    return int(query(sql, q=config.quarantine_table)["n"][0].as_py())


def _show(life: dict[str, Any]) -> None:
    out.print(f"[bold]window {life['window']}[/bold], {life['from']} to {life['to']}, in replay {life['replay']}")
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
        out.print(f"\ncheckpoint at or before it: window {newest['window_id']}: {names}")
    print_facts({"quarantined tuples": life["quarantined"], "failed checks": len(life["checks"])})
    for publication in life["publications"]:
        out.print(f"  {publication['kind']} {publication['number']} of {publication['replay']}")
