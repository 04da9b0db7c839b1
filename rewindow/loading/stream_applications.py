"""Applications that the settings of streams define: `heartbeat_<stream>`, `filled_<stream>` and
`windows_<stream>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pyarrow as pa

from rewindow.application import Application, FrameOperator
from rewindow.errors import InputError
from rewindow.loading.suite_parameters import (
    filled_parameters,
    fired_parameters,
    heartbeat_parameters,
    late_parameters,
)
from rewindow.names import did_you_mean
from rewindow.operators.durations import in_microseconds, is_duration
from rewindow.operators.event_time_windows.operator import AggregateWindows
from rewindow.operators.event_time_windows.settings import (
    CountWindows,
    EventWindows,
    GlobalWindow,
)
from rewindow.operators.filling.operator import FillGaps
from rewindow.operators.heartbeat.function import EMISSION
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.settings.config import FILLED, HEARTBEAT, WINDOWS, StreamConfig
from rewindow.windows import format_duration

SUITE = "suite"
"""Setting of a section that names the suite of the output."""
_NAMES = {"fill": "columns", "from_time": "from", "to_time": "to"}
"""Properties of FillGaps that have another name in the section [streams.NAME.fill]."""


def stream_application(
    name: str,
    stream: str,
    settings: StreamConfig,
    schema: pa.Schema,
) -> Application:
    """Returns the application with a given name that a stream's settings define."""
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
    _check(beat, f'stream "{stream}" cannot have a heartbeat', f"streams.{stream}")
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
    step = f"{step_us} us" if step_us else None
    needed = {"fill": fill, "event_at": settings.event_at}
    needed["fill.step"] = step if fill is None else fill.get("step", step)
    lacking = [name for name, value in needed.items() if value is None]
    if fill is None or lacking:
        raise InputError(
            f'stream "{stream}" has no {lacking[0]}',
            hint=f"Set it in [streams.{stream}] of rewindow.toml.",
        )
    section = f"streams.{stream}.fill"
    own = {"columns": schema, "event_at": settings.event_at, "keys": tuple(settings.keys)}
    own["arrived_at"] = "arrived_at"
    own["expected_keys"] = ()
    if "from" in fill and "to" in fill:
        own["expected_keys"] = tuple(map(tuple, settings.expected_values))
    defaults = {"step": step, "origin": "1970-01-01T00:00:00Z"}
    operator = FillGaps(**_properties(FillGaps, section, {**defaults, **fill}, own))
    _check(operator, f'stream "{stream}" cannot be filled', section)
    app = Application(
        f"{FILLED}{stream}",
        window=format_duration(settings.width_us),
        origin_ms=settings.grid.origin_ms,
    )
    node = app.add("fill", operator, stream=app.input(stream))
    known = filled_parameters(stream, operator, schema, grid=settings.grid)
    suite = fill.get(SUITE, "filled")
    app.output("filled", node, key=[], suite=suite, suite_parameters=known)
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
    section = f"streams.{stream}.windows"
    own = {"columns": schema, "event_at": settings.event_at, "keys": tuple(settings.keys)}
    own["arrived_at"] = "arrived_at"
    own["streams"] = ()
    own["max_jump"] = None if settings.max_jump_us is None else f"{settings.max_jump_us} us"
    defaults = {"aggregates": {"tuples": "count(*)"}}
    properties = _properties(AggregateWindows, section, {**defaults, **given}, own)
    operator = AggregateWindows(**properties)
    _check(operator, f'stream "{stream}" cannot have windows', section)
    app = Application(
        f"{WINDOWS}{stream}",
        window=format_duration(settings.width_us),
        origin_ms=settings.grid.origin_ms,
    )
    node = app.add("aggregate", operator, stream=app.input(stream))
    windows = operator.windows()
    key = ["window_begin_us"]
    if isinstance(windows, CountWindows | GlobalWindow):  # Starts may be equal or null (E65).
        key = ["pane", "kind"]
    elif windows.allowed_us or (isinstance(windows, EventWindows) and windows.is_early):
        key += ["pane", "kind"]
    # A key of the stream may be null, which the gate rejects in a key of an output (X24).
    app.output(
        "fired",
        node["fired"],
        key=[] if settings.keys else key,
        suite=given.get(SUITE, "windows"),
        suite_parameters=fired_parameters(stream, operator, schema),
    )
    known = late_parameters(stream, operator, schema)
    app.output("late", node["late"], key=[], suite="late_tuples", suite_parameters=known)
    return app


def _properties(
    kind: type[FrameOperator],
    section: str,
    given: Mapping[str, Any],
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the properties of an operator that a section of `rewindow.toml` sets.

    Durations are written in microseconds, because the configuration digest is computed from this
    text: "1 hour" and "60 min" are the same configuration.

    Args:
        kind: class of the operator.
        section: name of the section.
        given: its settings.
        own: properties that follow from the stream, which the section cannot set.

    Raises:
        InputError: the section has a setting that the operator does not have.
    """
    properties = {}
    for name, field in kind.model_fields.items():
        if name in own:
            continue
        key = _NAMES.get(name, name)
        if key in given or is_duration(field):
            value = given.get(key, field.default)
            if isinstance(value, date):  # Also a time: TOML writes both without quotes.
                value = value.isoformat()
            properties[name] = in_microseconds(value) if is_duration(field) else value
    known = [_NAMES.get(name, name) for name in kind.model_fields if name not in own]
    for key in given:
        if key not in (*known, SUITE):
            names = ", ".join((*known, SUITE))
            hint = f"{did_you_mean(key, known)}Known in [{section}]: {names}."
            raise InputError(f'setting "{section}.{key}" is unknown', hint=hint)
    return {**properties, **own}


def _check(operator: FrameOperator, refusal: str, section: str) -> None:
    """Raises an error about the first invalid property of an operator, with the name of its setting
    if it is known.
    """
    if not operator.wrong_properties():
        return
    first = operator.wrong_properties()[0]
    name, dot, rest = first.path.partition(".")
    where = f"{_NAMES.get(name, name)}{dot}{rest}: "
    text = first.message if name == "properties" else f"{where}{first.message}"
    for name, key in _NAMES.items():
        if name.endswith("_time"):
            text = text.replace(name, key)
    raise InputError(f"{refusal}: {text}", hint=f"Change [{section}] of rewindow.toml.")
