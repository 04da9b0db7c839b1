"""Applications that settings of streams define: `heartbeat_<stream>`, `filled_<stream>` and
`windows_<stream>`.
"""

from __future__ import annotations

import pyarrow as pa

from rewindow.application import Application, FrameOperator
from rewindow.errors import InputError
from rewindow.loading.suite_parameters import (
    filled_parameters,
    fired_parameters,
    heartbeat_parameters,
    late_parameters,
)
from rewindow.operators.event_time_windows.operator import AggregateWindows
from rewindow.operators.filling.operator import FillGaps
from rewindow.operators.heartbeat.function import EMISSION
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.settings.config import FILLED, HEARTBEAT, WINDOWS, StreamConfig
from rewindow.windows import format_duration


def stream_application(
    name: str,
    stream: str,
    settings: StreamConfig,
    schema: pa.Schema,
) -> Application:
    """Returns the application with a name that a stream's settings define."""
    makers = {
        HEARTBEAT: heartbeat_application,
        FILLED: filled_application,
        WINDOWS: windows_application,
    }
    make = next(maker for begin, maker in makers.items() if name.startswith(begin))
    return make(stream, settings, schema)


def heartbeat_application(stream: str, settings: StreamConfig, schema: pa.Schema) -> Application:
    """Returns the application `heartbeat_<stream>`: one Heartbeat over a recorded stream, with the
    output `ticks`.

    A timer is omitted if a tuple with exactly its timestamp exists. Quarantined tuples are in the
    error table `heartbeat.errors`.

    Args:
        stream: name of the recorded stream.
        settings: the stream's settings; its interval, slack, event timestamp, keys and max_jump
            apply to the Heartbeat.
        schema: columns of the recorded stream.

    Raises:
        InputError: the stream has no interval or no event timestamp.
    """
    if settings.interval_us is None or settings.event_at is None:
        lacking = "interval" if settings.interval_us is None else "event_at"
        raise InputError(
            f'stream "{stream}" has no {lacking}',
            hint=f"Set it in [streams.{stream}] of rewindow.toml.",
        )
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
        raise InputError(f'stream "{stream}" cannot have a heartbeat: {_wrong(beat)}')
    app = Application(
        f"{HEARTBEAT}{stream}",
        window=format_duration(settings.width_us),
        origin_ms=settings.grid.origin_ms,
    )
    node = app.add("heartbeat", beat, stream=app.input(stream))
    known = heartbeat_parameters(stream, beat, schema)
    suite = settings.suite or "heartbeat"
    app.output("ticks", node, key=[EMISSION], suite=suite, suite_parameters=known)
    return app


def filled_application(stream: str, settings: StreamConfig, schema: pa.Schema) -> Application:
    """Returns the application `filled_<stream>`: rows that replace missing ones, as the output
    `filled`.

    Tuples that close no gap, because they have no key, no timestamp or one that is far ahead, are
    also in the error table `fill.errors`.

    Args:
        stream: name of the recorded stream.
        settings: the stream's settings; its event timestamp, keys, expected keys and `fill` apply
            to `FillGaps`.
        schema: columns of the recorded stream.

    Raises:
        InputError: the stream cannot be filled with these settings.
    """
    fill = settings.fill
    step_us = settings.cadence_us or settings.interval_us
    step: str | float | None = f"{step_us} us" if step_us else None
    if fill is not None and fill.step is not None:
        step = fill.step
    needed = {"fill": fill, "event_at": settings.event_at, "fill.step": step}
    lacking = [name for name, value in needed.items() if not value]
    if fill is None or settings.event_at is None or lacking:
        raise InputError(
            f'stream "{stream}" has no {lacking[0]}',
            hint=f"Set it in [streams.{stream}] of rewindow.toml.",
        )
    is_bounded = fill.from_time is not None and fill.to_time is not None
    operator = FillGaps(
        columns=schema,
        event_at=settings.event_at,
        step=step,
        zone=fill.zone,
        hours=fill.hours,
        weekdays=fill.weekdays,
        closed=tuple(map(str, fill.closed)),
        keys=tuple(settings.keys),
        fill=fill.columns,
        from_time=fill.from_time,
        to_time=fill.to_time,
        expected_keys=tuple(map(tuple, settings.expected_values)) if is_bounded else (),
        origin=fill.origin,
        max_rows=fill.max_rows,
        max_ahead=f"{fill.max_ahead_us} us",
        look_back=None if fill.look_back_us is None else f"{fill.look_back_us} us",
    )
    if operator.wrong_properties():
        hint = f"Change [streams.{stream}.fill] of rewindow.toml."
        raise InputError(f'stream "{stream}" cannot be filled: {_wrong(operator)}', hint=hint)
    app = Application(
        f"{FILLED}{stream}",
        window=format_duration(settings.width_us),
        origin_ms=settings.grid.origin_ms,
    )
    node = app.add("fill", operator, stream=app.input(stream))
    known = filled_parameters(
        stream, operator, schema, max_ahead_us=fill.max_ahead_us, grid=settings.grid
    )
    app.output("filled", node, key=[], suite=fill.suite or "filled", suite_parameters=known)
    return app


