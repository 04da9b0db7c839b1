"""Random interleavings of the commit protocol: crashes, zombies, late attempts, with facts, seals
and due checkpoints.

What runs is the product's own attempt: its fence, takeover, loop, losses and group commits, on
tables, a ledger and an engine in memory. Each attempt is a greenlet that gives way wherever another
process may run; a crash is one that is never continued.

A rule can be dropped: one function of the product is replaced, or one duty of the memory's. Then
promises must break in some run, or the simulation would prove nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch
from weakref import WeakKeyDictionary

import pyarrow as pa
from greenlet import getcurrent, greenlet

from rewindow.application import Mode, OperatorContext
from rewindow.engine import attempt as attempts
from rewindow.engine import takeover
from rewindow.engine.attempt import Attempt
from rewindow.engine.computation import GroupResult, PlannedAttempt
from rewindow.engine.group_commit import GroupCommit
from rewindow.engine.takeover import Takeover
from rewindow.errors import CheckpointError, FencedError
from rewindow.facts.group_facts import GroupFacts
from rewindow.facts.losses import skipped_marks
from rewindow.location import Location, location
from rewindow.recovery import OutputPlan, Plan, StartState
from rewindow.state import checkpoints as stored
from rewindow.storage import FencedTable, Position, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, STARTED, app_id
from tests.recovery.memory import OUTPUTS, MemoryEngine, MemoryLedger, MemoryLog, World, make_app

WINDOWS = 10
APP = make_app()
ROOT = location("memory")


INITIAL = StartState(source="initial", window=0)
WARM_UP = StartState(source="warm_up", window=-5, warm_up_first=-4)


def make_plan(mode: Mode, start: StartState = INITIAL) -> Plan:
    """Returns a plan of windows 1 to WINDOWS, with a checkpoint every third window."""
    outputs = [
        OutputPlan(
            name=name,
            operator="sum",
            port=name,
            key=[],
            suite=None,
            columns=[],
            stateful=True,
            guarantee="",
        )
        for name in OUTPUTS
    ]
    return Plan(
        replay_id="simulated",
        application=APP.name,
        code_version="1",
        configuration_digest="1",
        first=1,
        last=WINDOWS,
        width_ms=3_600_000,
        origin_ms=0,
        mode=mode,
        checkpoint_windows=3,
        inputs=[],
        outputs=outputs,
        start=start,
    )


START = stored.encode(
    0,
    0,
    {"sum": pa.table({"value": [0]})},
    {"sum": 1},
    stored.Provenance({}, 0),
)


class RandomSizer:
    """Groups of random sizes, so that attempts cut the range in different places."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    @property
    def size(self) -> int:
        return self._rng.randint(1, 4)

    def took(self, windows: int, seconds: float) -> None:
        pass


class SimulatedAttempt(Attempt):
    """The product's attempt, but for the sizes of groups."""

    rng: random.Random

    def _sizer(self, *about: Any, **bound: Any) -> Any:
        return RandomSizer(self.rng)


Process: TypeAlias = greenlet
_END = object()


def start_attempt(world: World, plan: Plan, rng: random.Random) -> Process:
    """Returns an attempt that takes the next epoch when it is first continued, and others after it
    when it pauses.
    """

    def pause() -> None:
        getcurrent().parent.switch()

    def run() -> object:
        world.epoch += 1
        epoch = world.epoch
        for _ in range(rng.randint(0, 6)):
            pause()
        attempt = SimulatedAttempt(
            PlannedAttempt(plan, APP, ROOT, epoch),
            MemoryLedger(pause),  # type: ignore[arg-type]
            lambda tables: MemoryEngine(world, epoch, pause, tables),
            crash=lambda step, number: None,
            open_table=lambda path: MemoryLog(world, path, pause),
        )
        attempt.rng = rng
        try:
            attempt.run()
        except FencedError:
            return FencedError
        return _END

    return greenlet(run)


def new_world(plan: Plan) -> World:
    """Returns tables as a planner leaves them: with a start state, unless it must be warmed up."""
    world = World()
    if plan.start == INITIAL:
        log = MemoryLog(world, ROOT / CHECKPOINTS, lambda: None)
        log.commit_arrow(START, app_id=app_id("simulated", CHECKPOINTS), version=0)
    return world


def run(mode: Mode, seed: int, dropped: str = "") -> list[str]:
    """Returns the promises that a run broke; none when the protocol holds."""
    rng = random.Random(seed)
    plan = make_plan(mode, WARM_UP if rng.random() < 0.2 else INITIAL)
    world = new_world(plan)
    with RULES[dropped](world):
        try:
            ended = _run(world, plan, rng)
        except (CheckpointError, AssertionError) as error:
            return [f"an attempt could not go on: {error}"]
    return list(broken(world, plan)) if ended else ["no attempt could end"]


