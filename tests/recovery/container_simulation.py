"""Random interleavings of a replay of several containers: crashes, zombies, power cuts that take
the newest commits of a table, writers that compute another result the second time, and the
assembly.

The product's own code decides which container is next, plans it, runs its attempts, checks the
streams between containers and assembles the replay. Tables, ledger and engine are in memory, and
SQL runs on SQLite. A rule can be dropped in the same way as in `simulation`.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from greenlet import getcurrent, greenlet

from rewindow.application import Application, FrameOperator, InputPort, Mode
from rewindow.application.containers import containers_of
from rewindow.engine import assembly, cut_streams
from rewindow.engine.computation import Counts, PlannedAttempt
from rewindow.engine.cut_streams import CutStream
from rewindow.errors import (
    FencedError,
    InputError,
    NotDeterministicError,
    RewindowError,
    TableError,
)
from rewindow.facts import losses, readers
from rewindow.facts.group_facts import GroupFacts
from rewindow.facts.window_facts import WindowFacts
from rewindow.ledger.replays import RUNNABLE, ReplayState
from rewindow.location import Location, location
from rewindow.names import container_id
from rewindow.planning import containers
from rewindow.recovery import ContainerPlan, InputPlan, OpenWindows, Plan, StartState
from rewindow.sequences import names_of
from rewindow.state import checkpoints as stored
from rewindow.storage import DataFile, FencedTable, Position, fence, inputs, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA, app_id
from rewindow.storage.staged_marks import lost_commits
from rewindow.windows import WindowRange
from tests.recovery.memory import (
    ROWS,
    VALUE,
    MemoryEngine,
    MemoryLedger,
    MemoryLog,
    Sum,
    World,
)
from tests.recovery.simulation import SimulatedAttempt, dropped_duty, step, unseen_by

WINDOWS = 8
RANGE = WindowRange(1, WINDOWS)
STATE = location("memory")
REPLAY = "whole"
ATTEMPTS_MAX = 40
_SQL_TYPES = (pa.int64(), pa.string(), pa.bool_())


class Add(FrameOperator):
    """Adds what it reads on two ports."""

    inputs: ClassVar = {"left": InputPort(VALUE), "right": InputPort(VALUE)}
    outputs: ClassVar = Sum.outputs
    state_schema: ClassVar = VALUE


def two(modes: list[Mode]) -> Application:
    """A container that reads both ports of another one."""
    app = Application("simulated", window="1 hour", checkpoint_windows=3)
    one = app.add("one", Sum(), mode=modes[0], container="one", events=app.input("events"))
    app.add("last", Add(), mode=modes[1], container="last", left=one["a"], right=one["b"])
    return _with_outputs(app, "one", "last")


def chain_of_three(modes: list[Mode]) -> Application:
    """Three containers, of which the last one reads both others."""
    app = Application("simulated", window="1 hour", checkpoint_windows=3)
    one = app.add("one", Sum(), mode=modes[0], container="one", events=app.input("events"))
    mid = app.add("mid", Add(), mode=modes[1], container="mid", left=one["a"], right=one["b"])
    app.add("last", Add(), mode=modes[2], container="last", left=mid["a"], right=mid["b"])
    return _with_outputs(app, "mid", "last")


def join_of_two(modes: list[Mode]) -> Application:
    """A container that reads two others, which do not know each other."""
    app = Application("simulated", window="1 hour", checkpoint_windows=3)
    one = app.add("one", Sum(), mode=modes[0], container="one", events=app.input("events"))
    mid = app.add("mid", Sum(), mode=modes[1], container="mid", events=app.input("events"))
    app.add("last", Add(), mode=modes[2], container="last", left=one["a"], right=mid["a"])
    return _with_outputs(app, "one", "last")


def _with_outputs(app: Application, *operators: str) -> Application:
    for operator in operators:
        app.output(f"{operator}_out", app.nodes[operator]["a"], key=[])
    app.output("other_out", app.nodes[operators[-1]]["b"], key=[])
    return app


SHAPES = (two, chain_of_three, join_of_two)


def make_app(rng: random.Random) -> Application:
    """Returns a graph in random modes that may follow each other (R39)."""
    shape = rng.choice(SHAPES)
    modes = [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE]
    chosen = rng.choices(modes, [2, 2, 3], k=3)
    if any(mode.may_lose for mode in chosen[: 1 if shape is two else 2]):
        chosen[1 if shape is two else 2] = Mode.AT_MOST_ONCE
    if shape is chain_of_three and chosen[0].may_lose:
        chosen[1] = Mode.AT_MOST_ONCE
    return shape(chosen)


def make_plan(app: Application) -> Plan:
    """Returns the plan of the whole replay."""
    parts = []
    for part in containers_of(app, Mode.EXACTLY_ONCE):
        parts.append(
            ContainerPlan(
                name=part.name,
                mode=part.mode,
                operators=list(part.operators),
                after=list(part.after),
            )
        )
    plan = Plan(
        replay_id=REPLAY,
        application=app.name,
        code_version="1",
        configuration_digest="1",
        first=1,
        last=WINDOWS,
        width_ms=3_600_000,
        origin_ms=0,
        mode=Mode.EXACTLY_ONCE,
        checkpoint_windows=3,
        inputs=[
            InputPlan(stream="events", path="e", version=0, windows_version=0, tuples=0, bytes=0)
        ],
        outputs=[],
        start=StartState(source="initial", window=0),
        containers=parts,
    )
    outputs = [containers.output_plan(app, output, plan) for output in app.outputs.values()]
    return plan.model_copy(update={"outputs": outputs})


@dataclass
class ContainerWorld(World):
    """All that outlives a crash, of several containers.

    Attributes:
        plan: of the whole replay.
        plans, states, epochs: of each container that has been planned, and of the replay.
        windows_computed: replay id to window to how often it was computed.
        drift: replay id to what is added to its values since it computes another result.
        cut: containers that have lost commits.
        broken: promises that were broken at some moment.
    """

    app: Application = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    plans: dict[str, Plan] = field(default_factory=dict)
    states: dict[str, ReplayState] = field(default_factory=dict)
    epochs: Counter[str] = field(default_factory=Counter)
    windows_computed: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    drift: Counter[str] = field(default_factory=Counter)
    cut: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def key(self, path: Location) -> str:
        return f"{path.parent.name}/{path.name}"

    def committed(self, path: Location) -> None:
        """Looks at the replay as any reader may: nothing is sealed or saved before its rows are
        committed.
        """
        if path.parent.name != REPLAY:
            return
        marks = self.marks(REPLAY)
        facts = marks[FACTS]
        if facts > min(marks[name] for name in names_of(self.plan.staged)):
            self.broken.append("the replay has seals without their rows")
        if marks[CHECKPOINTS] > facts:
            self.broken.append("the replay has a checkpoint before its seals")

    def plan_of(self, replay_id: str) -> Plan:
        if replay_id != REPLAY and replay_id not in self.plans:
            raise TableError(f"table of {replay_id} is not there")
        return self.plan if replay_id == REPLAY else self.plans[replay_id]

    def positions(self, replay_id: str) -> dict[str, Position]:
        names = [*names_of(self.plan_of(replay_id).staged), FACTS, CHECKPOINTS]
        found = {}
        for name in names:
            log = MemoryLog(self, root_of(replay_id) / name, lambda: None)
            found[name] = position(log, app_id(replay_id, name))
        return found

    def marks(self, replay_id: str) -> dict[str, int]:
        return {name: found.mark for name, found in self.positions(replay_id).items()}

    def lost(self, replay_id: str) -> bool:
        return bool(lost_commits(self.plan_of(replay_id), self.positions(replay_id)))

    def has_ended(self) -> bool:
        return self.states.get(REPLAY) is ReplayState.ENDED and not self.lost(REPLAY)


def root_of(replay_id: str) -> Location:
    return STATE / "replays" / replay_id


def pause() -> None:
    parent = getcurrent().parent
    if parent is not None:
        parent.switch()


class PlannedLog(MemoryLog):
    """A table of the world with what plans need of one."""

    version = 0

    @property
    def id(self) -> str:
        return self._world.key(self.path)


class MemoryTables:
    """Stands for the class `Table`."""

    def __init__(self, world: ContainerWorld) -> None:
        self._world = world

    def open(self, path: Location, version: int | None = None) -> PlannedLog:
        return PlannedLog(self._world, path, pause)


def query(sql: str, **tables: MemoryLog) -> pa.Table:
    """Returns the result of an SQL query of the product."""
    connection = sqlite3.connect(":memory:")
    for name, table in tables.items():
        schema = FACTS_SCHEMA if table.path.name == FACTS else ROWS
        columns = [column.name for column in schema if column.type in _SQL_TYPES]
        connection.execute(f"create table {name} ({', '.join(columns)})")
        for file in table.files():
            rows = zip(*table.read(file, columns).to_pydict().values(), strict=True)
            places = ", ".join("?" * len(columns))
            connection.executemany(f"insert into {name} values ({places})", rows)
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    found = list(zip(*cursor.fetchall(), strict=True)) or [() for _ in names]
    types = {column.name: column.type for column in FACTS_SCHEMA}
    arrays = [
        pa.array(values, types.get(name, pa.int64()))
        for name, values in zip(names, found, strict=True)
    ]
    return pa.table(arrays, names=names)


def read_cut(cut: CutStream) -> Mapping[int, int]:
    """Returns what a reader gets of the stream of another container, by window."""
    seals = cut._seals(RANGE)
    newest = set(zip(seals["window_id"].to_pylist(), seals["attempt"].to_pylist(), strict=True))
    return read_attempts(cut, newest.__contains__)


def read_attempts(cut: CutStream, is_read: Callable[[tuple[int, int]], bool]) -> Mapping[int, int]:
    found: Counter[int] = Counter()
    table: Any = cut._table
    for file in table.files():
        columns = table.read(file, ROWS.names).to_pydict().values()
        for window, made, value in zip(*columns, strict=True):
            if is_read((window, made)):
                found[window] += value
    return found


class ContainerEngine(MemoryEngine):
    """Computes the operator of a container; reads recorded windows, or those of other
    containers.
    """

    read: ClassVar[Callable[[CutStream], Mapping[int, int]]] = read_cut

    def __init__(
        self,
        world: ContainerWorld,
        planned: PlannedAttempt,
        tables: Mapping[str, FencedTable],
    ) -> None:
        super().__init__(world, planned.epoch, pause, tables)
        plan = planned.plan
        self.operator = next(iter(planned.app.nodes))
        self.outputs = tuple(planned.app.staged())
        self.computed = world.windows_computed[plan.replay_id]
        self._drift = partial(world.drift.__getitem__, plan.replay_id)
        spark: Any = None
        self._cuts = {
            str(source): CutStream(spark, source, planned.app, plan, STATE)
            for source in planned.app.cut_streams()
        }
        self._values = []
        cut_inputs = [entry for entry in plan.inputs if entry.container]
        for cut, entry in zip(self._cuts.values(), cut_inputs, strict=True):
            self._values.append(type(self).read(cut))
            sealed = readers.staged_seals(cut._facts, cut._port, RANGE)
            if readers.seals_digest(sealed) != entry.seals_digest:
                world.broken.append(f"{plan.replay_id}: an attempt reads other tuples of {entry}")

    def value(self, window: int) -> int:
        added = 0 if self._values else window
        for values in self._values:
            added += values.get(window, 0)
        return added + self._drift()

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        if not self._cuts:
            return {"events": WindowFacts.empty()}
        return {name: cut.count(windows, check=check) for name, cut in self._cuts.items()}


def linked(source: MemoryLog, target: Location, folder: str) -> list[DataFile]:
    world = source._world
    files: list[DataFile] = []
    for file in source.files():
        path = f"{target}/{folder}/{len(files)}"
        world.written[path] = source.read(file, ROWS.names)
        files.append(DataFile(path, file.rows, None, None, 0))
    return files


# --- processes


def start_process(world: ContainerWorld, rng: random.Random) -> greenlet:
    """Returns a launcher with the one job that it starts: the next one, or that of a container, as
    an instance of Airflow's mapped task does.
    """

    def pause_sometimes() -> None:
        for _ in range(rng.randint(0, 6)):
            pause()

    def run() -> None:
        if world.has_ended():
            return
        config = config_of(world)
        name = rng.choice(["", *(one.name for one in world.plan.containers)])
        try:
            container = containers.container_to_run(config, world.plan, name)
        except InputError:
            return  # The instance waits.
        if container is None and name:
            return
        replay_id = REPLAY
        if container is not None:
            replay_id = containers.plan_container(config, world.plan, container)
        if world.states[replay_id] not in RUNNABLE:
            if not world.lost(replay_id):
                return
            world.states[replay_id] = ReplayState.FAILED
        world.epochs[replay_id] += 1
        epoch = world.epochs[replay_id]
        pause_sometimes()
        try:
            run_job(world, replay_id, epoch, rng)
        except FencedError:
            return
        if world.epochs[replay_id] == epoch:
            world.states[replay_id] = ReplayState.ENDED

    return greenlet(run)


def run_job(world: ContainerWorld, replay_id: str, epoch: int, rng: random.Random) -> None:
    plan = world.plan_of(replay_id)
    root = root_of(replay_id)
    if replay_id == REPLAY:
        assembly.assemble(
            PlannedAttempt(plan, world.app, root, epoch),
            lambda crash_step: pause(),
        )
        return
    operators = names_of(plan.graph.operators) if plan.graph else []
    planned = PlannedAttempt(plan, world.app.part(operators), root, epoch)
    attempt = SimulatedAttempt(
        planned,
        MemoryLedger(pause),  # type: ignore[arg-type]
        lambda tables: ContainerEngine(world, planned, tables),
        crash=lambda crash_step, number: None,
        open_table=lambda path: MemoryLog(world, path, pause),
    )
    attempt.rng = rng
    attempt.run()


def config_of(world: ContainerWorld) -> Any:
    return SimpleNamespace(
        state=STATE,
        ledger_url="",
        replay_root=root_of,
        replay=SimpleNamespace(loss_windows_max=None),
    )


def create_tables(world: ContainerWorld, plan: Plan, app: Application) -> Plan:
    """Returns the plan in the tables of a container; the first planner creates them."""
    if plan.replay_id not in world.plans:
        world.plans[plan.replay_id] = plan
        states = {}
        for operator in app.nodes:
            states[operator] = pa.table({"value": [0]})
        rows = stored.encode(0, 0, states, dict.fromkeys(states, 1), stored.Provenance({}, 0))
        log = MemoryLog(world, root_of(plan.replay_id) / CHECKPOINTS, lambda: None)
        log.commit_arrow(rows, app_id=app_id(plan.replay_id, CHECKPOINTS), version=0)
    return world.plans[plan.replay_id]


class MemoryReplays:
    """The parts of the ledger that the choice of the next container needs of the ledger."""

    def __init__(self, world: ContainerWorld) -> None:
        self._world = world

    def find(self, replay_id: str) -> Any:
        state = self._world.states.get(replay_id)
        return None if state is None else SimpleNamespace(state=state)

    def create(self, replay_id: str, *about: object) -> None:
        self._world.states.setdefault(replay_id, ReplayState.PLANNED)


@contextmanager
def in_memory(world: ContainerWorld) -> Iterator[None]:
    """Replaces what the product does with disks, the ledger and modules of users."""
    tables = MemoryTables(world)
    replays = SimpleNamespace(replays=MemoryReplays(world))
    ledger = SimpleNamespace(open=lambda url: replays)
    plan_in = lambda root: world.plan_of(root.name)  # noqa: E731
    made = {
        (containers, "Table"): tables,
        (containers, "Ledger"): ledger,
        (containers, "create_tables"): lambda config, plan, app: create_tables(world, plan, app),
        (containers, "load_planned"): lambda config, plan: SimpleNamespace(app=world.app),
        (containers, "plan_in"): plan_in,
        (containers, "staged_positions"): lambda root, plan: world.positions(root.name),
        (cut_streams, "Table"): tables,
        (cut_streams, "query"): query,
        (inputs, "Table"): tables,
        (readers, "query"): query,
        (assembly, "Table"): tables,
        (assembly, "plan_in"): plan_in,
        (assembly, "fence"): partial(fence, open_table=tables.open),
        (assembly, "_linked"): linked,
    }
    with ExitStack() as patches:
        for (module, name), stand_in in made.items():
            patches.enter_context(patch.object(module, name, stand_in))
        yield


# --- runs


def run(seed: int, dropped: str = "") -> list[str]:
    """Returns the promises that a run broke; none when the protocol holds."""
    rng = random.Random(seed)
    app = make_app(rng)
    world = ContainerWorld(app=app, plan=make_plan(app))
    world.states[REPLAY] = ReplayState.PLANNED
    with in_memory(world), RULES[dropped](world):
        try:
            ended = _run(world, rng)
        except NotDeterministicError as error:
            return [*world.broken, *_wrong_refusal(world, error)]
        except (RewindowError, AssertionError) as error:
            return [f"an attempt could not go on: {error}"]
    return [*world.broken, *broken(world)] if ended else ["no attempt could end"]


def _wrong_refusal(world: ContainerWorld, error: NotDeterministicError) -> Iterator[str]:
    """An error names both containers, and only a writer with another result causes it (R58,
    R70).
    """
    for container in world.plan.containers:
        if f'"{container.name}" has read' not in error.primary:
            continue
        for writer in container.after:
            was_changed = world.drift[container_id(REPLAY, writer)]
            if was_changed and f'container "{writer}" has computed' in error.primary:
                return
    yield f"refused for a wrong reason: {error.primary}"


def _run(world: ContainerWorld, rng: random.Random) -> bool:
    live: list[greenlet] = []
    starts = Counter(rng.randint(0, 110) for _ in range(10))
    for tick in range(120):
        live.extend(start_process(world, rng) for _ in range(starts[tick]))
        for _ in range(rng.randint(1, 12)):
            if live:
                step(rng.choice(live), live)
        if live and rng.random() < 0.04:
            live.remove(rng.choice(live))
        if rng.random() < (0.15 if world.epochs[REPLAY] else 0.03):
            cut_power(world, rng, live)
    return finish(world, rng, live)


def finish(world: ContainerWorld, rng: random.Random, live: list[greenlet]) -> bool:
    """Runs processes until the replay has ended, with zombies in between, then the zombies to their
    end.
    """
    for _ in range(ATTEMPTS_MAX):
        last = start_process(world, rng)
        while not last.dead:
            if live and rng.random() < 0.2:
                step(rng.choice(live), live)
            last.switch()
        if world.has_ended():
            break
    ended = world.has_ended()
    while live:
        step(live[0], live)
    return ended


def cut_power(world: ContainerWorld, rng: random.Random, live: list[greenlet]) -> None:
    """Ends all processes; a table of a container that has ended, and that may compute windows
    again, loses its newest commits, once in a run. Until the replay has seals, the container may
    compute another result from then on.
    """
    ended = []
    for replay_id, plan in world.plans.items():
        has_ended = world.states[replay_id] is ReplayState.ENDED
        if has_ended and not plan.mode.may_lose and replay_id not in world.cut:
            ended.append(replay_id)
    if not ended or world.states[REPLAY] is ReplayState.ENDED:
        return
    live.clear()
    replay_id = rng.choice(ended)
    world.cut.add(replay_id)
    plan = world.plans[replay_id]
    name = rng.choice([*names_of(plan.staged), FACTS])
    commits = world.tables.setdefault(f"{replay_id}/{name}", [])
    del commits[len(commits) - rng.randint(0, len(commits)) :]
    if rng.random() < 0.5 and not world.marks(REPLAY)[FACTS]:
        world.drift[replay_id] += 1000


# --- rules


@contextmanager
def _none(world: ContainerWorld) -> Iterator[None]:
    yield


def _replaced(target: Any, name: str, other: Any) -> Callable[[ContainerWorld], Any]:
    return lambda world: patch.object(target, name, other)


_container_to_run = containers.container_to_run
_plan_container = containers.plan_container


def _last_first(config: Any, plan: Plan, name: str = "") -> ContainerPlan | None:
    return _container_to_run(
        config,
        plan.model_copy(update={"containers": plan.containers[::-1]}),
        name,
    )


def _at_once(config: Any, plan: Plan, name: str = "") -> ContainerPlan | None:
    if not name:
        return _container_to_run(config, plan)
    return next((one for one in containers.unfinished(config, plan) if one.name == name), None)


@contextmanager
def _planned_again(world: ContainerWorld) -> Iterator[None]:
    """Plans a container for every attempt."""

    def planned(config: Any, plan: Plan, container: ContainerPlan) -> str:
        found = _plan_container(config, plan, container)
        world.plans[found] = containers.container_plan(config, plan, container)
        return found

    with patch.object(containers, "plan_container", planned):
        yield


def _every_attempt(cut: CutStream) -> Mapping[int, int]:
    return read_attempts(cut, lambda row: True)


def _only_whole(windows: WindowRange, missing: Mapping[str, Any]) -> OpenWindows:
    """Opens only windows that all ports have."""
    lost = {part for parts in missing.values() for part in parts}
    return OpenWindows((), (), tuple(sorted(lost, key=lambda part: part.first)))


_nothing = lambda *about: None  # noqa: E731
_no_windows = lambda plan: np.arange(0)  # noqa: E731
_add_input = GroupFacts.add_input


def _input_without_missing(
    self: GroupFacts,
    stream: str,
    counts: WindowFacts,
    missing: Any = (),
    **named: bool,
) -> None:
    _add_input(self, stream, counts, **named)


def _fence_of(world: ContainerWorld) -> Callable[..., FencedTable]:
    return partial(fence, open_table=MemoryTables(world).open)


@contextmanager
def _unfenced(world: ContainerWorld) -> Iterator[None]:
    """Assembles without a look at who else does."""

    def opened(path: Location, app: str, epoch: int) -> FencedTable:
        log = MemoryTables(world).open(path)
        done = position(log, app)
        table = FencedTable(log, app, epoch, done.mark, done.epoch)

        def commit(mark: int, rows: Any, metadata: object = None) -> None:
            now = MemoryTables(world).open(path)
            add = now.commit_arrow if isinstance(rows, pa.Table) else now.commit_files
            add(rows, app_id=app, version=Position(epoch, mark).version)

        table.commit = commit  # type: ignore[method-assign, assignment]
        return table

    with patch.object(assembly, "fence", opened):
        yield


@contextmanager
def _all_again(world: ContainerWorld) -> Iterator[None]:
    def fenced(*about: Any) -> FencedTable:
        return replace(_fence_of(world)(*about), done=0)

    with patch.object(assembly, "fence", fenced):
        yield


def _first_of_all(first: str) -> Callable[[ContainerWorld], Any]:
    """Commits a table of the assembled replay before all others."""

    @contextmanager
    def dropped(world: ContainerWorld) -> Iterator[None]:
        waiting: dict[int, list[Callable[[], None]]] = defaultdict(list)

        def fenced(path: Location, app: str, epoch: int) -> FencedTable:
            table = _fence_of(world)(path, app, epoch)
            commit = table.commit

            def at_once(*rows: Any) -> None:
                commit(*rows)
                while waiting[epoch]:
                    waiting[epoch].pop(0)()

            def later(*rows: Any) -> None:
                waiting[epoch].append(partial(commit, *rows))

            if path.name == first:
                table.commit = at_once  # type: ignore[method-assign, assignment]
            elif path.name != CHECKPOINTS:
                table.commit = later  # type: ignore[method-assign, assignment]
            return table

        with patch.object(assembly, "fence", fenced):
            yield

    return dropped


RULES: dict[str, Callable[[ContainerWorld], Any]] = {
    "": _none,
    "compare and set": dropped_duty("compares"),
    "a container begins when those that it reads have ended": _replaced(
        containers,
        "container_to_run",
        _last_first,
    ),
    "an instance waits for the containers that it reads": _replaced(
        containers,
        "container_to_run",
        _at_once,
    ),
    "a container that has ended is left alone": _replaced(
        containers,
        "RUNNABLE",
        tuple(ReplayState),
    ),
    "a container that has lost commits is computed again": _replaced(
        containers,
        "_has_lost_commits",
        lambda config, replay_id: False,
    ),
    "the first attempt pins what all attempts read": _planned_again,
    "a resume reads the seals that the plan has pinned": _replaced(
        cut_streams,
        "check_seals",
        _nothing,
    ),
    "the assembly compares the seals that were read": _replaced(
        assembly,
        "check_seals",
        _nothing,
    ),
    "a reader takes the newest sealed attempt": _replaced(
        ContainerEngine,
        "read",
        _every_attempt,
    ),
    "a reader takes nothing of a window that was lost": _replaced(
        CutStream,
        "_without_lost",
        lambda self, rows: rows,
    ),
    "a window that no port has is lost": _replaced(assembly, "unfed_windows", _no_windows),
    "losses are passed on through a container": _replaced(
        containers,
        "unfed_windows",
        _no_windows,
    ),
    "a window that some port has is computed": _replaced(losses, "open_windows", _only_whole),
    "the ports that lack a window are listed": _replaced(
        GroupFacts,
        "add_input",
        _input_without_missing,
    ),
    "the assembly has its own fence": _unfenced,
    "nothing is assembled twice": _all_again,
    "rows are linked again until their seals are committed": _replaced(
        FencedTable,
        "replace",
        lambda self, added, removed: True,
    ),
    "the assembly commits rows before their seals": _first_of_all(FACTS),
    "the assembly commits the checkpoint last": _first_of_all(CHECKPOINTS),
}
"""Name of a rule to what drops it, and it alone.

