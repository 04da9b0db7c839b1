"""The takeover on tables in memory: what is fenced first, and what is read when."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.application import MODES, Mode
from rewindow.engine.takeover import take_over
from rewindow.state import checkpoints as stored
from rewindow.storage import DataFile
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from tests.recovery.memory import OUTPUTS, MemoryLog, World
from tests.recovery.simulation import APP, ROOT, START, make_plan


class Watched(MemoryLog):
    done: list[str]

    def commit_files(self, files: object, **how: object) -> None:
        self.done.append(f"fence {self.path.name}")
        super().commit_files(files, **how)  # type: ignore[arg-type]

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        self.done.append(f"read {self.path.name}")
        return super().read(file, columns)


@pytest.mark.parametrize("mode", MODES.values(), ids=str)
def test_takeover_fences_older_attempts_before_it_reads_the_checkpoints(mode: Mode) -> None:
    # After the fence the checkpoints can no longer change.
    world = World()
    done: list[str] = []

    def open_table(path: Path) -> Watched:
        log = Watched(world, path, lambda: None)
        log.done = done
        return log

    MemoryLog(world, ROOT / CHECKPOINTS, lambda: None).commit_arrow(
        START,
        app_id=app_id("simulated", CHECKPOINTS),
        version=0,
    )
    taken = take_over(make_plan(mode), APP, ROOT, 1, open_table)
    fences = [step for step in done if step.startswith("fence")]
    begun = [CHECKPOINTS] if mode is Mode.AT_MOST_ONCE else []
    assert fences == [f"fence {name}" for name in (CHECKPOINTS, *begun, *OUTPUTS, FACTS)]
    assert done.index(f"fence {CHECKPOINTS}") == 0 and f"read {CHECKPOINTS}" in done
    assert taken.resume.first == 1 and taken.checkpoint is not None
    assert taken.checkpoint.states["sum"].equals(stored.decode(START.to_pylist()[0], Path()))
