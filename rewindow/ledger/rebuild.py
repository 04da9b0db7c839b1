"""Rebuild: a lost ledger made again from the tables (`rewindow ledger rebuild`), and the index from
the facts.

| what | from where |
| --- | --- |
| replays | property `rewindow.plan` of each replay's checkpoints table |
| epochs, marks | transaction ids `<replay>/<table>` of its tables |
| attempts, index of facts | the facts; how an attempt ended is not in them |
| publications | transaction ids `publish/<table>`, and user metadata of the commits |
| stale ranges | `details["stale"]` of each application's newest publication |

Nowhere, so lost: approvals, gate results, timings, leases, and that a replay was abandoned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rewindow.errors import InputError, TableError
from rewindow.ledger.attempts import AttemptEnd
from rewindow.ledger.facade import Ledger
from rewindow.ledger.facts_index import segments_of
from rewindow.ledger.models import attempts, counters, publication_tables, publications, replays
from rewindow.ledger.publication_rows import (
    WITHDRAW,
    effective_publications,
    find_publications,
    publish_app_id,
)
from rewindow.ledger.replays import ReplayState, find_replay
from rewindow.location import Location
from rewindow.settings.config import Config
from rewindow.storage.delta import Table
from rewindow.storage.fence import position
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from rewindow.storage.queries import query
from rewindow.windows import WindowRange, to_datetime

REBUILT = "the ledger was rebuilt from the tables"

_ATTEMPTS = """
select attempt, max(window_id) as window_id, min(began_at) as began_at, max(ended_at) as ended_at
from facts where attempt > 0 group by attempt order by attempt
"""


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild has restored; `passed_over` names folders that hold no replay with a plan."""

    replays: int
    publications: int
    passed_over: tuple[str, ...]


@dataclass
class _Found:
    """A publication as its commits tell it: the metadata, and version and time of the commit in
    each table.
    """

    told: dict[str, Any]
    commits: dict[str, tuple[int, datetime]] = field(default_factory=dict)


def rebuild_ledger(config: Config) -> Rebuilt:
    """Fills an empty ledger from the tables in the state folder, all of it or nothing.

    Raises:
        InputError: the ledger has replays already.
        TableError: a table is damaged; names the file.
    """
    ledger = Ledger.open(config.ledger_url)
    try:
        return _rebuild(ledger, config)
    finally:
        ledger.close()


def _rebuild(ledger: Ledger, config: Config) -> Rebuilt:
    found, last_numbers = _read_publications(config)
    passed_over = []
    with ledger.database.serialised() as connection:
        if connection.execute(select(replays.c.replay_id).limit(1)).first() is not None:
            raise InputError(
                f'ledger "{ledger.database.place.name}" has replays already, only an empty one can '
                "be rebuilt",
                hint="Move it away first, or set another ledger URL.",
            )
        for root in (config.state / "replays").entries():
            try:
                restored = _restore_replay(ledger, connection, root)
            except TableError as error:
                hint = (
                    f"Restore it from a backup. Without one: move {root} away; the replay is then "
                    "lost, what it has published stays."
                )
                raise TableError(error.primary, detail=error.detail, hint=hint) from error
            if not restored:
                passed_over.append(root.name)
        acts = [one.told for one in found.values()]
        withdrawn = {
            act["undoes"]: act["details"]["reason"] for act in acts if act["kind"] == WITHDRAW
        }
        for number in sorted(found):
            _restore_publication(
                ledger,
                config,
                connection,
                number=number,
                found=found[number],
                last_numbers=last_numbers,
                withdrawn=withdrawn.get(number),
            )
        highest = max([0, *last_numbers.values(), *found])
        connection.execute(update(counters).values(value=highest))
        _settle_states(connection)
        _restore_stale(ledger, connection, found)
        count = len(connection.execute(select(replays.c.replay_id)).all())
    return Rebuilt(count, len(found), tuple(passed_over))


def _restore_replay(ledger: Ledger, connection: Connection, root: Location) -> bool:
    if not Table.exists(root / CHECKPOINTS):
        return False
    checkpoints = Table.open(root / CHECKPOINTS)
    try:
        plan = json.loads(checkpoints.properties["rewindow.plan"])
        replay_id = str(plan["replay_id"])
        names = ("application", "first", "last", "mode", "code_version")
        values = {name: plan[name] for name in names} | {"plan": plan}
        modes = {one["mode"] for one in plan.get("containers", ())}
        if modes:
            values["mode"] = modes.pop() if len(modes) == 1 else "mixed"
    except (KeyError, ValueError, TypeError):
        return False
    positions = {}
    for path in root.folders():
        if Table.exists(path):
            positions[path.name] = position(Table.open(path), app_id(replay_id, path.name))
    epoch = max(place.epoch for place in positions.values())
    ended = positions[CHECKPOINTS].mark == len(WindowRange(plan["first"], plan["last"]))
    state = ReplayState.FAILED if epoch else ReplayState.PLANNED
    if ended:
        state = ReplayState.ENDED
    created_at = to_datetime(int(checkpoints.delta.metadata().created_time or 0) * 1000)
    ledger.replays.insert(
        connection,
        replay_id,
        values,
        state=state,
        epoch=epoch,
        mark=positions[FACTS].mark,
        checkpoint_mark=positions[CHECKPOINTS].mark,
        checkpoint_epoch=epoch + 1,
        message=REBUILT,
        created_at=created_at,
    )
    _restore_attempts(
        connection,
        replay_id,
        plan["first"],
        facts=root / FACTS,
        done_epoch=epoch if ended else None,
    )
    ledger.counts.replace(connection, replay_id, segments_of(root / FACTS))
    return True


