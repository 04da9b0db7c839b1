"""The result of a publication or undo, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rewindow.ledger import Ledger, Publication
from rewindow.retention.horizon import undo_horizon
from rewindow.settings.config import Config


@dataclass(frozen=True)
class PublicationResult:
    """The result of publishing a replay, or of an undo.

    Attributes:
        number: the publication's number, which is stored in the commits of its tables.
        already: whether nothing had to be done, except for finishing the work of a killed
            publisher.
        versions: table to its current version.
        lost: output to the number of windows that at most once gave up; they are missing in the
            published table.
        state_lacks: windows that are missing from the state, as [first, last]; the published
            checkpoint lacks them, too.
        stale: [table, first, last] of all stale windows; `replay_next` is the range to replay
            first.
        rolled_forward: publications of killed publishers that were finished first.
        withdrawn: why it was withdrawn; usually None.
        accepted: the reason for publishing in spite of objections; None without objections.
        overrides: the objections, one line each.
        horizon: for how long it can be undone, in words.
    """

    number: int
    kind: str
    replay_id: str
    application: str
    first: int
    last: int
    already: bool
    versions: dict[str, int | None]
    lost: dict[str, int] = field(default_factory=dict)
    state_lacks: list[list[int]] = field(default_factory=list)
    stale: list[tuple[str, int, int]] = field(default_factory=list)
    replay_next: tuple[int, int] | None = None
    rolled_forward: list[int] = field(default_factory=list)
    withdrawn: str | None = None
    horizon: str = ""
    accepted: str | None = None
    overrides: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the result as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PublicationResult:
        """Returns the result from its JSON values, see to_json."""
        stale = [(table, first, last) for table, first, last in values["stale"]]
        following = values["replay_next"] and tuple(values["replay_next"])
        return cls(**{**values, "stale": stale, "replay_next": following})


def result_of(
    config: Config,
    ledger: Ledger,
    publication: Publication,
    *,
    rolled: list[int],
    already: bool = False,
) -> PublicationResult:
    """Returns the result of a publication or undo, with all windows that are stale now."""
    application = ledger.replays.get(publication.replay_id).application
    stale = [(row.table_name, row.first, row.last) for row in ledger.stale.ranges(application)]
    first = min(((first, last) for _, first, last in stale), default=None)
    return PublicationResult(
        number=publication.number,
        kind=publication.kind,
        replay_id=publication.replay_id,
        application=application,
        first=publication.first,
        last=publication.last,
        already=already,
        versions={table.name: table.version_after for table in publication.tables},
        lost=dict(publication.details.lost),
        state_lacks=[[part.first, part.last] for part in publication.details.state_lacks],
        stale=stale,
        replay_next=first,
        rolled_forward=rolled,
        withdrawn=publication.withdrawn,
        horizon=str(undo_horizon(config, application)),
        accepted=publication.details.accepted,
        overrides=list(publication.details.overrides),
    )
