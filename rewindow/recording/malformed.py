"""Stops a recording with too many malformed rows before it seals anything, because the cause is
probably a wrong setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.errors import InputError
from rewindow.location import Location
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.sources.source import FILE, ROW, SourceFile
from rewindow.recording.tuples import PAYLOAD, REASON
from rewindow.settings.config import StreamConfig

MALFORMED_MIN = 10
"""Fewer malformed rows than this never stop a recording: a share of only a few rows is not
meaningful.
"""
_REASONS = 5
_SAMPLE_LENGTH = 100
_COLUMN = re.compile(r"column (.+) is not ")


def too_many(arrivals: ArrivalCounts, stream: StreamConfig) -> bool:
    """Returns whether more rows are malformed than the stream's settings allow."""
    limit = max(stream.malformed_max_share * arrivals.rows, MALFORMED_MIN - 1)
    return stream.malformed_max_share < 1 and arrivals.malformed > limit


def refused(
    name: str,
    stream: StreamConfig,
    arrivals: ArrivalCounts,
    bad: DataFrame,
    files: Sequence[SourceFile],
    path: Location,
) -> InputError:
    """Returns the error for a source with too many malformed rows.

    It has the reasons, samples, and the table with all malformed rows.

    Args:
        name, stream: the stream and its settings.
        arrivals: counts of the rows.
        bad: the malformed rows, with reason, payload and position.
        files: the parts of the source.
        path: the quarantine table, which contains all malformed rows.
    """
    share = arrivals.malformed / arrivals.rows
    return InputError(
        f'stream "{name}" has too many malformed rows: {arrivals.malformed:,} of '
        f"{arrivals.rows:,} ({share:.1%}), but malformed_max_share is "
        f"{stream.malformed_max_share:.1%}",
        detail=f"No window was sealed. Number of rows by reason:{_reasons(bad, files)}",
        hint=f"List the rows, which are in the table {path} until the next run: rewindow streams "
        f"quarantine {name}. Then correct columns, null_values, encoding or arrived_at of the "
        "stream and record it again. For times in another format, declare the column as STRING "
        "and use try_to_timestamp(column, pattern) in arrived_at or select. To record without "
        "these rows, increase malformed_max_share.",
    )


def _reasons(bad: DataFrame, files: Sequence[SourceFile]) -> str:
    """Returns the most frequent reasons, one per line, with the number of rows and the first and
    last row.
    """
    row = F.struct(FILE, ROW, PAYLOAD)
    numbers = F.count(F.lit(1)).alias("rows"), F.min(row).alias("first"), F.max(row).alias("last")
    found = bad.groupBy(REASON).agg(*numbers).orderBy(F.desc("rows"), REASON).head(_REASONS + 1)
    lines = []
    for reason, rows, *samples in found[:_REASONS]:
        words = reason.removeprefix("malformed: ")
        shown = dict.fromkeys(
            f"{sample_of(words, text)} in {files[part].name}:{row}" for part, row, text in samples
        )
        lines.append(f"{rows:,}: {words}, such as {' and '.join(shown)}")
    lines += ["others"] if len(found) > _REASONS else []
    return "".join(f"\n    {line}" for line in lines)


def problem_of(reason: str, payload: str) -> str:
    """Returns a reason with the value of the column that it names.

    >>> problem_of("malformed: column t is not double", '{"t": "n/a"}')
    "t: 'n/a' is not a DOUBLE"
    >>> problem_of("late", "{}")
    'late'
    """
    found = _COLUMN.search(reason)
    if found is None:
        return reason
    sample = sample_of(reason[found.start() :], payload)
    value = f"'{sample[1:-1]}'" if sample[:1] == sample[-1:] == '"' else sample
    kind = reason[found.end() :].upper()
    return f"{found[1]}: {value} is not {'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"


def sample_of(reason: str, payload: str) -> str:
    """Returns a sample of a malformed row for a message: the value of the column that the reason
    names, otherwise the whole row.

    >>> sample_of("column at is not timestamp", '{"id": "7", "at": "noon"}')
    '"noon"'
    """
    found = _COLUMN.match(reason)
    try:
        value = json.loads(payload)[found[1]] if found else None
    except (ValueError, KeyError, TypeError):
        value = None
    text = payload if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SAMPLE_LENGTH else f"{text[:_SAMPLE_LENGTH]}..."
