"""The event columns that a stream will have, as its settings and its source tell before it is
recorded; no JVM.
"""

from __future__ import annotations

import re

import pyarrow as pa

from rewindow.errors import RewindowError
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage.fields import fields_without, plain_type, retyped

UNKNOWN = pa.null()
"""The type of a column that only the recording can tell, such as that of an expression."""
_COLUMN = re.compile(
    r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*(\w+)\s*(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?\s*(?:NOT\s+NULL\s*)?",
    re.IGNORECASE,
)


def expected_columns(config: Config, name: str) -> pa.Schema | None:
    """Returns the event columns of a stream of the settings, `UNKNOWN` where the type cannot be
    told.

    None where nothing can be told: the source is not there yet, say, or `columns` has more than
    plain types.
    """
    stream = config.stream(name)
    declared = _declared(stream.columns)
    if stream.columns is not None and declared is None:
        return None
    try:
        source = open_source(name, stream, config.root, streams=config.state / "streams")
        found = source.scan(
            SourcePosition(),
            declared.names if declared is not None else None,
            None,
        )
    except (RewindowError, OSError):
        return None
    read = declared if declared is not None else found.schema
    kept = fields_without(read, _replaced(stream))
    if stream.keep is not None:
        kept = [field for field in kept if field.name in stream.keep]
    computed = [pa.field(column, UNKNOWN) for column in stream.select]
    return pa.schema(retyped(kept, _recorded_type) + computed)


def _replaced(stream: StreamConfig) -> set[str]:
    """Returns the columns of the source that are none of the stream's: the arrival, and those that
    are computed.
    """
    return {"arrived_at", *stream.select}


def _recorded_type(kind: pa.DataType) -> pa.DataType:
    """Returns how a type is recorded: every timestamp is an instant."""
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind


def _declared(columns: str | None) -> pa.Schema | None:
    """Returns declared columns of plain types; None without any, or where one is not plain.

    >>> _declared("k STRING, n DECIMAL(10, 2), `a b` int").names
    ['k', 'n', 'a b']
    >>> _declared("k ARRAY<STRING>") is None
    True
    """
    fields = []
    text = columns or ""
    for part in re.split(r",(?![^(]*\))", text) if text.strip() else []:
        match = _COLUMN.fullmatch(part)
        kind = match and plain_type(match[3].lower(), match[4])
        if match is None or kind is None:
            return None
        fields.append(pa.field(match[1] or match[2], kind))
    return pa.schema(fields) if fields else None
