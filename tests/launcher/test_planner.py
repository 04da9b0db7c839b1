"""Planning: what is pinned, and what is refused before anything runs. No JVM."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from rewindow.config import Config
from rewindow.errors import (
    CheckpointError,
    FencedError,
    InputError,
    OverlapError,
    RangeError,
    ResourceError,
    RewindowError,
    TableError,
    ValidationFailed,
)  # fmt: skip
from rewindow.launcher import (
    Outcome,
    ReplayRequest,
    Submission,
    attempts,
    begin_attempt,
    create_replay,
    draft_plan,
    note_kill,
    planner,
)
from rewindow.launcher.processes import end_process_group, started_at
from rewindow.ledger import Ledger
from rewindow.tables import Table, create_table
from rewindow.tables.staging import CHECKPOINTS, FACTS
from tests.ledger.life import stop_in_a_write, writer
from tests.recovery.project import FIRST, ROOT, SEALS, WINDOWS, Project, make_project

LAST = FIRST + WINDOWS - 1


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A recorded stream and an application, of this test alone."""
    return make_project(tmp_path)


def request(**wishes: object) -> ReplayRequest:
    return ReplayRequest(**{"application": "totals", **wishes})  # type: ignore[arg-type]


def test_a_plan_pins_inputs_and_names_promises_and_start_state(project: Project) -> None:
    """Without a range it is all that is sealed; the first window starts from the initial state."""
    plan = draft_plan(project.config, request()).plan
    assert (plan.first, plan.last, plan.start.source) == (FIRST, LAST, "initial")
    assert [(entry.stream, entry.version) for entry in plan.inputs] == [("events", 1)]
    assert [output.stateful for output in plan.outputs] == [False, True]
    assert all(output.guarantee.startswith("exactly once") for output in plan.outputs)


