"""The Spark jobs of recording: `jobs/record.py` and `jobs/upgrade.py` call these functions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

from rewindow.progress.listener import Lines
from rewindow.recording.form import check_form
from rewindow.recording.in_place import record_in_place
from rewindow.recording.record import record
from rewindow.recording.upgrade import upgradable, upgrade_stream
from rewindow.settings.config import Config
from rewindow.spark.job import print_line
from rewindow.spark.session import spark_session

logger = logging.getLogger(__name__)


def record_job(stream: str, **options: Any) -> dict[str, Any]:
    """Records a stream and returns its counts for the outcome file. Progress is written to standard
    output.

    Args:
        stream: its name.
        options: keyword arguments of `record`: sealed_to, end, seal_again, reopen, replace,
            start_over.
    """
    config = Config.load()
    if check_form(config, stream, start_over=bool(options.get("start_over"))):
        result = record_in_place(config, stream, listener=Lines(print_line), **options)
        for line in result.lines():
            logger.info(line)
        return result.to_json()
    spark = spark_session(config, f"rewindow record {stream}", quick=True)
    result = record(spark, config, stream, listener=Lines(print_line), **options)
    for line in result.lines():
        logger.info(line)
    return result.to_json()


def upgrade_job(names: Sequence[str]) -> dict[str, Any]:
    """Repairs streams and returns the entries for the outcome file.

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
            logger.info(line)
    return {"streams": list(map(dataclasses.asdict, results))}
