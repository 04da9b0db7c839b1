"""The jobs of this room: what `spark-submit jobs/record.py` and `jobs/upgrade.py` do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from rewindow.config import Config
from rewindow.recording.record import record
from rewindow.recording.result import RecordProgress
from rewindow.recording.upgrade import upgradable, upgrade_others, upgrade_stream
from rewindow.spark.job import say, tell
from rewindow.spark.session import spark_session

_PAUSE_S = 1.0


def record_job(stream: str, **wishes: Any) -> dict[str, Any]:
    """Records a stream and returns its counts for the outcome file; progress goes to standard output.

    Args:
        stream: its name.
        wishes: as `record` takes them: sealed_to, end, seal_again.
    """
    config = Config.load()
    config.stream(stream)
    spark = spark_session(config, f"rewindow record {stream}", quick=True)
    result = record(spark, config, stream, on_progress=_teller(), **wishes)
    for line in result.lines():
        say(line)
    return result.to_json()


def upgrade_job(names: Sequence[str]) -> dict[str, Any]:
    """Lifts streams to the present format and returns what the outcome file says of each.

    Raises:
        RewindowError: see upgrade_stream.
    """
    config = Config.load()
    streams = upgradable(config, names)
    spark = spark_session(config, "rewindow streams upgrade", quick=True)
    results = []
    for name in streams:
        results.append(upgrade_stream(spark, config, name))
        for line in results[-1].lines():
            say(line)
    upgrade_others(config, names)
    return {"streams": [dataclasses.asdict(result) for result in results]}


def _teller() -> Any:
    """Returns a listener that passes on every new step, and a step's progress once a second."""
    told: dict[str, float] = {}

    def listen(progress: RecordProgress) -> None:
        now = time.monotonic()
        if now - told.get(progress.step, -_PAUSE_S) >= _PAUSE_S:
            told[progress.step] = now
            tell("recording", **dataclasses.asdict(progress))

    return listen
