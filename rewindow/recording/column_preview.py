"""Predicts the event columns of a stream from its settings and its source, before it is recorded.
Starts no JVM.
"""

from __future__ import annotations

import re

import pyarrow as pa

from rewindow.errors import RewindowError
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage.fields import fields_without, plain_type, retyped

UNKNOWN = pa.null()
"""Type of a column that is known only after the recording, such as that of an expression."""
_COLUMN = re.compile(
    r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*(\w+)\s*(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?\s*(?:NOT\s+NULL\s*)?",
    re.IGNORECASE,
)


def expected_columns(config: Config, name: str) -> pa.Schema | None:
    """Returns the predicted event columns of a stream in the settings.

    A column has the type `UNKNOWN` if its type cannot be predicted. Returns None if nothing can be
    predicted, for example because the source does not exist yet or `columns` contains types that
    are not plain.
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
    """Returns the source columns that the stream replaces: the arrival and the computed columns."""
    return {"arrived_at", *stream.select}


def _recorded_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type with which a column is recorded. Timestamps become instants."""
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind


def _declared(columns: str | None) -> pa.Schema | None:
    """Returns the declared columns if all have plain types; None otherwise or if none are declared.

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
