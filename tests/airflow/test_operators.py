"""The submit operator against real processes: every way in which a job ends, and what Airflow makes
of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from airflow.sdk.execution_time.context import OutletEventAccessors

from rewindow.embedded.processes import started_at, wait_until
from rewindow.errors import FencedError, LedgerError, OverlapError, RewindowError
from rewindow.launcher import Submission
from rewindow.ledger import Ledger
from rewindow.location import location
from rewindow.settings.config import Config
from rewindow_airflow import attempts, operators
from rewindow_airflow.assets import stream_asset
from rewindow_airflow.failures import is_retryable
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.replay_task import was_cleared
from tests.publication.staging import StagedReplay

JOB = """
import json, os, sys, time
def tell(window, mark):
    print(json.dumps({"rewindow": "progress", "replay": "r", "epoch": 4, "first": 1,
        "last": window, "mark": mark, "of": 4, "seconds": 0.5}), flush=True)
def leave(code, **facts):
    outcome = {"exit_code": code, "message": "said so", **facts}
    open(os.environ["OUTCOME"], "w").write(json.dumps(outcome))
    sys.exit(code)
"""


class Store(dict[str, Any]):
    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def job(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], tuple[RewindowSubmitOperator, dict[str, Any]]]]:
    """Makes the operator of a job whose process runs the given Python, with a context to execute it
    in.
    """

    def make(program: str) -> tuple[RewindowSubmitOperator, dict[str, Any]]:
        outcome = tmp_path / "outcome.json"
        environment = os.environ | {"OUTCOME": str(outcome), "AIRFLOW__CORE__FERNET_KEY": "hidden"}
        command = [sys.executable, "-c", JOB + textwrap.dedent(program)]
        submission = Submission("r", 4, command, environment, outcome)
        monkeypatch.setitem(attempts.BEGINNINGS, "replay", lambda *arguments: submission)
        context = {
            "ti": SimpleNamespace(try_number=1, max_tries=20, xcom_push=lambda **_: None),
            "task_state_store": Store(),
        }
        return RewindowSubmitOperator(
            task_id="replay_windows",
            job="replay",
            replay="r",
            retries=20,
        ), context

    return make


ENDINGS = [
    ("leave(2)", AirflowFailException, "bad input"),
    ("leave(65, retryable=False)", AirflowFailException, "failed, no retry"),
    ("leave(75, retryable=True)", AirflowException, "failed, can be retried"),
    ("leave(130, retryable=False)", AirflowFailException, "interrupted"),
    ("leave(1, retryable=True)", AirflowException, "exit code 1"),
    ("os.kill(os.getpid(), 9)", AirflowException, "killed by signal 9"),
    ("sys.exit(137)", AirflowException, "killed by signal 9"),
]


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    ENDINGS,
    ids=[ending[0] for ending in ENDINGS],
)
def test_exit_code_determines_permanent_failure_or_retry(
    job: Any,
    program: str,
    kind: type[Exception],
    words: str,
) -> None:
    operator, context = job(program)
    with pytest.raises(AirflowException) as caught:
        operator.execute(context)
    assert isinstance(caught.value, AirflowFailException) == (kind is AirflowFailException)
    assert words in str(caught.value)


def test_task_waits_for_a_range_leased_by_another_replay_without_using_up_a_try(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begin(*arguments: object) -> None:
        raise OverlapError("windows [1, 2] are held by replay r-1")

    operator, context = job("")
    monkeypatch.setitem(attempts.BEGINNINGS, "replay", begin)
    with pytest.raises(AirflowRescheduleException):
        operator.execute(context | {"task_reschedule_count": 1439})
    with pytest.raises(
        AirflowFailException,
        match="held by replay r-1\nThis task has waited 1440 times",
    ):
        operator.execute(context | {"task_reschedule_count": 1440})


def test_attempt_that_ends_for_a_new_one_uses_no_try(job: Any) -> None:
    operator, context = job("leave(75, retryable=True, kind='RestartRequested')")
    with pytest.raises(AirflowRescheduleException):
        operator.execute(context)


def test_failure_message_ends_with_the_progress_and_the_effect_of_a_retry(job: Any) -> None:
    operator, context = job("tell(12, 2); leave(75, retryable=True)")
    with pytest.raises(AirflowException) as caught:
        operator.execute(context)
    last = str(caught.value).splitlines()[-1]
    assert (
        last
        == 'A retry or a clear of this task resumes the same replay of "r": 2 of 4 windows are '
        "committed."
    )
    assert "said so" in str(caught.value)


def test_finished_job_returns_its_outcome_and_stores_its_last_progress(job: Any) -> None:
    operator, context = job("tell(11, 1); tell(14, 4); leave(0, windows=4)")
    answer = operator.execute(context)
    assert (answer["epoch"], answer["windows"], answer["exit_code"]) == (4, 4, 0)
    assert context["task_state_store"]["progress"]["mark"] == 4
    assert context["task_state_store"]["progress"]["percent"] == 100


@pytest.mark.parametrize(
    "expected",
    [[], ["expected: restores the state after window 12 and continues with window 13"]],
)
def test_task_log_describes_a_recovery_before_the_job_output(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
    expected: list[str],
) -> None:
    # Rules: R8
    operator, context = job("tell(14, 4); leave(0)")
    begin: Callable[..., Any] = attempts.BEGINNINGS[
        "replay"
    ]  # The fixture's, which asks for nothing.
    submission = replace(begin(), expected="".join(expected))
    monkeypatch.setitem(attempts.BEGINNINGS, "replay", lambda *arguments: submission)
    lines: list[str] = []
    log = SimpleNamespace(
        info=lambda text, *values: lines.append(text % values),
        warning=lambda *_: None,
    )
    monkeypatch.setattr(RewindowSubmitOperator, "log", log)
    operator.execute(context)
    assert lines[:-2] == ['Attempt 4 of the replay of "r" started', *expected]


@pytest.fixture
def recording(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], tuple[RewindowSubmitOperator, dict[str, Any]]]:
    """Returns a function that creates a recording operator, whose job runs the given Python."""

    def make(program: str) -> tuple[RewindowSubmitOperator, dict[str, Any]]:
        _, context = job(program)
        monkeypatch.setitem(attempts.BEGINNINGS, "record", attempts.BEGINNINGS["replay"])
        operator = RewindowSubmitOperator(
            task_id="record_clicks",
            job="record",
            arguments={"stream": "clicks"},
            outlets=[stream_asset("clicks")],
        )
        run = SimpleNamespace(
            dag_id="record_streams",
            run_type="manual",
            data_interval_start=datetime(2026, 3, 1, tzinfo=UTC),
            data_interval_end=datetime(2026, 3, 1, 1, tzinfo=UTC),
        )
        return operator, context | {"outlet_events": OutletEventAccessors(), "dag_run": run}

    return make


@pytest.mark.parametrize(
    ("run_type", "hours", "recorded"),
    [("scheduled", 1, True), ("scheduled", 0, False), ("manual", 1, False)],
)
def test_scheduled_recording_stores_its_dag_and_interval(
    run_type: str,
    hours: int,
    recorded: bool,
    recording: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator, context = recording("leave(0, windows_sealed=1)")
    config = Config(state=location(tmp_path / "state"))
    monkeypatch.setattr(operators, "settings_for", lambda _: config)
    run = context["dag_run"]
    run.run_type = run_type
    run.data_interval_end = run.data_interval_start + timedelta(hours=hours)
    operator.execute(context)
    found = Ledger.open(config.ledger_url).notices.recordings()
    assert bool(found) is recorded
    if recorded:
        recording_of = found["clicks"]
        assert (recording_of.dag_id, recording_of.interval_us) == ("record_streams", 3_600_000_000)


def test_scheduled_recording_runs_without_a_ledger(
    recording: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    operator, context = recording("leave(0, windows_sealed=1)")
    (tmp_path / "ledger").write_text("not a folder")
    config = Config(ledger=f"sqlite:///{tmp_path / 'ledger' / 'ledger.sqlite'}")
    monkeypatch.setattr(operators, "settings_for", lambda _: config)
    context["dag_run"].run_type = "scheduled"
    assert operator.execute(context)["windows_sealed"] == 1
    assert "The schedule of clicks is not stored" in caplog.text


def test_recording_that_seals_nothing_emits_no_asset(recording: Any) -> None:
    operator, context = recording("leave(0, windows_sealed=0)")
    with pytest.raises(AirflowSkipException):
        operator.execute(context)


@pytest.mark.parametrize("sealed", [0, 3])
def test_recording_of_late_tuples_succeeds_with_a_warning_and_their_counts(
    recording: Any,
    monkeypatch: pytest.MonkeyPatch,
    sealed: int,
) -> None:
    warnings: list[str] = []
    log = SimpleNamespace(
        info=lambda text, *values: None,
        warning=lambda text, *values: warnings.append(text % values),
    )
    monkeypatch.setattr(RewindowSubmitOperator, "log", log)
    operator, context = recording(f"leave(0, windows_sealed={sealed}, late=1200, malformed=1)")
    answer = operator.execute(context)
    assert (answer["late"], answer["malformed"]) == (1200, 1)
    extra = context["outlet_events"][stream_asset("clicks")].extra
    assert (extra["late"], extra["malformed"], extra["windows_sealed"]) == (1200, 1, sealed)
    assert warnings[-1].splitlines() == [
        "put into the quarantine of clicks: 1,200 late and 1 malformed tuples",
        "  In Airflow: start the DAG act_on_stream with action reopen and stream clicks.",
        "  Hint: To add the late ones to their windows: rewindow record clicks --reopen. To list "
        "all of them: rewindow streams quarantine clicks.",
    ]


def test_recording_retry_emits_the_asset_missed_by_the_failed_try(recording: Any) -> None:
    operator, context = recording("leave(0, windows_sealed=0)")
    context["ti"].try_number = 2
    assert operator.execute(context)["windows_sealed"] == 0


def test_job_that_ends_without_an_outcome_file_is_retried(job: Any) -> None:
    # Exit code 0 alone does not prove that the job finished.
    operator, context = job("sys.exit(0)")
    with pytest.raises(AirflowException) as caught:
        operator.execute(context)
    assert not isinstance(caught.value, AirflowFailException)


def test_job_superseded_by_a_newer_attempt_is_not_retried(
    job: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With a retry, two launchers of one replay would end each other forever.
    monkeypatch.setenv("REWINDOW_STATE", str(tmp_path / "state"))
    config = Config.load()
    plan = StagedReplay(config, "r", 1, 4).plan.model_dump(mode="json")
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create("r", plan["application"], 1, 4, "exactly_once", plan, "code")
    operator, context = job("os.kill(os.getpid(), 9)")
    for epoch in (1, 2, 3, 4, 5):
        assert ledger.attempts.next_epoch("r") == epoch
        ledger.attempts.begin("r", epoch, "host", epoch, epoch, 0.0)
    with pytest.raises(AirflowFailException, match="newest"):
        operator.execute(context)


def test_job_environment_excludes_airflow_variables(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "AIRFLOW__CELERY__RESULT_BACKEND",
        "AIRFLOW__SENTRY__SENTRY_DSN",
        "AIRFLOW_VAR_TOKEN",
        "_AIRFLOW_X",
    ):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("PGPASSFILE", "seen")
    operator, context = job(
        "leave(0, seen=[name for name in os.environ if 'AIRFLOW' in name or name == 'PGPASSFILE'])"
    )
    assert operator.execute(context)["seen"] == ["PGPASSFILE"]


def test_task_log_shows_the_last_lines_of_a_failed_job(
    job: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    operator, context = job("print('a line before'); raise ValueError('window 12 is odd')")
    with pytest.raises(AirflowException):
        operator.execute(context)
    assert operator._last_lines[0] == "Traceback (most recent call last):"
    assert operator._last_lines[-1] == "ValueError: window 12 is odd"


def test_undecodable_bytes_in_job_output_are_replaced(job: Any) -> None:
    operator, context = job("os.write(1, b'caf\\xe9\\n'); leave(0)")
    assert operator.execute(context)["exit_code"] == 0


def test_kill_ends_the_whole_process_group_even_when_it_ignores_sigterm(
    job: Any,
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    operator, context = job(
        f"""
        import signal, subprocess
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", stubborn])
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}\\n")
        time.sleep(60)
        """
    )
    failures: list[BaseException] = []
    runner = threading.Thread(target=_swallow, args=(lambda: operator.execute(context), failures))
    runner.start()
    assert wait_until(lambda: pids.is_file() and pids.read_text().endswith("\n"), 20)
    operator.on_kill()
    runner.join(20)
    assert [type(failure) for failure in failures] == [AirflowRescheduleException]
    assert wait_until(lambda: not any(started_at(int(pid)) for pid in pids.read_text().split()), 10)


def test_task_ended_before_its_job_starts_still_ends_the_job(job: Any) -> None:
    operator, context = job("time.sleep(600)")
    operator.on_kill()
    with pytest.raises(AirflowRescheduleException):
        operator.execute(context)


def test_job_ends_if_the_process_that_started_it_dies(tmp_path: Path) -> None:
    program = f"""
        import os, sys
        sys.path[:0] = {[path for path in sys.path if path]!r}
        from rewindow.progress.listener import Lines
        from rewindow_airflow.spark_process import SparkProcess
        job = (
            "import os, time; file = open({str(tmp_path / "pid")!r}, 'w');"
            "file.write(str(os.getpid()) + chr(10)); file.close(); time.sleep(60)"
        )
        SparkProcess([sys.executable, "-c", job], dict(os.environ), Lines(print)).run()
        """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.DEVNULL,
    )
    pid = tmp_path / "pid"
    assert wait_until(lambda: pid.is_file() and pid.read_text().endswith("\n"), 30)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: started_at(int(pid.read_text())) is None, 10)


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (LedgerError("ledger is gone"), True),
        (FencedError("newer attempt"), False),
        (RewindowError("has failed 3 times without a new checkpoint"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_launcher_error_before_the_submit_is_retried_only_when_retryable(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: RewindowError,
    retried: bool,
) -> None:
    operator, context = job("leave(0)")

    def refuse(*arguments: Any) -> Submission:
        raise error

    monkeypatch.setitem(attempts.BEGINNINGS, "replay", refuse)
    with pytest.raises(AirflowException) as caught:
        operator.execute(context)
    assert isinstance(caught.value, AirflowFailException) != retried
    assert str(error) in str(caught.value)


def test_replay_with_all_windows_committed_submits_no_job(
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator, context = job("leave(65)")
    monkeypatch.setitem(attempts.BEGINNINGS, "replay", lambda *arguments: None)
    assert "already" in operator.execute(context)["message"]


@pytest.mark.parametrize(
    ("try_number", "max_tries", "cleared"),
    [(1, 20, True), (2, 20, False), (4, 23, True), (5, 23, False)],
)
def test_first_try_of_a_cleared_task_is_distinguished_from_a_retry(
    try_number: int,
    max_tries: int,
    cleared: bool,
) -> None:
    # Only a clear by a person allows another attempt beyond the limit.
    assert was_cleared(SimpleNamespace(try_number=try_number, max_tries=max_tries), 20) is cleared


def test_job_killed_by_a_signal_is_retried_and_bad_input_is_not() -> None:
    assert is_retryable(-9, True)
    assert not is_retryable(2, True)


def test_spark_connection_overrides_the_master_in_the_settings() -> None:
    from airflow.sdk import Connection

    from rewindow.settings.config import Config

    config = attempts.with_connection(
        Config(),
        Connection(conn_id="c", conn_type="spark", host="spark://m", port=7077),
    )
    assert config.spark.master == "spark://m:7077"
    queue = Connection(
        conn_id="c",
        conn_type="spark",
        host="yarn",
        extra=json.dumps({"queue": "night"}),
    )
    assert attempts.with_connection(Config(), queue).spark.conf == {"spark.yarn.queue": "night"}
    cluster = Connection(
        conn_id="c",
        conn_type="spark",
        host="yarn",
        extra=json.dumps({"deploy-mode": "cluster"}),
    )
    with pytest.raises(AirflowFailException, match="deploy mode"):
        attempts.with_connection(Config(), cluster)


def _swallow(work: Callable[[], Any], failures: list[BaseException]) -> None:
    try:
        work()
    except AirflowException as error:
        failures.append(error)
