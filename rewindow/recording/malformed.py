"""Too many malformed rows: a setting is wrong, not a row, so the recording stops before it seals anything."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.config import StreamConfig
from rewindow.errors import InputError
from rewindow.location import Location
from rewindow.recording.arrivals import Arrivals
from rewindow.recording.sources.source import FILE, ROW, SourceFile
from rewindow.recording.tuples import PAYLOAD, REASON

MALFORMED_MIN = 10
"""Fewer malformed rows than this never stop a recording: a share of a few rows says nothing."""
_REASONS, _PAYLOAD_LENGTH = 3, 120


def too_many(arrivals: Arrivals, stream: StreamConfig) -> bool:
    """Returns whether more rows are malformed than the stream's settings allow."""
    limit = max(stream.malformed_max_share * arrivals.rows, MALFORMED_MIN - 1)
    return stream.malformed_max_share < 1 and arrivals.malformed > limit


def refused(
    name: str, stream: StreamConfig, arrivals: Arrivals, bad: DataFrame, files: Sequence[SourceFile], path: Location
) -> InputError:
    """Returns the error for a source with too many malformed rows: reasons, samples, and where all of them are.

    Args:
        name, stream: the stream and its settings.
        arrivals: how many rows there are.
        bad: the malformed rows, with reason, payload and position.
        files: the parts of the source.
        path: the table of quarantined tuples, which holds all of them.
    """
    share = arrivals.malformed / arrivals.rows
    return InputError(
        f'stream "{name}" has {arrivals.malformed:,} malformed rows of {arrivals.rows:,} ({share:.1%}),'
        f" malformed_max_share is {stream.malformed_max_share:.1%}",
        detail=f"Nothing was sealed. {_samples(bad, files)} All of them are in the table {path} until the next run.",
        hint=f"Look at them: rewindow streams quarantine {name}. Correct columns, null_values, encoding or arrived_at"
        " of the stream and record again; or raise malformed_max_share to go on without these rows.",
    )


def _samples(bad: DataFrame, files: Sequence[SourceFile]) -> str:
    """Returns the most frequent reasons, each with its number, its first row and its last one."""
    row = F.struct(FILE, ROW, F.substring(PAYLOAD, 1, _PAYLOAD_LENGTH).alias(PAYLOAD))
    numbers = F.count(F.lit(1)).alias("rows"), F.min(row).alias("first"), F.max(row).alias("last")
    words = []
    for reason, rows, *samples in bad.groupBy(REASON).agg(*numbers).orderBy(F.desc("rows"), REASON).head(_REASONS):
        shown = dict.fromkeys(f"{files[part].name}:{number} {payload}" for part, number, payload in samples)
        words.append(f"{reason.removeprefix('malformed: ')}: {rows:,} rows, such as {' and '.join(shown)}.")
    return " ".join(words)
