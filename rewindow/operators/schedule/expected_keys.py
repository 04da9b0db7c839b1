"""Keys that must appear in a stream.

Rules: G7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rewindow.sequences import numbered_names
from rewindow.spark.columns import named_columns
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def expected_rows(
    frame: DataFrame,
    keys: Sequence[str],
    expected_keys: Sequence[Sequence[Any]],
) -> DataFrame:
    """Returns one row per expected key, with the names and types of the frame's key columns.

    Values are converted through text, as settings files have them: 1, 1.0 and "1" are the same key
    of a column of doubles. The query fails if a value cannot be converted to the column's type.
    """
    names = numbered_names(keys, "_rw_expected_")
    texts = sorted({tuple(map(_text, key)) for key in expected_keys})
    schema = " STRING, ".join(names.values()) + " STRING"
    rows = frame.sparkSession.createDataFrame(texts, schema)
    columns = []
    for key, name in names.items():
        kind = frame.schema[key].dataType
        wrong = F.concat(
            F.lit(f'value of expected key "{key}" must be {kind.simpleString()}, not '),
            F.col(name),
        )
        value = F.coalesce(F.col(name).try_cast(kind), F.raise_error(wrong).cast(kind))
        columns.append(value.alias(key))
    return rows.select(*columns).distinct()


def never_there(
    rows: DataFrame,
    keys: Sequence[str],
    expected_keys: Sequence[Sequence[Any]],
) -> DataFrame | None:
    """Returns the expected keys that have no row; None if no keys are expected."""
    if not expected_keys:
        return None
    expected = expected_rows(rows, keys, expected_keys)
    return expected.join(rows.select(*named_columns(keys)), list(keys), "left_anti")


def _text(value: object) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)  # type: ignore[call-overload]
