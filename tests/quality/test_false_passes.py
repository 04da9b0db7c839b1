"""Four ways in which Great Expectations passes what it did not check: each is shown, and then shown
to be stopped here.

The library alone is asked first; it says success. Then the gate gets the same, and must not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rewindow.errors import GateError
from rewindow.loading.suites import Suite, check_id, suite_for
from rewindow.quality import evaluation, gate, judge
from rewindow.quality.assessment import assess
from rewindow.quality.evaluation import Evaluation, evaluate, fingerprint, to_pandas
from rewindow.quality.window_table import WindowReport, make_report
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay, expectation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SQL_CHECK = expectation(
    "no-loss",
    "unexpected_rows_expectation",
    unexpected_rows_query="select * from {batch} where lost <> 0",
)
WINDOWS = WindowRange(0, 2)


def suite_of(*entries: dict[str, Any]) -> Suite:
    return Suite(
        "mine",
        tuple({**entry, "id": check_id("mine", entry["meta"]["check"])} for entry in entries),
    )


def report_of(lost: int) -> pa.Table:
    windows = list(range(len(WINDOWS)))
    starts = pa.array([0] * len(windows), pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "window_id": windows,
            "starts_at": starts,
            "lost": [lost] * len(windows),
            "affected": [0] * len(windows),
            "not_verifiable": [0] * len(windows),
        }
    )


def ask_library(suite: Suite, frame: Any, *, spark: bool = False) -> dict[str, Any]:
    import great_expectations as gx
    from great_expectations.core import ExpectationSuite

    context = gx.get_context(mode="ephemeral")
    sources = context.data_sources
    source = sources.add_spark("made", persist=False) if spark else sources.add_pandas("made")
    definition = source.add_dataframe_asset("made").add_batch_definition_whole_dataframe("made")
    entries = [dict(entry) for entry in suite.expectations]
    batch = definition.get_batch(batch_parameters={"dataframe": frame})
    return dict(batch.validate(ExpectationSuite(name="made", expectations=entries)).to_json_dict())


# --- 1: a class that is not imported


def test_gate_rejects_an_expectation_of_an_unknown_class(staged: StagedReplay) -> None:
    # The library would evaluate nothing and succeed.
    lost = expectation("all-lost", "expect_rewindow_to_be_lost")
    said = ask_library(suite_of(lost), to_pandas(report_of(1)))
    assert (said["success"], said["statistics"]["evaluated_expectations"]) == (True, 0)

    staged.add_suite("mine", lost)
    with pytest.raises(GateError, match='check "all-lost" of suite "mine" is of the unknown type'):
        judge(staged.config, staged.write().plan)


def test_check_omitted_from_the_results_is_detected(staged: StagedReplay) -> None:
    good = expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])
    dropped = expectation(
        "dropped",
        "expect_column_values_to_be_in_set",
        column="lost",
        value_set=[9],
    )
    frame = to_pandas(report_of(0))
    said = ask_library(suite_of(good), frame)
    assert said["success"]
    with pytest.raises(
        GateError,
        match=r'suite "mine" was not evaluated in full: there are results of 1 of 2 checks',
    ) as error:
        assess(Evaluation(said, fingerprint(frame)), suite_of(good, dropped), report_of(0), WINDOWS)
    assert "dropped" in error.value.detail


def test_plugin_that_cannot_be_imported_is_reported(staged: StagedReplay) -> None:
    (staged.expectations / "plugins").mkdir(exist_ok=True)
    (staged.expectations / "plugins" / "broken_plugin_of_test.py").write_text(
        "import nowhere_to_be_found\n"
    )
    with pytest.raises(
        GateError,
        match=r'plugin "broken_plugin_of_test.py" of the expectations cannot be imported',
    ):
        judge(staged.config, staged.write().plan)


def test_expectation_of_a_plugin_is_evaluated(staged: StagedReplay) -> None:
    (staged.expectations / "plugins").mkdir(exist_ok=True)
    (staged.expectations / "plugins" / "good_plugin_of_test.py").write_text(
        "import great_expectations.expectations as gxe\n\n\n"
        "class ExpectColumnToBeNought(gxe.ExpectColumnValuesToBeInSet):\n    value_set: list = "
        "[0]\n"
    )
    staged.add_suite("mine", expectation("nought", "expect_column_to_be_nought", column="attempts"))
    result = judge(staged.config, staged.write().plan)
    assert [entry.check for entry in result.outputs[0].failed] == ["nought"]


# --- 2: a frame of another session


@pytest.fixture
def tidy_views(spark: SparkSession) -> Iterator[None]:
    """The library leaves its view behind."""
    yield
    spark.catalog.dropTempView("tmp_view")


def frame_of(spark: SparkSession, lost: int) -> DataFrame:
    return spark.createDataFrame(
        [(window, lost, 0) for window in WINDOWS],
        "window_id long, lost long, affected long",
    )


@pytest.mark.usefixtures("tidy_views")
def test_frame_of_a_different_spark_session_is_rejected(
    spark: SparkSession, staged: StagedReplay
) -> None:
    # The library would evaluate the previous frame and succeed.
    suite = suite_of(SQL_CHECK)
    assert ask_library(suite, frame_of(spark, lost=0), spark=True)["success"]
    other = ask_library(suite, frame_of(spark.newSession(), lost=1), spark=True)
    assert other["success"], "the library has mended this; the guard may go"
    with pytest.raises(GateError, match="was evaluated on another frame than the window report"):
        assess(
            Evaluation(other, fingerprint(to_pandas(report_of(1)))),
            suite,
            report_of(1),
            WINDOWS,
        )

    staged.add_suite("mine", SQL_CHECK)
    result = judge(staged.config, staged.write().plan)
    assert [(entry.check, entry.status) for entry in result.outputs[0].failed] == [
        ("no-loss", "not_run")
    ]


def test_evaluation_of_a_different_report_is_rejected() -> None:
    check = suite_of(
        expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])
    )
    said = ask_library(check, to_pandas(report_of(0)))
    with pytest.raises(GateError, match="was evaluated on another frame"):
        assess(Evaluation(said, fingerprint(to_pandas(report_of(1)))), check, report_of(1), WINDOWS)


# --- 3: two at once


@pytest.mark.usefixtures("tidy_views")
def test_frames_mixed_up_between_two_threads_are_detected(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame_class = type(spark.range(1))
    meet = threading.Barrier(2, timeout=20)
    original = frame_class.createOrReplaceTempView

    def in_turns(frame: DataFrame, name: str) -> None:
        if threading.current_thread().name == "good":
            meet.wait()
        original(frame, name)
        meet.wait()
        if threading.current_thread().name == "bad":
            meet.wait()

    said: dict[str, dict[str, Any]] = {}

    def ask(name: str, lost: int) -> None:
        said[name] = ask_library(suite_of(SQL_CHECK), frame_of(spark, lost), spark=True)

    ask("warm", 0)
    monkeypatch.setattr(frame_class, "createOrReplaceTempView", in_turns)
    threads = [
        threading.Thread(target=ask, args=(name, lost), name=name)
        for name, lost in (("bad", 1), ("good", 0))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said["bad"]["success"], "the library has mended this; the guard may go"
    with pytest.raises(GateError, match="was evaluated on another frame"):
        assess(
            Evaluation(said["bad"], fingerprint(to_pandas(report_of(1)))),
            suite_of(SQL_CHECK),
            report_of(1),
            WINDOWS,
        )


def test_evaluations_in_several_threads_are_serialized(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = 0
    most = 0
    original = evaluation._build

    def counted(suite: Suite) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)  # long enough for another thread to come in, if it could
        inside -= 1
        return original(suite)

    monkeypatch.setattr(evaluation, "_build", counted)
    verdicts: dict[str, str] = {}

    def run(name: str) -> None:
        staged = StagedReplay(tmp_path / name, replay_id=name)
        if name.startswith("bad"):
            staged.rows[0]["origin"] = None
        verdicts[name] = judge(staged.config, staged.write().plan).verdict

    names = ["good-1", "bad-1", "good-2", "bad-2"]
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert verdicts == {name: "failed" if name.startswith("bad") else "passed" for name in names}


# --- 4: an empty frame


def test_gate_rejects_an_empty_or_incomplete_frame(staged: StagedReplay) -> None:
    # The library would succeed.
    suite = suite_of(
        expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0]),
        expectation("no-null", "expect_column_values_to_not_be_null", column="lost"),
        expectation("unique", "expect_column_values_to_be_unique", column="window_id"),
    )
    for report in (report_of(1).slice(0, 0), report_of(0).slice(0, 2)):
        said = ask_library(suite, to_pandas(report))
        assert said["success"]
        with pytest.raises(
            GateError,
            match=r"window report has \d rows, but range \[0, 2\] has 3 windows",
        ):
            assess(Evaluation(said, fingerprint(to_pandas(report))), suite, report, WINDOWS)


def test_report_with_missing_windows_is_rejected(
    staged: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The number of rows is compared with the plan, not with the report.
    monkeypatch.setattr(
        gate, "make_report", lambda *given, **named: _cut(make_report(*given, **named), 19)
    )
    with pytest.raises(
        GateError,
        match=r"window report has 19 rows, but range \[100, 119\] has 20 windows",
    ):
        judge(staged.config, staged.write().plan)


def test_replay_without_staged_rows_fails_the_check(staged: StagedReplay) -> None:
    staged.rows = []
    staged.facts = []
    result = judge(staged.config, staged.write().plan)
    assert [entry.check for entry in result.outputs[0].failed] == [
        "no-undeclared-loss",
        "not-empty",
    ]
    assert result.outputs[0].failed[0].failing_windows == 20


def test_check_that_evaluated_too_few_windows_is_detected(staged: StagedReplay) -> None:
    report = report_of(0)
    suite = suite_of(
        expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])
    )
    found = evaluate(staged.expectations, suite, report, {})
    found.result["results"][0]["result"]["element_count"] = 2
    with pytest.raises(GateError, match='check "no-loss" of suite "mine" counted 2 windows of 3'):
        assess(found, suite, report, WINDOWS)


def test_replay_without_outputs_fails_the_check(staged: StagedReplay) -> None:
    plan = staged.write().plan.model_copy(update={"outputs": []})
    assert judge(staged.config, plan).verdict == "failed"
    assert suite_for(staged.expectations, None).checks


def _cut(report: WindowReport, windows: int) -> WindowReport:
    return replace(report, table=report.table.slice(0, windows))


def test_columns_without_nulls_are_not_copied_per_check(
    staged: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def looked_at(frame: pd.DataFrame) -> str:
        seen.append(
            np.shares_memory(
                frame[frame["lost"].notna()]["lost"].to_numpy(),
                frame["lost"].to_numpy(),
            )
        )
        return ""

    monkeypatch.setattr(evaluation, "fingerprint", looked_at)
    suite = suite_of(
        expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])
    )
    evaluate(staged.expectations, suite, report_of(0), {})
    assert seen == [True]
