"""What an act keeps: typed, and in the ledger the JSON that older ledgers have too."""

from __future__ import annotations

import json

from rewindow.ledger.publication_details import PublicationDetails, PutBack, StaleWindows, StartedFrom
from rewindow.windows import WindowRange

OLD = {
    "application": "app",
    "staged_versions": {"out": 3, "checkpoints": 2},
    "staged": None,
    "checkpoints": [199],
    "states": {"99": "digest-99", "199": "digest-199"},
    "start": {"source": "published", "window": 99, "digest": "digest-99"},
    "inputs": {"flights": "id-1"},
    "stateful": ["app.out"],
    "lost": {"out": 2},
    "state_lacks": [[120, 121]],
    "accepted": "known outage",
    "stale": [["app.out", 200, 209]],
    "table_ids": {"app.out": "id-2"},
}
"""As the first release wrote a publication."""


def test_the_json_of_older_ledgers_is_read() -> None:
    """A publication and an undo that the first release left open can be rolled forward."""
    details = PublicationDetails.from_json(OLD)
    assert details.staged_versions == OLD["staged_versions"] and details.staged is None
    assert details.started_from == StartedFrom("published", 99, "digest-99")
    assert details.states == {99: "digest-99", 199: "digest-199"}
    assert details.state_lacks == (WindowRange(120, 121),)
    assert details.stale == (StaleWindows("app.out", WindowRange(200, 209)),)
    undo = {"application": "app", "put_back": {"app.out": [[100, 199, 4]], "app.none": []}, "stale": [], "stateful": []}
    pieces = PublicationDetails.from_json(undo).put_back
    assert pieces == {"app.out": (PutBack(WindowRange(100, 199), 4),), "app.none": ()}
    assert PublicationDetails.from_json({}) == PublicationDetails()


def test_what_is_written_is_what_was_written_before() -> None:
    """The same names and shapes, so that commits tell `rewindow ledger rebuild` the same; empty parts are left out."""
    assert PublicationDetails.from_json(OLD).to_json() == {name: value for name, value in OLD.items() if value}
    details = PublicationDetails("app", put_back={"app.out": (PutBack(WindowRange(100, 199), 4),), "app.none": ()})
    assert details.to_json() == {"application": "app", "put_back": {"app.out": [[100, 199, 4]], "app.none": []}}
    assert PublicationDetails.from_json(json.loads(json.dumps(details.to_json()))) == details
