"""Applications that come with Rewindow."""

from __future__ import annotations

import pyarrow as pa

from rewindow.application import Application
from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.operators.heartbeat.function import EMISSION
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.windows import format_duration

HEARTBEAT = "heartbeat_"
"""How the name of such an application begins; the rest is the stream's: each has a state and tables of its own."""


def heartbeat_application(stream: str, settings: StreamConfig, schema: pa.Schema) -> Application:
    """Returns the application `heartbeat_<stream>`: one Heartbeat over a recorded stream, with the output `filled`.

    A timer that a tuple of exactly its timestamp brings is left out: the tuple stands for it. Quarantined tuples are in
    the error table `heartbeat.errors`.

    Args:
        stream: name of the recorded stream.
        settings: the stream's; its interval, slack, event timestamp, keys and max_jump are the Heartbeat's.
        schema: columns of the recorded stream.

    Raises:
        InputError: the stream has no interval or no event timestamp.
    """
    if settings.interval_us is None or settings.event_at is None:
        lacking = "interval" if settings.interval_us is None else "event_at"
        raise InputError(f'stream "{stream}" has no {lacking}', hint=f"Set it in [streams.{stream}] of rewindow.toml.")
    beat = Heartbeat(
        interval=f"{settings.interval_us} us",
        slack=f"{settings.slack_us} us",
        max_jump=None if settings.max_jump_us is None else f"{settings.max_jump_us} us",
        answered_crossing="drop",
        event_at=settings.event_at,
        key_by=tuple(settings.keys),
        columns=schema,
    )
    if beat.wrong_properties():
        raise InputError(f'stream "{stream}" cannot have a heartbeat: {beat.wrong_properties()[0].message}')
    app = Application(
        f"{HEARTBEAT}{stream}", window=format_duration(settings.width_us), origin_ms=settings.grid.origin_ms
    )
    node = app.add("heartbeat", beat, stream=app.input(stream))
    app.output("filled", node, key=[EMISSION], suite="heartbeat")
    return app
