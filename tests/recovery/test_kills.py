"""Real processes, real SIGKILL: each mode keeps its promise wherever an attempt dies.

Every scenario is a chain: each attempt dies at its own step, the last one ends. `make
test-recovery` runs every step in every mode and the stranger accidents, `make test-all` every step
by itself and every pair of kills. What is drawn at random follows the seed that pytest prints
(`ARGS="--randomly-seed=N"`). Where a claim is about what the next attempt makes of the tables, not
about processes, attempts run and die in this process; so do the chains in which `make
test-recovery` repeats, in another mode, steps at which it kills real processes. Real processes of
every mode are killed there by test_container_kills.py and the demo.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.crash import Step
from rewindow.launcher import Outcome
from rewindow.launcher import attempts as launching
from rewindow.ledger import Ledger
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.recovery import Plan
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS
from tests.lost_files import lose_part_files
from tests.recovery.project import FIRST, Project
from tests.recovery.promises import check_promise, lost_windows, raw, repeated_windows

MODES = ("exactly_once", "at_least_once", "at_most_once")
DAMAGES = [("exactly_once", "garbled"), ("at_least_once", "deleted"), ("exactly_once", "altered")]
OTHER_DAMAGES = [
    ("at_least_once", "garbled"),
    ("exactly_once", "deleted"),
    ("at_least_once", "altered"),
]
SECOND = "second"
"""Stands for a step that the seed of the run draws."""
CHAINS = [
    [
        f"{Step.FENCED}:1",
        f"{Step.STARTED}:2",
        f"{Step.AFTER_FIRST_OUTPUT}:2",
        f"{SECOND}:1",
        f"{Step.AFTER_FACTS}:1",
    ],
    [
        f"{Step.MATERIALISED}:2",
        f"{Step.RESUMED}:1",
        f"{Step.AFTER_OUTPUTS}:2",
        f"{Step.AFTER_CHECKPOINT}:1",
        f"{Step.JOINED}:1",
    ],
]
"""Together every step of the protocol: each is the end of one attempt, so a chain of five needs six
jobs.

