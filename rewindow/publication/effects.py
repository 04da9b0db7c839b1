"""What follows from the acts of an application: which publications are in effect, and what is stale
since.
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
    """Returns the acts of an application that have an output among some tables; of others nothing
    follows.
    """
    every = ledger.publications.newest(application=application, limit=1_000_000)
    return [one for one in every if _outputs(one) & set(names)]


def states_in_effect(acts: Iterable[Publication]) -> list[EffectivePublication]:
    """Returns the publications that were not taken back, as far as state goes."""
    found = []
    for one in effective_publications(acts):
        start = one.details.started_from
        states = one.details.states
        found.append(
            EffectivePublication(
                one.number,
                one.range,
                states,
                source=start.source,
                base=start.window,
                base_digest=start.digest,
                repeats=one.details.repeats,
            )
        )
    return found


def stale_ranges(
    ledger: Ledger,
    application: str,
    names: Iterable[str],
    stateful: Sequence[str],
    acts: Sequence[Publication],
    in_effect: Sequence[EffectivePublication],
) -> tuple[StaleWindows, ...]:
    """Returns all that is stale of an application when some publications are in effect.

    Args:
        names: tables of the act that is judged.
        stateful: those of its outputs that have state before them.
        acts: related ones, see `related_acts`. What is stale of other outputs stays so: details
            tell of all of them.
        in_effect: the publications that then stand.
    """
    judged = set(names).union(*map(_outputs, acts))
    found = list[StaleWindows]()
    for part in stale_windows(in_effect):
        found += [StaleWindows(name, part) for name in stateful]
    for row in ledger.stale.ranges(application):
        if row.table_name not in judged:
            found.append(StaleWindows(row.table_name, WindowRange(row.first, row.last)))
    return tuple(found)


def _outputs(publication: Publication) -> set[str]:
    return {table.name for table in publication.tables if kind_of(table.name) is Kind.DATA}
