"""Compares the current settings of a stream's tuples and windows with the settings stored at its
recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from rewindow.errors import InputError
from rewindow.sequences import excluding
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage.delta import Table
from rewindow.storage.fields import ddl_columns
from rewindow.storage.streams import stored_settings
from rewindow.windows import format_duration, format_time

_FIXED = {
    "width_ms": "width",
    "origin_ms": "origin",
    "arrived_at": "arrived_at",
    "zone": "zone",
}
"""Stored settings with a single value, and their names in rewindow.toml."""


def fixed_settings(stream: StreamConfig) -> dict[str, object]:
    """Returns the settings that must not change after a recording, in the format in which they are
    stored.
    """
    grid = stream.grid
    return {
        "width_ms": grid.width_ms,
        "origin_ms": grid.origin_ms,
        "arrived_at": stream.arrived_at,
        "zone": stream.zone,
        "columns": json.dumps(stream.columns),
        "keep": json.dumps(stream.keep),
        "select": json.dumps(stream.select),
    }


def check_fixed_settings(name: str, stream: StreamConfig, stored: Mapping[str, str]) -> None:
    """Checks that the settings of a recorded stream have not changed.

    `columns` and `keep` may change if the stream has the same columns with them. `keys` may change
    to other recorded columns. With `new_columns = "take"` columns may be added.

    Args:
        name: the stream.
        stream: its current settings.
        stored: the settings stored with the recording. Streams that were recorded by early versions
            have no `columns`, `keep` and `select`; only a recording can compare them.

    Raises:
        InputError: a setting has changed; the message has the setting, both values, and the next
            step.

    Rules: W4, W15
    """
    now = fixed_settings(stream)
    for key, setting in _FIXED.items():
        have, value = stored.get(key), str(now[key])
        if have is not None and have != value:
            raise other_setting(name, setting, _shown(key, value), recorded=_shown(key, have))
    for changed in _changed_columns(stream, stored):
        raise other_setting(name, *changed)


def other_setting(name: str, setting: str, now: object, recorded: object) -> InputError:
    """Returns the error for a setting that differs from the setting at the stream's recording.

    Args:
        name: the stream.
        setting: its name in rewindow.toml.
        now: the current value; None if it is not set.
        recorded: the value at the recording; None if it was not set.
    """
    is_now = f"is {_text(now)}" if now is not None else "is not set"
    if recorded is None:
        was, back = "without it", f"Remove {setting} from"
    else:
        was, back = f"with {_text(recorded)}", f"Restore {setting} = {json.dumps(recorded)} in"
    return InputError(
        f'{setting} of stream "{name}" {is_now}, but it was recorded {was}',
        detail="The recording was not changed. All of its tuples have the same settings.",
        hint=f"{back} rewindow.toml; {_again(name)}",
    )


def changed_source(name: str, recorded: Sequence[str], now: Sequence[str]) -> InputError:
    """Returns the error for event columns that differ from the recorded ones although no stored
    setting has changed.

    Args:
        name: the stream.
        recorded, now: name and type of each event column.
    """
    parts = (
        ("recorded", excluding(recorded, now)),
        ("now", excluding(now, recorded)),
    )
    differing = [f"{which} {', '.join(columns)}" for which, columns in parts if columns]
    return InputError(
        f'stream "{name}" has columns that differ from its recording: '
        f"{'; '.join(differing) or 'the order differs'}",
        detail="The recording was not changed. All of its tuples have the same columns.",
        hint="Change columns, keep and select in rewindow.toml so that the stream has the recorded "
        f"columns; {_again(name)}",
    )


def check_recorded_settings(config: Config, name: str, seals: Table) -> None:
    """Checks that the settings of a recorded stream in rewindow.toml have not changed. A published
    stream has no such settings.

    Raises:
        InputError: a setting has changed; the message has the setting, both values, and the next
            step.
    """
    if name in config.streams:
        check_fixed_settings(name, config.streams[name], stored_settings(seals))


def _again(name: str) -> str:
    return f"or, if no application needs the recording, run: rewindow record {name} --start-over"


def _changed_columns(
    stream: StreamConfig,
    stored: Mapping[str, str],
) -> Iterator[tuple[str, object, object]]:
    """Yields the column settings that have changed, with their name, current value, and recorded
    value.
    """
    may_add = stream.new_columns == "take"
    recorded = dict(ddl_columns(stored.get("schema", "")))
    if "select" in stored:
        yield from _changed_select(stream, json.loads(stored["select"]), may_add=may_add)
        read = excluding(recorded, stream.select)
        for setting, now in (("columns", stream.columns), ("keep", stream.keep)):
            was = json.loads(stored[setting])
            if now != was and not _gives_same(stream, setting, recorded, read=read):
                yield setting, now, was
        keys = list(filter(None, stored.get("keys", "").split(",")))
        if excluding(stream.keys, recorded) and not may_add:
            yield "keys", stream.keys, keys


def _changed_select(
    stream: StreamConfig,
    recorded: Mapping[str, str],
    may_add: bool,
) -> Iterator[tuple[str, object, object]]:
    for column in {**recorded, **stream.select}:
        now, was = stream.select.get(column), recorded.get(column)
        if now != was and not (was is None and may_add):
            yield f"select.{column}", now, was


def _gives_same(
    stream: StreamConfig,
    setting: str,
    recorded: Mapping[str, str],
    read: Sequence[str],
) -> bool:
    """Returns whether a changed setting leaves the recorded columns unchanged.

    Args:
        stream: current settings.
        setting: "columns" or "keep".
        recorded: the type of each recorded column.
        read: the recorded columns that are not computed.
    """
    if stream.new_columns == "take":
        return True
    if stream.columns is None:
        # The source determines the columns and their types, and it is not read here.
        names = set(stream.keep or ()) - {*stream.select}
        return setting == "keep" and names == set(read)
    replaced = {"arrived_at", *stream.select}
    declared = dict(ddl_columns(stream.columns))
    kept = excluding(declared, replaced)
    if stream.keep is not None:
        kept = [column for column in kept if column in stream.keep]
    return kept == list(read) and all(declared[column] == recorded[column] for column in read)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(key: str, value: str) -> str:
    if key == "width_ms":
        return format_duration(int(value) * 1000)
    return format_time(int(value) * 1000) if key == "origin_ms" else value