@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_marks_that_cut_a_range_into_many_groups_are_said(
    project: Project, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Not when they are few."""
    assert not draft_plan(project.config, request(mode=mode, checkpoint_windows=1)).plan.warnings
    monkeypatch.setattr(planner, "MARKS_MANY", WINDOWS - 1)
    warnings = draft_plan(project.config, request(mode=mode, checkpoint_windows=1)).plan.warnings
    assert [f"makes {WINDOWS} commit groups" in warning for warning in warnings] == [True]
    assert not draft_plan(project.config, request(mode=mode, checkpoint_windows=2)).plan.warnings


def test_checkpoint_windows_that_exactly_once_ignores_are_said(project: Project, tmp_path: Path) -> None:
    """Those of the replay and those of an operator (W51)."""
    assert not draft_plan(project.config, request()).plan.warnings
    (warning,) = draft_plan(project.config, request(checkpoint_windows=1)).plan.warnings
    assert "of this replay have no effect" in warning and "W51" in warning
    source = (project.config.applications[0] / "totals.py").read_text()
    (tmp_path / "own").mkdir()
    own = source.replace("RunningTotal(), sums", "RunningTotal(), checkpoint_windows=7, sums")
    (tmp_path / "own" / "totals.py").write_text(own)
    config = project.config.model_copy(update={"applications": [tmp_path / "own"]})
    (warning,) = draft_plan(config, request()).plan.warnings
    assert "checkpoint windows of totals have no effect" in warning
    assert not draft_plan(config, request(mode="at_least_once")).plan.warnings


def test_planning_creates_nothing(project: Project) -> None:
    """A draft leaves no folder behind."""
    draft_plan(project.config, request())
    assert not (project.config.state / "replays").exists()


def test_planning_starts_no_jvm(project: Project) -> None:
    """In a process of its own, for other tests' sessions live in this one: py4j has no gateway afterwards."""
    code = (
        "import sys, pyspark; from rewindow.config import Config; from rewindow.launcher import *;"
        "from pathlib import Path;"
        "draft_plan(Config.load(Path(sys.argv[1])), ReplayRequest('totals'));"
        "sys.exit(pyspark.SparkContext._gateway is not None)"
    )
    settings = project.config.root / "rewindow.toml"
    assert subprocess.run([sys.executable, "-c", code, str(settings)], check=False, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("wishes", "error", "words"),
    [
        ({"application": "nosuch"}, InputError, 'application "nosuch" is unknown'),
        ({"mode": "twice"}, InputError, 'recovery mode "twice" is unknown'),
        ({"first": LAST, "last": FIRST}, RangeError, "window range is empty"),
        ({"first": LAST + 10, "last": LAST + 12}, RangeError, "in the future"),
        ({"first": 1, "last": 2}, RangeError, "before what is sealed"),
        ({"first": LAST - 1, "last": LAST + 2}, RangeError, "2 missing windows"),
        ({"from_time": "1970-02-11T16:30Z"}, RangeError, "not on a window border"),
        ({"from_time": "1970-02-12", "to_time": "1970-02-12"}, RangeError, "time range is empty"),
        ({"from_time": "noon"}, InputError, 'time "noon" cannot be read'),
        ({"from_time": "1970-02-12", "first": FIRST}, RangeError, "not as both"),
        ({"group_windows": 0}, InputError, "at least 1 is needed"),
        ({"checkpoint_windows": 0}, InputError, "W56"),
        ({"first": FIRST + 1, "state_from": "nosuch"}, InputError, "nosuch"),
        ({"first": FIRST + 1, "state_from": "x", "initial_state": True}, InputError, "exclude each other"),
        ({"parameters": {"a": "b"}}, InputError, "takes no parameters"),
    ],
)
def test_what_cannot_be_replayed_is_refused(project: Project, wishes: dict, error: type, words: str) -> None:
    """Each bad wish gives its own error in words, and creates nothing."""
    with pytest.raises(error, match=words):
        create_replay(project.config, request(**wishes))
    assert not (project.config.state / "replays").exists()


def test_missing_windows_are_replayed_only_when_allowed_and_then_recorded(project: Project) -> None:
    """--allow-missing keeps the missing windows in the plan."""
    plan = draft_plan(project.config, request(last=LAST + 2, allow_missing=True)).plan
    assert plan.inputs[0].missing == [(LAST + 1, LAST + 2)]


def test_missing_windows_of_a_warm_up_are_not_taken_for_empty(project: Project) -> None:
    """A hole before the range makes the start state wrong, as one in the range would (W40)."""
    seals = Table.open(project.config.windows_table("events"))
    late = pa.Table.from_pylist([{"window_id": w, "tuples": 0, "digest": "", "data_version": 1}
                                 for w in range(LAST + 4, LAST + 9)], schema=SEALS)  # fmt: skip
    seals.commit_arrow(late, app_id="record", version=2)
    wishes = {"first": LAST + 4, "last": LAST + 8}
    with pytest.raises(RangeError, match=f"3 missing windows of the warm-up in .*{LAST + 1}"):
        draft_plan(project.config, request(**wishes))
    plan = draft_plan(project.config, request(**wishes, allow_missing=True)).plan
    assert plan.start.source == "warm_up" and not plan.inputs[0].missing
    assert any("the warm-up goes over 3 missing windows" in warning for warning in plan.warnings)
    assert not draft_plan(project.config, request(**wishes, initial_state=True)).plan.warnings


def test_a_later_range_warms_up_from_the_first_window(project: Project) -> None:
    """Without a published checkpoint the state is computed from the beginning, and the plan says so."""
    start = draft_plan(project.config, request(first=FIRST + 6)).plan.start
    assert (start.source, start.warm_up_first, start.window) == ("warm_up", FIRST, FIRST - 1)


def test_the_same_request_under_the_same_id_is_the_same_replay(project: Project) -> None:
    """A task that is run again finds its plan; another wish under the same id is refused."""
    first = create_replay(project.config, request(replay_id="one"))
    assert create_replay(project.config, request(replay_id="one")) == first
    with pytest.raises(InputError, match="there already with mode"):
        create_replay(project.config, request(replay_id="one", mode="at_most_once"))
    begin, end = (datetime.fromtimestamp(window * 3600, UTC).isoformat() for window in (FIRST, LAST + 1))
    assert create_replay(project.config, request(replay_id="one", from_time=begin, to_time=end)) == first
    create_replay(project.config, request(replay_id="later", first=FIRST + 6))
    with pytest.raises(InputError, match="already with start state from warm_up, asked for was the initial state"):
        create_replay(project.config, request(replay_id="later", initial_state=True))
    with pytest.raises(InputError, match="already with start state from warm_up, asked for was that of one"):
        create_replay(project.config, request(replay_id="later", state_from="one"))
    for wish in ({"from_time": end}, {"group_windows": 5}, {"checkpoint_windows": 7}):
        with pytest.raises(InputError, match="is there already with"):
            create_replay(project.config, request(replay_id="one", **wish))


@pytest.mark.parametrize("replay_id", ["published", "..", "a/b", "", "a b", "-x"])
def test_an_id_that_means_something_else_is_refused(project: Project, replay_id: str) -> None:
    """It becomes a folder's name, and certify takes "published" for what is published."""
    with pytest.raises(InputError, match="cannot be used"):
        create_replay(project.config, request(replay_id=replay_id))


def test_nothing_is_taken_by_an_attempt_that_cannot_start(project: Project) -> None:
    """Without jars there is no lease and no epoch: the range stays free."""
    create_replay(project.config, request(replay_id="one"))
    config = project.config.model_copy(update={"spark": project.config.spark.model_copy(update={"jars": "/nowhere"})})
    with pytest.raises(ResourceError, match="jars"):
        begin_attempt(config, "one")
    ledger = Ledger.open(config.ledger_url)
    assert (ledger.replay("one").epoch, ledger.last_attempt("one")) == (0, None)


def test_a_job_computes_where_its_launcher_was_told_to(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job loads the settings anew: the master of an Airflow connection must reach it."""
    create_replay(project.config, request(replay_id="one"))
    spark = project.config.spark.model_copy(update={"master": "spark://somewhere:7077"})
    config = project.config.model_copy(update={"spark": spark})
    config._root, config._file = project.config.root, project.config.file
    submission = begin_attempt(config, "one")
    assert submission is not None
    for name, value in submission.environment.items():
        monkeypatch.setenv(name, value)
    assert Config.load().spark.master == "spark://somewhere:7077"


def test_an_application_that_cannot_be_built_is_an_error(project: Project) -> None:
    """Its own exception is told, with what it was given."""
    folder = project.config.root / "applications"
    folder.mkdir()
    (folder / "fussy.py").write_text("def build(x):\n    raise ValueError(f'x is {x}')\n")
    config = project.config.model_copy(update={"applications": [folder]})
    with pytest.raises(InputError, match="cannot be built with x=1: x is 1"):
        draft_plan(config, request(application="fussy", parameters={"x": "1"}))
    with pytest.raises(InputError, match="cannot be built with y=1"):
        draft_plan(config, request(application="fussy", parameters={"y": "1"}))


def test_every_table_is_there_before_the_first_attempt(project: Project) -> None:
    """Empty staged tables, facts, and checkpoint 0 with the start state; the plan is a table property."""
    plan = create_replay(project.config, request(replay_id="one"))
    root = project.config.replay_root("one")
    assert all(Table.exists(root / name) for name in ("sums", "totals", FACTS, CHECKPOINTS))
    assert Table.open(root / CHECKPOINTS).properties["rewindow.plan"] == plan.model_dump_json()


def test_an_overlapping_replay_is_refused_with_the_holders_name(project: Project) -> None:
    """Two attempts over one range: the second is told who holds it."""
    for name in ("one", "two"):
        create_replay(project.config, request(replay_id=name))
    assert begin_attempt(project.config, "one") is not None
    with pytest.raises(OverlapError, match="one"):
        begin_attempt(project.config, "two")


def test_a_job_that_was_stopped_in_a_write_does_not_hold_up_the_next_attempt(project: Project) -> None:
    """It is ended before the ledger is written: a frozen job that holds its lock would hold it for ever."""
    create_replay(project.config, request(replay_id="one"))
    ledger = Ledger.open(project.config.ledger_url)
    assert begin_attempt(project.config, "one") is not None and ledger.place.file
    with writer(ledger.place.file) as job:
        ledger.begin_attempt("one", 1, socket.gethostname(), job.pid, job.pid, started_at(job.pid))
        stop_in_a_write(job)
        assert begin_attempt(project.config, "one") is not None
        assert not psutil.pid_exists(job.pid)
    assert ledger.replay("one").epoch == 2


def test_the_launcher_of_a_job_that_is_taken_over_finds_itself_superseded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon it enters that its job is gone: it begins no other attempt, and the new one keeps its leases."""
    create_replay(project.config, request(replay_id="one"))
    ledger = Ledger.open(project.config.ledger_url)
    submission = begin_attempt(project.config, "one")
    assert submission is not None
    noticed = []
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as job:
        ledger.begin_attempt("one", 1, socket.gethostname(), job.pid, job.pid, started_at(job.pid))

        def end_and_notice(*group: float, **wishes: bool) -> None:
            end_process_group(*group, **wishes)  # type: ignore[arg-type]
            if not psutil.pid_exists(job.pid):
                with pytest.raises(FencedError):
                    note_kill(project.config, submission, Outcome(-9, "gone", True, {}))
                noticed.append(job.pid)

        monkeypatch.setattr(attempts, "end_process_group", end_and_notice)
        assert begin_attempt(project.config, "one") is not None
    assert noticed and len(ledger.leases("one")) == 2
    assert [ledger.replay("one").epoch, ledger.replay("one").state] == [2, "running"]


def test_a_replay_is_given_up_after_too_many_failures(project: Project) -> None:
    """R90, R91: more than three failures without a new checkpoint end it; --again asks for one more."""
    create_replay(project.config, request(replay_id="one"))
    for _ in range(4):
        submission = begin_attempt(project.config, "one")
        Ledger.open(project.config.ledger_url).end_attempt("one", submission.epoch, "failed", "no")  # type: ignore[union-attr]
    with pytest.raises(RewindowError, match="has failed 4 times") as caught:
        begin_attempt(project.config, "one")
    assert not caught.value.retryable
    assert begin_attempt(project.config, "one", again=True) is not None


def test_a_full_disk_is_refused_before_anything_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room: a retryable error that names the folder, and no epoch is taken."""
    create_replay(project.config, request(replay_id="one"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(attempts.shutil, "disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(ResourceError, match="no disk space") as caught:
        begin_attempt(project.config, "one")
    assert caught.value.retryable and Ledger.open(project.config.ledger_url).replay("one").epoch == 0


def test_a_stream_of_another_grid_is_refused(project: Project) -> None:
    """W15: ids of different grids are never compared."""
    _reseal(project, {"rewindow.width_ms": "60000", "rewindow.origin_ms": "0"})
    with pytest.raises(InputError, match="W15"):
        draft_plan(project.config, request())


def test_a_stream_that_is_not_ours_is_refused(project: Project) -> None:
    """A table without a stored grid is named."""
    _reseal(project, {})
    with pytest.raises(TableError, match="is not ours"):
        draft_plan(project.config, request())


def test_a_stream_of_the_wrong_types_is_refused(project: Project) -> None:
    """O13 against the recording: column, both types."""
    path = project.config.stream_table("events")
    shutil.rmtree(path)
    create_table(path, pa.schema([("window_id", pa.int64()), ("key", pa.int64()), ("x", pa.int64())]))
    with pytest.raises(ValidationFailed, match="key int64 cannot feed it"):
        draft_plan(project.config, request())


def test_a_start_state_of_other_code_is_refused_unless_allowed(project: Project) -> None:
    """W65: --state-from a replay planned with other code needs --allow-other-code."""
    create_replay(project.config, request(replay_id="one"))
    source = project.config.applications[0] / "totals.py"
    folder = project.config.root / "changed"
    folder.mkdir()
    (folder / "totals.py").write_text(source.read_text() + "\n# changed\n")
    changed = project.config.model_copy(update={"applications": [folder]})
    changed._root, changed._file = project.config.root, project.config.file
    with pytest.raises(CheckpointError, match="W65"):
        draft_plan(changed, request(state_from="one"))
    allowed = draft_plan(changed, request(state_from="one", allow_other_code=True)).plan
    assert allowed.start.source == "replay"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('app.add("totals"', 'app.add("renamed"', "has the states of totals, the application needs renamed"),
        ("state_schema: ClassVar = TOTALS", "state_schema: ClassVar = EVENTS", "key string, x int64"),
        (
            "state_schema: ClassVar = TOTALS",
            "state_schema: ClassVar = TOTALS; state_version = 2",
            "needed is version 2",
        ),
    ],
)
def test_a_start_state_that_does_not_fit_is_refused_whatever_is_allowed(
    project: Project, old: str, new: str, words: str
) -> None:
    """Operators, columns and version of a state are those that the application goes on from (W65)."""
    create_replay(project.config, request(replay_id="one"))
    source = (project.config.applications[0] / "totals.py").read_text()
    folder = project.config.root / "changed"
    folder.mkdir()
    (folder / "totals.py").write_text(source.replace(old, new))
    changed = project.config.model_copy(update={"applications": [folder]})
    with pytest.raises(CheckpointError, match=words):
        draft_plan(changed, request(state_from="one", allow_other_code=True))


def _ended(project: Project, epoch: int, exit_code: int, message: str = "gone") -> None:
    submission = Submission("one", epoch, [], {}, project.config.state / "none.json")
    note_kill(project.config, submission, Outcome(exit_code, message, True, {}))


def test_a_launcher_learns_that_another_one_has_taken_over(project: Project) -> None:
    """Its job was ended by the next attempt: were it to begin again, the two would end each other for ever."""
    create_replay(project.config, request(replay_id="one"))
    begin_attempt(project.config, "one")
    begin_attempt(project.config, "one")
    with pytest.raises(FencedError) as caught:
        _ended(project, 1, -9)
    assert not caught.value.retryable
    _ended(project, 2, -9)
    assert Ledger.open(project.config.ledger_url).last_attempt("one").outcome == "killed"  # type: ignore[union-attr]


def test_an_interrupt_before_the_job_listens_is_no_failure(project: Project) -> None:
    """However often somebody presses Ctrl-C, the replay has its attempts left (R90)."""
    create_replay(project.config, request(replay_id="one"))
    for epoch in range(1, 6):
        assert begin_attempt(project.config, "one") is not None
        _ended(project, epoch, attempts.INTERRUPTED, "stopped by the user")


def _reseal(project: Project, properties: dict[str, str]) -> None:
    path = project.config.windows_table("events")
    schema, rows = Table.open(path).schema, Table.open(path)
    import pyarrow.parquet as pq

    kept = pa.concat_tables([pq.read_table(file.path, partitioning=None) for file in rows.files()]).cast(schema)
    shutil.rmtree(path)
    create_table(path, schema, properties).commit_arrow(kept, app_id="record", version=1)
