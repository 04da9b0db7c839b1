"""Counts local times that do not exist in a zone, or exist twice, where Spark converts times
without a zone to instants. The recording reports these counts and which instant was chosen.

Spark chooses the first of two instants. It interprets a time that clocks skip with the offset
before the change. In UTC nothing is counted, at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from rewindow.recording.sources.arrow_types import ABSENT, CUT, LEFT_OUT, NOTES, TWICE

Notes = Mapping[str, Column]
"""By name in `NOTES`, the number of values of a row that were changed or chosen."""
_FIXED = ("UTC", "Etc/UTC", "Z")
_PUT_BACK = (30, 60, 120, 180)
"""Minutes by which zones move clocks back, except for unusual changes before 1950."""
_ZONED = r"([+-]\d\d?(:?\d\d)?(:\d\d)?|[A-Za-z])\s*$"


def notes_on_local(
    zone: str,
    local: Column,
    instant: Column,
    text: Column | None = None,
) -> Notes:
    """Returns two numbers for a local time, each 0 or 1: whether it does not exist, and whether it
    exists twice.

    Args:
        zone: the zone in which it was interpreted.
        local: the value without a zone.
        instant: the instant that it was converted to.
        text: the text that both come from; a text with a zone is never ambiguous.
    """
    if zone in _FIXED:
        return {}
    # Zones have no unusual changes outside these years, where a sum might overflow.
    is_local = instant.between(
        F.lit("1800-01-01 00:00:00Z").cast("timestamp"),
        F.lit("2200-01-01 00:00:00Z").cast("timestamp"),
    )
    is_twice = F.lit(False)
    for minutes in _PUT_BACK:
        later = F.timestamp_micros(F.unix_micros(instant) + F.lit(minutes * 60_000_000))
        is_twice |= later.cast("timestamp_ntz") == local
    found = {}
    for name, condition in (
        (ABSENT, instant.cast("timestamp_ntz") != local),
        (TWICE, is_twice),
    ):
        noted = is_local & condition
        found[name] = one_if(noted if text is None else noted & ~text.rlike(_ZONED))
    return found


def one_if(condition: Column) -> Column:
    """Returns 1 if a condition is true, 0 if it is false or null."""
    return F.when(condition, F.lit(1)).otherwise(F.lit(0))


def sum_notes(notes: Iterable[Notes]) -> dict[str, Column]:
    """Returns the sum of the notes of several values in a row."""
    found: dict[str, Column] = {}
    for each in notes:
        for name, count in each.items():
            found[name] = found[name] + count if name in found else count
    return found


def note_words(counts: Mapping[str, int], zone: str) -> list[str]:
    """Returns the lines of a recording's report about values that were changed or chosen.

    Args:
        counts: number of values, by name in `NOTES`.
        zone: zone of the stream.
    """
    words = {
        CUT: "timestamps are more precise than microseconds and were truncated",
        ABSENT: f"local times do not exist in {zone}, because clocks move forward: Spark uses the "
        "offset before the change, so 02:30 becomes 03:30",
        TWICE: f"local times are ambiguous in {zone}, because clocks move back: Spark uses the "
        "earlier of the two instants",
        LEFT_OUT: "values were left out: their fields are in a nested column of the source, but "
        "not in the recorded column",
    }
    return [f"{counts[name]:,} {words[name]}" for name in NOTES if counts.get(name)]
