"""Applications that come with Rewindow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.application import Application, GroupWindows
from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.operators.heartbeat_operator import Heartbeat
from rewindow.windows import WindowRange, format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEARTBEAT = "heartbeat_"
"""How the name of such an application begins; the rest is the stream's: each has a state and tables of its own."""


class SilentHeartbeat(Heartbeat):
    """A Heartbeat without the timers at whose timestamp a tuple of their key is in the same window."""

    def transform(
        self, inputs: Mapping[str, DataFrame], state: DataFrame | None, windows: GroupWindows
    ) -> Mapping[str, DataFrame]:
        """Returns data and timers that no tuple answers, and what is quarantined."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        made = super().transform(inputs, state, windows)
        same = Window.partitionBy("window_id", *self.key_by, self.event_at)
        rows = made["out"].withColumn("_answered", F.max(~F.col("is_timer")).over(same))
        return {**made, "out": rows.where(~F.col("is_timer") | ~F.col("_answered")).drop("_answered")}

    def skipped(self, state: DataFrame, skipped: WindowRange, outputs: Mapping[str, DataFrame]) -> DataFrame:
        """Returns the state as a Heartbeat does; the tuple that answered a timer stands for it."""
        from pyspark.sql import functions as F

        return super().skipped(
            state, skipped, {port: frame.withColumn("is_timer", F.lit(True)) for port, frame in outputs.items()}
        )


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
    beat = SilentHeartbeat(
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
    app.output("filled", node, key=["emission"], suite="heartbeat")
    return app
