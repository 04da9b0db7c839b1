"""What an act keeps: typed, and in the ledger as JSON."""

from __future__ import annotations

import json

from rewindow.ledger.publication_details import (
    PublicationDetails,
    PutBack,
    StaleWindows,
    StartedFrom,
)
from rewindow.windows import WindowRange

STORED = {
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
"""A publication as the ledger and the commits keep it."""


def test_details_of_an_open_publication_or_undo_are_read_from_the_ledger() -> None:
    details = PublicationDetails.from_json(STORED)
    assert details.staged_versions == STORED["staged_versions"] and details.staged is None
    assert details.started_from == StartedFrom("published", 99, "digest-99")
    assert details.states == {99: "digest-99", 199: "digest-199"}
    assert details.state_lacks == (WindowRange(120, 121),)
    assert details.stale == (StaleWindows("app.out", WindowRange(200, 209)),)
    undo = {
        "application": "app",
        "put_back": {"app.out": [[100, 199, 4]], "app.none": []},
        "stale": [],
        "stateful": [],
    }
    pieces = PublicationDetails.from_json(undo).put_back
    assert pieces == {"app.out": (PutBack(WindowRange(100, 199), 4),), "app.none": ()}
    assert PublicationDetails.from_json({}) == PublicationDetails()


def test_publication_details_are_written_in_the_documented_format() -> None:
    assert PublicationDetails.from_json(STORED).to_json() == {
        name: value for name, value in STORED.items() if value
    }
    details = PublicationDetails(
        "app",
        put_back={"app.out": (PutBack(WindowRange(100, 199), 4),), "app.none": ()},
    )
    assert details.to_json() == {
        "application": "app",
        "put_back": {"app.out": [[100, 199, 4]], "app.none": []},
    }
    assert PublicationDetails.from_json(json.loads(json.dumps(details.to_json()))) == details
