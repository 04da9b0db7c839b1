"""Keys that must appear (G7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.filling.settings import FillRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def never_there(rows: DataFrame, settings: FillRules) -> DataFrame | None:
    """Returns the expected keys without a row in the range; None where none is expected."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    if not settings.expected_keys:
        return None
    kinds = [rows.schema[key].dataType for key in settings.keys]
    is_text = all(isinstance(value, str) for key in settings.expected_keys for value in key)
    given = [
        StructField(key, StringType() if is_text else kind)
        for key, kind in zip(settings.keys, kinds, strict=True)
    ]
    expected = rows.sparkSession.createDataFrame(
        sorted(set(settings.expected_keys)),
        StructType(given),
    )
    as_kept = zip(settings.keys, kinds, strict=True)
    expected = expected.select(
        *(F.col(quoted_column(key)).cast(kind).alias(key) for key, kind in as_kept)
    )
    return expected.join(
        rows.select(*map(quoted_column, settings.keys)),
        list(settings.keys),
        "left_anti",
    )
