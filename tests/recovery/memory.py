"""Tables, ledger and engine in memory, for the simulation of the protocol.

Everything that outlives a crash is in `World`. Whatever another process could see or do something in between calls
`pause`, at which the simulation may let another attempt run, or this one die.
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
"""Window, attempt, and the sum of all windows' numbers that the state has seen: a wrong recovery shows in it."""


class Sum(FrameOperator):
    """Stands for an operator with a state and two outputs; the engine below computes it."""

    inputs: ClassVar = {"events": InputPort(VALUE)}
    outputs: ClassVar = {name: OutputPort(VALUE) for name in OUTPUTS}
    state_schema: ClassVar = VALUE


def make_app() -> Application:
    """Returns an application of one operator with two outputs."""
    app = Application("simulated", window="1 hour", checkpoint_windows=3)
    node = app.add("sum", Sum(), events=app.input("events"))
    for name in OUTPUTS:
        app.output(name, node[name], key=[])
    return app


@dataclass
class Commit:
    """A commit of a table: its transaction, and the frames that it added."""

    app_id: str
    version: int
    frames: list[pa.Table]


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

    def frames(self, name: str) -> list[pa.Table]:
        """Returns all frames that a table holds."""
        return [frame for commit in self.tables.get(name, []) for frame in commit.frames]

    def rows(self, name: str) -> list[Row]:
        """Returns an output's rows."""
        return [row for frame in self.frames(name) for row in zip(*frame.to_pydict().values(), strict=True)]


class MemoryLog:
    """A table of the world, as a process sees it: pinned to the snapshot that it last looked at."""

    def __init__(self, world: World, path: Location, pause: Pause) -> None:
        self.path, self._world, self._pause = path, world, pause
        self._commits = world.tables.setdefault(path.name, [])
        pause()
        self._seen = len(self._commits)

    def refresh(self) -> MemoryLog:
        self._pause()
        self._seen = len(self._commits)
        return self

    def txn(self, app_id: str) -> int:
        return next((c.version for c in reversed(self._commits[: self._seen]) if c.app_id == app_id), -1)

    def check_committable(self) -> None:
        pass

    def sync(self) -> None:
        self._pause()

    def files(self) -> list[DataFile]:
        return [
            DataFile(f"{number}.{part}", frame.num_rows, None, None, 0)
            for number, commit in enumerate(self._commits[: self._seen])
            for part, frame in enumerate(commit.frames)
        ]

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        number, part = map(int, file.path.split("."))
        return self._commits[number].frames[part].select(columns)

    def commit_files(
        self, files: Sequence[DataFile], *, app_id: str, version: int, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._commit(Commit(app_id, version, [self._world.written[file.path] for file in files]))

    def commit_arrow(
        self, frame: pa.Table, *, app_id: str, version: int, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._commit(Commit(app_id, version, [frame]))

    def _commit(self, commit: Commit) -> None:
        """Compares and sets, as Delta does by transaction id; looks again afterwards, as `Table` does."""
        self._pause()
        if self._world.compares and any(c.app_id == commit.app_id for c in self._commits[self._seen :]):
            raise FencedError("commit met another one")
        self._commits.append(commit)
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
    """Computes sums of window numbers."""

    def __init__(self, world: World, epoch: int, pause: Pause, tables: Mapping[str, FencedTable]) -> None:
        self._world, self._epoch, self._pause, self._tables = world, epoch, pause, tables

    def count_inputs(self, windows: WindowRange, *, check: bool = True) -> Counts:
        return {"events": WindowFacts.nothing()}

    def compute(
        self, context: OperatorContext, mark: int, states: Mapping[str, pa.Table], staged: Iterable[str], tuples: int
    ) -> GroupResult:
        value = sum(states["sum"]["value"].to_pylist())
        rows = []
        for window in context.windows:
            value += window
            rows.append((window, self._epoch, value))
            self._world.computed[window] += 1
        self._pause()
        folders = {name: location(f"{name}/{self._epoch}-{mark}") for name in OUTPUTS}
        for name in staged:
            self._world.written[str(folders[name])] = pa.table(list(zip(*rows, strict=True)), schema=ROWS)
        digests = _facts([(window, 1, str(value), None) for window, _, value in rows], DIGESTS_SCHEMA)
        return GroupResult(folders, dict.fromkeys(OUTPUTS, digests), {"sum": pa.table({"value": [value]})})

    def files(self, output: str, result: GroupResult) -> Sequence[DataFile]:
        path = str(result.folders[output])
        return [DataFile(path, self._world.written[path].num_rows, None, None, 0)]

    def compare_with_committed(self, windows: WindowRange, result: GroupResult, staged: Sequence[str]) -> Seals:
        return {name: self.seals(name, windows) for name in OUTPUTS if name not in staged}

    def seals(self, output: str, windows: WindowRange) -> WindowFacts:
        self._pause()
        newest = {window: (value, made) for window, made, value in sorted(self._world.rows(output))}
        found = _facts([(w, 1, str(value), None, made) for w, (value, made) in newest.items()], _SEALS)
        before = self._tables[output].previous
        return found.for_each(ids_of(windows), tuples=0, digest="", attempt=before)

    def skip(self, states: Mapping[str, pa.Table], skipped: WindowRange) -> SkipResult:
        return SkipResult(dict(states))

    def clear_scratch(self) -> None:
        pass


def _facts(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> WindowFacts:
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    return WindowFacts.of(pa.table(columns, schema=schema), schema)
