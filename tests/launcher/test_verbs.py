"""The verbs as methods of a project: imported on use, and each called on a real replay."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rewindow
import rewindow.project
from rewindow.errors import InputError
from rewindow.launcher import loop
from rewindow.ledger.replays import ReplayState
from rewindow.planning.request import ReplayOptions, ReplayRequest
from rewindow.project import VERBS
from rewindow.publication.result import PublicationResult
from rewindow.recording.result import RecordResult
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, ROOT, WINDOWS, make_project
from tests.test_docs import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = FIRST + WINDOWS - 1
HEAVY = (
    "pyspark",
    "delta",
    "deltalake",
    "airflow",
    "great_expectations",
    "sqlalchemy",
    "duckdb",
    "pydantic",
)


def loaded(code: str, *libraries: str) -> set[str]:
    code += f"; import sys; print(*[name for name in {libraries!r} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert loaded("import rewindow; dir(rewindow)", *HEAVY) == set()
    names = [name for name in VERBS if name != "check"]
    every = f"import rewindow; p = rewindow.Project; [getattr(p, name) for name in {names!r}]"
    assert loaded(every, "pyspark", "airflow", "great_expectations") == set()


def test_every_command_is_a_documented_method_of_project() -> None:
    for name in VERBS:
        function = getattr(rewindow.Project, name)
        assert function.__doc__, name
        assert next(iter(signature(function).parameters)) == "config", name
    # Type checkers read the same names in the class.
    source = Path(rewindow.project.__file__).read_text()
    assert re.findall(r"^        (\w+) = VerbMethod", source, re.MULTILINE) == list(VERBS)
    assert set(rewindow.__all__) <= set(dir(rewindow))
    with pytest.raises(AttributeError, match='has no "nosuch"'):
        rewindow.nosuch  # noqa: B018


def test_options_of_plan_and_replay_equal_the_fields_of_a_request() -> None:
    own = {"application", "sample_seed", "candidate", "code", "run", "reuse_optional"}
    wished = {field.name for field in fields(ReplayRequest)} - own
    assert wished == set(ReplayOptions.__annotations__)


def test_results_are_unchanged_by_a_round_trip_through_the_outcome_file() -> None:
    recorded = RecordResult("clicks", first=5, last=7, recorded=3, warnings=["x"])
    assert RecordResult.from_json(recorded.to_json()) == recorded
    published = PublicationResult(
        3,
        "publish",
        "one",
        "app",
        1,
        2,
        already=False,
        versions={"app.out": 4},
        stale=[("app.out", 3, 4)],
        replay_next=(3, 4),
    )
    values = published.to_json() | {"stale": [["app.out", 3, 4]], "replay_next": [3, 4]}
    assert PublicationResult.from_json(values) == published


def test_python_api_covers_the_whole_life_cycle_of_a_replay(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    config = make_project(tmp_path).config
    project = rewindow.Project(config.file)
    lines: list[str] = []
    draft = project.plan("totals", first=FIRST, last=LAST)
    assert (draft.plan.range.first, draft.plan.range.last) == (FIRST, LAST)
    assert project.list_replays() == []

    replay = project.replay(
        "totals",
        replay_id="one",
        group_windows=20,
        listener=rewindow.Lines(lines.append),
    )
    assert (replay.replay_id, replay.state, replay.epoch) == ("one", ReplayState.ENDED, 1)
    times = "1970-02-11T16:00:00Z to 1970-02-12T16:00:00Z"
    assert caplog.messages[0] == (
        f"replay one: {WINDOWS} windows [{FIRST}, {LAST}] ({times}), exactly once"
    )
    assert project.resume("one").epoch is None

    assert project.status("one").row.mark == WINDOWS
    assert [row.replay_id for row in project.list_replays("totals", state="ended")] == ["one"]
    assert project.why("totals", str(FIRST + 1)).replay == "one"
    assert project.list_errors("one") == []
    assert project.gaps("events").to_dict()["first"] == FIRST
    assert [entry.name for entry in project.streams()] == ["events"]
    assert project.certify("one", "one").equal

    assert project.check("one").verdict == "passed"
    published = project.publish("one")
    assert (published.kind, published.first, published.last) == ("publish", FIRST, LAST)
    assert set(project.read_published("totals")) == {output.name for output in draft.plan.outputs}
    assert project.undo("one").kind == "undo"
    assert project.purge(timedelta(0)).bytes > 0
    assert (config.replay_root("one") / "checkpoints").exists(), "a dry run deletes nothing"
    assert project.abandon("one", reason="seen").state is ReplayState.ABANDONED


def test_example_in_the_python_guide_replays_checks_and_publishes(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    config = make_project(tmp_path).config
    [block] = [
        block.content
        for block in blocks("docs/python.md", "python")
        if "import rewindow\n" in block.content
    ]
    namespace: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec(block, namespace)
    assert namespace["project"].config.state == config.state
    assert (
        namespace["replay_and_publish"](namespace["project"], "totals").row.state
        is ReplayState.PUBLISHED
    )


def test_unknown_stream_starts_no_recording_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='stream "nosuch" is unknown'):
        rewindow.Project(rewindow.Config(state=tmp_path)).record("nosuch")