A recovery from a kill between two outputs is killed too, in its first group.
"""
STEPS = [step for step in Step if step is not Step.WARMED_UP]
"""What every attempt goes through."""
RECOVERING = [step for step in STEPS if step is not Step.FENCED]


@pytest.mark.exhaustive
def test_exactly_once_keeps_its_guarantee_after_a_kill(project: Project, baseline: Plan) -> None:
    plan = project.plan("quick", "exactly_once")
    project.attempts("quick", [f"{Step.AFTER_FIRST_OUTPUT}:2"])
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.parametrize(
    ("number", "mode", "how"),
    [
        (0, "exactly_once", "real"),
        (1, "exactly_once", "real"),
        (0, "at_least_once", "here"),
        (1, "at_least_once", "here"),
        (0, "at_most_once", "here"),
        (1, "at_most_once", "here"),
        pytest.param(0, "at_least_once", "real", marks=pytest.mark.exhaustive),
        pytest.param(1, "at_least_once", "real", marks=pytest.mark.exhaustive),
        pytest.param(0, "at_most_once", "real", marks=pytest.mark.exhaustive),
        pytest.param(1, "at_most_once", "real", marks=pytest.mark.exhaustive),
    ],
)
def test_guarantee_is_kept_through_kills_at_every_step(
    number: int,
    mode: str,
    how: str,
    project: Project,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    # Rules: R48 to R50
    if how == "here":
        request.getfixturevalue("here")
    # The state is stored in checkpoint cells in one chain and in files in another.
    if number:
        monkeypatch.setenv("REWINDOW_REPLAY__INLINE_STATE_BYTES", "0")
    name = f"chain_{number}_{mode}_{how}"
    plan = project.plan(name, mode)
    in_a_group = [
        step for step in RECOVERING if step is not Step.JOINED
    ]  # after that one no group is left to die in
    second = random.Random(f"{random.random()} {mode}").choice(in_a_group)
    project.attempts(name, [kill.replace(SECOND, second) for kill in CHAINS[number]])
    assert any((project.config.replay_root(name) / "checkpoints.state").rglob("*.parquet")) == bool(
        number
    )
    check_promise(project.config, plan, baseline)


def test_kill_test_chains_cover_every_step() -> None:
    assert {kill.partition(":")[0] for chain in CHAINS for kill in chain} == {
        *map(str, STEPS),
        SECOND,
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", STEPS)
def test_guarantee_is_kept_after_a_kill_at_every_step(
    step: Step,
    mode: str,
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R2, W61, W64
    name = f"{step}_{mode}"
    plan = project.plan(name, mode)
    group = 1 if step in (Step.FENCED, Step.RESUMED, Step.JOINED) else 2
    project.attempts(name, [f"{step}:{group}"])
    check_promise(project.config, plan, baseline)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("second", RECOVERING)
def test_guarantee_is_kept_after_every_second_kill(
    second: Step,
    mode: str,
    project: Project,
    baseline: Plan,
) -> None:
    name = f"then_{second}_{mode}"
    plan = project.plan(name, mode)
    project.attempts(name, [f"{Step.AFTER_FIRST_OUTPUT}:3", f"{second}:1"])
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
def test_exactly_once_recomputes_at_most_one_group(project: Project, baseline: Plan) -> None:
    plan = project.plan("redo", "exactly_once")
    project.attempts("redo", [f"{Step.AFTER_OUTPUTS}:4"])
    marks = [
        timing.mark for timing in Ledger.open(project.config.ledger_url).attempts.timings("redo")
    ]
    assert sorted(marks) == list(range(3, 25, 3))
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
def test_at_least_once_repeats_only_windows_after_its_checkpoint(
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R51
    # The kill is two groups after checkpoint mark 1007 (ordinal 1008 = 168 * 6).
    plan = project.plan("repeats", "at_least_once")
    project.attempts("repeats", [f"{Step.AFTER_FACTS}:5"])
    repeated = repeated_windows(project.config, plan, "sums")
    assert repeated and min(repeated) > 1007
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
def test_at_most_once_loses_and_lists_the_group_in_progress(
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R13, R15
    plan = project.plan("losses", "at_most_once")
    project.attempts("losses", [f"{Step.AFTER_FIRST_OUTPUT}:2"])
    assert lost_windows(project.config, plan, "sums") == set()
    assert lost_windows(project.config, plan, "totals") == {1002, 1003, 1004}
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.parametrize(
    "mode",
    [
        "exactly_once",
        pytest.param("at_most_once", marks=pytest.mark.exhaustive),
        pytest.param("at_least_once", marks=pytest.mark.exhaustive),
    ],
)
def test_guarantee_is_kept_after_a_jvm_kill_and_after_a_suspended_attempt_resumes(
    mode: str,
    project: Project,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"zombie_{mode}"
    plan = project.plan(name, mode)
    outcome = project.attempt(name, on_line=after_first_group(lambda group: kill(group, "java")))
    assert outcome.exit_code != 0 and outcome.retryable
    stopped: Future[int] = Future()
    ended: Future[Outcome] = Future()

    def stop(group: int) -> None:
        with Ledger.open(
            project.config.ledger_url
        ).database.serialised():  # else it may be stopped while it holds this lock
            os.killpg(group, signal.SIGSTOP)
            while any(process.status() not in ("stopped", "zombie") for process in members(group)):
                pass
        stopped.set_result(group)

    def attempt() -> None:
        ended.set_result(project.attempt(name, on_line=after_first_group(stop)))

    first = threading.Thread(target=attempt, daemon=True)
    first.start()
    group = stopped.result(180)
    try:
        monkeypatch.setattr(launching.socket, "gethostname", lambda: "another-host")
        project.attempts(name, [])
        before = {output: raw(project.config, plan, output) for output in ("sums", "totals")}
        os.killpg(group, signal.SIGCONT)
        assert ended.result(180).exit_code == 65, "the zombie must end as superseded"
    finally:
        if not ended.done():
            os.killpg(group, signal.SIGKILL)
            first.join()
    assert {output: raw(project.config, plan, output) for output in ("sums", "totals")} == before
    check_promise(project.config, plan, baseline)


def alter_state(path: Path) -> None:
    """Swaps the states of a checkpoint file for empty ones: it reads well, and its digests
    differ.
    """
    rows = pq.ParquetFile(path).read()
    blobs = []
    for state in rows["state"].to_pylist():
        frame = pa.ipc.open_stream(state).read_all().slice(0, 0)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, frame.schema) as writer:
            writer.write_table(frame)
        blobs.append(sink.getvalue().to_pybytes())
    column = pa.array(blobs, rows.schema.field("state").type)
    pq.write_table(rows.set_column(rows.schema.get_field_index("state"), "state", column), path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("mode", "damage"),
    [pytest.param(*case, marks=pytest.mark.recovery_matrix) for case in DAMAGES]
    + [pytest.param(*case, marks=pytest.mark.exhaustive) for case in OTHER_DAMAGES],
)
def test_damaged_checkpoint_falls_back_to_an_older_one(
    mode: str,
    damage: str,
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R25
    name = f"{damage}_{mode}"
    plan = project.plan(name, mode)
    outcome = project.attempt(name, f"{Step.MATERIALISED}:5@1")
    assert outcome.exit_code == -9
    newest = checkpoint_files(project, name)[-1]
    if damage == "deleted":
        newest.unlink()
    elif damage == "altered":
        alter_state(newest)
    else:
        content = bytearray(newest.read_bytes())
        content[: len(content) // 2] = os.urandom(len(content) // 2)
        newest.write_bytes(bytes(content))
    project.attempts(name, [])
    check_promise(project.config, plan, baseline)


def _each_part_and_mode_once() -> list[Any]:
    """Returns every part with every mode: each of them once by `make test-recovery`, all pairs by
    `make test-all`.
    """
    chosen = {"sums": "at_least_once", "totals": "exactly_once", "state": "at_most_once"}
    return [
        pytest.param(written, mode, marks=() if chosen[written] == mode else pytest.mark.exhaustive)
        for written in chosen
        for mode in MODES
    ]


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
def test_missing_checkpoints_raise_a_specific_error_and_nothing_is_lost(
    project: Project,
    baseline: Plan,
) -> None:
    plan = project.plan("bare", "exactly_once")
    project.attempt("bare", f"{Step.AFTER_CHECKPOINT}:2@1")
    before = raw(project.config, plan, "sums")
    for path in checkpoint_files(project, "bare"):
        path.unlink()
    outcome = project.attempt("bare")
    assert outcome.exit_code == 65 and "no checkpoint" in outcome.message and not outcome.retryable
    assert raw(project.config, plan, "sums") == before and before


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("written", "mode"), _each_part_and_mode_once())
def test_attempt_that_loses_a_part_file_does_not_commit_its_group(
    written: str,
    mode: str,
    project: Project,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_REPLAY__INLINE_STATE_BYTES", "0")
    name = f"lost_{written}_{mode}"
    plan = project.plan(name, mode)
    project.attempt(name, f"{Step.AFTER_CHECKPOINT}:2@1")
    before = raw(project.config, plan, "totals")
    with monkeypatch.context() as patch:
        lost = lose_part_files(patch, written)
        outcome = project.attempt(name)
    assert lost and "rows into folder" in outcome.message and name in outcome.message
    assert outcome.exit_code == 65 and not outcome.retryable
    assert "operator" not in outcome.message
    assert raw(project.config, plan, "totals") == before
    project.attempts(name, [])
    check_promise(project.config, plan, baseline)


@pytest.mark.recovery_matrix
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("mode", MODES)
def test_lost_ledger_is_rebuilt_and_the_replay_resumes(
    mode: str,
    baseline: Plan,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R7
    config = project.config.model_copy(update={"state": tmp_path / "state"})
    config._root = project.config.root
    config._file = None
    shutil.copytree(project.config.state / "streams", config.state / "streams")
    own = Project(config)
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    plan = own.plan(f"rebuilt_{mode}", mode)
    assert own.attempt(plan.replay_id, f"{Step.AFTER_FIRST_OUTPUT}:3@1").exit_code == -9
    for path in config.state.glob("ledger.sqlite*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    rebuild_ledger(config)
    own.attempts(plan.replay_id, [])
    check_promise(config, plan, project_baseline(config, project, baseline))


def project_baseline(config: object, project: Project, baseline: Plan) -> Plan:
    """Copies the undisturbed replay's tables beside another state folder's."""
    source, target = project.config.replay_root("baseline"), config.replay_root("baseline")  # type: ignore[attr-defined]
    shutil.copytree(source, target, dirs_exist_ok=True)
    return baseline


def after_first_group(act: Callable[[int], None]) -> Callable[[str], None]:
    """Returns a listener that acts on the job's process group once, when its first group is
    committed.
    """
    acted = threading.Event()

    def listen(line: str) -> None:
        if line.startswith('{"rewindow": "progress"') and not acted.is_set():
            acted.set()
            act(group_of_job())

    return listen


def group_of_job() -> int:
    """Returns the process group of the one replay job that runs as a child of this process, never
    its own group.
    """
    children = psutil.Process().children(recursive=True)
    groups = {
        os.getpgid(child.pid) for child in children if child.is_running() and "java" in child.name()
    }
    (job,) = groups - {os.getpgid(0)}
    return job


def members(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group:
                found.append(process)
    return found


def kill(group: int, name: str) -> None:
    for process in members(group):
        if name in process.info["name"]:
            process.kill()


def checkpoint_files(project: Project, replay_id: str) -> list[Path]:
    """Returns the files of a replay's checkpoints, oldest first."""
    table = Table.open(project.config.replay_root(replay_id) / CHECKPOINTS)
    return [Path(file.path) for file in sorted(table.files(), key=lambda file: file.first or FIRST)]