That the assembly fences all tables before it commits to any is not among them: each table is
complete after one commit, which an older attempt commits just as well.
"""


# --- promises


@dataclass
class Staged:
    """An output table of a container or of the replay.

    Attributes:
        rows: all rows: window, attempt, value.
        read: window to value, as readers see it.
        lost: windows that the facts call lost.
    """

    rows: list[tuple[int, int, int]]
    read: dict[int, int]
    lost: set[int]


def staged(world: ContainerWorld, replay_id: str, name: str) -> Staged:
    rows = world.rows(f"{replay_id}/{name}")
    newest: Counter[int] = Counter()
    lost = set()
    for frame in world.frames(f"{replay_id}/{FACTS}"):
        for seal in frame.to_pylist():
            if seal["direction"] != "out" or seal["port"] != name:
                continue
            window = seal["window_id"]
            if seal["lost"]:
                lost.add(window)
            else:
                newest[window] = max(newest[window], seal["attempt"])
    seen = {window: value for window, made, value in rows if newest[window] == made}
    return Staged(rows, seen, lost)


def broken(world: ContainerWorld) -> Iterator[str]:
    """Yields the promises that the containers and the replay broke, in the order of the graph."""
    every = set(RANGE)
    ports: dict[str, Staged] = {}
    for container in world.plan.containers:
        replay_id = container_id(REPLAY, container.name)
        plan = world.plans[replay_id]
        part = world.app.part(container.operators)
        sources = [ports[str(source)] for source in part.cut_streams()]
        unfed = set.intersection(*(source.lost for source in sources)) if sources else set()
        added = {window: window for window in every}
        if sources:
            added = {w: sum(source.read.get(w, 0) for source in sources) for w in every}
        for output in part.staged().values():
            found = staged(world, replay_id, output.name)
            yield from _broken_rows(world, plan, found, f"{replay_id}/{output.name}", added)
            found.lost |= unfed
            for window in unfed:
                found.read.pop(window, None)
            ports[str(output.source)] = found
        if plan.mode.may_lose and max(world.windows_computed[replay_id].values()) > 1:
            yield f"{replay_id}: a window was computed twice"
        yield from _broken_inputs(world, replay_id, part, ports)
    yield from _broken_assembly(world, ports)


def _broken_rows(
    world: ContainerWorld,
    plan: Plan,
    found: Staged,
    what: str,
    added: Mapping[int, int],
) -> Iterator[str]:
    """Each window is read or lost, and has the sum of what its state should have seen."""
    every = set(RANGE)
    windows = [window for window, _, _ in found.rows]
    if not plan.mode.may_repeat and len(set(windows)) != len(windows):
        yield f"{what}: a window is there twice"
    if found.read.keys() | found.lost != every or found.read.keys() & found.lost:
        yield f"{what}: read and lost windows are not all windows, each in one of them"
    if found.lost and not plan.mode.may_lose:
        yield f"{what}: windows are called lost"
    if set(windows) & found.lost:
        yield f"{what}: a lost window is there"
    if world.drift[plan.replay_id]:
        return
    saved = world.frames(f"{plan.replay_id}/{CHECKPOINTS}")
    unseen = unseen_by(saved, found.rows) if plan.mode.may_lose else lambda window: set()
    for window, value in found.read.items():
        seen = set(range(1, window + 1)) - unseen(window)
        if value != sum(added[w] for w in seen):
            yield f"{what}: window {window} was computed from other tuples than its readers see"


def _broken_inputs(
    world: ContainerWorld,
    replay_id: str,
    part: Application,
    ports: Mapping[str, Staged],
) -> Iterator[str]:
    """The facts list the windows that each port lacks."""
    listed: dict[str, set[int]] = defaultdict(set)
    for frame in world.frames(f"{replay_id}/{FACTS}"):
        for row in frame.to_pylist():
            if row["direction"] == "in" and row["lost"]:
                listed[row["port"]].add(row["window_id"])
    for source in map(str, part.cut_streams()):
        if ports[source].lost - listed[source]:
            yield f"{replay_id}: windows that {source} lacks are not listed"


def _broken_assembly(world: ContainerWorld, ports: Mapping[str, Staged]) -> Iterator[str]:
    """The replay has the rows, losses and last states of its containers, each once."""
    for name, output in world.app.outputs.items():
        whole = staged(world, REPLAY, name)
        own = ports[str(output.source)]
        # Rows of a container that were computed again after the replay has sealed them stay there.
        was_cut = container_id(REPLAY, str(output.source.operator)) in world.cut
        rows = Counter(whole.rows)
        if max(rows.values(), default=1) > 1 or (rows != Counter(own.rows) and not was_cut):
            yield f"{name}: the rows are not those of the container, each once"
        if whole.read != own.read:
            yield f"{name}: readers see other rows than in the container"
        if whole.lost != own.lost:
            yield f"{name}: other windows are lost than in the container"
    saved = [row for frame in world.frames(f"{REPLAY}/{CHECKPOINTS}") for row in frame.to_pylist()]
    if sorted(row["operator"] for row in saved) != sorted(world.app.nodes):
        yield "the replay has not one state of each operator"
    last = {}
    for container in world.plan.containers:
        log = MemoryLog(
            world,
            root_of(container_id(REPLAY, container.name)) / CHECKPOINTS,
            lambda: None,
        )
        for row in stored.rows_at(log, WINDOWS).to_pylist():
            last[row["operator"]] = row["digest"]
    if {row["operator"]: row["digest"] for row in saved} != last:
        yield "the replay has other states than its containers"
