"""Streams as Airflow assets. When a stream is recorded or published, its asset gets an event with
the range and the counts.

The published output O of an application A is the stream "A.O". Which outputs a run publishes is
known only after it has planned, so their events go through one alias. Airflow gives the event of an
alias the partition key of its run, if the run has one. A run that such an event has started has it
twice, under the stream and under the alias, so read the events of a stream:

    @task
    def print_publications(triggering_asset_events):
        for event in triggering_asset_events[stream_asset("clicks_by_page.totals")]:
            print(event.extra["act"], event.extra["publication"], event.extra["from"])
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.ledger import Emitter, Ledger, Publication
    from rewindow.settings.config import Config
    from rewindow.windows import WindowRange

logger = logging.getLogger(__name__)

PUBLICATIONS = AssetAlias("rewindow_publications")
_PUBLICATIONS_MAX = 100
"""Number of publications that one task emits. Airflow stores all of their events in the request
that ends the task.
"""
_CLOCKS_DIFFER_MAX = timedelta(days=1)
"""Largest difference between the clocks of the ledger and of Airflow."""
_QUEUED = "queued"
_MAY_SUCCEED = (_QUEUED, "scheduled", "running", "restarting")


def stream_asset(stream: str) -> Asset:
    """Returns the asset of a recorded or published stream."""
    return Asset(name=stream, uri=f"rewindow://streams/{stream}")


def input_assets(config: Config, replay_id: str) -> list[Asset]:
    """Returns the assets of the recorded streams that a replay has read."""
    from rewindow.ledger import Ledger

    plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    return [stream_asset(entry.stream) for entry in plan.recorded]


def tell_recorded(context: Context, stream: str, facts: Mapping[str, Any]) -> None:
    """Adds the sealed windows and counts to the asset event of a recorded stream."""
    names = (
        "first",
        "last",
        "stream_first",
        "stream_last",
        "windows_sealed",
        "recorded",
        "late",
        "malformed",
    )
    event = context["outlet_events"][stream_asset(stream)]
    event.extra.update({name: facts.get(name) for name in names})


def emit_publications(context: Context, config: Config) -> None:
    """Emits the asset events of the publications in the ledger's outbox.

    Every task with PUBLICATIONS in its outlets calls this before it returns; in other tasks it does
    nothing. The events exist only when the task has succeeded. So the task records that it is the
    emitter of these publications. A later task marks them as done if Airflow has their events;
    otherwise it emits them again, unless the emitter may still succeed. A reader may see an event
    twice, but never misses one.
    """
    from rewindow.ledger import Emitter, Ledger

    if PUBLICATIONS not in context["task"].outlets:
        return
    instance = context["ti"]
    emitter = Emitter(instance.dag_id, instance.run_id, instance.task_id, instance.map_index)
    ledger = Ledger.open(config.ledger_url)
    emitted = 0
    # The oldest ones may be emitted already, and are only marked.
    for publication, previous in ledger.outbox.waiting(2 * _PUBLICATIONS_MAX):
        if previous is not None and _is_emitted(publication):
            ledger.outbox.mark_done(publication.number)
            continue
        # This task itself may be the emitter: an earlier try has not succeeded.
        if previous not in (None, emitter) and _state_of(context, previous) in _MAY_SUCCEED:
            continue
        if emitted < _PUBLICATIONS_MAX and ledger.outbox.take(
            publication.number, emitter, previous
        ):
            emitted += 1
            for stream, extra in _events(config, ledger, publication):
                context["outlet_events"][PUBLICATIONS].add(stream_asset(stream), extra)


def _is_emitted(publication: Publication) -> bool:
    """Returns whether Airflow has an event of a publication for each of its streams."""
    from airflow.sdk.execution_time.comms import GetAssetEventByAsset
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    assert publication.closed_at is not None, "a publication in the outbox is closed"
    after = publication.closed_at - _CLOCKS_DIFFER_MAX
    key = (publication.number, publication.replay_id)
    for stream in _streams(publication):
        asset = stream_asset(stream)
        question = GetAssetEventByAsset(name=asset.name, uri=asset.uri, after=after)
        found: Any = SUPERVISOR_COMMS.send(question)
        extras = [event.extra or {} for event in found.asset_events]
        if key not in [(extra.get("publication"), extra.get("replay")) for extra in extras]:
            return False
    return True


def _state_of(context: Context, emitter: Emitter) -> str:
    """Returns the state of a task instance; if it does not exist, `removed`."""
    found = context["ti"].get_task_states(
        dag_id=emitter.dag_id,
        task_ids=[emitter.task_id],
        run_ids=[emitter.run_id],
    )
    mapped = f"_{emitter.map_index}" if emitter.map_index >= 0 else ""
    state = found.get(emitter.run_id, {}).get(emitter.task_id + mapped, "removed")
    return str(state or _QUEUED)  # A cleared task has no state until it is scheduled.


def _streams(publication: Publication) -> list[str]:
    from rewindow.storage.published_tables import Kind, kind_of

    return [table.name for table in publication.tables if kind_of(table.name) is Kind.DATA]


def _events(
    config: Config,
    ledger: Ledger,
    publication: Publication,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each stream in which a publication has changed windows, with the extra fields of its
    event.
    """
    replay = ledger.replays.get(publication.replay_id)
    first = publication.first
    last = publication.last
    times = replace(replay, first=first, last=last).times() or (None, None)
    extra = {
        "replay": replay.replay_id,
        "application": replay.application,
        "publication": publication.number,
        "act": publication.kind,
        "first": first,
        "last": last,
        "from": times[0],
        "to": times[1],
    }
    for stream in _streams(publication):
        yield stream, extra | _counts(config, stream, publication.range)


def _counts(config: Config, stream: str, windows: WindowRange) -> dict[str, int | None]:
    """Returns the numbers of windows and tuples that readers see in a range of a stream."""
    from rewindow.errors import TableError
    from rewindow.storage import Table, query

    totals = (
        "select count(*) as windows, coalesce(sum(tuples), 0) as tuples from w where window_id "
        f"between {windows.first} and {windows.last}"
    )
    try:
        [counts] = query(totals, w=Table.open(config.windows_table(stream))).to_pylist()
    except TableError as error:
        # A damaged table must not keep other publications from being emitted.
        logger.warning("The windows of %s were not counted: %s", stream, error)
        return {"windows": None, "tuples": None}
    return dict(counts)
