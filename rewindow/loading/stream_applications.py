"""Applications that come with Rewindow."""

from __future__ import annotations

import re

import pyarrow as pa

from rewindow.application import Application
from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.names import PLACE
from rewindow.operators.heartbeat.function import EMISSION
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.storage import quoted
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
    known = suite_parameters(stream, beat, schema)
    app.output("filled", node, key=[EMISSION], suite="heartbeat", suite_parameters=known)
    return app


def suite_parameters(stream: str, beat: Heartbeat, schema: pa.Schema) -> dict[str, str | int | float]:
    """Returns what the suite `heartbeat` has to know of a stream, as SQL: its names, and which of them timers fill."""
    compared = [field for field in schema if "map<" not in str(field.type)]  # Maps cannot be grouped by.
    passed = [field.name for field in compared if field.name not in PLACE and field.name != beat.arrived_at]
    payload = [name for name in passed if name not in (beat.event_at, *beat.key_by)]
    return {
        "stream": sql_name(stream.replace(".", "_")),
        "event_at": sql_name(beat.event_at),
        "interval_us": beat.interval_us,
        "keys": ", ".join(map(sql_name, beat.key_by)) or "1",
        "columns": ", ".join(map(sql_name, passed)),
        "has_payload": " or ".join(f"{sql_name(name)} is not null" for name in payload) or "false",
    }


def sql_name(name: str) -> str:
    """Returns a name as SQL takes it; quoted where its letters would be changed."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quoted(name)
