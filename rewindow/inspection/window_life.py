"""The history of one window: inputs, attempts, checkpoint, digests, checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from rewindow.application.overrides import PropertyChange
from rewindow.errors import InputError
from rewindow.inspection.visibility import outcome
from rewindow.ledger import AttemptRecord, Ledger
from rewindow.ledger.publication_rows import effective_publications
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.location import Location
from rewindow.names import did_you_mean
from rewindow.planning.changing import change_log
from rewindow.recovery import Plan
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import format_time, parse_time

if TYPE_CHECKING:
    from rewindow.quality import Finding


@dataclass(frozen=True, slots=True)
class WindowSeal:
    """The row of a window in its stream's table of seals; see `rewindow.facts.seals`."""

    window_id: int
    tuples: int
    digest: str | None
    float_digest: str | None
    sealed_at: datetime
    data_version: int
    generation: int
    columns: str
    table_id: str
    end_window: int | None
    checksum: int


@dataclass(frozen=True, slots=True)
class WindowInput:
    """The window in an input stream, at the version that the replay has pinned.

    Attributes:
        state: sealed, empty, missing, or a text that the stream no longer exists.
        seal: None if the window is missing.
    """

    stream: str
    state: str
    seal: WindowSeal | None = None

    def to_json(self) -> dict[str, object]:
        """Returns plain values for programs: the columns of the seal, with the stream and its
        state.
        """
        return {
            "stream": self.stream,
            "state": self.state,
            **(asdict(self.seal) if self.seal else {}),
        }


@dataclass(frozen=True, slots=True)
class PortFact:
    """A fact about a port that an attempt has written for the window.

    It is a row of the replay's table of facts.
    """

    window_id: int
    direction: str
    port: str
    tuples: int
    digest: str | None
    float_digest: str | None
    attempt: int
    lost: bool
    group_first: int
    group_last: int
    began_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class SavedState:
    """An operator's state in a checkpoint. `operator` is empty if no operator has a state."""

    operator: str
    window_id: int
    rows: int
    digest: str
    attempt: int


@dataclass(frozen=True, slots=True)
class WindowPublication:
    """A publication whose range contains the window, or its undo. `outcome` is a text."""

    number: int
    kind: str
    replay: str
    closed_at: datetime | None
    outcome: str


@dataclass(frozen=True, slots=True)
class OtherReplay:
    """Another replay of the application that contains the window."""

    replay: str
    state: str
    mode: str
    planned_at: datetime


