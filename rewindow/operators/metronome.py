"""Metronome: emits a tuple at every multiple of an interval of arrival time, independent of the
stream's tuples.

Rules: H18
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field, ValidationInfo, field_validator

from rewindow.application import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators.columns import WINDOW, floor_div
from rewindow.operators.heartbeat.settings import FINE_US, TOO_FINE, HeartbeatProperties
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_TIMERS = 1_000_000
"""Approximate number of timers that one task creates."""


def metronome(
    spark: SparkSession,
    context: OperatorContext,
    interval_us: int,
) -> DataFrame:
    """Returns the timers of the given windows: `window_id BIGINT, at TIMESTAMP, timer_index
    BIGINT`.

    `at` is `timer_index` times the interval since the epoch. It is also the instant of emission, so
    it is in the timer's window, whose start is inclusive and whose end is exclusive.

    Args:
        spark: session that creates the frame.
        context: the windows and their grid.
        interval_us: microseconds between timers.

    Rules: H40, H54, H56
    """
    first = -(-context.start_us // interval_us)
    end = -(-context.end_us // interval_us)
    timers = spark.range(first, end, 1, 1 + (end - first) // TASK_TIMERS)
    at_us = F.col("id") * interval_us
    window = floor_div(at_us - context.grid.origin_us, context.grid.width_us)
    return timers.select(
        window.alias(WINDOW),
        F.timestamp_micros(at_us).alias("at"),
        F.col("id").alias("timer_index"),
    )


class Metronome(FrameOperator):
    """Emits a timer at every multiple of `interval` in every window, independent of the stream's
    tuples.

    `stream` only connects the operator to the application; its tuples are not read. An application
    may have any number of Metronomes. Downstream operators treat a timer as the passage of time,
    not as a data tuple.

    Example:
        app.add("minutes", Metronome(interval="1 minute"), stream=clicks)

    Attributes:
        parameters: values of `${name}` in `interval`, replaced once, at launch.
        interval: time between timers, as seconds or text with a unit such as "1 minute".

    Rules: H18, H20 to H22, H25, H26
    """

    inputs = {"stream": InputPort()}
    outputs = {
        "out": OutputPort(
            pa.schema([("at", pa.timestamp("us", tz="UTC")), ("timer_index", pa.int64())])
        )
    }

    parameters: dict[str, str] = Field(default_factory=dict)
    interval: Decimal

    @field_validator("interval", mode="before")
    @classmethod
    def _check_interval(cls, value: object, info: ValidationInfo) -> Decimal:
        return HeartbeatProperties._check_interval(value, info)

    @property
    def interval_us(self) -> int:
        """The interval in microseconds."""
        return int(self.interval * 1_000_000)

    def warnings(self) -> list[str]:
        """Returns warnings about an unusual interval.

        They do not stop a run.

        Rules: H21
        """
        return [TOO_FINE] if self.interval_us < FINE_US else []

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the timers of the group's windows."""
        return metronome(inputs["stream"].sparkSession, context, self.interval_us)