def windows_application(stream: str, settings: StreamConfig, schema: pa.Schema) -> Application:
    """Returns the application `windows_<stream>`: windows over event time, with the outputs `fired`
    and `late`.

    Tuples with an unusable timestamp are in the error table `aggregate.errors`.

    Args:
        stream: name of the recorded stream.
        settings: the stream's settings; its event timestamp, keys and `windows` apply to
            `AggregateWindows`.
        schema: columns of the recorded stream.

    Raises:
        InputError: the settings define no windows for the stream.
    """
    given = settings.windows
    if given is None or settings.event_at is None:
        lacking = "windows" if given is None else "event_at"
        where = f"streams.{stream}.windows" if given is None else f"streams.{stream}"
        what = 'a length, such as length = "1 hour", or a gap' if given is None else "event_at"
        raise InputError(
            f'stream "{stream}" has no {lacking}',
            hint=f"Set {what} in [{where}] of rewindow.toml.",
        )
    named = ("gap", "lag", "watermark_interval", "max_ahead", "allowed_lateness", "early", "late")
    durations = {name: getattr(given, f"{name}_us") for name in named}
    operator = AggregateWindows(
        columns=schema,
        event_at=settings.event_at,
        length=given.length,
        slide=given.slide,
        aggregates=given.aggregates,
        accumulation=given.accumulation,
        only_updated_panes=given.only_updated_panes,
        gap_inclusive=given.gap_inclusive,
        early_tuples=given.early_tuples,
        late_tuples=given.late_tuples,
        keys=tuple(settings.keys),
        **{name: f"{us} us" for name, us in durations.items() if us is not None},
        max_jump=None if settings.max_jump_us is None else f"{settings.max_jump_us} us",
    )
    if operator.wrong_properties():
        hint = f"Change [streams.{stream}.windows] of rewindow.toml."
        raise InputError(f'stream "{stream}" cannot have windows: {_wrong(operator)}', hint=hint)
    app = Application(
        f"{WINDOWS}{stream}",
        window=format_duration(settings.width_us),
        origin_ms=settings.grid.origin_ms,
    )
    node = app.add("aggregate", operator, stream=app.input(stream))
    again = (
        ["pane", "kind"]
        if given.allowed_lateness_us or given.early_us or given.early_tuples
        else []
    )
    key = ["window_begin_us", *again]
    if given.length is not None and not given.length.endswith(
        " us"
    ):  # Starts may be equal or null (E65).
        key = ["pane", "kind"]
    # A key of the stream may be null, which the gate rejects in a key of an output (X24).
    app.output(
        "fired",
        node["fired"],
        key=[] if settings.keys else key,
        suite=given.suite or "windows",
        suite_parameters=fired_parameters(stream, operator, schema),
    )
    known = late_parameters(stream, operator, schema)
    app.output("late", node["late"], key=[], suite="late_tuples", suite_parameters=known)
    return app


def _wrong(operator: FrameOperator) -> str:
    """Returns the first error about an operator's properties, with the name of the property if it
    is known.
    """
    first = operator.wrong_properties()[0]
    if first.path == "properties":
        return first.message
    message = first.message.removeprefix("it ")
    return f"{first.path}{' ' if message != first.message else ': '}{message}"
