"""One window's life: inputs, attempts, checkpoint, digests, checks."""

from __future__ import annotations

from typing import Any

from rewindow.config import Config
from rewindow.errors import InputError
from rewindow.inspection.visibility import outcome
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay, State
from rewindow.location import Location
from rewindow.names import did_you_mean
from rewindow.recovery import Plan
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA
from rewindow.windows import format_time, parse_time


def window_life(config: Config, subject: str, window: str) -> dict[str, Any]:
    """Returns what went into a window, who computed it, what came out, and what was found wrong.

    Args:
        config: settings.
        subject: a replay's id, or an application: then its newest replay that holds the window.
        window: window id, or a time inside the window.

    Raises:
        InputError: there is no such replay, or none of them holds the window.
    """
    ledger = Ledger.open(config.ledger_url)
    row, number = _find(config, ledger, subject, window)
    return _life(config, ledger, row, number)


def _find(config: Config, ledger: Ledger, subject: str, window: str) -> tuple[Replay, int]:
    """Returns the newest replay that holds a window; one given up, or without facts, only for want of others."""
    found = ledger.replays.find(subject)
    candidates = [found] if found else [row for row in ledger.replays.newest(subject, limit=200) if row.plan]
    if not candidates:
        rows = ledger.replays.newest()
        known = dict.fromkeys([*(row.application for row in rows), *(row.replay_id for row in rows)])
        raise InputError(
            f'there is no replay "{subject}", and none of an application of that name',
            hint=f"{did_you_mean(subject, known)}See those that there are with: rewindow list",
        )
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
    acts = ledger.publications.newest(application=row.application)
    there = [name for name in (FACTS, CHECKPOINTS) if Table.exists(root / name)]
    return {
        "replay": row.replay_id,
        "window": window,
        "from": format_time(plan.grid.start_us(window)),
        "to": format_time(plan.grid.end_us(window)),
        "state": row.state.value,
        "message": row.message,
        "inputs": [_input(config, entry.stream, entry.windows_version, window) for entry in plan.inputs],
        "purged": [name for name in (FACTS, CHECKPOINTS) if name not in there],
        "facts": _facts(root, window) if FACTS in there else [],
        "checkpoint": _checkpoint(root, window) if CHECKPOINTS in there else [],
        "checks": _checks(config, row.replay_id, window),
        "quarantined": _quarantined(config, plan, window),
        "publications": [
            {
                "number": p.number,
                "kind": p.kind,
                "replay": p.replay_id,
                "closed_at": p.closed_at,
                "outcome": outcome(p, acts),
            }
            for p in acts
            if window in p.range
        ],
        "attempts": [vars(attempt) for attempt in ledger.attempts.of(row.replay_id)],
    }


def _facts(root: Location, window: int) -> list[Any]:
    columns = ", ".join(name for name in FACTS_SCHEMA.names if name != "measures")
    sql = f"select {columns} from f where window_id = {window} order by direction, port, attempt"
    return list(query(sql, f=root / FACTS).to_pylist())


def _checkpoint(root: Location, window: int) -> list[Any]:
    """Returns the states of the newest checkpoint at or before a window."""
    sql = f"""select operator, window_id, rows, digest, attempt from c
              where window_id <= {window} order by window_id desc, attempt desc, operator limit 20"""
    saved = query(sql, c=root / CHECKPOINTS).to_pylist()
    return [entry for entry in saved if entry["window_id"] == saved[0]["window_id"]]


def _input(config: Config, stream: str, version: int, window: int) -> dict[str, Any]:
    if not Table.exists(config.windows_table(stream)):
        return {"stream": stream, "state": "not there any more"}
    seals = Table.open(config.windows_table(stream), version)
    found = query(f"select * from w where window_id = {window}", w=seals).to_pylist()
    if not found:
        return {"stream": stream, "state": "missing"}
    return {"stream": stream, "state": "sealed" if found[0]["tuples"] else "empty", **found[0]}


def _checks(config: Config, replay_id: str, window: int) -> list[Any]:
    from rewindow.quality import failures

    found = [vars(failure) for failure in failures(config, replay_id, window)]
    return [{**check, "windows": [[part.first, part.last] for part in check["windows"]]} for check in found]


def _quarantined(config: Config, plan: Plan, window: int) -> int:
    """Returns how many tuples of the replay's inputs were put aside; another stream's ids may be of another grid."""
    if not Table.exists(config.quarantine_table):
        return 0
    sources = ", ".join(f"'{entry.stream}'" for entry in plan.inputs)
    sql = f"select count(*) as n from q where window_id = {window} and source in ({sources})"
    return int(query(sql, q=config.quarantine_table)["n"][0].as_py())
