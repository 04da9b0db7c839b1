"""Tables, ledger and engine in memory, for the simulation of the protocol.

Everything that outlives a crash is in `World`. Whatever another process could see or do something
in between calls `pause`, at which the simulation may let another attempt run, or this one die.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.engine.computation import Counts, GroupResult, Seals, SkipResult
from rewindow.errors import FencedError
from rewindow.facts.window_facts import DIGESTS_SCHEMA, WindowFacts, ids_of
from rewindow.location import Location, location
from rewindow.storage import DataFile, FencedTable
from rewindow.windows import WindowRange

OUTPUTS = ("a", "b")
ROWS = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), ("value", pa.int64())])
VALUE = pa.schema([("value", pa.int64())])
_SEALS = pa.schema([*DIGESTS_SCHEMA, ("attempt", pa.int64())])

Pause = Callable[[], None]
Row = tuple[int, int, int]
"""Window, attempt, and the sum of all windows' numbers that the state has seen: a wrong recovery
shows in it."""


class Sum(FrameOperator):
    """Stands for an operator with a state and two outputs; the engine below computes it."""

    inputs: ClassVar = {"events": InputPort(VALUE)}
    outputs: ClassVar = {name: OutputPort(VALUE) for name in OUTPUTS}
    state_schema: ClassVar = VALUE


def make_app() -> Application:
    app = Application("simulated", window="1 hour", checkpoint_windows=3)
    node = app.add("sum", Sum(), events=app.input("events"))
    for name in OUTPUTS:
        app.output(name, node[name], key=[])
    return app


@dataclass
class Commit:
    """A commit of a table: its transaction, the frames that it added, and the files that it
    removed.
    """

    app_id: str
    version: int
    frames: list[pa.Table]
    removed: set[str] = field(default_factory=set)


@dataclass
class World:
    """All that outlives a crash.

    Attributes:
        tables: a table's name to its commits.
        computed: window to how often it was computed.
        written: files that were written, committed or not.
    """

    tables: dict[str, list[Commit]] = field(default_factory=dict)
    written: dict[str, pa.Table] = field(default_factory=dict)
    epoch: int = 0
    computed: Counter[int] = field(default_factory=Counter)
    compares: bool = True
    compares_joins: bool = True

    def key(self, path: Location) -> str:
        """Returns the name of a table in `tables`."""
        return path.name

    def committed(self, path: Location) -> None:
        """Is called after every commit."""

    def frames(self, name: str) -> list[pa.Table]:
        return [frame for _, frame in _held(self.tables.get(name, []))]

    def rows(self, name: str) -> list[Row]:
        return [
            row
            for frame in self.frames(name)
            for row in zip(*frame.to_pydict().values(), strict=True)
        ]


def _held(commits: Sequence[Commit]) -> list[tuple[str, pa.Table]]:
    """Returns the files of some commits that none of them has removed, by path."""
    removed = {path for commit in commits for path in commit.removed}
    files = [
        (f"{number}.{part}", frame)
        for number, commit in enumerate(commits)
        for part, frame in enumerate(commit.frames)
    ]
    return [(path, frame) for path, frame in files if path not in removed]


class MemoryLog:
    """A table of the world, as a process sees it: pinned to the snapshot that it last looked at."""

    def __init__(self, world: World, path: Location, pause: Pause) -> None:
        self.path = path
        self._world = world
        self._pause = pause
        self._commits = world.tables.setdefault(world.key(path), [])
        pause()
        self._seen = len(self._commits)

    def refresh(self) -> MemoryLog:
        self._pause()
        self._seen = len(self._commits)
        return self

    def txn(self, app_id: str) -> int:
        return next(
            (c.version for c in reversed(self._commits[: self._seen]) if c.app_id == app_id), -1
        )

    def check_committable(self) -> None:
        pass

    def sync(self) -> None:
        self._pause()

    def files(self) -> list[DataFile]:
        return [
            DataFile(path, frame.num_rows, None, None, 0)
            for path, frame in _held(self._commits[: self._seen])
        ]

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        number, part = map(int, file.path.split("."))
        return self._commits[number].frames[part].select(columns)

    def commit_files(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._commit(Commit(app_id, version, [self._world.written[file.path] for file in files]))

    def commit_arrow(
        self,
        frame: pa.Table,
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._commit(Commit(app_id, version, [frame]))

    def replace_files(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
    ) -> None:
        frames = [self._world.written[file.path] for file in added]
        self._commit(Commit(app_id, version, frames, {file.path for file in removed}))

    def _commit(self, commit: Commit) -> None:
        """Compares and sets, as Delta does by transaction id; looks again afterwards, as `Table`
        does.
        """
        self._pause()
        compares = self._world.compares and (not commit.removed or self._world.compares_joins)
        if compares and any(c.app_id == commit.app_id for c in self._commits[self._seen :]):
            raise FencedError("commit conflicts with another commit")
        self._commits.append(commit)
        self._world.committed(self.path)
        self.refresh()


class MemoryLedger:
    """What an attempt needs of the ledger: nothing that its safety rests on."""

    def __init__(self, pause: Pause) -> None:
        self.attempts = MemoryAttempts(pause)


class MemoryAttempts:
    """Takes reports, and keeps none."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause

    def report_progress(self, *report: object) -> None:
        self._pause()

    def report_warm_up(self, *report: object) -> None:
        self._pause()