def _run(world: World, plan: Plan, rng: random.Random) -> bool:
    live: list[Process] = []

    starts = sorted(rng.randint(0, 60) for _ in range(4))
    for tick in range(300):
        live.extend(start_attempt(world, plan, rng) for start in starts if start == tick)
        for _ in range(rng.randint(1, 12)):
            if live:
                step(rng.choice(live), live)
        if live and rng.random() < 0.04:
            live.remove(rng.choice(live))
    return finish(world, plan, rng, live)


def finish(world: World, plan: Plan, rng: random.Random, live: list[Process]) -> bool:
    """Runs a last attempt to its end, zombies beside it, then the zombies to theirs."""
    ended = False
    for _ in range(10):
        last = start_attempt(world, plan, rng)
        outcome = last.switch()
        while not last.dead:
            if live and rng.random() < 0.2:
                step(rng.choice(live), live)
            outcome = last.switch()
        if outcome is _END:
            ended = True
            break
    while live:
        step(live[0], live)
    return ended


def step(process: Process, live: list[Process]) -> None:
    process.switch()
    if process.dead:
        live.remove(process)


# --- rules


@contextmanager
def _none(world: World) -> Iterator[None]:
    yield


def dropped_duty(name: str) -> Callable[[World], Any]:
    @contextmanager
    def dropped(world: World) -> Iterator[None]:
        setattr(world, name, False)
        yield

    return dropped


def _replaced(target: Any, name: str, other: Any) -> Callable[[World], Any]:
    return lambda world: patch.object(target, name, other)


_fence = takeover.fence
_next_end = attempts.next_end
_marks = stored.marks


def _fence_without_mark(
    path: Location,
    app: str,
    epoch: int,
    mark_of: object,
    open_table: Any,
) -> FencedTable:
    return _fence(path, app, epoch, lambda mark: 0, open_table)


def _unfenced_positions(
    path: Location,
    app: str,
    epoch: int,
    mark_of: Any,
    open_table: Any,
) -> FencedTable:
    """Reads what is done in a table before the fence, not on the snapshot that it is made on."""
    done = position(open_table(path), app)
    table = _fence(path, app, epoch, lambda mark: done.mark, open_table)
    table.done = done.mark
    table.previous = done.epoch
    return table


def _fence_but_started(
    path: Location,
    app: str,
    epoch: int,
    mark_of: Any,
    open_table: Any,
) -> FencedTable:
    """Enters what is begun without a look at who else does."""
    if not app.endswith(STARTED):
        return _fence(path, app, epoch, mark_of, open_table)
    there = position(open_table(path), app)
    table = FencedTable(open_table(path), app, epoch, there.mark, there.epoch)

    def commit(mark: int, rows: object, **how: object) -> None:
        open_table(path).commit_files([], app_id=app, version=Position(epoch, mark).version)

    table.commit = commit  # type: ignore[method-assign, assignment]
    return table


def _start_afterwards(self: Attempt, takeover: Takeover, mark: int) -> None:
    """Enters what was begun only when the next group begins."""
    if takeover.started:
        takeover.started.commit(_begun.get(self, takeover.started.done), [])
        _begun[self] = mark


_begun: WeakKeyDictionary[Attempt, int] = WeakKeyDictionary()


class _CheckpointFirst(GroupCommit):
    def _outputs(
        self,
        group: OperatorContext,
        mark: int,
        result: GroupResult,
        rows: GroupFacts,
        crash: Any,
    ) -> None:
        super()._checkpoint(group.last, mark, result.states, False)
        super()._outputs(group, mark, result, rows, crash)

    def _checkpoint(self, window: int, mark: int, states: Any, stopping: bool) -> bool:
        return True


class _FactsFirst(GroupCommit):
    """Commits outputs only once the facts are committed that seal them."""

    def _outputs(
        self,
        group: OperatorContext,
        mark: int,
        result: GroupResult,
        rows: GroupFacts,
        crash: Any,
    ) -> None:
        waiting: list[Callable[[], None]] = []
        for name, table in self._tables.items():
            if name != FACTS:
                later = lambda *args, commit=table.commit: waiting.append(lambda: commit(*args))  # noqa: E731
                table.commit = later  # type: ignore[method-assign, assignment]
        super()._outputs(group, mark, result, rows, crash)
        super()._facts(mark, rows)
        for name, table in self._tables.items():
            if name != FACTS:
                del table.commit
        for commit in waiting:
            commit()

    def _facts(self, mark: int, rows: GroupFacts) -> None:
        pass


def _fence_after_a_look(
    path: Location,
    app: str,
    epoch: int,
    mark_of: Any,
    open_table: Any,
) -> FencedTable:
    """Keeps the checkpoints' marks from before the fence."""
    marks = _marks(open_table(path)) if path.name == CHECKPOINTS else []
    table = _fence(path, app, epoch, mark_of, open_table)
    table.table.early_marks = marks  # type: ignore[attr-defined]
    return table


