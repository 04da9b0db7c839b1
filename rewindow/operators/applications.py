"""Applications that come with Rewindow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import field_serializer

from rewindow.application import Application, FrameOperator, GroupWindows, InputPort, OutputPort
from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.operators.heartbeat_operator import Heartbeat
from rewindow.windows import format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEARTBEAT = "heartbeat_"
"""How the name of such an application begins; the rest is the stream's: each has a state and tables of its own."""


class SilentTimers(FrameOperator):
    """Passes on data, and timers whose timestamp no tuple of the key has in the timer's window."""

    columns: pa.Schema
    event_at: str
    key_by: list[str] = []

    @field_serializer("columns")
    def _columns_as_text(self, columns: pa.Schema) -> dict[str, str]:
        return {field.name: str(field.type) for field in columns}

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns one port, `stream`."""
        return {"stream": InputPort(self.columns)}

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns one port, `out`, of the same columns."""
        return {"out": OutputPort(self.columns)}

    def transform(self, inputs: Mapping[str, DataFrame], state: DataFrame | None, windows: GroupWindows) -> DataFrame:
        """Returns the frame without answered timers."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        same = Window.partitionBy("window_id", *self.key_by, self.event_at)
        rows = inputs["stream"].withColumn("_answered", F.max(~F.col("is_timer")).over(same))
        return rows.where(~F.col("is_timer") | ~F.col("_answered")).drop("_answered")


def heartbeat_application(stream: str, settings: StreamConfig, schema: pa.Schema) -> Application:
    """Returns the application `heartbeat_<stream>`: one Heartbeat over a recorded stream, with the output `filled`.

    Args:
        stream: name of the recorded stream.
        settings: the stream's; its interval, slack, event timestamp and keys are the Heartbeat's.
        schema: columns of the recorded stream.

    Raises:
        InputError: the stream has no interval or no event timestamp.
    """
    if settings.interval is None or settings.event_at is None:
        lacking = "interval" if settings.interval is None else "event_at"
        raise InputError(f'stream "{stream}" has no {lacking}', hint=f"Set it in [streams.{stream}] of rewindow.toml.")
    beat = Heartbeat(
        interval=f"{settings.interval} us",
        slack=f"{settings.slack} us",
        event_at=settings.event_at,
        key_by=tuple(settings.keys),
        columns=schema,
    )
    if beat.wrong_properties():
        raise InputError(f'stream "{stream}" cannot have a heartbeat: {beat.wrong_properties()[0]["msg"]}')
    app = Application(f"{HEARTBEAT}{stream}", window=format_duration(settings.width), origin_ms=settings.grid.origin_ms)
    node = app.add("heartbeat", beat, stream=app.input(stream))
    filled = beat.output_ports()["out"].schema
    silent = SilentTimers(columns=filled, event_at=settings.event_at, key_by=list(settings.keys))
    app.output("filled", app.add("silent_timers", silent, stream=node), key=["emission"], suite="heartbeat")
    return app
