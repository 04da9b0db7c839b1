"""Random interleavings of the commit protocol: crashes, zombies, late attempts, with facts, seals and checkpoint marks.

Tables are logs in memory; an attempt is a generator that yields wherever another process may run. What an attempt
restores, where it goes on and where groups end comes from `rewindow.recovery` itself, so its decisions are under test.
A row is (window, attempt, state after the window): a wrong recovery shows in the values.

A rule can be dropped. Then promises must break in some run, or the simulation would prove nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rewindow.application import Mode
from rewindow.errors import CheckpointError
from rewindow.recovery import Marks, next_end, resume

WINDOWS = 10
MARKS = Marks(distance=3)
OUTPUTS = ("a", "b")
FACTS = "facts"

Row = tuple[int, int, int]


class StoppedError(Exception):
    """This attempt was fenced off, or lost a commit race."""


@dataclass
class Log:
    """A table: commits of (epoch, mark, rows)."""

    commits: list[tuple[int, int, list]] = field(default_factory=list)

    def position(self) -> tuple[int, int]:
        return self.commits[-1][:2] if self.commits else (0, 0)

    def rows(self) -> list:
        return [row for _, _, rows in self.commits for row in rows]

    def commit(self, seen: int, epoch: int, mark: int, rows: list, compare: bool) -> None:
        if compare and len(self.commits) != seen:
            raise StoppedError("another commit came between")
        self.commits.append((epoch, mark, rows))


@dataclass
class World:
    """All that outlives a crash."""

    outputs: dict[str, Log] = field(default_factory=lambda: {name: Log() for name in OUTPUTS})
    facts: Log = field(default_factory=Log)
    checkpoints: Log = field(default_factory=lambda: Log([(0, 0, [(0, 0)])]))
    epoch: int = 0
    started: int = 0
    effects: Counter[int] = field(default_factory=Counter)


Process = Iterator[None]


def attempt(world: World, mode: Mode, rng: random.Random, dropped: str) -> Process:
    """One attempt of the protocol, step by step."""
    world.epoch += 1
    epoch = world.epoch
    for _ in range(rng.randint(0, 6)):
        yield
    compare = dropped != "compare and set"
    yield from _fence(world.checkpoints, epoch, lambda mark: mark, compare)
    saved = dict(world.checkpoints.rows())
    tables = {**world.outputs, FACTS: world.facts}
    if mode is Mode.AT_LEAST_ONCE:
        found = resume(mode, saved, {})
        carry: Callable[[int], int] = lambda mark: found.restore  # noqa: E731
    else:
        carry = (lambda mark: 0) if dropped == "mark carried by the fence" else (lambda mark: mark)
    done = {name: table.position()[1] for name, table in tables.items()}
    for name, table in tables.items():
        yield from _fence(table, epoch, carry, compare)
        done[name] = table.position()[1]
    if mode is not Mode.AT_LEAST_ONCE:
        known = done if mode is Mode.EXACTLY_ONCE else {name: done[name] for name in OUTPUTS}
        found = resume(mode, saved, known, world.started)
    state = saved[found.restore]
    if mode is Mode.AT_MOST_ONCE and done[FACTS] < found.first - 1:
        yield from _settle(world, epoch, done, found.first - 1)
    cuts = () if dropped == "groups end where a table does" else found.cuts
    yield from _groups(world, mode, rng, dropped, epoch, done, state, found.first, cuts)


def _groups(
    world: World, mode: Mode, rng: random.Random, dropped: str, epoch: int, done: dict[str, int], state: int,
    first: int, cuts: tuple[int, ...],
) -> Process:  # fmt: skip
    window = first
    while window <= WINDOWS:
        end = next_end(window - 1, WINDOWS - 1, rng.randint(1, 4), mode, MARKS, [cut - 1 for cut in cuts]) + 1
        if mode is Mode.AT_MOST_ONCE:
            if world.epoch != epoch and dropped != "started mark checks the epoch":
                raise StoppedError("fenced off in the ledger")
            if dropped != "started mark before the work":
                world.started = max(world.started, end)
            yield
        rows: list[Row] = []
        for number in range(window, end + 1):
            state += number
            rows.append((number, epoch, state))
            world.effects[number] += 1
        yield from _commit_group(world, mode, rng, dropped, epoch, done, end, rows, state)
        if mode is Mode.AT_MOST_ONCE:
            world.started = max(world.started, end)
        window = end + 1


def _commit_group(
    world: World, mode: Mode, rng: random.Random, dropped: str, epoch: int, done: dict[str, int], end: int,
    rows: list[Row], state: int,
) -> Process:  # fmt: skip
    exact = mode is Mode.EXACTLY_ONCE
    skips = exact and dropped != "nothing to a table that has it"
    due = exact or MARKS.is_due(end - 1) or end == WINDOWS
    checkpoint = [(world.checkpoints, [(end, state)])] if due else []
    outputs = [(world.outputs[name], rows) for name in OUTPUTS if not skips or done[name] < end]
    rng.shuffle(outputs)
    seals = [
        (number, name, world_attempt(world, name, number, epoch), False) for number, _, _ in rows for name in OUTPUTS
    ]
    facts = [(world.facts, seals)] if not exact or done[FACTS] < end else []
    order = [*outputs, *facts, *checkpoint]
    if dropped == "checkpoint last":
        order = [*checkpoint, *outputs, *facts]
    if dropped == "seals after the rows":
        order = [*facts, *outputs, *checkpoint]
    for table, part in order:
        yield from _write(table, epoch, end, part, dropped)


def world_attempt(world: World, name: str, window: int, epoch: int) -> int:
    """Returns the attempt whose rows a table holds of a window; one's own when it holds none yet."""
    found = [made for number, made, _ in world.outputs[name].rows() if number == window]
    return epoch if not found else max(found)