@contextmanager
def _marks_before_the_fence(world: World) -> Iterator[None]:
    with (
        patch.object(takeover, "fence", _fence_after_a_look),
        patch.object(stored, "marks", lambda table: table.early_marks),
    ):
        yield


RULES: dict[str, Callable[[World], Any]] = {
    "": _none,
    "compare and set": dropped_duty("compares"),
    "files joined on the snapshot that was read": dropped_duty("compares_joins"),
    "mark carried by the fence": _replaced(takeover, "fence", _fence_without_mark),
    "done read on the snapshot of the fence": _replaced(takeover, "fence", _unfenced_positions),
    "checkpoints read after their fence": _marks_before_the_fence,
    "nothing to a table that has it": _replaced(GroupCommit, "_done", lambda self, name: 0),
    "groups end where a table does": _replaced(
        attempts,
        "next_end",
        lambda *given, **named: _next_end(*given, **{**named, "cuts": ()}),
    ),
    "checkpoint last": _replaced(attempts, "GroupCommit", _CheckpointFirst),
    "seals after the rows": _replaced(attempts, "GroupCommit", _FactsFirst),
    "losses listed before the first new group": _replaced(
        attempts,
        "record_losses",
        lambda *given, **named: None,
    ),
    "the commit of what is begun checks the epoch": _replaced(
        takeover,
        "fence",
        _fence_but_started,
    ),
    "what is begun is committed before the work": _replaced(Attempt, "_start", _start_afterwards),
}
"""Name of a rule to what drops it, and it alone.

That a commit looks at the epoch is not among them: it matters only to an attempt that is overtaken
in every table just between its commit and its next look, which random runs do not meet.
tests/storage/test_fence.py makes that happen.
"""


# --- promises


def broken(world: World, plan: Plan) -> Iterator[str]:
    mode = plan.mode
    first = plan.start.warm_up_first or plan.first
    want = {window: sum(range(first, window + 1)) for window in range(1, WINDOWS + 1)}
    seals = [
        row
        for frame in world.frames(FACTS)
        for row in frame.to_pylist()
        if row["direction"] == "out"
    ]
    for name in OUTPUTS:
        rows = world.rows(name)
        sealed = [
            (seal["window_id"], seal["attempt"])
            for seal in seals
            if seal["port"] == name and not seal["lost"]
        ]
        newest = {
            window: max((made for w, made in sealed if w == window), default=0) for window in want
        }
        read = sorted((window, value) for window, made, value in rows if newest[window] == made)
        lost = {seal["window_id"] for seal in seals if seal["port"] == name and seal["lost"]}
        if mode.writes_only_missing and sorted((w, v) for w, _, v in rows) != sorted(want.items()):
            yield f"{name}: not every window exactly once"
        if not mode.may_lose and read != sorted(want.items()):
            yield f"{name}: what readers see is not every window once"
        if not mode.may_lose and lost:
            yield f"{name}: windows are called lost"
        if mode.may_lose:
            yield from _broken_losses(name, rows, read, lost, set(want))
            yield from _broken_state(world, name, rows, first)
    if all(
        row["mark"] != WINDOWS for frame in world.frames(CHECKPOINTS) for row in frame.to_pylist()
    ):
        yield "there is no state after the range"
    if mode.may_lose and max(world.computed[window] for window in want) > 1:
        yield "a window was computed twice"


def _broken_losses(
    name: str,
    rows: list,
    read: list,
    lost: set[int],
    want: set[int],
) -> Iterator[str]:
    there = [window for window, _, _ in rows]
    seen = {window for window, _ in read}
    if len(set(there)) != len(there):
        yield f"{name}: a window is there twice"
    if seen | lost != want or seen & lost:
        yield f"{name}: read and lost windows are not all windows, each in one of them"
    if set(there) & lost:
        yield f"{name}: a lost window is there"


def _broken_state(world: World, name: str, rows: list, first: int) -> Iterator[str]:
    """What the state never saw is what the losses say, to the window (R14)."""
    unseen = unseen_by(world.frames(CHECKPOINTS), rows)
    for window, _, value in rows:
        if value != sum(w for w in range(first, window + 1) if w not in unseen(window)):
            yield f"{name}: window {window} was computed from another state than the losses say"


def unseen_by(saved: list[pa.Table], rows: list) -> Callable[[int], set[int]]:
    """Returns the windows that the state of a window has never seen, computed from the checkpoints
    and rows of an at-most-once table.
    """
    begun = {
        attempt: min(w for w, made, _ in rows if made == attempt)
        for attempt in {made for _, made, _ in rows}
    }
    marks = {(row["mark"], row["attempt"]) for frame in saved for row in frame.to_pylist()}
    marks = {(mark, made) for mark, made in marks if mark >= 0}
    lacking = skipped_marks(sorted(begun.items()), sorted(marks), first=1)

    def unseen(window: int) -> set[int]:
        return {w for low, high in lacking if high < window for w in range(low, high + 1)}

    return unseen
