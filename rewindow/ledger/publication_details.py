"""Details of a publication in the ledger and their JSON format.

Any process can complete a publication from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from itertools import starmap
from typing import TYPE_CHECKING, Any

from rewindow.sequences import excluding, names_of
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from rewindow.storage.layout import Contents


@dataclass(frozen=True)
class PutBack:
    """Windows of a table that an undo or a withdrawal restores.

    Attributes:
        windows: the windows.
        version: version of the table that has their content.
    """

    windows: WindowRange
    version: int


@dataclass(frozen=True)
class StaleWindows:
    """Windows of a table that are stale."""

    table: str
    windows: WindowRange


@dataclass(frozen=True)
class StartedFrom:
    """The state from which a replay started.

    Attributes:
        source: kind of state (see `rewindow.recovery.StartState`).
        window: window whose published state it was; None if it was another kind of state.
        digest: its digest; empty if unknown.
    """

    source: str = "initial"
    window: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class PublicationDetails:
    """The values that a process needs to complete a publication, in addition to its replay and its
    range.

    Unused parts are empty.

    Attributes:
        application: name of the application.
        staged_versions: table of the replay to the version that is published.
        staged: content of these versions when they were checked; None if it was not recorded.
        checkpoints: windows whose checkpoints are published.
        states: window to the digest of the state after it.
        started_from: state from which the replay started.
        inputs: stream to the Delta id of its table.
        stateful: tables of outputs that are computed with state.
        lost: output to the number of windows that are lost (at most once).
        state_lacks: windows that are missing in the state.
        accepted: reason for publishing despite objections.
        overrides: these objections: the gate, flawed windows, a newer publication.
        repeats: earlier publications whose state at the end of its range it has computed again.
        stale: all stale windows of the application after the publication.
        table_ids: published table to its Delta id.
        put_back: table to what an undo or a withdrawal restores; tables without the publication's
            commit are left out.
        reason: reason of a withdrawal.
    """

    application: str = ""
    staged_versions: Mapping[str, int] = field(default_factory=dict)
    staged: Contents | None = None
    checkpoints: tuple[int, ...] = ()
    states: Mapping[int, str] = field(default_factory=dict)
    started_from: StartedFrom = StartedFrom()
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    stateful: tuple[str, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    state_lacks: tuple[WindowRange, ...] = ()
    accepted: str | None = None
    overrides: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    stale: tuple[StaleWindows, ...] = ()
    table_ids: Mapping[str, str] = field(default_factory=dict)
    put_back: Mapping[str, tuple[PutBack, ...]] = field(default_factory=dict)
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the details as JSON values, without empty parts."""
        start = self.started_from
        put_back = {}
        for name, parts in self.put_back.items():
            put_back[name] = [[*astuple(part.windows), part.version] for part in parts]
        nested = {
            "states": {str(window): digest for window, digest in self.states.items()},
            "start": {} if start == StartedFrom() else asdict(start),
            "state_lacks": [[part.first, part.last] for part in self.state_lacks],
            "stale": [
                [entry.table, entry.windows.first, entry.windows.last] for entry in self.stale
            ],
            "put_back": put_back,
        }
        written = {}
        for name in excluding(names_of(fields(self)), {*nested, "started_from"}):
            written[name] = _plain(getattr(self, name))
        return {name: value for name, value in {**written, **nested}.items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PublicationDetails:
        """Returns the details from JSON values. Missing parts are empty."""
        start = values.get("start") or {}
        put_back = {}
        for name, parts in values.get("put_back", {}).items():
            put_back[name] = tuple(PutBack(WindowRange(*part), version) for *part, version in parts)
        return cls(
            application=values.get("application", ""),
            staged_versions=values.get("staged_versions", {}),
            staged=values.get("staged"),
            checkpoints=tuple(values.get("checkpoints", ())),
            states={int(window): digest for window, digest in values.get("states", {}).items()},
            started_from=StartedFrom(
                start.get("source", "initial"),
                start.get("window"),
                start.get("digest", ""),
            ),
            inputs=values.get("inputs", {}),
            stateful=tuple(values.get("stateful", ())),
            lost=values.get("lost", {}),
            state_lacks=tuple(starmap(WindowRange, values.get("state_lacks", ()))),
            accepted=values.get("accepted"),
            overrides=tuple(values.get("overrides", ())),
            repeats=tuple(values.get("repeats", ())),
            stale=tuple(
                StaleWindows(name, WindowRange(*windows))
                for name, *windows in values.get("stale", ())
            ),
            table_ids=values.get("table_ids", {}),
            put_back=put_back,
            reason=values.get("reason", ""),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
