"""Keys that must appear (G7)."""

from __future__ import annotations

from itertools import chain
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
    # Expected keys that are all text, as settings files have them, are cast to the types of the
    # rows' keys; others have these types already.
    texts = chain.from_iterable(settings.expected_keys)
    is_text = all(isinstance(value, str) for value in texts)
    given = StructType()
    values = []
    for key in settings.keys:
        kind = rows.schema[key].dataType
        given = given.add(StructField(key, StringType() if is_text else kind))
        values.append(F.col(quoted_column(key)).cast(kind).alias(key))
    keys = sorted(set(settings.expected_keys))
    expected = rows.sparkSession.createDataFrame(keys, given).select(*values)
    return expected.join(
        rows.select(*map(quoted_column, settings.keys)),
        list(settings.keys),
        "left_anti",
    )
