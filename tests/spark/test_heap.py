"""A replay whose JVM runs out of memory: named, tried once more, then ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rewindow.errors import RewindowError
from rewindow.launcher import read_outcome, verbs
from rewindow.launcher.readiness import obstacle
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow.spark.heap import EXIT_CODE
from tests.recovery.project import FIRST, make_project

APPLICATION = f"""
import pyarrow as pa
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OutputPort


class Grows(FrameOperator):
    inputs = {{"events": InputPort(pa.schema([("x", pa.int64())]))}}
    outputs = {{"out": OutputPort(pa.schema([("size", pa.int64())]))}}
    state_schema = pa.schema([("window_id", pa.int64())])

    def transform(self, inputs, state, context):
        found = inputs["events"].groupBy("window_id").agg(F.max("x").alias("x"))
        large = F.expr("size(sequence(0L, 200000000L + x))")
        size = F.when(F.col("window_id") >= {FIRST + 4}, large).otherwise(0)
        return found.select("window_id", size.cast("bigint").alias("size"))

    def next_state(self, inputs, outputs, state, context):
        return outputs["out"].select("window_id").unionByName(state)


app = Application("grows", window="1 hour")
app.output("out", app.add("grows", Grows(), events=app.input("events")), key=["size"])
"""


@pytest.mark.long
def test_exhausted_heap_is_reported_and_ends_the_replay_the_second_time(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_project(tmp_path)
    (tmp_path / "applications").mkdir()
    (tmp_path / "applications" / "grows.py").write_text(APPLICATION)
    file = tmp_path / "rewindow.toml"
    settings = re.sub(r"applications = .*", 'applications = ["applications"]', file.read_text())
    file.write_text(settings.replace('driver_memory = "1g"', 'driver_memory = "600m"'))
    config = Config.load(file)
    with pytest.raises(RewindowError) as raised:
        verbs.replay(config, "grows", replay_id="one", group_windows=4)
    named = (
        'the JVM ran out of memory, operator "grows" with a state of 3 rows, 0.0 MB, '
        "spark.driver_memory = 600m"
    )
    assert raised.value.primary == f"{named}, in two attempts in a row"
    assert not raised.value.retryable and "Set a larger spark.driver_memory" in raised.value.hint
    warnings = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert warnings == [f"attempt {number} ended: {named}; resuming" for number in (1, 2)]
    ledger = Ledger.open(config.ledger_url)
    first, second = ledger.attempts.of("one")
    assert (first.mark, second.mark) == (4, None)
    assert "Committed windows are kept" in first.message
    plan = ledger.replays.get("one").read_plan()
    assert "in two attempts in a row" in str(obstacle(config, plan))
    spark = config.spark.model_copy(update={"driver_memory": "1g"})
    larger = config.model_copy(update={"spark": spark})
    assert obstacle(larger, plan) is None, "a larger heap allows another attempt"


def test_job_that_died_for_another_reason_is_not_reported_as_out_of_memory(tmp_path: Path) -> None:
    outcome = Config(state=tmp_path).state / "outcome-1.json"
    assert read_outcome(outcome, -9).message == "the job ended without an outcome (exit code -9)"
    assert read_outcome(outcome, EXIT_CODE).message.startswith("the JVM ran out of memory\n")
    (tmp_path / "outcome-1.log").write_text("java.lang.OutOfMemoryError: Java heap space\n")
    (tmp_path / "outcome-1.computing").write_text('{"memory": "1g", "operators": {"a": "", "b"')
    assert read_outcome(outcome, 1).message.startswith("the JVM ran out of memory\n")
    (tmp_path / "outcome-1.computing").write_text('{"memory": "1g", "operators": {"a": ""}}')
    assert read_outcome(outcome, 1).message.startswith(
        'the JVM ran out of memory, operator "a", spark.driver_memory = 1g\n'
    )
