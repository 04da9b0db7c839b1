"""A warm-up on tables in memory: where one that died goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.application import MODES, Mode
from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.engine.computation import PlannedAttempt
from rewindow.recovery import StartState
from rewindow.state import checkpoints as stored
from rewindow.storage.layout import CHECKPOINTS
from tests.recovery.memory import OUTPUTS, MemoryEngine, MemoryLedger, MemoryLog, World
from tests.recovery.simulation import APP, ROOT, WINDOWS, make_plan

WARM_UP = range(-9, 1)


class CrashError(Exception):
    pass


def run(
    world: World,
    mode: Mode,
    dies_after: int | None = None,
    group_windows: int | None = 3,
    group_windows_max: int | None = None,
) -> None:
    """Runs an attempt of a replay whose state is warmed up."""
    world.epoch += 1
    epoch = world.epoch
    start = StartState(source="warm_up", window=WARM_UP[0] - 1, warm_up_first=WARM_UP[0])
    plan = make_plan(mode).model_copy(update={"start": start, "group_windows": group_windows})
    plan = plan.model_copy(update={"group_windows_max": group_windows_max})

    def crash(step: Step, number: int) -> None:
        if (step, number) == (Step.WARMED_UP, dies_after):
            raise CrashError

    Attempt(
        PlannedAttempt(plan, APP, ROOT, epoch),
        MemoryLedger(lambda: None),  # type: ignore[arg-type]
        lambda tables: MemoryEngine(world, epoch, lambda: None, tables),
        crash=crash,
        open_table=lambda path: MemoryLog(world, Path(path), lambda: None),
    ).run()


@pytest.mark.parametrize("mode", MODES.values(), ids=str)
def test_killed_warm_up_resumes_after_its_last_group(
    mode: Mode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    for dies_after in (2, 1):
        with pytest.raises(CrashError):
            run(world, mode, dies_after)
    caplog.clear()
    run(world, mode)
    assert "warm-up continues after window -1" in caplog.messages[0]
    assert [world.computed[window] for window in (*WARM_UP, *range(1, WINDOWS + 1))] == [1] * (
        len(WARM_UP) + WINDOWS
    )
    want = [sum(range(WARM_UP[0], window + 1)) for window in range(1, WINDOWS + 1)]
    for name in OUTPUTS:
        assert [value for _, _, value in sorted(world.rows(name))] == want


@pytest.mark.parametrize("mode", MODES.values(), ids=str)
def test_warm_up_is_not_split_into_groups_like_a_short_range(
    mode: Mode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    run(world, mode, group_windows=None, group_windows_max=2)
    warm_ups = [line for line in caplog.messages if line.startswith("warm-up: ")]
    assert len(warm_ups) == 1
    assert warm_ups[0].startswith(f"warm-up: windows [{WARM_UP[0]}, {WARM_UP[-1]}] (")
    assert warm_ups[0].endswith(f") of {WARM_UP[-1]}")
    assert sorted(world.computed) == [*WARM_UP, *range(1, WINDOWS + 1)]


def test_warm_up_checkpoints_are_not_recovery_points_of_the_range() -> None:
    world = World()
    with pytest.raises(CrashError):
        run(world, Mode.EXACTLY_ONCE, 2)
    table = MemoryLog(world, ROOT / CHECKPOINTS, lambda: None)
    assert stored.marks(table) == []
    assert stored.warm_up_marks(table) == [-7, -4]
