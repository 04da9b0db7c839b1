"""Settings that make a stream's tuples and windows what they are: those in force, held against
those stored with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rewindow.errors import InputError
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage.delta import Table
from rewindow.storage.streams import stored_settings
from rewindow.windows import format_duration, format_time

_FIXED = {
    "width_ms": "width",
    "origin_ms": "origin",
    "arrived_at": "arrived_at",
    "zone": "zone",
}
"""Stored settings and their names in rewindow.toml; the columns are fixed too, but only Spark can
read them."""


def fixed_settings(stream: StreamConfig) -> dict[str, object]:
    """Returns the settings that may not change once something is recorded, as they are stored."""
    grid = stream.grid
    return {
        "width_ms": grid.width_ms,
        "origin_ms": grid.origin_ms,
        "arrived_at": stream.arrived_at,
        "zone": stream.zone,
    }


def check_fixed_settings(name: str, stream: StreamConfig, stored: Mapping[str, str]) -> None:
    """Refuses settings under which a recorded stream would become another one (W4, W15).

    Raises:
        InputError: names the first setting, both values, and how to get out.
    """
    for key, value in fixed_settings(stream).items():
        have = stored.get(key, str(value))
        if have != str(value):
            raise other_setting(
                name, _FIXED[key], _shown(key, str(value)), recorded=_shown(key, have)
            )


def other_setting(name: str, setting: str, now: str, recorded: str) -> InputError:
    """Returns the error for a setting that is not what a stream was recorded with, both as a person
    writes them.
    """
    return InputError(
        f'{setting} of stream "{name}" is {now}, it was recorded with {recorded}',
        detail="What is recorded stays as it is: ids of different grids are never compared.",
        hint=f"Put {setting} = {json.dumps(recorded)} back into rewindow.toml; or record anew what "
        "nobody needs yet: "
        f"rewindow record {name} --start-over",
    )


def check_recorded_settings(config: Config, name: str, seals: Table) -> None:
    """Refuses a recorded stream whose settings in rewindow.toml are others by now; a published one
    has none there.

    Raises:
        InputError: names the first setting, both values, and how to get out.
    """
    if name in config.streams:
        check_fixed_settings(name, config.streams[name], stored_settings(seals))


def _shown(key: str, value: str) -> str:
    if key == "width_ms":
        return format_duration(int(value) * 1000)
    return format_time(int(value) * 1000) if key == "origin_ms" else value
