"""Streams as Airflow assets. When a stream is recorded or published, its asset gets an event with
the range and the counts.

The published output O of an application A is the stream "A.O". Which outputs a run publishes is
known only after it has planned, so their events go through one alias. Airflow gives the event of an
alias the partition key of its run, if the run has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.settings.config import Config

PUBLICATIONS = AssetAlias("rewindow_publications")


def stream_asset(stream: str) -> Asset:
    """Returns the asset of a recorded or published stream."""
    return Asset(name=stream, uri=f"rewindow://streams/{stream}")


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


def tell_published(context: Context, config: Config, facts: Mapping[str, Any]) -> None:
    """Adds an asset event for each stream in which a publication has replaced windows."""
    for stream, extra in published_streams(config, facts):
        context["outlet_events"][PUBLICATIONS].add(stream_asset(stream), extra)


def published_streams(
    config: Config,
    facts: Mapping[str, Any],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each stream of a publication, with the extra fields of its event.

    Args:
        config: current settings.
        facts: the publication, as its job has reported it.
    """
    from rewindow.ledger import Ledger
    from rewindow.storage import Table, query
    from rewindow.storage.names import data_name
    from rewindow.windows import format_time

    plan = Ledger.open(config.ledger_url).replays.get(facts["replay_id"]).read_plan()
    first = facts["first"]
    last = facts["last"]
    for output in plan.staged:
        stream = data_name(plan.application, output.name)
        totals = (
            "select count(*) as n, sum(tuples) as tuples from w where window_id between "
            f"{first} and {last}"
        )
        [found] = query(totals, w=Table.open(config.windows_table(stream))).to_pylist()
        yield (
            stream,
            {
                "replay": plan.replay_id,
                "application": plan.application,
                "publication": facts["number"],
                "first": first,
                "last": last,
                "from": format_time(plan.grid.start_us(first)),
                "to": format_time(plan.grid.end_us(last)),
                "windows": found["n"],
                "tuples": found["tuples"] or 0,
            },
        )
