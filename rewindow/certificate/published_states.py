"""Compares published checkpoints with the digests that the ledger has for their publications.

Starts no JVM and opens no state file.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from rewindow.facts.published_acts import done_on
from rewindow.ledger import Publication
from rewindow.ledger.publication_rows import effective_publications
from rewindow.recovery.staleness import EffectivePublication, in_effect
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, query
from rewindow.windows import WindowRange


def differing_states(
    checkpoints: Table | None,
    name: str,
    acts: Iterable[Publication],
    windows: WindowRange,
) -> list[int]:
    """Returns the windows of a range whose checkpoint is lost, duplicated or added, or has another
    digest than the publication that readers see.

    Compares the digests in the table; does not read files of states.

    Args:
        checkpoints: the published ones; None if their table was deleted.
        name: name of their table.
        acts: publications of the application.
        windows: the range.
    """
    published = []
    for act in effective_publications(done_on(acts, name)):
        states = {window: act.details.states.get(window, "") for window in act.details.checkpoints}
        published.append(EffectivePublication(act.number, act.range, states))
    expected: dict[int, str] = {}
    for stretch in in_effect(published):
        for window, digest in stretch.owner.states.items():
            if window in stretch.range and window in windows:
                expected[window] = digest
    present: dict[int, str] = {}
    if checkpoints is not None:
        sql = f"""select window_id, operator, digest from c
            where window_id between {windows.first} and {windows.last}"""
        rows = query(sql, c=checkpoints)
        for window in pc.unique(rows["window_id"]).to_pylist():
            present[window] = stored.state_digest(rows.filter(pc.equal(rows["window_id"], window)))
    return sorted(dict(expected.items() ^ present.items()))