class MemoryEngine:
    """Computes running sums of what `value` returns for each window.

    Attributes:
        operator: name of the operator that has the state.
        outputs: names of its outputs.
        computed: window to how often it was computed.
    """

    operator = "sum"
    outputs: tuple[str, ...] = OUTPUTS

    def __init__(
        self,
        world: World,
        epoch: int,
        pause: Pause,
        tables: Mapping[str, FencedTable],
    ) -> None:
        self._world = world
        self._epoch = epoch
        self._pause = pause
        self._tables = tables
        self.computed = world.computed

    def value(self, window: int) -> int:
        """Returns what a window adds to the sum."""
        return window

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        return {"events": WindowFacts.empty()}

    def compute(
        self,
        context: OperatorContext,
        mark: int,
        states: Mapping[str, pa.Table],
        staged: Iterable[str],
        tuples: int,
    ) -> GroupResult:
        value = sum(states[self.operator]["value"].to_pylist())
        rows = []
        for window in context.windows:
            value += self.value(window)
            rows.append((window, self._epoch, value))
            self.computed[window] += 1
        self._pause()
        folders = {
            name: location(f"{self._key(name)}/{self._epoch}-{mark}") for name in self.outputs
        }
        for name in staged:
            self._world.written[str(folders[name])] = pa.table(
                list(zip(*rows, strict=True)),
                schema=ROWS,
            )
        digests = _facts(
            [(window, 1, str(value), None) for window, _, value in rows],
            DIGESTS_SCHEMA,
        )
        return GroupResult(
            folders,
            dict.fromkeys(self.outputs, digests),
            {self.operator: pa.table({"value": [value]})},
        )

    def files(self, output: str, result: GroupResult) -> Sequence[DataFile]:
        path = str(result.folders[output])
        return [DataFile(path, self._world.written[path].num_rows, None, None, 0)]

    def compare_with_committed(
        self,
        windows: WindowRange,
        result: GroupResult,
        staged: Sequence[str],
    ) -> Seals:
        return {name: self.seals(name, windows) for name in self.outputs if name not in staged}

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        self._pause()
        rows = self._world.rows(self._key(output))
        newest = {window: (value, made) for window, made, value in sorted(rows)}
        found = _facts(
            [(w, 1, str(value), None, made) for w, (value, made) in newest.items()],
            _SEALS,
        )
        before = self._tables[output].previous
        return found.reindex(ids_of(windows), tuples=0, digest="", attempt=before)

    def skip(self, states: Mapping[str, pa.Table], skipped: WindowRange) -> SkipResult:
        return SkipResult(dict(states))

    def join_files(self) -> None:
        """Makes one file of the files of each attempt, as far as it has several."""
        for name in self.outputs:
            fenced = self._tables[name]
            log = fenced.table.refresh()
            files = [(file, log.read(file, ROWS.names)) for file in log.files()]
            for attempt in {int(rows["attempt"][0].as_py()) for _, rows in files}:
                mine = [
                    (file, rows) for file, rows in files if rows["attempt"][0].as_py() == attempt
                ]
                if len(mine) > 1:
                    path = f"{self._key(name)}/{self._epoch}-joined-{attempt}"
                    self._world.written[path] = pa.concat_tables([rows for _, rows in mine])
                    for _ in mine:
                        self._pause()
                    fenced.replace([DataFile(path, 0, None, None, 0)], [file for file, _ in mine])
                    files = [
                        (file, rows) for file, rows in files if file not in [one for one, _ in mine]
                    ]

    def clear_scratch(self) -> None:
        pass

    def _key(self, output: str) -> str:
        return self._world.key(self._tables[output].path)


def _facts(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> WindowFacts:
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    return WindowFacts.of(pa.table(columns, schema=schema), schema)