def _settle(world: World, epoch: int, done: dict[str, int], started: int) -> Process:
    """At most once: lists what is given up, and seals what a crash left without a seal."""
    rows = []
    for number in range(done[FACTS] + 1, started + 1):
        for name in OUTPUTS:
            lost = number > done[name]
            rows.append((number, name, epoch if lost else world_attempt(world, name, number, epoch), lost))
    yield from _write(world.facts, epoch, started, rows, "")


def _fence(table: Log, epoch: int, mark_of: Callable[[int], int], compare: bool) -> Process:
    while True:
        seen, (current, mark) = len(table.commits), table.position()
        yield
        if compare and current >= epoch:
            raise StoppedError("a newer epoch was here")
        if compare and len(table.commits) != seen:
            continue
        table.commits.append((epoch, mark_of(mark), []))
        return


def _write(table: Log, epoch: int, mark: int, rows: list, dropped: str) -> Process:
    seen, (current, _) = len(table.commits), table.position()
    if current != epoch and dropped != "epoch checked by the commit":
        raise StoppedError("fenced off")
    yield
    table.commit(seen, epoch, mark, rows, compare=dropped not in ("compare and set", "epoch checked by the commit"))
    yield


def run(mode: Mode, seed: int, dropped: str = "") -> list[str]:
    """Returns the promises that a run broke; none when the protocol holds."""
    rng = random.Random(seed)
    world = World()
    live: list[Process] = []

    def step(process: Process) -> None:
        try:
            next(process)
        except (StopIteration, StoppedError):
            live.remove(process)

    starts = sorted(rng.randint(0, 60) for _ in range(4))
    try:
        for tick in range(300):
            live.extend(attempt(world, mode, rng, dropped) for start in starts if start == tick)
            for _ in range(rng.randint(1, 12)):
                if live:
                    step(rng.choice(live))
            if live and rng.random() < 0.04:
                live.remove(rng.choice(live))
        if not _finish(world, mode, rng, dropped, live, step):
            return ["no attempt could end"]
    except (KeyError, CheckpointError) as error:
        return [f"an attempt could not resume: {error}"]
    return list(_broken(world, mode))


def _finish(
    world: World, mode: Mode, rng: random.Random, dropped: str, live: list[Process], step: Callable[[Process], None]
) -> bool:
    """Runs a last attempt to its end, zombies beside it, then the zombies to theirs."""
    ended = False
    for _ in range(10):
        try:
            for _ in attempt(world, mode, rng, dropped):
                if live and rng.random() < 0.2:
                    step(rng.choice(live))
            ended = True
            break
        except StoppedError:
            continue
    while live:
        step(live[0])
    return ended


def _broken(world: World, mode: Mode) -> Iterator[str]:
    want = {number: number * (number + 1) // 2 for number in range(1, WINDOWS + 1)}
    seals = world.facts.rows()
    for name in OUTPUTS:
        rows = world.outputs[name].rows()
        newest = {
            number: max((made for w, n, made, lost in seals if (w, n) == (number, name) and not lost), default=0)
            for number in want
        }
        read = sorted((number, value) for number, made, value in rows if newest[number] == made)
        lost = {number for number, n, _, gone in seals if n == name and gone}
        if mode is Mode.EXACTLY_ONCE and sorted((w, v) for w, _, v in rows) != sorted(want.items()):
            yield f"{name}: not every window exactly once"
        if mode is not Mode.AT_MOST_ONCE and read != sorted(want.items()):
            yield f"{name}: what readers see is not every window once"
        if mode is not Mode.AT_MOST_ONCE and lost:
            yield f"{name}: windows are called lost"
        if mode is Mode.AT_MOST_ONCE:
            there = [number for number, _, _ in rows]
            if len(set(there)) != len(there):
                yield f"{name}: a window is there twice"
            if {number for number, _ in read} | lost != set(want) or {number for number, _ in read} & lost:
                yield f"{name}: read and lost windows are not all windows, each in one of them"
            if set(there) & lost:
                yield f"{name}: a lost window is there"
    if mode is Mode.AT_MOST_ONCE and max(world.effects.values(), default=0) > 1:
        yield "a window was computed twice"
