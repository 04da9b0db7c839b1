"""The undo horizon: for how long a publication can be taken back, by what published tables keep. No
JVM.
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
        days: what is certain; the least that any of its published tables keeps.
        wanted_days: what the settings ask for.
        short: tables that keep less than wanted, with their days; empty when all is well.
    """

    days: float
    wanted_days: int
    short: dict[str, float]

    def __str__(self) -> str:
        text = f"a publication can be undone for {self.days:g} days"
        if self.short:
            kept = ", ".join(f"{name} {days:g}" for name, days in self.short.items())
            text += f" (settings ask for {self.wanted_days}; tables that keep fewer: {kept})"
        return text


def undo_horizon(config: Config, application: str) -> UndoHorizon:
    """Returns for how long publications of an application can be undone.

    Before its first publication that is what the settings ask for: its tables will be created so.
    What is noted of data files is never taken back, so that its history does not matter.
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
    """Returns the table properties that cover the undo horizon."""
    return dict.fromkeys((LOG, FILES), f"interval {config.publication.undo_days} days")


def retention_days(table: Table) -> float:
    """Returns for how many days a table keeps both its log and its removed files."""
    properties = table.properties
    return min(_days(properties.get(name), default) for name, default in _DEFAULT_DAYS.items())


def _days(text: str | None, default: float) -> float:
    """Returns an interval in days, the default where there is none or it cannot be read.

    >>> _days("interval 2 weeks", 7.0), _days(None, 7.0)
    (14.0, 7.0)
    """
    parts = re.findall(r"([0-9.]+)\s*(week|day|hour|minute|second)s?", text.lower()) if text else []
    return sum(float(amount) * _DAYS[unit] for amount, unit in parts) if parts else default
