"""The rows of a gap report: missing windows, arrivals, rows or values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewindow.windows import WindowRange, format_time

EMPTY = "empty"
MISSING = "missing"
SILENT = "silent"
OPEN = "open"
COLUMNS = (
    "kind",
    "key",
    "first",
    "last",
    "from",
    "to",
    "count",
    "closed_by",
    "column",
    "seconds",
    "open_at",
    "id",
)
_BOUNDS = {(False, False): "", (True, False): "begin", (False, True): "end", (True, True): "both"}


@dataclass(frozen=True)
class Gap:
    """One row of a gap report.

    Attributes:
        kind: empty, missing or silent; in event time the kinds of `operators.gaps` except lull.
        windows: the windows of the gap; for a silent stretch, up to the window of the next tuple.
            None in event time.
        from_us, to_us: the period of the gap; a silent stretch is bounded by arrivals, missing
            windows or the range's end.
        count: number of windows; or of intervals without a tuple, `ceil((length - slack) /
            interval) - 1`; or of missing rows or values.
        key: the key's values, of a silent stretch and in event time.
        closed_by: the tuple that ended it; "open" if missing windows or the range's end did.
        column: the column whose values are null.
        open_left, open_right: in event time, whether it touches that bound of the range.
        since_us: its start, which may be before the range; its id is computed from it.
        open_us: how much of its period rows were expected in; None for all of it.
    """

    kind: str
    windows: WindowRange | None
    from_us: int
    to_us: int
    count: int
    key: Mapping[str, Any] = field(default_factory=dict)
    closed_by: str = ""
    column: str = ""
    open_left: bool = False
    open_right: bool = False
    since_us: int | None = None
    open_us: int | None = None

    @property
    def length_us(self) -> int:
        """The length of the gap in microseconds, without closed hours.

        Rules: G8
        """
        return self.to_us - self.from_us if self.open_us is None else self.open_us

    @property
    def keys(self) -> str:
        """The key as text."""
        return key_text(self.key)

    @property
    def gap_id(self) -> str:
        """The id of a gap in event time.

        It does not depend on how a range is divided, and is the same as in `operators.gap_report`.

        Rules: G9, G16
        """
        if self.since_us is None:
            return ""
        values = ["\\N" if value is None else str(value) for value in self.key.values()]
        text = "|".join(["event", self.column, *values, str(self.since_us)])
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16]

    def row(self) -> dict[str, Any]:
        """Returns the gap as plain values for output.

        Window ids are numbers.

        Rules: W14
        """
        times = format_time(self.from_us), format_time(self.to_us)
        first, last = (self.windows.first, self.windows.last) if self.windows else (None, None)
        values = (
            self.kind,
            self.keys,
            first,
            last,
            *times,
            self.count,
            self.closed_by,
            self.column,
            self.length_us / 1_000_000,
            _BOUNDS[self.open_left, self.open_right],
            self.gap_id,
        )
        return dict(zip(COLUMNS, values, strict=True))


def key_text(key: Mapping[str, Any]) -> str:
    """Returns a key as text. A null differs from every value.

    >>> key_text({"station": "KSFO", "sensor": None})
    'station=KSFO, sensor is null'
    """
    parts = []
    for name, value in key.items():
        parts.append(f"{name} is null" if value is None else f"{name}={value}")
    return ", ".join(parts)


def with_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces empty values in a row by null, for output to programs. CSV cannot distinguish null
    from an empty text.

    >>> with_nulls({"key": "", "count": 0})
    {'key': None, 'count': 0}
    """
    return {name: None if value == "" else value for name, value in row.items()}
