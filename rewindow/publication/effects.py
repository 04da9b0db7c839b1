"""Computes the effects of an application's publications and undos: which publications readers see,
and which windows are stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rewindow.ledger import Ledger, Publication
from rewindow.ledger.publication_details import StaleWindows
from rewindow.ledger.publication_rows import effective_publications
from rewindow.recovery.staleness import EffectivePublication, stale_windows
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.windows import WindowRange


def related_acts(ledger: Ledger, application: str, names: Iterable[str]) -> list[Publication]:
    """Returns the publications, undos and withdrawals of an application that affect at least one of
    the given tables.
    """
    every = ledger.publications.newest(application=application, limit=1_000_000)
    return [publication for publication in every if _outputs(publication) & set(names)]


def states_in_effect(acts: Iterable[Publication]) -> list[EffectivePublication]:
    """Returns the publications that were not undone, with facts about their states."""
    in_effect = []
    for publication in effective_publications(acts):
        start = publication.details.started_from
        states = publication.details.states
        in_effect.append(
            EffectivePublication(
                publication.number,
                publication.range,
                states,
                source=start.source,
                base=start.window,
                base_digest=start.digest,
                repeats=publication.details.repeats,
            )
        )
    return in_effect


def stale_ranges(
    ledger: Ledger,
    application: str,
    names: Iterable[str],
    stateful: Sequence[str],
    acts: Sequence[Publication],
    in_effect: Sequence[EffectivePublication],
) -> tuple[StaleWindows, ...]:
    """Returns all stale windows of an application for a given set of publications in effect.

    Args:
        ledger: the ledger, for windows of other outputs that are stale already.
        application: the application.
        names: tables of the new publication or undo.
        stateful: its outputs with an upstream state.
        acts: related publications and undos, see `related_acts`. Stale windows of other outputs are
            returned unchanged, since the result replaces all entries.
        in_effect: the publications that will be in effect.
    """
    computed = set(names).union(*map(_outputs, acts))
    stale = list[StaleWindows]()
    for part in stale_windows(in_effect):
        stale += [StaleWindows(name, part) for name in stateful]
    for row in ledger.stale.ranges(application):
        if row.table_name not in computed:
            stale.append(StaleWindows(row.table_name, WindowRange(row.first, row.last)))
    return tuple(stale)


def _outputs(publication: Publication) -> set[str]:
    return {table.name for table in publication.tables if kind_of(table.name) is Kind.DATA}
