"""Restores a lost ledger from the tables (`rewindow ledger rebuild`), and its index from the facts.

| entries | restored from |
| --- | --- |
| replays | property `rewindow.plan` of each replay's checkpoints table |
| epochs, marks | transaction ids `<replay>/<table>` of its tables |
| attempts, index of facts | the facts; how an attempt ended is not in them |
| publications | transaction ids `publish/<table>`, and user metadata of the commits |
| stale ranges | `details["stale"]` of each application's newest publication |

Not stored in tables, so lost: acceptances, gate results, timings, leases, the outbox, notices,
schedules of recordings, and that a replay was abandoned. Restored publications that are complete
count as emitted, and notifiers are called again about conditions that are still true.
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
    """The result of rebuilding a ledger.

    Attributes:
        replays: number of restored replays.
        publications: number of restored publications.
        passed_over: names of folders without a replay that has a plan.
    """

    replays: int
    publications: int
    passed_over: tuple[str, ...]


@dataclass
class _CommittedAct:
    """A publication as recorded in its commits.

    Attributes:
        metadata: user metadata of the commits.
        commits: table to version and time of its commit.
    """

    metadata: dict[str, Any]
    commits: dict[str, tuple[int, datetime]] = field(default_factory=dict)


def rebuild_ledger(config: Config) -> Rebuilt:
    """Restores an empty ledger from the tables in the state folder, either completely or not at
    all.

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
    committed, last_numbers = _read_publications(config)
    passed_over = []
    with ledger.database.serialised() as connection:
        if connection.execute(select(replays.c.replay_id).limit(1)).first() is not None:
            raise InputError(
                f'ledger "{ledger.database.place.name}" already has replays, only an empty one can '
                "be rebuilt",
                hint="Move it away first, or set another ledger URL.",
            )
        for root in (config.state / "replays").entries():
            try:
                restored = _restore_replay(ledger, connection, root)
            except TableError as error:
                hint = (
                    f"Restore it from a backup. Without a backup: move {root} away; the replay is "
                    "then lost, but what it has published remains."
                )
                raise TableError(error.primary, detail=error.detail, hint=hint) from error
            if not restored:
                passed_over.append(root.name)
        acts = [commits.metadata for commits in committed.values()]
        withdrawn = {
            act["undoes"]: act["details"]["reason"] for act in acts if act["kind"] == WITHDRAW
        }
        for number in sorted(committed):
            _restore_publication(
                ledger,
                config,
                connection,
                number=number,
                committed=committed[number],
                last_numbers=last_numbers,
                withdrawn=withdrawn.get(number),
            )
        highest = max([0, *last_numbers.values(), *committed])
        connection.execute(update(counters).values(value=highest))
        _settle_states(connection)
        _restore_stale(ledger, connection, committed)
        count = len(connection.execute(select(replays.c.replay_id)).all())
    return Rebuilt(count, len(committed), tuple(passed_over))


def _restore_replay(ledger: Ledger, connection: Connection, root: Location) -> bool:
    if not Table.exists(root / CHECKPOINTS):
        return False
    checkpoints = Table.open(root / CHECKPOINTS)
    try:
        plan = json.loads(checkpoints.properties["rewindow.plan"])
        replay_id = str(plan["replay_id"])
        names = ("application", "first", "last", "mode", "code_version")
        values = {name: plan[name] for name in names} | {"plan": plan}
        modes = {container["mode"] for container in plan.get("containers", ())}
        if modes:
            values["mode"] = modes.pop() if len(modes) == 1 else "mixed"
    except (KeyError, ValueError, TypeError):
        return False
    # The last transaction of each table has the newest epoch that wrote it, and its number of
    # windows. The replay has ended if its checkpoints cover the range; otherwise the next attempt
    # resumes it. `checkpoint_epoch` is the next epoch, so that attempts from before the rebuild do
    # not count as failures.
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


