"""The undo horizon: how long a publication can be undone, given the retention of published tables.

Starts no JVM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rewindow.names import files_name, stream_of
from rewindow.settings.config import Config
from rewindow.storage import Table

LOG = "delta.logRetentionDuration"
FILES = "delta.deletedFileRetentionDuration"
_DEFAULT_DAYS = {LOG: 30.0, FILES: 7.0}
_DAYS = {
    "week": 7.0,
    "day": 1.0,
    "hour": 1 / 24,
    "minute": 1 / 1440,
    "second": 1 / 86400,
}


@dataclass(frozen=True)
class UndoHorizon:
    """How long an application's publications can be undone.

    Attributes:
        days: guaranteed number of days, the minimum over its published tables.
        wanted_days: number of days in the settings.
        short: tables with a shorter retention than wanted, with their days; empty if there are
            none.
    """

    days: float
    wanted_days: int
    short: dict[str, float]

    def __str__(self) -> str:
        text = f"a publication can be undone for {self.days:g} days"
        if self.short:
            kept = ", ".join(f"{name} {days:g}" for name, days in self.short.items())
            text += f" (the setting is {self.wanted_days}; these tables retain fewer days: {kept})"
        return text


def undo_horizon(config: Config, application: str) -> UndoHorizon:
    """Returns how long the publications of an application can be undone.

    Before its first publication, this is the value in the settings, with which its tables will be
    created. Tables of data files are ignored, because no undo changes them.
    """
    folder = config.state / "streams"
    wanted = config.publication.undo_days
    found = {}
    for path in folder.entries(f"{application}.*"):
        if Table.exists(path) and path.name != files_name(stream_of(path.name)):
            found[path.name] = retention_days(Table.open(path))
    short = {name: days for name, days in found.items() if days < wanted}
    return UndoHorizon(min(found.values(), default=float(wanted)), wanted, short)


def retention(config: Config) -> dict[str, str]:
    """Returns the table properties that guarantee the undo horizon."""
    return dict.fromkeys((LOG, FILES), f"interval {config.publication.undo_days} days")


def retention_days(table: Table) -> float:
    """Returns the number of days for which a table retains both its log and its removed files."""
    properties = table.properties
    return min(_days(properties.get(name), default) for name, default in _DEFAULT_DAYS.items())


def log_days(table: Table) -> float:
    """Returns the number of days for which a table retains the commits of its log."""
    return _days(table.properties.get(LOG), _DEFAULT_DAYS[LOG])


def _days(text: str | None, default: float) -> float:
    """Returns an interval in days; the default if it is missing or cannot be parsed.

    >>> _days("interval 2 weeks", 7.0), _days(None, 7.0)
    (14.0, 7.0)
    """
    parts = re.findall(r"([0-9.]+)\s*(week|day|hour|minute|second)s?", text.lower()) if text else []
    return sum(float(amount) * _DAYS[unit] for amount, unit in parts) if parts else default
