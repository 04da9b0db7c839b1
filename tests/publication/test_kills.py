"""Publish and undo killed by SIGKILL at every step: whoever comes next brings them to their one end
(R96).

Each kill is a real process of its own. After it the act is repeated, and everything is compared
with an act that nobody disturbed: rows, seals, checkpoints, one commit a table, ledger, leases,
stale ranges.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from rewindow.errors import OverlapError
from rewindow.ledger import Ledger, ReplayState
from rewindow.publication import read_published
from rewindow.publication.publish import publish
from rewindow.publication.steps import PublishStep
from rewindow.storage import Table
from tests.publication.kills import TABLES, Scene, build, settings, start_job
from tests.publication.staging import simple
from tests.publication.writers import LEFT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = [
    PublishStep.PREPARED,
    PublishStep.OPENED,
    *(
        f"{step}:{n}"
        for n in (1, 2, 3)
        for step in (PublishStep.TABLE_COMMITTED, PublishStep.TABLE_MARKED)
    ),
    PublishStep.SETTLED,
    PublishStep.CLOSED,
]
QUICK = [("publish", "table_committed:1"), ("undo", "table_marked:2")]
MATRIX = [
    pytest.param(act, step, marks=pytest.mark.exhaustive if step.endswith(":2") else ())
    for act in ("publish", "undo")
    for step in map(str, STEPS)
    if (act, step) not in QUICK
]
"""A step at the second of three tables is run by `make test-all`, except for those of QUICK."""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    """The scenes before a publication and before an undo, and each after an undisturbed act."""
    folder = tmp_path_factory.mktemp("scenes")
    before = dict(zip(("publish", "undo"), build(folder), strict=True))
    for act in ("publish", "undo"):
        before[f"{act}, undisturbed"] = before[act].copy(folder / f"{act}-undisturbed")
        before[f"{act}, undisturbed"].act()
    return before


def check_as_if_undisturbed(scene: Scene, golden: Scene, *but: str) -> None:
    """Holds a recovered scene against an undisturbed one, without the columns `but`."""
    assert scene.contents(*but) == golden.contents(*but)
    assert scene.numbers() == golden.numbers(), "each table has one commit for each publication"
    standing = scene.standing()
    assert standing == golden.standing()
    assert standing["open"] == [] and standing["leases"] == [] and all(standing["versions"])


def recover(act: str, step: str, scenes: dict[str, Scene], folder: Path) -> None:
    """Kills an act at a step, repeats it, and checks the end; and once more, which changes
    nothing.
    """
    scene = scenes[act].copy(folder)
    scene.kill_at(step)
    scene.act()
    check_as_if_undisturbed(scene, scenes[f"{act}, undisturbed"])
    assert scene.act().already
    check_as_if_undisturbed(scene, scenes[f"{act}, undisturbed"])


def test_actions_without_a_kill_produce_the_expected_result(
    scenes: dict[str, Scene],
) -> None:
    published = scenes["publish, undisturbed"]
    undone = scenes["undo, undisturbed"]
    assert published.contents() != scenes["publish"].contents() == undone.contents()
    assert (
        published.standing()["stale"] == [("app.ranks", 108, 109)]
        and undone.standing()["stale"] == []
    )
    assert (published.standing()["state"], undone.standing()["state"]) == (
        ReplayState.PUBLISHED,
        ReplayState.UNDONE,
    )
    assert published.numbers() == {name: [1, 2, 3] for name in TABLES}
    assert undone.numbers() == {name: [1, 2, 3, 4] for name in TABLES}


@pytest.mark.parametrize(("act", "step"), QUICK)
def test_killed_action_is_rolled_forward(
    act: str,
    step: str,
    scenes: dict[str, Scene],
    tmp_path: Path,
) -> None:
    # Rules: R96
    recover(act, step, scenes, tmp_path)


@pytest.mark.recovery_matrix
@pytest.mark.parametrize(("act", "step"), MATRIX)
def test_action_killed_at_any_step_is_rolled_forward(
    act: str,
    step: str,
    scenes: dict[str, Scene],
    tmp_path: Path,
) -> None:
    # Rules: R96
    recover(act, step, scenes, tmp_path)


@pytest.mark.recovery_matrix
def test_action_killed_twice_in_a_row_is_rolled_forward(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    scene = scenes["publish"].copy(tmp_path)
    scene.kill_at("opened")
    scene.kill_at("table_committed:2")
    scene.act()
    check_as_if_undisturbed(scene, scenes["publish, undisturbed"])


@pytest.mark.recovery_matrix
@pytest.mark.parametrize(
    ("act", "step", "writer"),
    [
        ("publish", "opened", "rows"),
        ("publish", "table_committed:1", "rows"),
        ("publish", "table_marked:1", "vacuum"),
        ("undo", "opened", "rows"),
        ("undo", "table_committed:1", "rows"),
    ],
)
def test_killed_action_is_rolled_forward_alongside_another_writer(
    act: str,
    step: str,
    writer: str,
    scenes: dict[str, Scene],
    tmp_path: Path,
) -> None:
    scene = scenes[act].copy(tmp_path)
    scene.kill_at(step, writer)
    process = scene.start(writer=writer)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    check_as_if_undisturbed(scene, scenes[f"{act}, undisturbed"])
    assert scene.rows_of_writer() == LEFT[writer]


@pytest.mark.recovery_matrix
def test_two_publishers_of_neighbouring_ranges_can_start_concurrently(tmp_path: Path) -> None:
    scene = Scene(settings(tmp_path), take_back=False)
    ranges = {"left": (100, 103), "right": (104, 107)}
    for name, windows in ranges.items():
        simple(scene.config, name, *windows, publishable=True, outputs=("ranks",))
    shutil.copytree(scene.config.state, tmp_path / "after" / "state")
    after = Scene(settings(tmp_path / "after"), take_back=False)
    for name in ranges:
        publish(after.config, name)
    begun = {name: start_job(scene.config, name) for name in ranges}
    for process in begun.values():
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0 or "is being published by another process" in output, output
    for name in ranges:
        publish(scene.config, name)
    assert scene.contents("table_id") == after.contents("table_id")
    assert scene.numbers() == after.numbers() == {name: [1, 2] for name in TABLES}


@pytest.mark.recovery_matrix
def test_new_publisher_first_rolls_forward_a_killed_publisher(
    scenes: dict[str, Scene],
    tmp_path: Path,
) -> None:
    scene = scenes["publish"].copy(tmp_path)
    before = read_published(scene.config, "app")
    scene.kill_at("table_committed:2")
    assert read_published(scene.config, "app") == before
    result = publish(scene.config, "r1")
    assert result.already and result.rolled_forward == [3]
    check_as_if_undisturbed(scene, scenes["publish, undisturbed"])


@pytest.mark.recovery_matrix
def test_jvm_that_outlives_its_publisher_is_killed_first(
    scenes: dict[str, Scene],
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    scene = scenes["publish"].copy(tmp_path)
    table = scene.config.stream_table("app.ranks")
    Table.open(table).delta.alter.add_constraint(
        {"known": "window_id >= 0"}
    )  # Needs Spark from now on.
    before = set(table.glob("*.parquet"))
    process = scene.start()
    while set(table.glob("*.parquet")) == before and process.poll() is None:
        time.sleep(0.002)  # Nothing announces the first file of a Spark job.
    jvms = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.name() == "java"
    ]
    for jvm in jvms:
        jvm.suspend()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        scene.act(spark)
        assert jvms and not [
            jvm for jvm in jvms if jvm.is_running() and jvm.status() != psutil.STATUS_ZOMBIE
        ]
    finally:
        for jvm in jvms:
            with suppress(psutil.NoSuchProcess):
                jvm.kill()
        process.stdout.close()
    # Spark numbers the tuples anew; the undisturbed scene has linked files, with the offsets of
    # their writing (X51).
    check_as_if_undisturbed(scene, scenes["publish, undisturbed"], "offset")


@pytest.mark.recovery_matrix
def test_suspended_publisher_keeps_its_lock_until_it_ends(
    scenes: dict[str, Scene],
    tmp_path: Path,
) -> None:
    scene = scenes["publish"].copy(tmp_path)
    process = scene.start()
    ledger = Ledger.open(scene.config.ledger_url)
    while not ledger.publications.unfinished() and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGSTOP)
    with pytest.raises(OverlapError, match="is being published by another process"):
        scene.act()
    os.killpg(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    check_as_if_undisturbed(scene, scenes["publish, undisturbed"])