@dataclass(frozen=True, slots=True)
class PropertyOrigin:
    """A property or attribute of the replay, and the origin of its value: a file, an option, or
    code.
    """

    operator: str
    name: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class WindowLife:
    """One window of a replay, with its inputs, attempts, results, and problems.

    Attributes:
        begin, end: its time, ISO 8601, half-open.
        purged: tables of the replay that no longer exist, so their contents are unknown.
        checkpoint: the states of the newest checkpoint at or before it.
        checks: findings that did not pass, about the window or the whole range.
        quarantined: number of tuples of the inputs in quarantine.
        properties: properties of the operators, with the origin of each value.
        visible: the replay whose rows of the window readers see; None if none is published.
        others: the other replays of the application that contain the window, newest first.

    Rules: O28
    """

    replay: str
    window: int
    begin: str
    end: str
    state: str
    message: str
    inputs: tuple[WindowInput, ...]
    purged: tuple[str, ...]
    facts: tuple[PortFact, ...]
    checkpoint: tuple[SavedState, ...]
    checks: tuple[Finding, ...]
    quarantined: int
    publications: tuple[WindowPublication, ...]
    attempts: tuple[AttemptRecord, ...]
    properties: tuple[PropertyOrigin, ...] = ()
    visible: str | None = None
    others: tuple[OtherReplay, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Returns plain values for programs (docs/json.md)."""
        checks = []
        for check in self.checks:
            ranges = [[part.first, part.last] for part in check.windows]
            checks.append({**vars(check), "windows": ranges})
        parts = {
            "inputs": list(map(WindowInput.to_json, self.inputs)),
            "facts": list(map(asdict, self.facts)),
            "checkpoint": list(map(asdict, self.checkpoint)),
            "checks": checks,
            "publications": list(map(asdict, self.publications)),
            "attempts": list(map(vars, self.attempts)),
            "purged": list(self.purged),
            "properties": list(map(asdict, self.properties)),
            "others": list(map(asdict, self.others)),
        }
        names = names_of(fields(self))
        return {_JSON_NAMES.get(name, name): parts.get(name, getattr(self, name)) for name in names}


_JSON_NAMES = {"begin": "from", "end": "to"}


def window_life(config: Config, subject: str, window: str) -> WindowLife:
    """Returns the inputs, attempts, results and problems of a window.

    Args:
        config: settings.
        subject: a replay's id, or an application: then the replay whose rows of the window readers
            see. If none is published, the newest of its last 200 replays that contains the window.
            A candidate, an abandoned replay or a replay without facts is used only if there is no
            other.
        window: window id, or a time inside the window.

    Raises:
        InputError: no replay or application has this name, or no replay contains the window.
        RangeError: the time is before the origin of the grid.
    """
    ledger = Ledger.open(config.ledger_url)
    row, number = _find(config, ledger, subject, window)
    return _life(config, ledger, row, number)


def _find(config: Config, ledger: Ledger, subject: str, window: str) -> tuple[Replay, int]:
    """Returns the replay to show, and the id of the window.

    For an application, the published replay is shown, or the newest one if none is published. A
    candidate, an abandoned replay or a replay without facts is shown only if there is no other.
    """
    found = ledger.replays.find(subject)
    candidates = [found] if found else ledger.replays.newest(subject, limit=200)
    candidates = [row for row in candidates if row.plan]
    if not candidates:
        rows = ledger.replays.newest()
        known = dict.fromkeys([row.application for row in rows])
        known |= dict.fromkeys([row.replay_id for row in rows])
        raise InputError(
            f'no replay or application is named "{subject}"',
            hint=f"{did_you_mean(subject, known)}To list replays: rewindow list",
        )
    holding = []
    for row in candidates:
        number = _window(row, window)
        if number in row.range:
            holding.append((row, number))
    if not holding:
        raise InputError(
            f"window {window} is not in any replay of {subject}",
            hint="To see the ranges: rewindow list",
        )
    if found is None and (published := _visible(ledger, subject, holding[0][1])):
        return ledger.replays.get(published), holding[0][1]
    return max(holding, key=lambda entry: _usefulness(config, entry[0]))


def _usefulness(config: Config, row: Replay) -> int:
    """Returns 2 for a replay with facts, 1 for a candidate or an abandoned replay, 0 for a replay
    without facts.
    """
    if not Table.exists(config.replay_root(row.replay_id) / FACTS):
        return 0
    return 1 if row.state is ReplayState.ABANDONED or row.plan.get("candidate") else 2


def _window(row: Replay, window: str) -> int:
    """Returns the id of a window, given its id or a time in the window."""
    return int(window) if window.isdigit() else row.read_plan().grid.window(parse_time(window))


def _visible(ledger: Ledger, application: str, window: int) -> str | None:
    """Returns the replay that wrote the visible rows of a window; None if no replay is
    published.
    """
    acts = effective_publications(ledger.publications.newest(application=application))
    return next(
        (act.replay_id for act in acts if act.closed_at is not None and window in act.range), None
    )


def _life(config: Config, ledger: Ledger, row: Replay, window: int) -> WindowLife:
    from rewindow.quality import failures

    plan = row.read_plan()
    root = config.replay_root(row.replay_id)
    there = [name for name in (FACTS, CHECKPOINTS) if Table.exists(root / name)]
    acts = ledger.publications.newest(application=row.application)
    return WindowLife(
        replay=row.replay_id,
        window=window,
        begin=format_time(plan.grid.start_us(window)),
        end=format_time(plan.grid.end_us(window)),
        state=row.state.value,
        message=row.message,
        inputs=tuple(
            _input(config, entry.stream, entry.windows_version, window) for entry in plan.inputs
        ),
        purged=tuple(excluding((FACTS, CHECKPOINTS), there)),
        facts=_facts(root, window) if FACTS in there else (),
        checkpoint=_checkpoint(root, window) if CHECKPOINTS in there else (),
        checks=tuple(failures(config, row.replay_id, window)),
        quarantined=_quarantined(config, plan, window),
        publications=tuple(
            WindowPublication(
                act.number,
                act.kind,
                act.replay_id,
                closed_at=act.closed_at,
                outcome=outcome(act, acts),
            )
            for act in acts
            if window in act.range
        ),
        attempts=tuple(ledger.attempts.of(row.replay_id)),
        properties=_properties(plan, change_log(config, plan).at(window)),
        visible=_visible(ledger, row.application, window),
        others=tuple(
            OtherReplay(other.replay_id, other.state.value, other.mode, other.created_at)
            for other in ledger.replays.newest(row.application, without_samples=True)
            if other.replay_id != row.replay_id and window in other.range
        ),
    )


def _properties(plan: Plan, changes: list[PropertyChange]) -> tuple[PropertyOrigin, ...]:
    """Returns the property values in one window.

    They are the values of the plan, except for properties that were changed while the replay ran.
    """
    origins = []
    for given in plan.given:
        if not given.operator:
            origins.append(PropertyOrigin("", given.path, given.value, source=given.source))
    for node in plan.graph.operators if plan.graph else []:
        for item in node.properties:
            origins.append(PropertyOrigin(node.name, item.name, item.value, source=item.source))
    changed = {}
    for change in changes:
        name = (change.operator, change.name)
        source = f"rewindow set, from window {change.from_window} on"
        changed[name] = PropertyOrigin(*name, change.value, source)
    return tuple(changed.get((origin.operator, origin.name), origin) for origin in origins)


def _facts(root: Location, window: int) -> tuple[PortFact, ...]:
    columns = ", ".join(names_of(fields(PortFact)))
    sql = f"select {columns} from f where window_id = {window} order by direction, port, attempt"
    return tuple(PortFact(**row) for row in query(sql, f=root / FACTS).to_pylist())


def _checkpoint(root: Location, window: int) -> tuple[SavedState, ...]:
    """Returns the states of the newest checkpoint at or before a window."""
    columns = ", ".join(names_of(fields(SavedState)))
    sql = f"""select {columns} from c
              where window_id <= {window} order by window_id desc, attempt desc,
                  operator limit 20"""
    saved = [SavedState(**row) for row in query(sql, c=root / CHECKPOINTS).to_pylist()]
    return tuple(state for state in saved if state.window_id == saved[0].window_id)


def _input(config: Config, stream: str, version: int, window: int) -> WindowInput:
    if not Table.exists(config.windows_table(stream)):
        return WindowInput(stream, "no longer exists")
    seals = Table.open(config.windows_table(stream), version)
    found = query(f"select * from w where window_id = {window}", w=seals).to_pylist()
    if not found:
        return WindowInput(stream, "missing")
    seal = WindowSeal(**{field.name: found[0].get(field.name) for field in fields(WindowSeal)})
    return WindowInput(stream, "sealed" if seal.tuples else "empty", seal)


def _quarantined(config: Config, plan: Plan, window: int) -> int:
    """Returns the number of quarantined tuples of the replay's inputs.

    Streams on another grid have other window ids.
    """
    if not Table.exists(config.quarantine_table):
        return 0
    sources = ", ".join(f"'{entry.stream}'" for entry in plan.inputs)
    sql = f"select count(*) as n from q where window_id = {window} and source in ({sources})"
    return int(query(sql, q=config.quarantine_table)["n"][0].as_py())
