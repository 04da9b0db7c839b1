"""Finds repairs: published windows whose inputs have changed since, and the replays that correct
them.

An input has changed for a publication if the seal of a window differs from the seal at the version
that the replay has pinned: late tuples were added to it, or it is an output that was published
again or undone. Late tuples in quarantine will change their windows when they are added. So repairs
follow from the tables alone, and none is found after everything is repaired.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from rewindow.errors import TableError
from rewindow.facts.seals import read_seals, stream_end
from rewindow.facts.window_facts import unequal
from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import Publication, effective_publications
from rewindow.ledger.staleness import REOPENED
from rewindow.planning import ReplayRequest
from rewindow.planning.changing import change_log
from rewindow.planning.request import ReplayOptions
from rewindow.recording.inventory import late_windows, list_streams
from rewindow.recovery import InputPlan, Plan
from rewindow.recovery.staleness import moved_end
from rewindow.repairs.ranges import Change, PublishedApplication, PublishedStretch, ranges_to_replay
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.windows import Grid, WindowRange, to_ranges, without

_ALL = 1_000_000
_SEAL = ["window_id", "tuples", "digest", "float_digest"]


@dataclass(frozen=True)
class LateTuples:
    """Quarantined late tuples of a stream that belong to sealed windows of its grid."""

    stream: str
    windows: WindowRange
    grid: Grid
    tuples: int


@dataclass(frozen=True)
class RepairStep:
    """A range of an application that must be replayed, checked and published again.

    Attributes:
        replay_options: mode, parameters and other options of the replay that is published there.
        reasons: texts why it is necessary, and why a smaller range is not enough.
        may_follow: windows to replay next if the state at its end differs from the published one.
    """

    application: str
    windows: WindowRange
    grid: Grid
    replay_options: ReplayOptions
    reasons: tuple[str, ...]
    may_follow: tuple[WindowRange, ...] = ()

    @property
    def command(self) -> str:
        """The command line that replays the range."""
        range_ = ["--first", str(self.windows.first), "--last", str(self.windows.last)]
        options = ReplayRequest(self.application, **self.replay_options).options()
        return shlex.join(["rewindow", "replay", self.application, *range_, *options])


@dataclass(frozen=True)
class Repairs:
    """All necessary repairs.

    Attributes:
        late: tuples to move out of quarantine first.
        steps: replays, each after those whose outputs it reads.
        unknown: texts about windows for which changes can no longer be determined.
        inputs: streams that each application with publications has read.
    """

    late: Sequence[LateTuples]
    steps: Sequence[RepairStep]
    unknown: Sequence[str]
    inputs: Mapping[str, Collection[str]] = field(default_factory=dict, compare=False)

    def of(self, application: str) -> Repairs:
        """Returns the repairs that affect one application.

        These are its replays, the replays of applications whose outputs it reads, and the replays
        downstream of it.
        """
        reads: dict[str, set[str]] = {}
        read_by: dict[str, set[str]] = {name: set() for name in self.inputs}
        for name, inputs in self.inputs.items():
            reads[name] = {stream.partition(".")[0] for stream in inputs}
            for source in reads[name] & self.inputs.keys():
                read_by[source].add(name)
        wanted = _reached(application, reads) | _reached(application, read_by)
        streams: set[str] = set()
        for name in wanted:
            streams.update(self.inputs.get(name, ()))
        late = [one for one in self.late if one.stream in streams]
        return Repairs(
            late,
            [step for step in self.steps if step.application in wanted],
            self.unknown,
            inputs=self.inputs,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the repairs as plain values.

        Window ids are numbers.

        Rules: W14
        """
        late = []
        for one in self.late:
            late.append({"stream": one.stream, **asdict(one.windows), "tuples": one.tuples})
        replays = []
        for step in self.steps:
            replay = {
                "application": step.application,
                **asdict(step.windows),
                "parameters": step.replay_options.get("parameters", {}),
                "reasons": list(step.reasons),
                "command": step.command,
                "may_follow": list(map(asdict, step.may_follow)),
            }
            replays.append(replay)
        return {"late": late, "replays": replays, "unknown": list(self.unknown)}