def _restore_attempts(
    connection: Connection,
    replay_id: str,
    first: int,
    facts: Location,
    done_epoch: int | None,
) -> None:
    rows = [
        {
            "replay_id": replay_id,
            "epoch": row["attempt"],
            "mark": row["window_id"] - first + 1,
            "message": REBUILT,
            "outcome": AttemptEnd.DONE if row["attempt"] == done_epoch else AttemptEnd.LOST,
            "began_at": row["began_at"],
            "heard_at": row["ended_at"],
            "ended_at": row["ended_at"],
        }
        for row in query(_ATTEMPTS, facts=facts).to_pylist()
    ]
    if rows:
        connection.execute(insert(attempts), rows)


def _read_publications(config: Config) -> tuple[dict[int, _Found], dict[str, int]]:
    """Returns the publications that commits tell of, and the last number that each published table
    holds.
    """
    # A publication commits to several tables, each with the same metadata. A table that lacks the
    # commit shows that its publisher was killed, so the publication is still to be finished.
    found: dict[int, _Found] = {}
    last_numbers: dict[str, int] = {}
    for path in (config.state / "streams").folders():
        last = Table.open(path).txn(publish_app_id(path.name)) if Table.exists(path) else -1
        if last < 0:
            continue
        last_numbers[path.name] = last
        for commit in Table.open(path).history():
            told = _told(commit.get("userMetadata"))
            if told is not None and path.name in told["versions_before"]:
                made_at = datetime.fromtimestamp(int(commit["timestamp"]) / 1000, UTC)
                here = found.setdefault(int(told["publication"]), _Found(told))
                here.commits[path.name] = (int(commit["version"]), made_at)
    return found, last_numbers


def _told(text: object) -> dict[str, Any] | None:
    """Returns the user metadata of a publication's commit; that of anybody else's commit is
    None.
    """
    try:
        told = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    named = {
        "publication",
        "replay",
        "kind",
        "first",
        "last",
        "versions_before",
    }
    return told if isinstance(told, dict) and named <= set(told) else None


def _restore_publication(
    ledger: Ledger,
    config: Config,
    connection: Connection,
    number: int,
    found: _Found,
    last_numbers: Mapping[str, int],
    withdrawn: str | None,
) -> None:
    told = found.told
    names = list(found.told["versions_before"])
    if find_replay(connection, told["replay"]) is None:
        _insert_purged(ledger, connection, told)
    made_at = max(at for _, at in found.commits.values())
    known = connection.execute(
        select(publications.c.number).where(publications.c.number == told.get("undoes"))
    ).first()
    done = {name for name in names if last_numbers.get(name, -1) >= number}
    row = {
        "number": number,
        "replay_id": told["replay"],
        "kind": told["kind"],
        "first": told["first"],
        "last": told["last"],
        "undoes": told.get("undoes") if known else None,
        "details": told.get("details") or {},
        "opened_at": made_at,
        "closed_at": made_at if done == set(names) or withdrawn is not None else None,
        "withdrawn": withdrawn,
    }
    connection.execute(insert(publications).values(**row))
    for index, name in enumerate(names):
        values = {
            "number": number,
            "table_name": name,
            "position": index,
            "version_before": told["versions_before"][name],
            "version_after": found.commits[name][0] if name in found.commits else None,
            "done_at": made_at if name in done else None,
        }
        connection.execute(insert(publication_tables).values(**values))


def _insert_purged(ledger: Ledger, connection: Connection, told: Mapping[str, Any]) -> None:
    """Enters a replay of which only publications are left, since its own tables were purged; its
    plan is empty.
    """
    details = told.get("details") or {}
    application = details.get("application") or next(iter(told["versions_before"])).split(".")[0]
    values = {
        "application": application,
        "first": told["first"],
        "last": told["last"],
        "mode": "",
        "code_version": "",
        "plan": {},
    }
    ledger.replays.insert(
        connection,
        told["replay"],
        values,
        state=ReplayState.ENDED,
        message=REBUILT,
    )


def _settle_states(connection: Connection) -> None:
    """Sets replays with closed publications to published, or to undone when none of theirs
    stands.
    """
    closed = find_publications(
        connection,
        publications.c.closed_at.is_not(None) & publications.c.withdrawn.is_(None),
    )
    published = {act.replay_id for act in effective_publications(closed)}
    for replay_id in {act.replay_id for act in closed if act.kind != WITHDRAW}:
        state = ReplayState.PUBLISHED if replay_id in published else ReplayState.UNDONE
        connection.execute(
            update(replays).where(replays.c.replay_id == replay_id).values(state=state)
        )


def _restore_stale(ledger: Ledger, connection: Connection, found: Mapping[int, _Found]) -> None:
    newest: dict[str, tuple[int, _Found]] = {}
    for number in sorted(found):
        replay = find_replay(connection, found[number].told["replay"])
        assert replay is not None, "each publication's replay was restored before"
        newest[replay.application] = (number, found[number])
    for application, (number, one) in newest.items():
        for name, first, last in (one.told.get("details") or {}).get("stale", ()):
            ledger.stale.add_in(
                connection, application, name, windows=WindowRange(first, last), since=number
            )