def _read_publications(config: Config) -> tuple[dict[int, _CommittedAct], dict[str, int]]:
    """Returns the publications that are recorded in commits, by number.

    Also returns the last publication number of each published table.
    """
    # A publication commits to several tables, each time with the same metadata. If a table lacks
    # the commit, its publisher was killed, and the publication must still be completed.
    committed: dict[int, _CommittedAct] = {}
    last_numbers: dict[str, int] = {}
    for path in (config.state / "streams").folders():
        last = Table.open(path).txn(publish_app_id(path.name)) if Table.exists(path) else -1
        if last < 0:
            continue
        last_numbers[path.name] = last
        for commit in Table.open(path).history():
            metadata = _metadata_of(commit.get("userMetadata"))
            if metadata is not None and path.name in metadata["versions_before"]:
                made_at = datetime.fromtimestamp(int(commit["timestamp"]) / 1000, UTC)
                here = committed.setdefault(int(metadata["publication"]), _CommittedAct(metadata))
                here.commits[path.name] = (int(commit["version"]), made_at)
    return committed, last_numbers


def _metadata_of(text: object) -> dict[str, Any] | None:
    """Returns the user metadata of a publication's commit; None for other commits."""
    try:
        metadata = json.loads(text) if isinstance(text, str) else text
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
    return metadata if isinstance(metadata, dict) and named <= set(metadata) else None


def _restore_publication(
    ledger: Ledger,
    config: Config,
    connection: Connection,
    number: int,
    committed: _CommittedAct,
    last_numbers: Mapping[str, int],
    withdrawn: str | None,
) -> None:
    metadata = committed.metadata
    names = list(committed.metadata["versions_before"])
    if find_replay(connection, metadata["replay"]) is None:
        _insert_purged(ledger, connection, metadata)
    made_at = max(at for _, at in committed.commits.values())
    # The publication that this one reverts may be missing: logs do not keep old commits forever.
    known = connection.execute(
        select(publications.c.number).where(publications.c.number == metadata.get("undoes"))
    ).first()
    done = {name for name in names if last_numbers.get(name, -1) >= number}
    row = {
        "number": number,
        "replay_id": metadata["replay"],
        "kind": metadata["kind"],
        "first": metadata["first"],
        "last": metadata["last"],
        "undoes": metadata.get("undoes") if known else None,
        "details": metadata.get("details") or {},
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
            "version_before": metadata["versions_before"][name],
            "version_after": committed.commits[name][0] if name in committed.commits else None,
            "done_at": made_at if name in done else None,
        }
        connection.execute(insert(publication_tables).values(**values))


def _insert_purged(ledger: Ledger, connection: Connection, metadata: Mapping[str, Any]) -> None:
    """Records a replay whose tables were purged, so that only its publications remain.

    Its plan is empty.
    """
    details = metadata.get("details") or {}
    application = (
        details.get("application") or next(iter(metadata["versions_before"])).split(".")[0]
    )
    values = {
        "application": application,
        "first": metadata["first"],
        "last": metadata["last"],
        "mode": "",
        "code_version": "",
        "plan": {},
    }
    ledger.replays.insert(
        connection,
        metadata["replay"],
        values,
        state=ReplayState.ENDED,
        message=REBUILT,
    )


def _settle_states(connection: Connection) -> None:
    """Sets replays with closed publications to published, or to undone if none of these
    publications is effective.
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


def _restore_stale(
    ledger: Ledger, connection: Connection, committed: Mapping[int, _CommittedAct]
) -> None:
    newest: dict[str, tuple[int, _CommittedAct]] = {}
    for number in sorted(committed):
        replay = find_replay(connection, committed[number].metadata["replay"])
        assert replay is not None, "each publication's replay was restored before"
        newest[replay.application] = (number, committed[number])
    for application, (number, act) in newest.items():
        for name, first, last in (act.metadata.get("details") or {}).get("stale", ()):
            ledger.stale.add_in(
                connection, application, name, windows=WindowRange(first, last), since=number
            )