def find_repairs(config: Config) -> Repairs:
    """Returns the repairs of windows whose inputs have changed, or will change when late tuples are
    added. Starts no JVM.

    The number of windows to replay is as small as can be determined beforehand: the changed
    windows; for an application with state, also the windows after them, up to the next published
    state that the new one can be compared with; and the same for applications that read these
    outputs. Nearby ranges are merged. If a state differs from the published one, the windows after
    it must be replayed next, after the first ones are published.
    """
    late = []
    changes = _Changes()
    for entry in list_streams(config):
        if not entry.late or entry.is_published:
            continue
        for windows, tuples in late_windows(config, entry.name)[0]:
            late.append(LateTuples(entry.name, windows, entry.grid, tuples))
            described = entry.grid.describe(windows)
            words = (
                f"late tuples of {entry.name} wait to be added to windows {described}: {tuples:,}"
            )
            changes.add(entry.name, windows, words)
    applications = _published(config, changes.unknown)
    _add_stale(config, applications)
    steps: dict[str, list[RepairStep]] = {}
    for name in _in_order(applications):
        steps[name] = _steps_of(config, applications[name], changes)
        for step in steps[name]:
            for output in applications[name].outputs:
                words = f"{output} is published again in windows {step.grid.describe(step.windows)}"
                changes.add(output, step.windows, words)
    every = list(chain.from_iterable(steps.values()))
    inputs = {name: known.inputs for name, known in applications.items()}
    return Repairs(late, every, tuple(dict.fromkeys(changes.unknown)), inputs=inputs)


def _reached(name: str, edges: Mapping[str, Collection[str]]) -> set[str]:
    found = {name}
    ahead = [name]
    while ahead:
        new = set(edges.get(ahead.pop(), ())) - found
        found |= new
        ahead += new
    return found


class _Changes:
    """Changed windows by stream, with the reasons."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[WindowRange, str]]] = {}
        self.unknown: list[str] = []

    def add(self, stream: str, windows: WindowRange, words: str) -> None:
        self._found.setdefault(stream, []).append((windows, words))

    def of(self, stream: str, windows: WindowRange) -> list[tuple[WindowRange, str]]:
        """Returns the changed windows in a range of a stream, for any reader."""
        inside = []
        for part, words in self._found.get(stream, ()):
            both = part.overlap(windows)
            if both is not None:
                inside.append((both, words))
        return inside


def _add_stale(config: Config, applications: Mapping[str, PublishedApplication]) -> None:
    """Adds the windows that were published from a state that has changed since."""
    ledger = Ledger.open(config.ledger_url)
    for row in ledger.stale.ranges():
        known = applications.get(row.application)
        if known is None:
            continue
        if row.since == REOPENED:
            words = (
                f"{row.table_name} was marked as stale when an input was opened again or its "
                "end was moved"
            )
            known.marked.append(Change(WindowRange(row.first, row.first), words))
            continue
        words = (
            f"{row.table_name} was computed from a state that publication {row.since} has changed"
        )
        many = len(ledger.publications.get(row.since).range)
        known.stale.append(Change(WindowRange(row.first, row.last), words, made_stale_by=many))


def _published(config: Config, unknown: list[str]) -> dict[str, PublishedApplication]:
    """Returns the publications that readers see, by application. Newer publications cover older
    ones.

    If a plan was purged, a text is added to `unknown`.
    """
    ledger = Ledger.open(config.ledger_url)
    found: dict[str, PublishedApplication] = {}
    taken: dict[str, list[WindowRange]] = {}
    for publication in effective_publications(ledger.publications.newest(limit=_ALL)):
        plan = _plan_of(config, ledger, publication)
        name = publication.details.application or (plan.application if plan else "")
        free = without(publication.range, taken.setdefault(name, []))
        taken[name].append(publication.range)
        if plan is None:
            read = f"which inputs replay {publication.replay_id} read for windows"
            unknown += [f"{read} {part}: it was purged" for part in free]
            continue
        known = found.setdefault(name, PublishedApplication())
        states = frozenset(publication.details.states)
        known.stretches += [PublishedStretch(part, plan, states) for part in free]
        known.outputs = sorted({*known.outputs, *plan.tables})
        known.inputs.update(plan.ends)
        known.stateful |= plan.is_stateful
    for known in found.values():
        known.stretches.sort(key=lambda stretch: stretch.windows.first)
        lost = (_lost_state(stretch, known.stretches) for stretch in known.stretches)
        unknown += filter(None, lost)
    return found


def _lost_state(stretch: PublishedStretch, every: Sequence[PublishedStretch]) -> str:
    """Returns a text if a publication started with a state that is no longer published; otherwise
    an empty text.
    """
    start = stretch.plan.start
    begins = stretch.windows.first == stretch.plan.first
    if not begins or not start.taken_from or start.window is None:
        return ""
    if any(
        start.window in other.windows or start.window == other.plan.first - 1
        for other in every
        if other != stretch
    ):
        return ""
    return (
        f"whether the state of window {stretch.plan.grid.describe(start.window)}, the start state "
        f"of replay {stretch.plan.replay_id}, has changed"
    )


def _plan_of(config: Config, ledger: Ledger, publication: Publication) -> Plan | None:
    row = ledger.replays.find(publication.replay_id)
    if row is None or not row.plan:
        return None
    plan = row.read_plan()
    return plan.model_copy(update={"changes": change_log(config, plan).changes()})


def _in_order(applications: Mapping[str, PublishedApplication]) -> list[str]:
    """Returns applications in an order in which each application follows those whose outputs it
    reads.
    """
    made_by: dict[str, str] = {}
    for name, known in applications.items():
        made_by |= dict.fromkeys(known.outputs, name)
    ordered: list[str] = []

    def visit(name: str, above: frozenset[str]) -> None:
        if name in ordered or name in above:
            return
        for stream in sorted(applications[name].inputs):
            if stream in made_by:
                visit(made_by[stream], above | {name})
        ordered.append(name)

    for name in sorted(applications):
        visit(name, frozenset())
    return ordered


def _steps_of(config: Config, known: PublishedApplication, changes: _Changes) -> list[RepairStep]:
    found = list(known.stale)
    for stretch in known.stretches:
        for entry in stretch.plan.inputs:
            for windows, words in _changed(config, stretch, entry, changes):
                found.append(Change(windows, words, stretch))
    # Windows that were reopened have other seals. If a mark remains that no change explains, one
    # more replay removes it.
    changed = sorted(found or known.marked, key=lambda change: change.windows)
    steps = []
    for part in ranges_to_replay(known, changed):
        plan = part.begin.plan
        options = part.begin.replay_options(part.windows)
        steps.append(
            RepairStep(plan.application, part.windows, plan.grid, options, *part[2:]),
        )
    return steps


def _changed(
    config: Config,
    stretch: PublishedStretch,
    entry: InputPlan,
    changes: _Changes,
) -> list[tuple[WindowRange, str]]:
    """Returns the windows of an input that have changed since a replay has read them, or will
    change, with the reasons.
    """
    found = changes.of(entry.stream, stretch.read)
    if not Table.exists(config.windows_table(entry.stream)):
        changes.unknown.append(
            f"whether stream {entry.stream} has changed since it was read: the stream no longer "
            "exists"
        )
        return found
    now = Table.open(config.windows_table(entry.stream))
    if now.version == entry.windows_version:
        return found
    found += _by_end(stretch, entry, stream_end(now))
    try:
        then = Table.open(config.windows_table(entry.stream), entry.windows_version)
        differing = _differing(_seals(then, stretch.read), _seals(now, stretch.read))
    except TableError as error:
        changes.unknown.append(
            f"the contents of {entry.stream} when replay {stretch.plan.replay_id} read it: "
            f"{error.primary}"
        )
        return found
    many = sum(map(len, differing))
    words = (
        f"windows of {entry.stream} that have changed since replay {stretch.plan.replay_id} "
        f"read it: {many:,}"
    )
    return found + [(part, words) for part in differing]


def _by_end(
    stretch: PublishedStretch,
    entry: InputPlan,
    end: int | None,
) -> list[tuple[WindowRange, str]]:
    """Returns the windows of a stretch with state that change because the end of an input was
    moved, with the reason.

    Rules: X34
    """
    first = moved_end(entry.end, end, stretch.plan.last)
    if first is None or first > stretch.windows.last or not stretch.plan.is_stateful:
        return []
    then, now = ("none" if one is None else f"window {one}" for one in (entry.end, end))
    words = (
        f"the end of {entry.stream} is {now}; it was {then} when replay {stretch.plan.replay_id} "
        "read it"
    )
    return [(WindowRange(max(first, stretch.windows.first), stretch.windows.last), words)]


def _seals(windows: Table, asked: WindowRange) -> pa.Table:
    return read_seals(windows, asked).select(_SEAL)


def _differing(then: pa.Table, now: pa.Table) -> list[WindowRange]:
    """Returns the windows whose seals differ, or that only one side has."""
    both = then.append_column("was", _yes(then)).join(
        now.append_column("is", _yes(now)),
        "window_id",
        join_type="full outer",
        right_suffix="_now",
    )
    differs = unequal(both["was"], both["is"])
    for name in _SEAL[1:]:
        differs = differs | unequal(both[name], both[f"{name}_now"])
    return to_ranges(both["window_id"].to_numpy()[differs])


def _yes(rows: pa.Table) -> pa.Array:
    return pa.repeat(True, rows.num_rows)
